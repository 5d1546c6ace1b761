package awscheck

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`
Parameters: {Bucket: {Type: String}}
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    DeletionPolicy: Retain
    Properties: {Name: !Sub "x-${Bucket}", Size: 3, Part: 0.5, On: true, Empty: {}}
  # one
  Role:
    Type: AWS::IAM::Role
    DependsOn: Table
    Properties:
      Arn: !GetAtt Table.Arn
      Long: {"Fn::GetAtt": [Table, Arn]}
      Maybe: !If
        - C
        - [!Ref Bucket]
        - !Ref AWS::NoValue
      Code: |
        one
        two
`))
	if err != nil {
		t.Fatal(err)
	}
	table, role := got.Resources["Table"], got.Resources["Role"]
	if table.Type != "AWS::DynamoDB::Table" || table.Fate != "Retain" || !reflect.DeepEqual(role.DependsOn, []string{"Table"}) || got.Parameters["Bucket"]["Type"] != "String" {
		t.Errorf("%+v %+v", table, role)
	}
	arn := map[string]any{"Fn::GetAtt": []any{"Table", "Arn"}}
	for name, want := range map[string]map[string]any{
		"Table": {"Name": map[string]any{"Fn::Sub": "x-${Bucket}"}, "Size": int64(3), "Part": 0.5, "On": true, "Empty": map[string]any{}},
		"Role": {"Arn": arn, "Long": arn, "Code": "one\ntwo\n",
			"Maybe": map[string]any{"Fn::If": []any{"C", []any{map[string]any{"Ref": "Bucket"}}, map[string]any{"Ref": "AWS::NoValue"}}}},
	} {
		if !reflect.DeepEqual(got.Resources[name].Properties, want) {
			t.Errorf("%s: %#v, want %#v", name, got.Resources[name].Properties, want)
		}
	}
	for text, want := range map[string]string{
		"Resources: [":                       "",
		"- a":                                "no object",
		"Resources: {}":                      "no resources",
		"Resources: {A: {Type: X, Type: Y}}": "",
		"Resources: {A: {Type: X, P: &a 1, Q: *a}}": "",
		"": "",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A template whose parts do not fit together is not silently half looked at.
func TestCheckOfWhatIsMissing(t *testing.T) {
	parsed, err := Parse([]byte(`Resources:
  Acl: {Type: AWS::WAFv2::WebACL}
  Plan: {Type: AWS::ApiGateway::UsagePlan}
  Alarm: {Type: AWS::CloudWatch::Alarm}
  Role: {Type: AWS::IAM::Role, Properties: {Policies: [{PolicyDocument: {Statement: [{}]}}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range Check(parsed) {
		seen[f.Resource] = true
	}
	for _, id := range []string{"Acl", "Plan", "Alarm", "Role"} {
		if !seen[id] {
			t.Errorf("nothing is found in %s", id)
		}
	}
}

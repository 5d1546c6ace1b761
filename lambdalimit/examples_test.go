package lambdalimit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weirlabs/weir/policy"
)

// template is a CloudFormation template. References are read as the names that
// they refer to: !GetAtt Limits.Arn is "Limits.Arn".
type template struct {
	Parameters map[string]struct {
		Default       any      `yaml:"Default"`
		AllowedValues []string `yaml:"AllowedValues"`
	} `yaml:"Parameters"`
	Resources map[string]struct {
		Type       string         `yaml:"Type"`
		DependsOn  string         `yaml:"DependsOn"`
		Properties map[string]any `yaml:"Properties"`
	} `yaml:"Resources"`
}

func readTemplate(t *testing.T, example string) (tpl template) {
	t.Helper()
	path := filepath.Join("..", "examples", example, "template.yaml")
	if example == "little-stage-lambda" { // which is generated
		path = filepath.Join("..", "examples", example, "aws", "template.yaml")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &tpl); err != nil {
		t.Fatal(err)
	}
	return tpl
}

// A11: the table, the function and its rights, and nothing more than it uses.
func TestSpec_A11_TheTemplatesGrantWhatTheFunctionsUse(t *testing.T) {
	for _, example := range []string{"little-stage-lambda", "appsync-quotas"} {
		t.Run(example, func(t *testing.T) {
			tpl := readTemplate(t, example)
			table, function := tpl.Resources["Limits"], tpl.Resources["Function"]
			if table.Type != "AWS::DynamoDB::Table" {
				t.Errorf("table %+v", table)
			}
			for name, want := range map[string]any{
				"BillingMode":             "PAY_PER_REQUEST",
				"AttributeDefinitions":    []any{map[string]any{"AttributeName": "pk", "AttributeType": "S"}},
				"KeySchema":               []any{map[string]any{"AttributeName": "pk", "KeyType": "HASH"}},
				"TimeToLiveSpecification": map[string]any{"AttributeName": "expiresAt", "Enabled": true},
			} {
				if got := table.Properties[name]; !reflect.DeepEqual(got, want) {
					t.Errorf("%s of the table is %v, want %v", name, got, want)
				}
			}
			environment, _ := function.Properties["Environment"].(map[string]any)
			variables, _ := environment["Variables"].(map[string]any)
			architecture := tpl.Parameters["Architecture"]
			if function.Type != "AWS::Lambda::Function" || function.Properties["Runtime"] != "provided.al2023" || function.Properties["Handler"] != "bootstrap" ||
				fmt.Sprint(function.Properties["Architectures"]) != "[Architecture]" || variables["BUCKET_TABLE"] != "Limits" ||
				architecture.Default != "arm64" || !slices.Equal(architecture.AllowedValues, []string{"arm64", "x86_64"}) {
				t.Errorf("function %+v, architecture %+v", function, architecture)
			}
			var granted []string
			for _, s := range statements(t, tpl) {
				for _, action := range s.Action {
					granted = append(granted, action+" on "+s.Resource)
				}
			}
			slices.Sort(granted)
			want := []string{"dynamodb:GetItem on Limits.Arn", "dynamodb:UpdateItem on Limits.Arn", "logs:CreateLogStream on Logs.Arn", "logs:PutLogEvents on Logs.Arn"}
			if example == "appsync-quotas" {
				want = slices.Insert(want, 2, "lambda:InvokeFunction on Function.Arn")
			}
			if !slices.Equal(granted, want) {
				t.Errorf("granted %q, want %q", granted, want)
			}
		})
	}
}

type grant struct {
	Effect   string
	Action   []string
	Resource string
}

// statements are those of all roles' policies.
func statements(t *testing.T, tpl template) (all []grant) {
	t.Helper()
	for name, r := range tpl.Resources {
		if r.Type != "AWS::IAM::Role" {
			continue
		}
		text, err := json.Marshal(r.Properties["Policies"])
		if err != nil {
			t.Fatal(err)
		}
		// One action may stand without its list.
		text = regexp.MustCompile(`"Action":("[^"]*")`).ReplaceAll(text, []byte(`"Action":[$1]`))
		var policies []struct{ PolicyDocument struct{ Statement []grant } }
		if err := json.Unmarshal(text, &policies); err != nil || len(policies) == 0 {
			t.Fatalf("%s: %s: %v", name, text, err)
		}
		for _, p := range policies {
			all = append(all, p.PolicyDocument.Statement...)
		}
	}
	return all
}

// Every field has the resolver of resolver.js, and every operation of the policy
// is a field.
func TestEveryFieldOfTheGraphQLExampleHasItsResolver(t *testing.T) {
	tpl := readTemplate(t, "appsync-quotas")
	schema, _ := tpl.Resources["Schema"].Properties["Definition"].(string)
	fields := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?s)type (Query|Mutation) \{(.*?)\}`).FindAllStringSubmatch(schema, -1) {
		for _, f := range regexp.MustCompile(`(?m)^ *(\w+)`).FindAllStringSubmatch(m[2], -1) {
			fields[m[1]+"/"+f[1]] = true
		}
	}
	if len(fields) != 4 {
		t.Fatalf("fields %v of the schema\n%s", fields, schema)
	}
	resolved := map[string]bool{}
	for name, r := range tpl.Resources {
		if r.Type != "AWS::AppSync::Resolver" {
			continue
		}
		p := r.Properties
		resolved[fmt.Sprintf("%v/%v", p["TypeName"], p["FieldName"])] = true
		if r.DependsOn != "Schema" || p["ApiId"] != "Api.ApiId" || p["DataSourceName"] != "Source.Name" || p["CodeS3Location"] != "s3://${CodeBucket}/${ResolverKey}" ||
			fmt.Sprint(p["Runtime"]) != "map[Name:APPSYNC_JS RuntimeVersion:1.0.0]" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if !reflect.DeepEqual(resolved, fields) {
		t.Errorf("resolvers of %v, fields %v", resolved, fields)
	}
	p, err := policy.Load(os.DirFS("../examples/appsync-quotas"), "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Rules() {
		for _, pattern := range r.Patterns {
			if field := strings.TrimPrefix(pattern, "POST /"); !fields[field] {
				t.Errorf("%s is limited and is no field", pattern)
			}
		}
	}
	if p.PlansClaim() != "cognito:groups" {
		t.Errorf("plans come from %q, groups of the user pool from cognito:groups", p.PlansClaim())
	}
}

// utils stands for the module that AppSync's own runtime has: util.error ends the
// resolver with a GraphQL error, and does nothing with what is no text.
const utils = `
export const util = { error(message, errorType, data, errorInfo) {
  if (typeof message !== 'string' || typeof errorType !== 'string') return
  throw { graphQL: { message, errorType, data: data ?? null, errorInfo: errorInfo ?? null } }
} }
`

const runResolver = `
import { request, response } from './resolver.mjs'
let text = ''
for await (const part of process.stdin) text += part
const answers = JSON.parse(text).map(ctx => {
  if (request(ctx).operation !== 'Invoke' || request(ctx).payload !== ctx) throw new Error('the request is not the context')
  try { return { data: response(ctx) } } catch (e) { if (!e.graphQL) throw e; return e.graphQL }
})
console.log(JSON.stringify(answers))
`

// What the function returns becomes, through resolver.js, what a client sees.
func TestSpec_B07_AClientSeesTheRefusalThroughTheResolver(t *testing.T) {
	dir := t.TempDir()
	resolver, err := os.ReadFile("../examples/appsync-quotas/resolver.js")
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(dir, "node_modules", "@aws-appsync", "utils")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(dir, "resolver.mjs"): string(resolver), filepath.Join(dir, "run.mjs"): runResolver,
		filepath.Join(module, "index.mjs"): utils, filepath.Join(module, "package.json"): `{"main": "index.mjs"}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	e := newEngine(t, strings.Replace(onSuccess, "quota 2/h", "quota 1/h", 1))
	f := Wrap(func(_ context.Context, in struct{ Info struct{ FieldName string } }) (any, error) {
		if in.Info.FieldName == "broken" {
			return &Result{ErrorMessage: "no room", ErrorInfo: 7}, nil // without a type
		}
		return in.Info.FieldName, nil
	}, e, Options{})
	var contexts []map[string]any
	for _, field := range []string{"broken", "first", "second"} {
		out, err := f(context.Background(), json.RawMessage(fieldEvent(field, "a")))
		contexts = append(contexts, map[string]any{"result": json.RawMessage(jsonOf(t, out, err))})
	}
	contexts = append(contexts, map[string]any{"error": map[string]any{"message": "out of time", "type": "Lambda:Unhandled"}})
	input, err := json.Marshal(contexts)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("node", filepath.Join(dir, "run.mjs"))
	run.Stdin = strings.NewReader(string(input))
	out, err := run.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	want := `[{"message":"no room","errorType":"Error","data":null,"errorInfo":7},{"data":"first"},` +
		`{"message":"Your plan allows 1 thing per hour. Try again in 3600 seconds.","errorType":"LimitExceeded","data":null,` +
		`"errorInfo":{"operation":"things","limit":1,"used":1,"resetsAt":"2026-11-30T13:00:00Z","retryAfterSeconds":3600}},` +
		`{"message":"out of time","errorType":"Lambda:Unhandled","data":null,"errorInfo":null}]`
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

package generate

import (
	_ "embed"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// resolverCode turns the function's refusals into errors of GraphQL.
//
//go:embed resolver.js
var resolverCode string

// appSync adds a GraphQL API with a resolver for every operation.
func (b *builder) appSync(function string) string {
	s := b.stack
	schema := s.parameter(parameter{name: "SchemaUrl", kind: "String", about: "The schema, as s3://BUCKET/schema.graphql"})
	auth := object{{"AuthenticationType", "OPENID_CONNECT"}}
	if b.policy.PlansClaim() == "cognito:groups" {
		pool := s.parameter(parameter{name: "UserPoolId", kind: "String", about: "Id of the Cognito user pool whose tokens name the caller"})
		auth = object{{"AuthenticationType", "AMAZON_COGNITO_USER_POOLS"},
			{"UserPoolConfig", object{{"UserPoolId", pool}, {"AwsRegion", ref("AWS::Region")}, {"DefaultAction", "ALLOW"}}}}
	} else {
		issuer := s.parameter(parameter{name: "JwtIssuer", kind: "String", about: "Issuer of the tokens, https://..."})
		auth = auth.with("OpenIDConnectConfig", object{{"Issuer", issuer}})
	}
	api := s.add(&resource{id: s.free("Api"), kind: "AWS::AppSync::GraphQLApi",
		about: []string{
			"AppSync has no usage plans: limits of partners are the application's. One request may ask for a field under many",
			"names, and each is a call of the function: hence the bound.",
		},
		props: append(append(object{{"Name", s.name}}, auth...), property{"ResolverCountLimit", int64(50)})}).id
	fields := s.add(&resource{id: s.free("Schema"), kind: "AWS::AppSync::GraphQLSchema",
		props: object{{"ApiId", attr{api, "ApiId"}}, {"DefinitionS3Location", schema}}}).id
	role := s.add(&resource{id: s.free("ApiRole"), kind: "AWS::IAM::Role", props: object{
		{"AssumeRolePolicyDocument", assume("appsync.amazonaws.com", object{{"StringEquals", object{{"aws:SourceAccount", ref("AWS::AccountId")}}}})},
		{"Policies", rolePolicy("invoke", allow([]string{"lambda:InvokeFunction"}, attr{function, "Arn"}))}}}).id
	source := s.add(&resource{id: s.free("Source"), kind: "AWS::AppSync::DataSource", props: object{
		{"ApiId", attr{api, "ApiId"}}, {"Name", "function"}, {"Type", "AWS_LAMBDA"}, {"ServiceRoleArn", attr{role, "Arn"}},
		{"LambdaConfig", object{{"LambdaFunctionArn", attr{function, "Arn"}}}}}}).id
	made := map[string]bool{}
	for _, r := range b.policy.Rules() {
		if r.Layer != policy.Application || r.Mode == policy.Off {
			continue
		}
		for _, pattern := range r.Patterns {
			name, ok := fieldOf(pattern)
			if !ok || made[name] {
				continue
			}
			made[name] = true
			parent, field, _ := strings.Cut(name, ".")
			s.add(&resource{id: s.free("Resolver", parent, field), kind: "AWS::AppSync::Resolver", after: []string{fields},
				about: []string{b.from(r.Line, r.Name)},
				props: object{{"ApiId", attr{api, "ApiId"}}, {"TypeName", parent}, {"FieldName", field}, {"Kind", "UNIT"},
					{"DataSourceName", attr{source, "Name"}}, {"Runtime", object{{"Name", "APPSYNC_JS"}, {"RuntimeVersion", "1.0.0"}}},
					{"Code", resolverCode}}})
		}
	}
	s.outputs = append(s.outputs, output{"Url", attr{api, "GraphQLUrl"}})
	return api
}

// fieldOf is the field of GraphQL that a pattern names: POST /Query/analyze is
// Query.analyze.
func fieldOf(pattern string) (string, bool) {
	path, ok := strings.CutPrefix(pattern, "POST /")
	parent, field, two := strings.Cut(path, "/")
	if !ok || !two || strings.ContainsAny(field, "/{") || parent != "Query" && parent != "Mutation" && parent != "Subscription" {
		return "", false
	}
	return parent + "." + field, true
}

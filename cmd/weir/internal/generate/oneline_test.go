package generate

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/weirlabs/weir/internal/awscheck"
	"github.com/weirlabs/weir/policy"
)

// Whatever stands in a value or in a command, the files hold it as one value, and
// nothing of it becomes a part of the file.
func TestSpec_C01_ValuesAreValues(t *testing.T) {
	p := loadText(t, overHTTP)
	for _, value := range []string{
		"-----BEGIN KEY-----\nab\"c\n-----END KEY-----\n", "b\nResources: {}", "\n", " a\n", "a\n\n", "a\r\nb\n", "tab\there\n", "\"\n", "${x} %{y}\n", "'", "\u2028\n", "a: b #c", "",
	} {
		o := Options{File: "a\nb.yaml", Command: "weir --env A=" + value, Open: []string{"GET /open"}, Environment: []Variable{{"SOME_KEY", value}}}
		out, err := CloudFormation(p, o)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := awscheck.Parse(out.Files[1].Text)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if got := parsed.Parameters["SomeKey"]["Default"]; got != value {
			t.Errorf("%q is %q in the template", value, got)
		}
		for _, f := range awscheck.Check(parsed) {
			t.Errorf("%q: %s", value, f)
		}
		out, err = Terraform(p, o)
		if err != nil {
			t.Fatal(err)
		}
		file, problems := hclsyntax.ParseConfig(out.Files[0].Text, "main.tf", hcl.InitialPos)
		if problems.HasErrors() {
			t.Errorf("%q: %v", value, problems)
			continue
		}
		for _, block := range file.Body.(*hclsyntax.Body).Blocks {
			if block.Type != "variable" || block.Labels[0] != "some_key" {
				continue
			}
			got, problems := block.Body.Attributes["default"].Expr.Value(nil)
			if problems.HasErrors() || got.AsString() != value {
				t.Errorf("%q is %#v in Terraform: %v", value, got, problems)
			}
		}
	}
}

// Of several plans on one line each is shown with its own limit.
func TestSpec_C01_PlansOnOneLine(t *testing.T) {
	p := loadText(t, "weir: 1\ngateway:\n  match: GET /partner/\n  plans: {large: 10/s burst 20, small: quota 10/day calendar}\n")
	out, err := CloudFormation(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# weir.yaml:4: large: 10/s burst 20\n", "# weir.yaml:4: small: quota 10/day calendar"} {
		if !strings.Contains(string(out.Files[1].Text), want) {
			t.Errorf("the template does not say %q", want)
		}
	}
}

// A template that looks for a path elsewhere is not read back as one that looks at
// the path.
func TestSpec_C02_FieldOfARuleIsRead(t *testing.T) {
	out, err := CloudFormation(loadText(t, drifting), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"UriPath: {}", "QueryString: {}", "Body: {}", "UriFragment: {}"} {
		template, err := awscheck.Parse([]byte(strings.Replace(string(out.Files[1].Text), "UriPath: {}", field, 1)))
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{prefix: "${PathPrefix}"}
		r.webACL(template.Of("AWS::WAFv2::WebACL")[0].Properties)
		seen := false
		for _, d := range r.strange {
			seen = seen || d.What == "path"
		}
		if seen != (field != "UriPath: {}") {
			t.Errorf("%s: %v", field, r.strange)
		}
	}
}

// A variable whose parameter would be another one's, or a resource, is refused.
func TestVariablesHaveParametersOfTheirOwn(t *testing.T) {
	t.Parallel()
	secret := "weir: 1\nname: x\nauth: {jwt: {hs256_secret_env: THE_SECRET}}\ncallers: {account: jwt.sub}\napplication: {limits: [{name: a, by: account, limit: 1/s}]}\n"
	for _, c := range []struct {
		policy string
		api    API
		names  []string
		want   string
	}{
		{overHTTP, HTTP, []string{"A_B", "AC"}, ""},
		{overHTTP, HTTP, []string{"VERSION", "SOURCE"}, ""},
		{overHTTP, HTTP, []string{"VERSION", "VERSION_VALUE"}, "the variable VERSION"},
		{overHTTP, HTTP, []string{"A_B", "AB"}, "the variable A_B"},
		{overHTTP, HTTP, []string{"AB", "A__B"}, "the variable AB"},
		{overHTTP, HTTP, []string{"ab", "AB"}, "the variable ab"},
		{overHTTP, HTTP, []string{"CODE_BUCKET"}, "CodeBucket"},
		{overHTTP, HTTP, []string{"code_bucket"}, "CodeBucket"},
		{overHTTP, HTTP, []string{"NAME"}, "a parameter"},
		{overHTTP, HTTP, []string{"JWT_ISSUER"}, "JwtIssuer"},
		{overHTTP, HTTP, []string{"LOG_KEY"}, "LogKey"},
		{overHTTP, HTTP, []string{"LIMITS"}, "a resource"},
		{overHTTP, HTTP, []string{"API"}, "a resource"},
		{overAppSync, AppSync, []string{"PATH_PREFIX"}, ""},
		{everything, REST, []string{"PATH_PREFIX"}, "PathPrefix"},
		{everything, REST, []string{"STAGE_NAME"}, "StageName"},
		{everything, REST, []string{"RESERVED_CONCURRENCY"}, "ReservedConcurrency"},
		{secret, HTTP, []string{"THE_SECRET"}, "leave it out"},
	} {
		p := everythingPolicy(t)
		if c.policy != everything {
			p = loadText(t, c.policy)
		}
		o := Options{API: c.api}
		for _, name := range c.names {
			o.Environment = append(o.Environment, Variable{name, "1"})
		}
		for _, write := range []func(*policy.Policy, Options) (Output, error){CloudFormation, Terraform} {
			switch _, err := write(p, o); {
			case c.want == "" && err != nil:
				t.Errorf("%v: %v", c.names, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v: %v, want %q", c.names, err, c.want)
			}
		}
	}
}

// An open route is a route of an HTTP API.
func TestOpenRoutesAreRoutes(t *testing.T) {
	t.Parallel()
	p := loadText(t, overHTTP)
	for pattern, want := range map[string]string{
		"GET /open": "", "/open": "", "POST  /open/{id}": "", "ANY /open/{rest...}": "", "/": "",
		"nonsense": "METHOD /PATH", "GET": "METHOD /PATH", "GET open": "METHOD /PATH", "": "METHOD /PATH", "GET example.com/open": "METHOD /PATH",
		"FETCH /open": "no method FETCH", "get /open": "no method get", "GET /a b": "in a path", "GET /a+b": "in a path",
	} {
		_, err := CloudFormation(p, Options{API: HTTP, Open: []string{pattern}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
	for _, api := range []API{REST, ""} {
		if _, err := Terraform(everythingPolicy(t), Options{API: api, Open: []string{"GET /open"}}); err == nil || !strings.Contains(err.Error(), "kind rest") {
			t.Errorf("%q: %v", api, err)
		}
	}
}

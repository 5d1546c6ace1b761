// Package generate writes a policy as infrastructure for AWS: the edge rules as a
// web ACL, the gateway's plans as usage plans, and for the application the table,
// a role that may do what a decision does and no more, the function, alarms and a
// dashboard.
//
// A policy is translated once, into the terms of the services ([EdgeRule],
// [UsagePlan]) and then into a list of resources; CloudFormation and Terraform are
// two ways to write that list. The same input gives the same bytes.
//
// A service that cannot do what the policy says is a [Gap]: an error that names
// what comes nearest, or with [Options.Approximate] a line at the head of the
// output that says in which direction it differs.
//
// [Drift] compares a policy with the settings that are live. It reads them by the
// same code that reads a template's properties back, so that a round trip tests
// both.
package generate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// API is the kind of API in front of the application.
type API string

// The kinds of API. A web ACL and usage plans need a REST API; AppSync takes a web
// ACL only.
const (
	REST    API = "rest"
	HTTP    API = "http"
	AppSync API = "appsync"
)

// Options are what the policy does not say.
type Options struct {
	// File is the policy's name in comments and commands: "weir.yaml" when empty.
	File string

	// Command is the command line that generates the same again, for the head of
	// the files. Empty: none is shown.
	Command string

	// API is what stands in front of the application. Empty: a REST API when
	// there are edge rules or gateway plans, AppSync when every route is one of
	// its fields, else an HTTP API.
	API API

	// Open are patterns of routes of an HTTP API that ask for no token, in the
	// form of match:.
	Open []string

	// Environment are variables of the function with their defaults, such as
	// those that a policy has been filled from.
	Environment []Variable

	// Approximate generates what comes nearest in place of what a service cannot
	// do. Without it that is an error.
	Approximate bool

	// LoseData lets the table be deleted with the stack.
	LoseData bool
}

// Variable is a variable of the function's environment, and a parameter of the
// stack.
type Variable struct{ Name, Value string }

// Output is what was generated: files by their names, and what AWS does otherwise
// than the policy says.
type Output struct {
	Files []File
	Gaps  Gaps
}

// File is one generated file.
type File struct {
	Name string
	Text []byte
}

// CloudFormation generates template.yaml, and serverless.yml, which deploys it
// with the Serverless Framework. The error is [Gaps], or says what is wrong with
// Options.Environment or Options.Open.
func CloudFormation(p *policy.Policy, o Options) (Output, error) {
	b, err := build(p, o)
	if err != nil {
		return Output{}, err
	}
	b.head("aws cloudformation deploy --stack-name "+b.stack.name+" --template-file template.yaml --capabilities CAPABILITY_IAM"+b.overrides(" --parameter-overrides", " %s=%s", strings.Clone),
		"aws cloudformation delete-stack --stack-name "+b.stack.name, "The table stays, with all balances. To lose them too:",
		"aws dynamodb update-table --table-name TABLE --no-deletion-protection-enabled && aws dynamodb delete-table --table-name TABLE")
	files := []File{{"serverless.yml", serverless(b.stack)}, {"template.yaml", cloudFormation(b.stack)}}
	return Output{files, b.gaps}, nil
}

// builder makes a stack of a policy.
type builder struct {
	policy   *policy.Policy
	options  Options
	stack    *stack
	gaps     Gaps
	notes    []string
	keyed    []route // the gateway's routes
	everyone []route // of limits that all callers share
	exempt   []exemptRoute
	mixed    []exemptRoute // those of exempt that a REST API cannot tell from others
	root     *place        // of a REST API

	deployment string
}

func build(p *policy.Policy, o Options) (*builder, error) {
	o.File = cmp.Or(o.File, "weir.yaml")
	b := &builder{policy: p, options: o, stack: &stack{name: cmp.Or(p.Name(), "weir")}, everyone: everyoneOf(p), exempt: exemptOf(p)}
	if b.options.API == "" {
		b.options.API = apiOf(p)
	}
	if err := b.opened(); err != nil {
		return nil, err
	}
	rules, gaps := edgeOf(p, b.options.API)
	b.gaps = gaps
	if b.options.API == HTTP {
		rules = b.edgeOfHTTP(rules)
	}
	plans := b.gateway()
	if b.options.API == REST {
		b.layout()
	}
	if len(b.gaps) > 0 && !o.Approximate {
		return nil, b.gaps
	}
	if j := p.Auth().JWT; j != nil && slices.ContainsFunc(o.Environment, func(v Variable) bool { return v.Name == j.SecretEnv }) {
		return nil, fmt.Errorf("the variable %s is the secret of the policy's tokens, which is a parameter already: leave it out", j.SecretEnv)
	}
	table := b.table()
	function := b.function(table)
	switch b.options.API {
	case REST:
		api, stage := b.restAPI(plans, function)
		b.webACL(rules, sub("arn:${AWS::Partition}:apigateway:${AWS::Region}::/restapis/${"+api+"}/stages/${"+stage+"}"))
	case HTTP:
		b.httpAPI(function)
	case AppSync:
		b.webACL(rules, attr{b.appSync(function), "Arn"})
	}
	b.watch(table, function, rules)
	return b, b.stack.clash()
}

// opened says which of Options.Open can be no open route.
func (b *builder) opened() error {
	for _, pattern := range b.options.Open {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = "ANY", pattern
		}
		switch {
		case b.options.API != HTTP:
			return fmt.Errorf("the open route %q: routes ask for tokens on an HTTP API only, and this one is of the kind %s", pattern, b.options.API)
		case !strings.HasPrefix(strings.TrimLeft(path, " \t"), "/"):
			return fmt.Errorf("the open route %q: write it as 'METHOD /PATH', such as 'POST /guest'", pattern)
		case !slices.Contains(restMethods, method):
			return fmt.Errorf("the open route %q: API Gateway knows no method %s", pattern, method)
		}
		if problem := routeOf(pattern).possible(); problem != "" {
			return fmt.Errorf("the open route %q: %s", pattern, problem)
		}
	}
	return nil
}

// apiOf chooses what the policy needs.
func apiOf(p *policy.Policy) API {
	fields := true
	for _, r := range p.Rules() {
		if r.Mode == policy.Off {
			continue
		}
		if r.Layer != policy.Application {
			return REST
		}
		fields = fields && len(r.Patterns) > 0
		for _, pattern := range r.Patterns {
			_, ok := fieldOf(pattern)
			fields = fields && ok
		}
	}
	if fields {
		return AppSync
	}
	return HTTP
}

// edgeOfHTTP says that an HTTP API has no web ACL.
func (b *builder) edgeOfHTTP(rules []EdgeRule) []EdgeRule {
	for _, e := range rules {
		b.gaps = append(b.gaps, gapOf(e.source, Looser, "leave it to each instance of the application", "an HTTP API cannot have a web ACL: it needs CloudFront in front of it, with a web ACL of scope CLOUDFRONT; or choose --api rest"))
	}
	return nil
}

// gateway is the gateway's plans, and sets the routes that need a key.
func (b *builder) gateway() []UsagePlan {
	plans, gaps := plansOf(b.policy)
	if len(plans) == 0 {
		b.gaps = append(b.gaps, gaps...)
		return nil
	}
	first := b.policy.Rules()[slices.IndexFunc(b.policy.Rules(), func(r *policy.Rule) bool { return r.Layer == policy.Gateway && r.Mode == policy.Enforce })]
	if b.options.API != REST {
		b.gaps = append(b.gaps, gapOf(first, Looser, "leave the plans to the application, by partner", "usage plans are for REST APIs; choose --api rest"))
		return nil
	}
	b.keyed, gaps = keyedOf(first, gaps)
	b.gaps = append(b.gaps, gaps...)
	if len(b.keyed) == 0 {
		return nil
	}
	return plans
}

func (b *builder) note(text string) { b.notes = append(b.notes, text) }

// from is the comment that says where in the policy a resource comes from.
func (b *builder) from(line int, name string) string {
	// Several may stand on one line.
	for _, mine := range []func(*policy.Rule) bool{
		func(r *policy.Rule) bool { return r.Name == name },
		func(r *policy.Rule) bool { return r.Layer == policy.Gateway && r.Plan == name },
		func(r *policy.Rule) bool { return true },
	} {
		for _, r := range b.policy.Rules() {
			if r.Line == line && mine(r) {
				return fmt.Sprintf("%s:%d: %s: %s", b.options.File, line, name, r.Limit)
			}
		}
	}
	return fmt.Sprintf("%s:%d: %s", b.options.File, line, name)
}

// overrides are the parameters that whoever deploys has to give.
func (b *builder) overrides(before, format string, name func(string) string) string {
	var out strings.Builder
	for _, p := range b.stack.parameters {
		if p.value == nil {
			if out.Len() == 0 {
				out.WriteString(before)
			}
			fmt.Fprintf(&out, format, name(p.name), "YOUR-"+strings.ToUpper(p.name))
		}
	}
	return out.String()
}

// head writes the head of the files; protected says what removing them leaves.
func (b *builder) head(deploy, remove string, protected ...string) {
	about := []string{generatedBy + " from " + b.options.File + ". Edit the policy, not this file."}
	if b.options.Command != "" {
		about = append(about, "", "Generate: "+b.options.Command)
	}
	about = append(about, "Build:    CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -tags lambda.norpc -trimpath -ldflags '-s -w' -o bootstrap .",
		"          zip function.zip bootstrap && aws s3 cp function.zip s3://YOUR-CODEBUCKET/YOUR-CODEKEY",
		"Deploy:   "+deploy)
	about = append(about, "Remove:   "+remove)
	if !b.options.LoseData {
		for _, line := range protected {
			about = append(about, "          "+line)
		}
	}
	if len(b.gaps) > 0 {
		about = append(about, "", "AWS differs from the policy here:")
		for _, g := range b.gaps {
			about = append(about, "- "+g.String())
		}
	}
	if len(b.notes) > 0 {
		about = append(about, "", "To know:")
		for _, n := range b.notes {
			about = append(about, "- "+n)
		}
	}
	b.stack.about = about
}

// generatedBy begins every generated file: a file without it is somebody's own.
const generatedBy = "Generated by weir"

// Written reports whether a file is one that weir has generated.
func Written(text []byte) bool { return bytes.HasPrefix(text, []byte("# "+generatedBy)) }

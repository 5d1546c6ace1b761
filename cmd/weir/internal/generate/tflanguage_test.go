package generate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// tfShape is what a block of the language itself may hold. Of what Terraform knows
// it has no more than the texts use.
type tfShape struct {
	labels     int
	attributes []string // those that it must have end in !
	blocks     map[string]tfShape
	provider   bool // the rest is for the provider to say
}

var tfFile = map[string]tfShape{
	"terraform": {blocks: map[string]tfShape{"required_providers": {attributes: []string{"aws!"}}}},
	"variable": {labels: 1, attributes: []string{"type!", "description", "default", "sensitive"},
		blocks: map[string]tfShape{"validation": {attributes: []string{"condition!", "error_message!"}}}},
	"output":   {labels: 1, attributes: []string{"value!", "description", "sensitive"}},
	"data":     {labels: 2, provider: true},
	"resource": {labels: 2, provider: true, blocks: map[string]tfShape{"lifecycle": {attributes: []string{"create_before_destroy", "prevent_destroy"}}}},
}

// tfFunctions are the functions that the texts call.
var tfFunctions = []string{"contains", "file", "jsonencode"}

// language checks what Terraform looks at before it asks a provider.
func (c *tfCheck) language(file *hclsyntax.Body) {
	c.shape("the file", tfShape{blocks: tfFile}, file)
	for _, b := range file.Blocks {
		for _, label := range b.Labels {
			if !hclsyntax.ValidIdentifier(label) {
				c.say("%q is no identifier", label)
			}
		}
		switch {
		case b.Type == "variable" && len(b.Labels) == 1:
			c.variable(b.Labels[0], b.Body)
		case b.Type == "terraform":
			for _, inner := range b.Body.Blocks {
				if a := inner.Body.Attributes["aws"]; a != nil {
					c.providerSource(a.Expr)
				}
			}
		}
	}
	hclsyntax.VisitAll(file, func(n hclsyntax.Node) hcl.Diagnostics {
		if f, ok := n.(*hclsyntax.FunctionCallExpr); ok && !slices.Contains(tfFunctions, f.Name) {
			c.say("no function %s is known", f.Name)
		}
		return nil
	})
	c.cycles()
	c.secrets(file)
}

// secrets finds outputs that would show what is sensitive.
func (c *tfCheck) secrets(file *hclsyntax.Body) {
	secret := map[string]bool{}
	for _, b := range file.Blocks {
		secret[addressOf(b)] = b.Type == "variable" && b.Body.Attributes["sensitive"] != nil
	}
	for _, b := range file.Blocks {
		for to := range c.refers[addressOf(b)] {
			if b.Type == "output" && secret[to] && b.Body.Attributes["sensitive"] == nil {
				c.say("%s shows %s, which is sensitive", addressOf(b), to)
			}
		}
	}
}

func (c *tfCheck) shape(what string, s tfShape, b *hclsyntax.Body) {
	for _, name := range s.attributes {
		if name, must := strings.CutSuffix(name, "!"); must && b.Attributes[name] == nil {
			c.say("%s has no %s", what, name)
		}
	}
	if !s.provider {
		for name := range b.Attributes {
			if !slices.Contains(s.attributes, name) && !slices.Contains(s.attributes, name+"!") {
				c.say("%s takes no argument %s", what, name)
			}
		}
	}
	for _, inner := range b.Blocks {
		of, ok := s.blocks[inner.Type]
		switch {
		case !ok && !s.provider:
			c.say("%s takes no block %s", what, inner.Type)
		case ok && len(inner.Labels) != of.labels:
			c.say("%s has %d labels, and takes %d", inner.Type, len(inner.Labels), of.labels)
		case ok:
			c.shape(inner.Type, of, inner.Body)
		}
	}
}

// variable checks the type of a variable, and that its default is a value of it.
func (c *tfCheck) variable(name string, b *hclsyntax.Body) {
	var of cty.Type
	if a := b.Attributes["type"]; a != nil {
		word := hcl.ExprAsKeyword(a.Expr)
		types := map[string]cty.Type{"string": cty.String, "number": cty.Number, "bool": cty.Bool}
		if _, ok := types[word]; !ok {
			c.say("the type of the variable %s is none", name)
			return
		}
		of = types[word]
	}
	if a := b.Attributes["default"]; a != nil && of != cty.NilType {
		value, problems := a.Expr.Value(nil) // without anything to refer to
		if problems.HasErrors() {
			c.say("the default of the variable %s refers to something", name)
		} else if _, err := convert.Convert(value, of); err != nil {
			c.say("the default of the variable %s is no %s", name, of.FriendlyName())
		}
	}
}

func (c *tfCheck) providerSource(e hclsyntax.Expression) {
	value, problems := e.Value(nil)
	if problems.HasErrors() || !value.Type().IsObjectType() {
		c.say("the provider is no object of constants")
		return
	}
	have := value.AsValueMap()
	if !slices.Equal(slices.Sorted(maps.Keys(have)), []string{"source", "version"}) || !have["source"].RawEquals(cty.StringVal("hashicorp/aws")) || !have["version"].RawEquals(cty.StringVal(">= 5.80")) {
		c.say("the provider is not hashicorp/aws from 5.80 on")
	}
}

// cycles finds what refers to itself, over others or not.
func (c *tfCheck) cycles() {
	const open, done = 1, 2
	state := map[string]int{}
	var visit func(at string)
	visit = func(at string) {
		state[at] = open
		for _, to := range slices.Sorted(maps.Keys(c.refers[at])) {
			switch state[to] {
			case open:
				c.say("%s refers to itself, by way of %s", to, at)
			case 0:
				visit(to)
			}
		}
		state[at] = done
	}
	for _, at := range slices.Sorted(maps.Keys(c.refers)) {
		if state[at] == 0 {
			visit(at)
		}
	}
}

// past checks the steps of a reference behind a resource or a variable, and answers
// the kind of what it refers to: "" where the list of names does not say it.
func (c *tfCheck) past(name string, p *provided, steps hcl.Traversal) (kind string) {
	path := ""
	for i, step := range steps {
		attribute, named := step.(hcl.TraverseAttr)
		switch {
		case i == 0 && named && slices.Contains(p.outputs, attribute.Name):
			if _, ok := p.arguments[attribute.Name]; !ok {
				if len(steps) > 1 {
					if _, index := steps[1].(hcl.TraverseIndex); !index || len(steps) > 2 {
						c.say("%s goes on behind an output", name)
					}
				}
				return ""
			}
			path, kind = attribute.Name, p.arguments[attribute.Name].kind
		case i == 0 && named:
			path, kind = attribute.Name, p.arguments[attribute.Name].kind
		case !named && (kind == "block" || kind == "blocks"):
			kind = "one"
		case !named && (kind == "list" || kind == "map"):
			kind = "string"
		case named && (kind == "one" || kind == "object"):
			path += "." + attribute.Name
			argument, ok := p.arguments[path]
			if !ok {
				c.say("%s: there is no %s", name, path)
				return ""
			}
			kind = argument.kind
		default:
			c.say("%s goes on behind a %s", name, kind)
			return ""
		}
	}
	return kind
}

// kindOf is the kind of what an expression refers to, or "".
func (c *tfCheck) kindOf(e *hclsyntax.ScopeTraversalExpr) string {
	root := e.Traversal.RootName()
	if root == "var" && len(e.Traversal) == 2 {
		if at, ok := e.Traversal[1].(hcl.TraverseAttr); ok {
			return c.types[at.Name]
		}
	}
	if p := c.provider[root]; p != nil && len(e.Traversal) > 2 {
		quiet := &tfCheck{} // it is said where the reference is looked at
		return quiet.past("", p, e.Traversal[2:])
	}
	return ""
}

// Mistakes in the language itself, in values and in references are found as well.
func TestTerraformLanguageMistakesAreFound(t *testing.T) {
	t.Parallel()
	p := readProvider(t)
	text := terraforms(t)["little-stage"]
	const table = "resource \"aws_dynamodb_table\" \"limits\" {\n"
	for _, c := range []struct{ name, old, new, want string }{
		{"an attribute of the file", "terraform {", "x = 1\nterraform {", "the file takes no argument x"},
		{"a block that the language lacks", `resource "aws_cloudwatch_dashboard"`, `resources "aws_cloudwatch_dashboard"`, "the file takes no block resources"},
		{"a label missing", `resource "aws_dynamodb_table" "limits"`, `resource "aws_dynamodb_table"`, "resource has 1 labels, and takes 2"},
		{"a name that is no identifier", `"aws_cloudwatch_dashboard" "dashboard"`, `"aws_cloudwatch_dashboard" "1 dash.board"`, `"1 dash.board" is no identifier`},
		{"a block of terraform", "required_providers {", "required_provider {", "terraform takes no block required_provider"},
		{"another provider", `"hashicorp/aws"`, `"hashicorp/awss"`, "the provider is not hashicorp/aws"},
		{"an older provider", `">= 5.80"`, `">= 4"`, "the provider is not hashicorp/aws from 5.80 on"},
		{"an argument of a variable", "  default     = \"prod\"", "  defualt = \"prod\"", "variable takes no argument defualt"},
		{"a type that is none", "type        = string", "type        = strin", "the type of the variable name is none"},
		{"a type in quotes", "type        = string", "type        = \"string\"", "the type of the variable name is none"},
		{"a default of another type", "  default     = \"prod\"", "  default     = [\"prod\"]", "the default of the variable stage_name is no string"},
		{"a default that refers to something", "  default     = \"prod\"", "  default     = var.name", "the default of the variable stage_name refers to something"},
		{"a validation without its condition", "    condition     = contains", "    conditoin     = contains", "validation has no condition"},
		{"an output without a value", "output \"url\" {\n  value ", "output \"url\" {\n  valeu ", "output has no value"},
		{"an argument of lifecycle", "create_before_destroy", "create_before_destory", "lifecycle takes no argument create_before_destory"},
		{"an id", table, table + "  id = \"x\"\n", "aws_dynamodb_table: id is the provider's to give"},
		{"a label on an inner block", "  ttl {", "  ttl \"x\" {", "the block ttl takes no label"},
		{"dynamic without for_each", "    for_each = var.access_logs", "    foreach = var.access_logs", "a dynamic block has a label, for_each and content"},
		{"dynamic without content", "    content {\n      destination_arn", "    contents {\n      destination_arn", "a dynamic block has a label, for_each and content"},
		{"depends_on of texts", "depends_on = [", "depends_on = [\"aws_api_gateway_method.method_any\", ", "depends_on of aws_api_gateway_deployment.deployment holds what is no address"},
		{"depends_on that is no list", "  ttl {", "  depends_on = aws_iam_role.role\n  ttl {", "depends_on of aws_dynamodb_table.limits is no list"},
		{"a reference to itself", table, table + "  restore_source_name = aws_dynamodb_table.limits.name\n", "aws_dynamodb_table.limits refers to itself"},
		{"a cycle", table, table + "  restore_source_name = aws_lambda_function.function.function_name\n", "refers to itself, by way of"},
		{"a step behind a text", "aws_dynamodb_table.limits.arn", "aws_dynamodb_table.limits.arn.id", "aws_dynamodb_table.limits.arn.id goes on behind"},
		{"a step behind a variable", "= var.code_bucket", "= var.code_bucket.arn", "var.code_bucket.arn goes on behind a variable"},
		{"what a block lacks", "= var.code_bucket", "= aws_dynamodb_table.limits.ttl[0].nothing", "there is no ttl.nothing"},
		{"a function that is none", "jsonencode(", "json_encode(", "no function json_encode is known"},
		{"null for what is required", `metric_name                = "rate-all"`, "metric_name = null", "metric_name is required, and is null"},
		{"a text for a list, by a reference", "[var.architecture]", "var.architecture", "architectures is a list, and another thing is given"},
		{"a list for a text, by a reference", "= var.code_bucket", "= aws_cloudwatch_metric_alarm.alarm_degraded.alarm_actions", "s3_bucket is a string, and another thing is given"},
		{"a text for a list, by a condition", "[var.alarm_topic]", "var.alarm_topic", "alarm_actions is a list, and another thing is given"},
		{"an output that shows a secret", "output \"url\" {", "output \"secret\" {\n  value = var.jwt_secret\n}\noutput \"url\" {", "output.secret shows var.jwt_secret, which is sensitive"},
	} {
		wrong := strings.Replace(text, c.old, c.new, 1)
		if wrong == text {
			t.Errorf("%s: %q is not in the text", c.name, c.old)
			continue
		}
		found, _ := checkTerraform(p, []byte(wrong))
		if !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}

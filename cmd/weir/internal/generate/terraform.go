package generate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/weirlabs/weir/policy"
)

// Terraform generates main.tf. Errors are those of [CloudFormation].
func Terraform(p *policy.Policy, o Options) (Output, error) {
	b, err := build(p, o)
	if err != nil {
		return Output{}, err
	}
	b.head("terraform init && terraform apply"+b.overrides("", " -var %s=%s", tfVariable),
		"terraform destroy", "Stops at the table, which is protected. To lose all balances too, generate with --keep-data=false and apply that first.")
	return Output{[]File{{"main.tf", terraform(b.stack)}}, b.gaps}, nil
}

// tfWriter writes a stack for Terraform's AWS provider.
type tfWriter struct {
	*stack
	file   *hclwrite.File
	kinds  map[string]string // of resources and parameters, by id; "" for a parameter
	labels map[string]string // the names in Terraform, by id
}

func terraform(s *stack) []byte {
	w := &tfWriter{stack: s, file: hclwrite.NewEmptyFile(), kinds: map[string]string{}, labels: map[string]string{}}
	taken := map[string]bool{}
	for _, r := range s.resources {
		label := snake(r.id)
		if r.kind == "AWS::ApiGateway::Deployment" {
			label = "deployment" // it is made anew by its trigger, not by its name
		}
		for taken[label] {
			label += "_"
		}
		taken[label] = true
		w.kinds[r.id], w.labels[r.id] = r.kind, label
	}
	root := w.file.Body()
	for _, line := range s.about {
		comment(root, line)
	}
	w.settings(root)
	for _, r := range s.resources {
		root.AppendNewline()
		for _, line := range r.about {
			comment(root, line)
		}
		w.resource(root, r)
	}
	for _, o := range s.outputs {
		root.AppendNewline()
		out := root.AppendNewBlock("output", []string{snake(o.name)}).Body()
		raw(out, "value", w.expression(o.value))
	}
	return hclwrite.Format(w.file.Bytes())
}

// settings writes the provider, the variables, and the account that this is.
func (w *tfWriter) settings(root *hclwrite.Body) {
	tf := root.AppendNewBlock("terraform", nil).Body()
	provider := tf.AppendNewBlock("required_providers", nil).Body()
	provider.SetAttributeValue("aws", cty.ObjectVal(map[string]cty.Value{"source": cty.StringVal("hashicorp/aws"), "version": cty.StringVal(">= 5.80")}))
	for _, source := range []string{"aws_caller_identity", "aws_partition", "aws_region"} {
		root.AppendNewline()
		root.AppendNewBlock("data", []string{source, "current"})
	}
	w.variable(root, parameter{name: "Name", kind: "String", value: w.name, about: "What the resources are named after"})
	for _, p := range w.parameters {
		w.variable(root, p)
	}
}

func (w *tfWriter) variable(root *hclwrite.Body, p parameter) {
	root.AppendNewline()
	v := root.AppendNewBlock("variable", []string{tfVariable(p.name)}).Body()
	v.SetAttributeRaw("type", ident(strings.ToLower(p.kind)))
	v.SetAttributeValue("description", cty.StringVal(p.about))
	if p.value != nil {
		raw(v, "default", w.expression(p.value))
	}
	if p.secret {
		v.SetAttributeValue("sensitive", cty.True)
	}
	if p.allowed != nil {
		check := v.AppendNewBlock("validation", nil).Body()
		raw(check, "condition", "contains("+w.expression(p.allowed)+", var."+tfVariable(p.name)+")")
		check.SetAttributeValue("error_message", cty.StringVal("It is none of those that are known."))
	}
}

// resource writes one resource, and what belongs to it in Terraform as resources
// of their own.
func (w *tfWriter) resource(root *hclwrite.Body, r *resource) {
	t := tfTypes[r.kind]
	if t.name == "" {
		return // part of another one
	}
	b := root.AppendNewBlock("resource", []string{t.name, w.labels[r.id]}).Body()
	if t.named != "" {
		if r.props.get("LogGroupName") == nil {
			raw(b, t.named, `"${var.name}-`+strings.ReplaceAll(w.labels[r.id], "_", "-")+`"`)
		}
	}
	w.fields(b, r.kind, "", r.props)
	w.more(root, b, r)
	var after []string
	for _, id := range r.after {
		after = append(after, w.addresses(id)...)
	}
	if len(after) > 0 {
		raw(b, "depends_on", "["+strings.Join(after, ", ")+"]")
	}
}

// more writes what the properties by their names do not say: b is the resource,
// root the file.
func (w *tfWriter) more(root, b *hclwrite.Body, r *resource) {
	switch r.kind {
	case "AWS::ApiGateway::Method":
		w.integration(root, r)
	case "AWS::ApiGateway::Stage":
		w.methodSettings(root, r)
	case "AWS::ApiGateway::Deployment":
		b.SetAttributeValue("triggers", cty.ObjectVal(map[string]cty.Value{"content": cty.StringVal(strings.TrimPrefix(r.id, "Deployment"))}))
		b.AppendNewBlock("lifecycle", nil).Body().SetAttributeValue("create_before_destroy", cty.True)
	case "AWS::AppSync::GraphQLApi":
		comment(b, "The schema, from a file of this machine.")
		raw(b, "schema", "file(var.schema_url)")
	case "AWS::DynamoDB::Table":
		raw(b, "hash_key", w.expression(r.props.get("KeySchema").([]any)[0].(object).get("AttributeName")))
	case "AWS::IAM::Role":
		w.role(root, r)
	case "AWS::CloudWatch::Alarm":
		w.alarm(b, r)
	}
}

// addresses are those of a resource and of what belongs to it.
func (w *tfWriter) addresses(id string) []string {
	out := []string{tfTypes[w.kinds[id]].name + "." + w.labels[id]}
	switch w.kinds[id] {
	case "AWS::ApiGateway::Method":
		out = append(out, "aws_api_gateway_integration."+w.labels[id])
	case "AWS::AppSync::GraphQLSchema":
		return nil
	}
	return out
}

// fields writes properties of a type, each in the way that tfNames says.
func (w *tfWriter) fields(b *hclwrite.Body, kind, within string, o object) {
	for _, p := range o {
		how := snake(p.name)
		for _, name := range []string{tfNames[""][p.name], tfNames[kind][p.name], tfNames[kind][within+"."+p.name]} {
			how = cmp.Or(name, how)
		}
		w.field(b, kind, how, p)
	}
}

func (w *tfWriter) field(b *hclwrite.Body, kind, how string, p property) {
	switch {
	case p.name == noteName:
		return
	case how == "-":
		return
	case how == "^":
		w.fields(b, kind, p.name, p.value.(object))
		return
	case strings.HasPrefix(how, "="):
		raw(b, how[1:], w.expression(p.value))
		return
	case strings.HasPrefix(how, "json "):
		raw(b, how[5:], "jsonencode("+w.expression(p.value)+")")
		return
	}
	if key, block, ok := strings.Cut(how, ":"); ok { // an object by key becomes a block each
		for _, one := range p.value.(object) {
			inner := b.AppendNewBlock(block, nil).Body()
			inner.SetAttributeValue(key, cty.StringVal(one.name))
			w.fields(inner, kind, p.name, one.value.(object))
		}
		return
	}
	switch v := p.value.(type) {
	case object:
		w.fields(b.AppendNewBlock(how, nil).Body(), kind, p.name, v)
	case []any:
		if _, ok := v[0].(object); !ok {
			raw(b, how, w.expression(v))
			return
		}
		for _, one := range v {
			o := one.(object)
			if o[0].name == noteName {
				comment(b, o[0].value.(string))
			}
			w.fields(b.AppendNewBlock(how, nil).Body(), kind, p.name, o)
		}
	case when:
		w.maybe(b, kind, how, v)
	default:
		raw(b, how, w.expression(v))
	}
}

// maybe writes what is left out while a variable is off.
func (w *tfWriter) maybe(b *hclwrite.Body, kind, how string, v when) {
	off := ""
	for _, p := range w.parameters {
		if p.name == v.parameter {
			off = "var." + tfVariable(p.name) + " == " + w.expression(p.off)
		}
	}
	o, ok := v.value.(object)
	if !ok {
		raw(b, how, off+" ? null : "+w.expression(v.value))
		return
	}
	dynamic := b.AppendNewBlock("dynamic", []string{how}).Body()
	raw(dynamic, "for_each", off+" ? [] : [1]")
	w.fields(dynamic.AppendNewBlock("content", nil).Body(), kind, how, o)
}

// expression is a value as an expression.
func (w *tfWriter) expression(v any) string {
	switch v := v.(type) {
	case string:
		return literal(v)
	case bool, int, int64:
		return fmt.Sprint(v)
	case decimal:
		return string(v)
	case ref:
		return w.reference(string(v), "")
	case attr:
		return w.reference(v.id, v.name)
	case sub:
		return w.template(string(v))
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			parts[i] = w.expression(one)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case object:
		parts := make([]string, len(v))
		for i, p := range v {
			parts[i] = literal(p.name) + " = " + w.expression(p.value)
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return literal(fmt.Sprint(v))
}

// pseudo are CloudFormation's own parameters.
var pseudo = map[string]string{
	"AWS::Partition": "data.aws_partition.current.partition",
	"AWS::URLSuffix": "data.aws_partition.current.dns_suffix",
	"AWS::Region":    "data.aws_region.current.id",
	"AWS::AccountId": "data.aws_caller_identity.current.account_id",
	"AWS::StackName": "var.name",
}

// reference is the address of what an id, or an attribute of it, stands for.
func (w *tfWriter) reference(id, attribute string) string {
	if p, ok := pseudo[id]; ok {
		return p
	}
	kind, ok := w.kinds[id]
	if !ok {
		return "var." + tfVariable(id)
	}
	t := tfTypes[kind]
	name := t.id
	if attribute != "" {
		name = t.attributes[attribute]
	}
	address := t.name + "." + w.labels[id] + "." + name
	if kind == "AWS::Logs::LogGroup" && attribute == "Arn" {
		return `"${` + address + `}:*"` // as CloudFormation's ends: the streams of the group
	}
	return address
}

// template is a text with references in it.
func (w *tfWriter) template(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for {
		before, after, found := strings.Cut(text, "${")
		plain := literal(before)
		b.WriteString(plain[1 : len(plain)-1])
		if !found {
			b.WriteByte('"')
			return b.String()
		}
		name, rest, _ := strings.Cut(after, "}")
		if bare, escaped := strings.CutPrefix(name, "!"); escaped {
			b.WriteString("$${" + bare + "}")
		} else {
			id, attribute, _ := strings.Cut(name, ".")
			b.WriteString("${" + w.reference(id, attribute) + "}")
		}
		text = rest
	}
}

// literal is a text in quotes, in which nothing stands for anything else.
func literal(text string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(text)).Bytes())
}

func ident(expression string) hclwrite.Tokens {
	return hclwrite.Tokens{{Type: hclsyntax.TokenIdent, Bytes: []byte(expression)}}
}

func raw(b *hclwrite.Body, name, expression string) { b.SetAttributeRaw(name, ident(expression)) }

func comment(b *hclwrite.Body, line string) {
	text := "#"
	if line != "" {
		text += " " + oneLine(line)
	}
	b.AppendUnstructuredTokens(hclwrite.Tokens{{Type: hclsyntax.TokenComment, Bytes: []byte(text + "\n")}})
}

// snake is a name of CloudFormation as Terraform writes it.
func snake(name string) string {
	var b strings.Builder
	rs := []rune(name)
	upper := func(i int) bool { return i >= 0 && i < len(rs) && 'A' <= rs[i] && rs[i] <= 'Z' }
	for i, r := range rs {
		if upper(i) && i > 0 && (!upper(i-1) || i+1 < len(rs) && !upper(i+1)) {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// tfReserved are the names that Terraform keeps for itself, and takes for no
// variable.
var tfReserved = []string{"count", "depends_on", "for_each", "lifecycle", "locals", "providers", "source", "version"}

// tfVariable is the name of a parameter's variable.
func tfVariable(parameter string) string {
	name := snake(parameter)
	if slices.Contains(tfReserved, name) {
		return name + "_value"
	}
	return name
}

// role writes the policies of a role, which Terraform has as resources.
func (w *tfWriter) role(root *hclwrite.Body, r *resource) {
	for _, p := range r.props.get("Policies").([]any) {
		root.AppendNewline()
		b := root.AppendNewBlock("resource", []string{"aws_iam_role_policy", w.labels[r.id]}).Body()
		b.SetAttributeValue("name", cty.StringVal(p.(object).get("PolicyName").(string)))
		raw(b, "role", w.reference(r.id, "Id"))
		raw(b, "policy", "jsonencode("+w.expression(p.(object).get("PolicyDocument"))+")")
	}
}

// integration writes what a method calls.
func (w *tfWriter) integration(root *hclwrite.Body, r *resource) {
	root.AppendNewline()
	b := root.AppendNewBlock("resource", []string{"aws_api_gateway_integration", w.labels[r.id]}).Body()
	raw(b, "rest_api_id", w.expression(r.props.get("RestApiId")))
	raw(b, "resource_id", w.expression(r.props.get("ResourceId")))
	raw(b, "http_method", "aws_api_gateway_method."+w.labels[r.id]+".http_method")
	w.fields(b, r.kind, "Integration", r.props.get("Integration").(object))
}

// methodSettings writes the throttles of a stage.
func (w *tfWriter) methodSettings(root *hclwrite.Body, r *resource) {
	settings, _ := r.props.get("MethodSettings").([]any)
	label := func(i int) string { return fmt.Sprintf("%s_%d", w.labels[r.id], i+1) }
	all := slices.IndexFunc(settings, func(one any) bool { return one.(object).get("ResourcePath") == "/*" })
	for i, one := range settings {
		o := one.(object)
		root.AppendNewline()
		b := root.AppendNewBlock("resource", []string{"aws_api_gateway_method_settings", label(i)}).Body()
		raw(b, "rest_api_id", w.expression(r.props.get("RestApiId")))
		raw(b, "stage_name", w.reference(r.id, ""))
		path := strings.TrimPrefix(o.get("ResourcePath").(string), "/")
		if path == "" {
			path = "~1" // of the root no slash would be left
		} else {
			path = strings.ReplaceAll(strings.TrimPrefix(path, "~1"), "~1", "/")
		}
		b.SetAttributeValue("method_path", cty.StringVal(path+"/"+o.get("HttpMethod").(string)))
		inner := b.AppendNewBlock("settings", nil).Body()
		for _, p := range o {
			if p.name != "ResourcePath" && p.name != "HttpMethod" {
				w.field(inner, r.kind, snake(p.name), p)
			}
		}
		if all >= 0 && i != all { // made after them, the settings of all paths may undo them
			raw(b, "depends_on", "[aws_api_gateway_method_settings."+label(all)+"]")
		}
	}
}

// dimensions are CloudWatch's pairs as a map.
func (w *tfWriter) dimensions(b *hclwrite.Body, list []any) {
	pairs := map[string]string{}
	for _, d := range list {
		pairs[d.(object).get("Name").(string)] = w.expression(d.(object).get("Value"))
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		parts = append(parts, name+" = "+pairs[name])
	}
	raw(b, "dimensions", "{ "+strings.Join(parts, ", ")+" }")
}

// alarm writes the metrics that an alarm looks at.
func (w *tfWriter) alarm(b *hclwrite.Body, r *resource) {
	if list, ok := r.props.get("Dimensions").([]any); ok {
		w.dimensions(b, list)
	}
	queries, _ := r.props.get("Metrics").([]any)
	for _, q := range queries {
		o := q.(object)
		inner := b.AppendNewBlock("metric_query", nil).Body()
		for _, p := range o {
			if p.name != "MetricStat" {
				w.field(inner, r.kind, snake(p.name), p)
			}
		}
		if stat, ok := o.get("MetricStat").(object); ok {
			m := inner.AppendNewBlock("metric", nil).Body()
			metric := stat.get("Metric").(object)
			w.fields(m, r.kind, "Metric", object{{"Namespace", metric.get("Namespace")}, {"MetricName", metric.get("MetricName")}, {"Period", stat.get("Period")}, {"Stat", stat.get("Stat")}})
			w.dimensions(m, metric.get("Dimensions").([]any))
		}
	}
}

package awscheck

import (
	"fmt"
	"slices"
	"strings"
)

// check collects what the rules find.
type check struct {
	*Template
	found []Finding
}

func (c *check) wrong(r *Resource, rule, format string, args ...any) {
	c.found = append(c.found, Finding{rule, r.ID, fmt.Sprintf(format, args...)})
}

// Check holds a template to what weir wants of one, and gives what is wrong.
func Check(t *Template) []Finding {
	c := &check{Template: t}
	c.references()
	c.webACLs()
	c.ipSets()
	c.webACLTargets()
	c.webACLLogs()
	c.gatewayResponses()
	c.usagePlans()
	c.deployments()
	c.methods()
	c.routes()
	c.tables()
	c.roles()
	c.functions()
	c.permissions()
	c.alarms()
	c.dashboards()
	c.resolvers()
	slices.SortStableFunc(c.found, func(a, b Finding) int { return strings.Compare(a.Resource, b.Resource) })
	return c.found
}

// references must have something at their end.
func (c *check) references() {
	for _, r := range c.Resources {
		for _, d := range r.DependsOn {
			if c.Resources[d] == nil {
				c.wrong(r, "reference", "DependsOn names %s, which is not there", d)
			}
		}
		c.refer(r, r.Properties)
		c.arns(r)
	}
	c.refer(&Resource{ID: "Conditions"}, c.Conditions)
	c.refer(&Resource{ID: "Outputs"}, c.Outputs)
}

// refer looks at the references within a value of r.
func (c *check) refer(r *Resource, v any) {
	walk(v, nil, func(o map[string]any, _ []string) {
		for _, id := range references(o) {
			if c.Resources[id] == nil && c.Parameters[id] == nil && !strings.HasPrefix(id, "AWS::") {
				c.wrong(r, "reference", "it refers to %s, which is not there", id)
			}
		}
		if branches := list(o["Fn::If"]); len(branches) > 0 && c.Conditions[str(branches[0])] == nil {
			c.wrong(r, "reference", "it depends on the condition %v, which is not there", branches[0])
		}
	})
}

// named are the types of which Ref gives a name or an id, and no ARN.
var named = []string{"AWS::WAFv2::WebACL", "AWS::WAFv2::IPSet", "AWS::IAM::Role", "AWS::Lambda::Function", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"}

// arns: where an ARN is wanted, a Ref of such a resource fails at the deployment.
func (c *check) arns(r *Resource) {
	walk(r.Properties, nil, func(o map[string]any, _ []string) {
		for name, v := range o {
			of := c.Resources[str(at(v, "Ref"))]
			if of != nil && slices.Contains(named, of.Type) && (name == "Role" || strings.HasSuffix(strings.ToLower(name), "arn")) {
				c.wrong(r, "arn", "%s is !Ref %s, which is no ARN", name, of.ID)
			}
		}
	})
}

// references are the ids that an object refers to itself.
func references(o map[string]any) (ids []string) {
	if id := str(o["Ref"]); id != "" {
		ids = append(ids, id)
	}
	if parts := list(o["Fn::GetAtt"]); len(parts) > 0 {
		ids = append(ids, str(parts[0]))
	}
	text := str(o["Fn::Sub"])
	for {
		_, after, found := strings.Cut(text, "${")
		if !found {
			return ids
		}
		name, rest, _ := strings.Cut(after, "}")
		if !strings.HasPrefix(name, "!") {
			id, _, _ := strings.Cut(name, ".")
			ids = append(ids, id)
		}
		text = rest
	}
}

// oneOf reports a value that is none of a few.
func (c *check) oneOf(r *Resource, rule, what string, v any, known ...string) {
	if !slices.Contains(known, fmt.Sprint(v)) {
		c.wrong(r, rule, "%s is %v, and must be one of %s", what, v, strings.Join(known, ", "))
	}
}

// between reports a number outside its bounds. What is no number is a reference.
func (c *check) between(r *Resource, rule, what string, v any, least, most float64) {
	n, ok := number(v)
	if v == nil || ok && (n < least || n > most) {
		c.wrong(r, rule, "%s is %v, and must be from %v to %v", what, v, least, most)
	}
}

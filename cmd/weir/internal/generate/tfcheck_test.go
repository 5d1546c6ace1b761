package generate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// provider is what Terraform's AWS provider has, by resource: testdata's
// terraform-names.txt, which make terraform-names writes.
type provider map[string]*provided

type provided struct {
	arguments map[string]providedArgument // by path
	outputs   []string
}

type providedArgument struct {
	kind     string
	required bool
}

func readProvider(t testing.TB) provider {
	t.Helper()
	text, err := os.ReadFile("testdata/terraform-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := provider{}
	var r *provided
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case !strings.HasPrefix(line, " "):
			r = &provided{arguments: map[string]providedArgument{}}
			p[words[0]] = r
		case words[0] == "outputs:":
			r.outputs = words[1:]
		default:
			r.arguments[words[0]] = providedArgument{words[1], len(words) > 2 && words[2] == "required"}
		}
	}
	return p
}

// tfCheck looks for what Terraform would refuse in a text.
type tfCheck struct {
	provider provider
	found    []string
	there    map[string]bool            // addresses
	used     map[string]map[string]bool // paths by resource
}

// reserved are the names that no variable can have (Terraform's documentation of
// input variables).
var reserved = []string{"count", "depends_on", "for_each", "lifecycle", "locals", "providers", "source", "version"}

// checkTerraform says what Terraform would refuse in a text that parses, and which
// paths of which resources it uses.
func checkTerraform(p provider, text []byte) (found []string, used map[string]map[string]bool) {
	f, problems := hclsyntax.ParseConfig(text, "main.tf", hcl.InitialPos)
	if problems.HasErrors() {
		return []string{problems.Error()}, nil
	}
	c := &tfCheck{provider: p, there: map[string]bool{}, used: map[string]map[string]bool{}}
	file := f.Body.(*hclsyntax.Body)
	for _, b := range file.Blocks {
		address := strings.Join(append([]string{b.Type}, b.Labels...), ".")
		address = strings.TrimPrefix(strings.Replace(address, "variable.", "var.", 1), "resource.")
		if c.there[address] {
			c.say("%s is there twice", address)
		}
		c.there[address] = true
	}
	for _, b := range file.Blocks {
		switch b.Type {
		case "resource":
			c.block(b.Labels[0], b.Body)
		case "data":
			c.block("data."+b.Labels[0], b.Body)
		case "variable":
			if slices.Contains(reserved, b.Labels[0]) {
				c.say("no variable can have the name %s", b.Labels[0])
			}
		}
		var expressions []hclsyntax.Expression
		for name, a := range b.Body.Attributes {
			// An address alone is what depends_on holds, and a type is a word.
			if tuple, ok := a.Expr.(*hclsyntax.TupleConsExpr); ok && name == "depends_on" {
				for _, e := range tuple.Exprs {
					c.references(e, true)
				}
			} else if b.Type != "variable" || name != "type" {
				expressions = append(expressions, a.Expr)
			}
		}
		for _, e := range expressions {
			c.references(e, false)
		}
		for _, inner := range b.Body.Blocks {
			c.references(inner.Body, false)
		}
	}
	slices.Sort(c.found)
	return c.found, c.used
}

func (c *tfCheck) say(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// block checks the arguments of a resource.
func (c *tfCheck) block(kind string, b *hclsyntax.Body) {
	p := c.provider[kind]
	if p == nil {
		c.say("the provider has no %s, or it is not among the names", kind)
		return
	}
	if c.used[kind] == nil {
		c.used[kind] = map[string]bool{}
	}
	c.body(kind, p, "", b)
}

// body checks what stands below a path.
func (c *tfCheck) body(kind string, p *provided, within string, b *hclsyntax.Body) {
	have := map[string]int{}
	for name, a := range b.Attributes {
		if within == "" && name == "depends_on" {
			continue
		}
		have[name]++
		path := within + name
		argument, ok := p.arguments[path]
		c.used[kind][path] = true
		switch {
		case !ok:
			c.say("%s has no argument %s", kind, path)
		case argument.kind == "block" || argument.kind == "blocks":
			c.say("%s: %s is a block and no attribute", kind, path)
		case !fits(argument.kind, a.Expr):
			c.say("%s: %s is a %s, and another thing is given", kind, path, argument.kind)
		}
	}
	for _, inner := range b.Blocks {
		name, body, dynamic := inner.Type, inner.Body, inner.Type == "dynamic"
		if within == "" && name == "lifecycle" {
			continue
		}
		if dynamic {
			name, body = inner.Labels[0], inner.Body.Blocks[0].Body
		}
		have[name]++
		path := within + name
		argument, ok := p.arguments[path]
		c.used[kind][path] = true
		switch {
		case !ok:
			c.say("%s has no block %s", kind, path)
			continue
		case argument.kind != "block" && argument.kind != "blocks":
			c.say("%s: %s is an attribute and no block", kind, path)
			continue
		case argument.kind == "block" && have[name] == 2:
			c.say("%s: %s may stand once", kind, path)
		case dynamic && argument.required:
			c.say("%s: %s is required, and may be left out", kind, path)
		}
		c.body(kind, p, path+".", body)
	}
	for path, argument := range p.arguments {
		name, below := strings.CutPrefix(path, within)
		if below && argument.required && !strings.Contains(name, ".") && have[name] == 0 {
			c.say("%s: %s is required, and is missing", kind, path)
		}
	}
}

// fits reports whether an expression can be of a kind, as far as it shows.
func fits(kind string, e hclsyntax.Expression) bool {
	switch e := e.(type) {
	case *hclsyntax.TupleConsExpr:
		return kind == "list"
	case *hclsyntax.ObjectConsExpr:
		return kind == "map" || kind == "object"
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
		return kind == "string"
	case *hclsyntax.LiteralValueExpr:
		switch e.Val.Type().FriendlyName() {
		case "number":
			return kind == "number"
		case "bool":
			return kind == "bool"
		}
	}
	return true
}

// references checks that what is referred to is there, and that it has what it is
// asked for. Whole resources are named by depends_on alone.
func (c *tfCheck) references(n hclsyntax.Node, whole bool) {
	hclsyntax.VisitAll(n, func(n hclsyntax.Node) hcl.Diagnostics {
		e, ok := n.(*hclsyntax.ScopeTraversalExpr)
		if !ok {
			return nil
		}
		var parts []string
		for _, step := range e.Traversal {
			switch s := step.(type) {
			case hcl.TraverseRoot:
				parts = append(parts, s.Name)
			case hcl.TraverseAttr:
				parts = append(parts, s.Name)
			}
		}
		name, whose := strings.Join(parts, "."), 2
		if parts[0] == "data" {
			whose = 3
		}
		switch {
		case len(parts) < whose || !c.there[strings.Join(parts[:whose], ".")]:
			c.say("%s is not there", name)
		case parts[0] == "var":
		case len(parts) == whose:
			if !whole {
				c.say("%s is a resource and no value", name)
			}
		default:
			kind := strings.Join(parts[:whose-1], ".")
			p := c.provider[kind]
			if p == nil {
				return nil // said already
			}
			if _, ok := p.arguments[parts[whose]]; !ok && !slices.Contains(p.outputs, parts[whose]) {
				c.say("%s: nothing of a %s has this name", name, kind)
			}
		}
		return nil
	})
}

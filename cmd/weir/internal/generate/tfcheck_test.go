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
	types    map[string]string          // of variables
	refers   map[string]map[string]bool // addresses by addresses
	at       string                     // the address that is looked at
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
	c := &tfCheck{provider: p, there: map[string]bool{}, used: map[string]map[string]bool{}, types: map[string]string{}, refers: map[string]map[string]bool{}}
	file := f.Body.(*hclsyntax.Body)
	for _, b := range file.Blocks {
		address := addressOf(b)
		if c.there[address] {
			c.say("%s is there twice", address)
		}
		c.there[address] = true
	}
	for _, b := range file.Blocks {
		if b.Type == "variable" && len(b.Labels) == 1 && b.Body.Attributes["type"] != nil {
			c.types[b.Labels[0]] = hcl.ExprAsKeyword(b.Body.Attributes["type"].Expr)
		}
	}
	for _, b := range file.Blocks {
		if len(b.Labels) != tfFile[b.Type].labels {
			continue // said with the language
		}
		c.at = addressOf(b)
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
					if _, ok := e.(*hclsyntax.ScopeTraversalExpr); !ok {
						c.say("depends_on of %s holds what is no address", c.at)
					}
					c.references(e, true)
				}
			} else if name == "depends_on" {
				c.say("depends_on of %s is no list", c.at)
			} else if b.Type != "variable" || name != "type" {
				expressions = append(expressions, a.Expr)
			}
		}
		for _, e := range expressions {
			c.references(e, false)
		}
		for _, inner := range b.Body.Blocks {
			if b.Type != "variable" { // whose validation is of itself
				c.references(inner.Body, false)
			}
		}
	}
	c.language(file)
	slices.Sort(c.found)
	return c.found, c.used
}

func addressOf(b *hclsyntax.Block) string {
	address := strings.Join(append([]string{b.Type}, b.Labels...), ".")
	return strings.TrimPrefix(strings.Replace(address, "variable.", "var.", 1), "resource.")
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
		case path == "id":
			c.say("%s: id is the provider's to give", kind)
		case argument.required && isNull(a.Expr):
			c.say("%s: %s is required, and is null", kind, path)
		case !c.fits(argument.kind, a.Expr):
			c.say("%s: %s is a %s, and another thing is given", kind, path, argument.kind)
		}
	}
	for _, inner := range b.Blocks {
		name, body, dynamic := inner.Type, inner.Body, inner.Type == "dynamic"
		if within == "" && name == "lifecycle" {
			continue
		}
		if dynamic {
			if len(inner.Labels) != 1 || len(inner.Body.Blocks) != 1 || inner.Body.Blocks[0].Type != "content" || len(inner.Body.Blocks[0].Labels) != 0 || len(inner.Body.Attributes) != 1 || inner.Body.Attributes["for_each"] == nil {
				c.say("%s: a dynamic block has a label, for_each and content, and no more", kind)
				continue
			}
			name, body = inner.Labels[0], inner.Body.Blocks[0].Body
		} else if len(inner.Labels) > 0 {
			c.say("%s: the block %s takes no label", kind, within+name)
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
func (c *tfCheck) fits(kind string, e hclsyntax.Expression) bool {
	switch e := e.(type) {
	case *hclsyntax.ConditionalExpr:
		return c.fits(kind, e.TrueResult) && c.fits(kind, e.FalseResult)
	case *hclsyntax.ScopeTraversalExpr:
		// Terraform makes a text of a number, and the like.
		plain := func(kind string) bool { return kind == "string" || kind == "number" || kind == "bool" }
		of := c.kindOf(e)
		return of == "" || of == kind || plain(of) && plain(kind)
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

func isNull(e hclsyntax.Expression) bool {
	literal, ok := e.(*hclsyntax.LiteralValueExpr)
	return ok && literal.Val.IsNull()
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
		if len(parts) >= whose {
			if c.refers[c.at] == nil {
				c.refers[c.at] = map[string]bool{}
			}
			c.refers[c.at][strings.Join(parts[:whose], ".")] = true
		}
		switch {
		case len(parts) < whose || !c.there[strings.Join(parts[:whose], ".")]:
			c.say("%s is not there", name)
		case parts[0] == "var":
			if len(e.Traversal) > 2 {
				c.say("%s goes on behind a variable", name)
			}
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
				return nil
			}
			c.past(name, p, e.Traversal[whose:])
		}
		return nil
	})
}

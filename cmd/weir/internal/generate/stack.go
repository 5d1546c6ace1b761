package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// stack is a set of resources in AWS's own terms, in the order in which they are
// read. Both writers work from it.
type stack struct {
	name       string
	about      []string // the head of the file, without comment signs
	parameters []parameter
	resources  []*resource
	outputs    []output

	taken map[string]bool
}

type parameter struct {
	name    string
	kind    string // String or Number
	value   any    // the default; nil: whoever deploys has to say
	allowed []any
	about   string
	off     any  // when set: the value under which [when] leaves out what depends on it
	secret  bool // never shown

	variable string // of the function's environment, by its name as it was given; "" for the stack's own
}

type output struct {
	name  string
	value any
}

// resource is one resource with its properties by CloudFormation's names.
type resource struct {
	id    string
	kind  string   // AWS::WAFv2::WebACL
	about []string // comment lines
	fate  string   // DeletionPolicy and UpdateReplacePolicy: Retain, Delete or ""
	after []string // ids that must exist before, beside those that it refers to
	props object
}

// The values of properties: string, bool, int64, decimal, object, []any, and the
// references below.
type (
	// object is a set of properties in the order in which they are written.
	object []property

	property struct {
		name  string
		value any
	}

	// decimal is a number as it is to be written.
	decimal string

	// ref is the id of a resource, or the value of a parameter.
	ref string

	// attr is an attribute of a resource.
	attr struct{ id, name string }

	// sub is a text in which ${ID}, ${ID.Attribute} and ${AWS::Region} stand for
	// what they name.
	sub string

	// when is a value that is left out while a parameter is off.
	when struct {
		parameter string
		value     any
	}
)

// noteName is the name of a property that is a comment.
const noteName = "#"

func (o object) with(name string, value any) object {
	return append(o, property{name, value})
}

func (o object) get(name string) any {
	for _, p := range o {
		if p.name == name {
			return p.value
		}
	}
	return nil
}

// free makes an id of words that no other resource or parameter has.
func (s *stack) free(words ...string) string {
	if s.taken == nil {
		s.taken = map[string]bool{}
	}
	base := camel(words...)
	id := base
	for n := 2; s.taken[id]; n++ {
		id = fmt.Sprintf("%sNo%d", base, n)
	}
	s.taken[id] = true
	return id
}

func (s *stack) add(r *resource) *resource {
	s.resources = append(s.resources, r)
	return r
}

func (s *stack) parameter(p parameter) ref {
	for _, have := range s.parameters {
		if have.name == p.name && have.variable == p.variable {
			return ref(p.name)
		}
	}
	s.parameters = append(s.parameters, p)
	return ref(p.name)
}

// clash is the error of a variable whose parameter is also something else: names
// are one where Terraform writes them as one.
func (s *stack) clash() error {
	taken := map[string]string{"name": "a parameter of the stack"} // Terraform's own
	for _, r := range s.resources {
		taken[snake(r.id)] = "a resource of the stack"
	}
	for _, p := range s.parameters {
		if p.variable == "" {
			taken[tfVariable(p.name)] = "a parameter of the stack"
		}
	}
	for _, p := range s.parameters {
		if p.variable == "" {
			continue
		}
		if other := taken[tfVariable(p.name)]; other != "" {
			return fmt.Errorf("the variable %s becomes the parameter %s, and so does %s: give it another name", p.variable, p.name, other)
		}
		taken[tfVariable(p.name)] = "the variable " + p.variable
	}
	return nil
}

// camel joins words as an id: letters and digits only.
func camel(words ...string) string {
	var b strings.Builder
	for _, w := range words {
		up := true
		for _, r := range w {
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
				if up && 'a' <= r && r <= 'z' {
					r -= 'a' - 'A'
				}
				b.WriteRune(r)
				up = false
			default:
				up = true
			}
		}
	}
	return b.String()
}

// digest is a short hash of resources: it changes when any of them does.
func digest(resources []*resource) string {
	h := sha256.New()
	for _, r := range resources {
		fmt.Fprintf(h, "%s %s %#v\n", r.id, r.kind, r.props)
	}
	return hex.EncodeToString(h.Sum(nil)[:5])
}

// escaped is a text for a place in a sub.
func escaped(text string) string { return strings.ReplaceAll(text, "${", "${!") }

// texts turns a list of texts into a list of values.
func texts[T any](list []T) []any {
	out := make([]any, len(list))
	for i, t := range list {
		out[i] = t
	}
	return out
}

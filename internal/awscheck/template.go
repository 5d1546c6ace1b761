package awscheck

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Template is a parsed template. Values are string, int64, float64, bool, nil,
// []any and map[string]any; the short forms of functions are written out, as
// {"Ref": "Table"}, {"Fn::GetAtt": ["Table", "Arn"]} and {"Fn::Sub": "..."}.
type Template struct {
	Parameters map[string]map[string]any
	Conditions map[string]any
	Resources  map[string]*Resource
	Outputs    map[string]any
}

// Resource is one resource of a template.
type Resource struct {
	ID         string
	Type       string
	Properties map[string]any
	DependsOn  []string
	Fate       string // DeletionPolicy
}

// Of are the resources of a type, in the order of their ids.
func (t *Template) Of(kind string) []*Resource {
	var out []*Resource
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		if r := t.Resources[id]; r.Type == kind {
			out = append(out, r)
		}
	}
	return out
}

// Parse reads a template in YAML.
func Parse(text []byte) (*Template, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, errors.New("the template is not one document")
	}
	root, err := value(file.Docs[0].Body)
	if err != nil {
		return nil, err
	}
	top, ok := root.(map[string]any)
	if !ok {
		return nil, errors.New("the template is no object")
	}
	t := &Template{Parameters: map[string]map[string]any{}, Resources: map[string]*Resource{},
		Conditions: object(top["Conditions"]), Outputs: object(top["Outputs"])}
	for name, v := range object(top["Parameters"]) {
		t.Parameters[name] = object(v)
	}
	for id, v := range object(top["Resources"]) {
		o := object(v)
		r := &Resource{ID: id, Type: str(o["Type"]), Properties: object(o["Properties"]), Fate: str(o["DeletionPolicy"])}
		for _, d := range list(o["DependsOn"]) {
			r.DependsOn = append(r.DependsOn, str(d))
		}
		if one, ok := o["DependsOn"].(string); ok {
			r.DependsOn = []string{one}
		}
		t.Resources[id] = r
	}
	if len(t.Resources) == 0 {
		return nil, errors.New("the template has no resources")
	}
	return t, nil
}

// value turns a part of the parser's tree into plain values.
func value(n ast.Node) (any, error) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, nil
	case *ast.LiteralNode:
		return x.Value.Value, nil
	case *ast.IntegerNode:
		return strconv.ParseInt(x.Token.Value, 10, 64)
	case *ast.FloatNode:
		return x.Value, nil
	case *ast.BoolNode:
		return x.Value, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.SequenceNode:
		out := []any{}
		for _, v := range x.Values {
			one, err := value(v)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		return out, nil
	case *ast.MappingNode:
		return mapping(x.Values)
	case *ast.MappingValueNode:
		return mapping([]*ast.MappingValueNode{x})
	case *ast.TagNode:
		inner, err := value(x.Value)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(x.Start.Value, "!")
		switch name {
		case "Ref", "Condition":
			return map[string]any{name: inner}, nil
		case "GetAtt":
			if dotted, ok := inner.(string); ok {
				id, attribute, _ := strings.Cut(dotted, ".")
				inner = []any{id, attribute}
			}
		}
		return map[string]any{"Fn::" + name: inner}, nil
	}
	return nil, fmt.Errorf("line %d: %s is not used in a template", n.GetToken().Position.Line, n.Type())
}

func mapping(values []*ast.MappingValueNode) (any, error) {
	out := map[string]any{}
	for _, v := range values {
		key, err := value(v.Key)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint(key)
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("line %d: %s is given twice", v.Key.GetToken().Position.Line, name)
		}
		if out[name], err = value(v.Value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// The forms of values that most rules look for; what has another form is empty.

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// number is a number, also one that is written as a text.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil
	}
	return 0, false
}

// at follows names into objects.
func at(v any, names ...string) any {
	for _, n := range names {
		v = object(v)[n]
	}
	return v
}

// refersTo is the id that a value refers to by Ref, Fn::GetAtt or, when it is one
// reference alone, Fn::Sub.
func refersTo(v any) string {
	o := object(v)
	if id := str(o["Ref"]); id != "" {
		return id
	}
	if parts := list(o["Fn::GetAtt"]); len(parts) > 0 {
		return str(parts[0])
	}
	if text := str(o["Fn::Sub"]); strings.HasPrefix(text, "${") && strings.Count(text, "${") == 1 && strings.HasSuffix(text, "}") {
		id, _, _ := strings.Cut(text[2:len(text)-1], ".")
		return id
	}
	return ""
}

// textOf is a text with its references as they are written: that of Fn::Sub too.
func textOf(v any) string {
	if s := str(object(v)["Fn::Sub"]); s != "" {
		return s
	}
	return str(v)
}

// walk calls f with every object within a value, and with what encloses it.
func walk(v any, path []string, f func(o map[string]any, path []string)) {
	switch v := v.(type) {
	case map[string]any:
		f(v, path)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], append(slices.Clone(path), name), f)
		}
	case []any:
		for _, one := range v {
			walk(one, path, f)
		}
	}
}

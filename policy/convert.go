package policy

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// convert turns a part of the parser's tree into nodes, and reports every
// feature of YAML that a policy does without.
func (d *document) convert(n ast.Node, depth int) *node {
	out := d.at(n)
	if depth > 2*maxNesting {
		d.wrong(out, codeTooLarge, "", "nested deeper than %d levels", maxNesting)
		return out
	}
	switch x := n.(type) {
	case *ast.StringNode:
		out.shape, out.text = scalar, x.Value
		out.plain = x.Token.Type != token.DoubleQuoteType && x.Token.Type != token.SingleQuoteType
	case *ast.LiteralNode:
		out.shape = scalar
		if x.Value != nil {
			out.text = strings.TrimRight(x.Value.Value, "\n")
		}
	case *ast.IntegerNode:
		d.number(out, x.Token)
	case *ast.FloatNode:
		out.shape, out.text, out.plain = scalar, x.Token.Value, true
	case *ast.BoolNode:
		out.shape, out.text, out.plain = scalar, x.Token.Value, true
	case *ast.InfinityNode:
		out.shape, out.text, out.plain = scalar, x.Token.Value, true
	case *ast.NanNode:
		out.shape, out.text, out.plain = scalar, x.Token.Value, true
	case *ast.NullNode:
		d.wrong(out, codeNoValue, "give a value, or remove the line; is the file complete?", "a value is missing")
	case *ast.TagNode:
		d.wrong(out, codeYAML, "put the text in quotes if it begins with !; otherwise remove the tag", "YAML tags are not used in a policy; this one would swallow what follows")
	case *ast.AnchorNode:
		d.wrong(out, codeYAML, "write the value out where it is used", "YAML anchors are not used in a policy")
		if x.Value != nil {
			return d.convert(x.Value, depth+1)
		}
	case *ast.AliasNode:
		d.wrong(out, codeYAML, "write the value out, or put the text in quotes if it begins with *", "YAML aliases are not used in a policy")
	case *ast.SequenceNode:
		out.shape, out.flow = list, x.IsFlowStyle
		for _, v := range x.Values {
			out.items = append(out.items, d.convert(v, depth+1))
		}
	case *ast.MappingNode:
		out.shape, out.flow = object, x.IsFlowStyle
		d.mapping(out, x.Values, depth)
	case *ast.MappingValueNode:
		out.shape, out.flow = object, x.IsFlowStyle
		d.mapping(out, []*ast.MappingValueNode{x}, depth)
	default:
		d.wrong(out, codeYAML, "write the value out", "%s is not used in a policy", n.Type())
	}
	return out
}

// number accepts what everybody reads in the same way.
func (d *document) number(out *node, t *token.Token) {
	out.text, out.plain = t.Value, true
	digits := strings.TrimPrefix(t.Value, "-")
	if t.Type == token.IntegerType && (digits == "0" || digits[0] != '0') && strings.Trim(digits, "0123456789") == "" {
		out.shape = integer
		return
	}
	meant := strings.TrimLeft(strings.ReplaceAll(digits, "_", ""), "+0")
	if meant == "" {
		meant = "0"
	}
	if v, err := strconv.ParseInt(digits, 0, 64); err == nil && digits[0] == '0' && strings.Trim(digits, "0123456789") != "" {
		meant = strconv.FormatInt(v, 10)
	}
	d.wrong(out, codeNumber, "write "+meant, "%s is read as different numbers by different programs", t.Value)
}

// mapping converts the fields of an object.
func (d *document) mapping(out *node, values []*ast.MappingValueNode, depth int) {
	seen := map[string]*node{}
	for _, v := range values {
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			d.wrong(d.at(v.Key), codeYAML, "write the fields out", "merge keys are not used in a policy")
			out.partial = true
			continue
		}
		key := d.convert(v.Key, depth+1)
		if key.shape == broken {
			out.partial = true
			continue
		}
		if key.shape != scalar && key.shape != integer {
			d.wrong(key, codeYAML, "a field's name is a plain word", "this cannot be a field's name")
			continue
		}
		if null, ok := v.Value.(*ast.NullNode); ok {
			if out.flow && (null.Token.Position.Line == key.line || null.Token.Type == token.ImplicitNullType) {
				d.wrong(key, codeNoValue, `inside { } a text with a comma needs quotes: {because: "signed, so safe"}`, "%s has no value", show(key.text))
			} else {
				d.wrong(key, codeNoValue, "give a value, or remove the line; is the file complete?", "%s has no value", show(key.text))
			}
			out.fields = append(out.fields, field{key, &node{in: d.page, line: key.line, col: key.col, width: key.width}})
			continue
		}
		if first := seen[key.text]; first != nil {
			d.wrong(key, codeTwice, "keep one of the two", "%s is given twice; the first is in line %d", show(key.text), first.line)
			continue
		}
		seen[key.text] = key
		out.fields = append(out.fields, field{key, d.convert(v.Value, depth+1)})
		if tag, ok := v.Value.(*ast.TagNode); ok {
			d.swallowed(out, key, tag, depth)
		}
	}
}

// swallowed gives back to an object the fields that a tag took from it, so
// that they are checked too.
func (d *document) swallowed(out, key *node, tag *ast.TagNode, depth int) {
	m, ok := tag.Value.(*ast.MappingNode)
	if !ok || m.IsFlowStyle || len(m.Values) == 0 {
		return
	}
	if at := d.at(m.Values[0].Key); at.line > key.line && at.col <= key.col {
		d.mapping(out, m.Values, depth)
	}
}

// show quotes a text of the file for a message, without what may be a password, cut to
// a readable length.
func show(s string) string {
	const most = 60
	if s == "" {
		return "an empty text"
	}
	s = withoutSecrets(printable(strings.ReplaceAll(s, "\n", " ")))
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return "`" + s + "`"
}

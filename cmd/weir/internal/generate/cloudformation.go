package generate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// cloudFormation writes a stack as a template in YAML.
func cloudFormation(s *stack) []byte {
	y := &yamlWriter{}
	for _, line := range s.about {
		y.comment(0, line)
	}
	y.line(0, `AWSTemplateFormatVersion: "2010-09-09"`)
	y.line(0, "Description: "+quoted("Rate limits of "+s.name+", generated from its policy by weir"))
	if len(s.parameters) > 0 {
		y.line(0, "Parameters:")
	}
	for _, p := range s.parameters {
		o := object{{"Type", p.kind}, {"Description", p.about}}
		if p.value != nil {
			o = o.with("Default", p.value)
		}
		if p.allowed != nil {
			o = o.with("AllowedValues", p.allowed)
		}
		if p.secret {
			o = o.with("NoEcho", true)
		}
		y.field(1, p.name, o)
	}
	conditions := false
	for _, p := range s.parameters {
		if p.off == nil {
			continue
		}
		if !conditions {
			y.line(0, "Conditions:")
			conditions = true
		}
		y.line(1, fmt.Sprintf("%s: !Not [!Equals [!Ref %s, %s]]", condition(p.name), p.name, scalar(p.off)))
	}
	y.line(0, "Resources:")
	for _, r := range s.resources {
		for _, line := range r.about {
			y.comment(1, line)
		}
		y.line(1, r.id+":")
		y.line(2, "Type: "+r.kind)
		if len(r.after) > 0 {
			y.field(2, "DependsOn", texts(r.after))
		}
		if r.fate != "" {
			y.line(2, "DeletionPolicy: "+r.fate)
			y.line(2, "UpdateReplacePolicy: "+r.fate)
		}
		if len(r.props) > 0 {
			y.field(2, "Properties", r.props)
		}
	}
	if len(s.outputs) > 0 {
		y.line(0, "Outputs:")
	}
	for _, o := range s.outputs {
		y.field(1, o.name, object{{"Value", o.value}})
	}
	return []byte(y.String())
}

func condition(parameter string) string { return "With" + parameter }

// oneLine is a text for a comment, in which a line break would end the comment.
func oneLine(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return strings.Trim(strconv.Quote(text), `"`)
}

// yamlWriter writes the part of YAML that templates need: blocks of two spaces,
// short lists of scalars in brackets, every text quoted that could be read as
// something else.
type yamlWriter struct{ strings.Builder }

func (y *yamlWriter) line(depth int, text string) {
	y.WriteString(strings.Repeat("  ", depth))
	y.WriteString(text)
	y.WriteByte('\n')
}

func (y *yamlWriter) comment(depth int, text string) {
	if text == "" {
		y.line(depth, "#")
		return
	}
	y.line(depth, "# "+oneLine(text))
}

func (y *yamlWriter) field(depth int, name string, value any) {
	if name == noteName {
		y.comment(depth, value.(string))
		return
	}
	name = quoted(name)
	switch v := value.(type) {
	case object:
		if len(v) == 0 {
			y.line(depth, name+": {}")
			return
		}
		y.line(depth, name+":")
		y.fields(depth+1, v)
	case []any:
		if flat, ok := flow(v); ok {
			y.line(depth, name+": "+flat)
			return
		}
		y.line(depth, name+":")
		for _, item := range v {
			y.item(depth+1, item)
		}
	case when:
		y.line(depth, name+": !If")
		y.line(depth+1, "- "+condition(v.parameter))
		y.item(depth+1, v.value)
		y.line(depth+1, "- !Ref AWS::NoValue")
	case string:
		if blocky(v) {
			y.block(depth, name+": |", v)
			return
		}
		y.line(depth, name+": "+quoted(v))
	case sub:
		if strings.Contains(string(v), "\n") {
			y.block(depth, name+": !Sub |", string(v))
			return
		}
		y.line(depth, name+": "+scalar(v))
	default:
		y.line(depth, name+": "+scalar(value))
	}
}

// blocky reports whether a text is what its lines are as a block: other texts are
// written in quotes.
func blocky(text string) bool {
	body, ends := strings.CutSuffix(text, "\n")
	other := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	return ends && body != "" && !strings.HasSuffix(body, "\n") && !strings.ContainsAny(body[:1], " \n") && !strings.ContainsFunc(body, other)
}

// block writes a text of several lines, which end in a line break.
func (y *yamlWriter) block(depth int, before, text string) {
	y.line(depth, before)
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		y.line(depth+1, line)
	}
}

func (y *yamlWriter) fields(depth int, o object) {
	for _, p := range o {
		y.field(depth, p.name, p.value)
	}
}

// item writes one entry of a list.
func (y *yamlWriter) item(depth int, value any) {
	if list, ok := value.([]any); ok {
		if flat, ok := flow(list); ok {
			y.line(depth, "- "+flat)
			return
		}
	}
	o, ok := value.(object)
	if !ok || len(o) == 0 {
		if ok {
			y.line(depth, "- {}")
			return
		}
		y.line(depth, "- "+scalar(value))
		return
	}
	for len(o) > 1 && o[0].name == noteName {
		y.field(depth, o[0].name, o[0].value)
		o = o[1:]
	}
	inner := &yamlWriter{}
	inner.fields(depth+1, o)
	text := inner.String()
	at := 2 * depth
	y.WriteString(text[:at] + "- " + text[at+2:])
}

// flow writes a list of scalars in brackets.
func flow(list []any) (string, bool) {
	parts := make([]string, len(list))
	for i, v := range list {
		switch v.(type) {
		case object, []any, when:
			return "", false
		}
		parts[i] = scalar(v)
	}
	return "[" + strings.Join(parts, ", ") + "]", true
}

func scalar(value any) string {
	switch v := value.(type) {
	case string:
		return quoted(v)
	case bool:
		return fmt.Sprint(v)
	case int64, int:
		return fmt.Sprint(v)
	case decimal:
		return string(v)
	case ref:
		return "!Ref " + string(v)
	case attr:
		return "!GetAtt " + v.id + "." + v.name
	case sub:
		return "!Sub " + inQuotes(string(v))
	}
	return quoted(fmt.Sprint(value))
}

// plain are texts that every reader of YAML takes for texts as they stand.
var plain = regexp.MustCompile(`^[A-Za-z/_][A-Za-z0-9_./-]*(::[A-Za-z0-9]+)*$`)

var words = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "null": true, "y": true, "n": true,
}

func quoted(text string) string {
	if plain.MatchString(text) && !words[strings.ToLower(text)] {
		return text
	}
	if strings.Contains(text, `"`) && !strings.ContainsAny(text, "'\\") && !strings.ContainsFunc(text, unicode.IsControl) {
		return "'" + text + "'"
	}
	return inQuotes(text)
}

// inQuotes writes a text as JSON does, which YAML reads in the same way.
func inQuotes(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // neither a text nor a strings.Builder fails
	return strings.TrimSuffix(b.String(), "\n")
}

package openapi

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth bounds how deep YAML is nested: what the parser needs grows with the
// square of it, 4 MB at 1,000 and gigabytes at 40,000.
const maxDepth = 1000

// decodeYAML reads the first document of a text; why is "" when it could.
func decodeYAML(text []byte) (v any, why string) {
	defer func() {
		if r := recover(); r != nil {
			v, why = nil, fmt.Sprintf("the YAML parser gave up: %v", r)
		}
	}()
	if len(text) > MaxYAML {
		return nil, fmt.Sprintf("it is larger than %d bytes of YAML; as JSON it may have %d: yq -o json", MaxYAML, MaxJSON)
	}
	tokens := lexer.Tokenize(string(text))
	if line := tooDeep(tokens); line > 0 {
		return nil, fmt.Sprintf("line %d is nested deeper than %d levels", line, maxDepth)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil && len(file.Docs) > 0 && file.Docs[0].Body != nil {
		err = yaml.NewDecoder(strings.NewReader(""), yaml.AllowDuplicateMapKey()).DecodeFromNode(file.Docs[0].Body, &v)
	}
	if err != nil {
		return nil, strings.SplitN(err.Error(), "\n", 2)[0]
	}
	return v, ""
}

// tooDeep is the first line that is nested too deep, by brackets or by indentation,
// which each level needs one character of; 0 for none.
func tooDeep(tokens token.Tokens) (line int) {
	brackets, last := 0, 0
	for _, t := range tokens {
		first := t.Position.Line > last
		last = t.Position.Line
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			first = true
		}
		if brackets > maxDepth || first && t.Position.Column > maxDepth {
			return t.Position.Line
		}
	}
	return 0
}

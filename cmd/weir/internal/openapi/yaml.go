package openapi

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"github.com/weirlabs/weir/cmd/weir/internal/nesting"
)

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
	if line := nesting.TooDeep(tokens); line > 0 {
		return nil, fmt.Sprintf("line %d is nested deeper than %d levels", line, nesting.Max)
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

package nesting

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml/lexer"
)

func TestTooDeep(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"nothing":         {"", 0},
		"as deep as may":  {strings.Repeat("[", Max) + strings.Repeat("]", Max), 0},
		"side by side":    {strings.Repeat("- [{a: [1]}]\n", 2*Max), 0},
		"lists":           {"a: 1\nb: " + strings.Repeat("[", Max+1), 2},
		"objects":         {"a:\n  " + strings.Repeat("{b: ", Max+1), 2},
		"closed in texts": {strings.Repeat(`{a: "}]", b: `, Max+1), 1},
		"dashes":          {strings.Repeat("- ", Max), 1},
		"indentation":     {"a:\n" + strings.Repeat(" ", Max) + "b: 1", 2},
		"a long line":     {"a: " + strings.Repeat("x", 2*Max) + "\nb: 1", 0},
	} {
		if got := TooDeep(lexer.Tokenize(c.text)); got != c.line {
			t.Errorf("%s: line %d, want %d", name, got, c.line)
		}
	}
}

package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// FromLimit is the policy of `weir proxy --limit L --by C`: one limit for every
// path, with the file that says the same. C is what `by:` takes; commas
// separate several forms. The error is [Problems].
func FromLimit(limit, by string) (*Policy, []byte, error) {
	forms := strings.Split(by, ",")
	for i, f := range forms {
		forms[i] = scalarText(strings.TrimSpace(f))
	}
	sharing := forms[0]
	if len(forms) > 1 {
		sharing = "[" + strings.Join(forms, ", ") + "]"
	}
	text := fmt.Appendf(nil, "weir: 1\napplication:\n  limits:\n    - name: requests\n      by: %s\n      limit: %s\n", sharing, scalarText(limit))
	l := &loader{document: document{file: "--limit"}, name: "--limit"}
	p, err := l.load(text)
	return p, text, err
}

var needsNoQuotes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ./+_-]*$`)

// scalarText writes a text so that YAML reads it back.
func scalarText(s string) string {
	if needsNoQuotes.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

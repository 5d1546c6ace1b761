package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FromLimit is the policy of `weir proxy --limit L --by C`: one limit for every
// path, with the file that says the same. C is what `by:` takes; commas
// separate several forms. Callers are known by `auth:` only, of which there is
// none: whom it cannot verify is a finding. The error is [Problems], which have no
// line: they show the flag that is wrong.
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
	l := &loader{document: document{page: &page{file: "--limit"}}, name: "--limit", onlyAuth: true}
	p, err := l.load(text)
	lines := strings.Split(string(text), "\n")
	var problems Problems
	if p != nil {
		problems = p.warnings
	} else if !errors.As(err, &problems) {
		return nil, text, err
	}
	for i := range problems {
		switch at := &problems[i]; {
		case at.Line < 1:
		case strings.HasPrefix(strings.TrimSpace(lines[at.Line-1]), "by:"):
			at.inFlag("--by", by, lines)
		default:
			at.inFlag("--limit", limit, lines)
		}
	}
	return p, text, err
}

// inFlag places a problem in the flag that was typed, in place of the line that
// was made of it.
func (p *Problem) inFlag(flag, value string, lines []string) {
	width := strings.Count(p.Excerpt, "^")
	line := []rune(lines[p.Line-1])
	from := min(max(0, p.Col-1), len(line))
	wrong := strings.Trim(string(line[from:min(len(line), from+width)]), `"`)
	value = printable(value)
	at := strings.Index(value, wrong)
	if at < 0 || wrong == "" {
		at, wrong = 0, value
	}
	const margin = "    "
	before := flag + " " + value[:at]
	p.File, p.Line, p.Col = flag, 0, 0
	p.Excerpt = margin + flag + " " + value + "\n" + margin + strings.Repeat(" ", utf8.RuneCountInString(before)) + strings.Repeat("^", max(1, utf8.RuneCountInString(wrong)))
}

var needsNoQuotes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ./+_-]*$`)

// scalarText writes a text so that YAML reads it back.
func scalarText(s string) string {
	if needsNoQuotes.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

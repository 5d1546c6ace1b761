package policy

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity says whether a problem keeps a policy from loading.
type Severity string

// The severities. A policy with errors does not load; warnings are findings
// that [Policy.Warnings] returns.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one mistake in a file of the policy, or one finding about it.
type Problem struct {
	Severity Severity
	Code     Code
	File     string // as the user knows it
	Line     int    // from 1; 0 when the problem is the file's as a whole
	Col      int    // from 1, in characters
	Message  string // what is wrong
	Hint     string // what to write instead; "" when the message says it
	Excerpt  string // the line, and below it a caret; may be ""
}

// String renders a problem the way a compiler does: position, message, the
// line with a caret below it, and what to do.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	fmt.Fprintf(&b, ": %s: %s [%s]\n", p.Severity, p.Message, p.Code)
	if p.Excerpt != "" {
		b.WriteString(p.Excerpt)
		b.WriteByte('\n')
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, "    fix: %s\n", p.Hint)
	}
	return b.String()
}

// Problems is the error of [Load]: every mistake that was found, in the order
// of the file.
type Problems []Problem

// Error renders all problems.
func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// excerpt renders a line of a source, or nothing where there is none.
func excerpt(source []string, line, col, n int) string {
	if line < 1 || line > len(source) || col < 1 {
		return ""
	}
	return excerptOf(source[line-1], line, col, n)
}

// excerptOf renders a line with a caret under n characters from column col on.
// Long lines are cut around the caret; characters that could move a terminal's
// cursor, and what may be a password, are replaced.
func excerptOf(content string, line, col, n int) string {
	const widest, before = 100, 60
	text := []rune(withoutSecrets(printable(content)))
	lead, tail := "", ""
	from, to := 0, len(text)
	if len(text) > widest {
		if from = max(0, col-1-before); from > 0 {
			lead = "..."
		}
		if to = min(len(text), from+widest); to < len(text) {
			tail = "..."
		}
	}
	at := max(0, col-1-from)
	n = max(1, min(n, to-from-at))
	margin := fmt.Sprintf("%5d | ", line)
	return margin + lead + string(text[from:to]) + tail + "\n" +
		strings.Repeat(" ", len(margin)-2) + "| " + strings.Repeat(" ", len(lead)+at) + strings.Repeat("^", n)
}

// secrets find what may be a password; what comes after the first group is not shown.
var secrets = []*regexp.Regexp{
	// Of any URL, before the host, or where a port would stand if the host was forgotten.
	regexp.MustCompile(`(:)//.*@.*`),
	regexp.MustCompile(`(?i)((?:://|redis[a-z+]*:)[^:/\[ "',]*:)(?:[0-9]{0,5}[^0-9/"',} ]|[0-9]{6}).*`),
	// Of a store, which is told by its scheme or the name of the field, also as a parameter.
	regexp.MustCompile(`(?i)((?:redis[a-z+]*|dynamodb|bolt|memory):|(?:^|[ {,_])["']?st[a-z]?or[a-z]*["']? *: *)(?:[^ ].*)?[@?].*`),
}

// withoutSecrets is a line with * in place of what may be a password, and of all that
// follows: where one that is not escaped ends, nobody knows.
func withoutSecrets(s string) string {
	for _, secret := range secrets {
		if at := secret.FindStringSubmatchIndex(s); at != nil {
			s = s[:at[3]] + strings.Repeat("*", utf8.RuneCountInString(s[at[3]:]))
		}
	}
	return s
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r):
			return '.'
		}
		return r
	}, strings.TrimRight(s, "\r\n"))
}

// nearest returns the candidate that somebody who wrote word most probably
// meant, or "".
func nearest(word string, candidates []string) string {
	best, at := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c); d < at {
			best, at = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var rows [3][longest + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

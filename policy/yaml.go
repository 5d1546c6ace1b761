package policy

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a policy file may be at most. All is checked before the parser sees
// the file: 40,000 brackets keep it busy for seconds.
const (
	maxFile    = 1 << 20
	maxLine    = 4 << 10
	maxNesting = 64
	maxLines   = 50_000
	maxCommas  = 3_000
	maxTokens  = 36_000 // some 2,000 limits; the parser needs 1.3 KB for one
)

// maxProblems is how many mistakes are reported: nobody reads more at once.
const maxProblems = 100

// shape is what a node of the document is.
type shape uint8

const (
	broken  shape = iota // reported already: whoever reads it says nothing more
	scalar               // text is its value
	integer              // a scalar that was written as a number without a fraction
	list                 // items
	object               // fields
)

// node is one value of the document: the part of YAML that a policy uses.
type node struct {
	shape     shape
	in        *page
	line, col int
	width     int    // characters to underline
	text      string // of a scalar, unquoted
	plain     bool   // the scalar stands without quotes
	flow      bool   // the list or object is written in brackets
	partial   bool   // some fields of the object could not be read
	items     []*node
	fields    []field
}

type field struct{ key, value *node }

// get returns the value of a field, or nil.
func (n *node) get(name string) *node {
	if n != nil {
		for _, f := range n.fields {
			if f.key.text == name {
				return f.value
			}
		}
	}
	return nil
}

// page is one file of a policy.
type page struct {
	file  string // as messages name it
	lines []string
}

// beside is how messages name a file that this one names.
func (p *page) beside(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(path.Dir(p.file), name)
}

// document is a policy that is being read, with the mistakes found so far.
type document struct {
	*page    // the file that is being read
	problems Problems
	full     bool // there are more than are kept
}

func (d *document) report(s Severity, code Code, line, col, width int, hint, format string, args ...any) {
	d.reportIn(d.page, s, code, line, col, width, hint, format, args...)
}

// reportIn reports a problem in one of the files.
func (d *document) reportIn(p *page, s Severity, code Code, line, col, width int, hint, format string, args ...any) {
	if len(d.problems) >= maxProblems {
		if d.full || s == Warning {
			return
		}
		d.full = true
		code, line, format, args, hint = codeTooLarge, 0, "there are more mistakes than these %d", []any{maxProblems}, "mend these first"
	}
	d.problems = append(d.problems, Problem{
		Severity: s, Code: code, File: p.file, Line: line, Col: col,
		Message: fmt.Sprintf(format, args...), Hint: hint,
		Excerpt: excerpt(p.lines, line, col, width),
	})
}

// wrong reports a mistake at a node; hint may be "".
func (d *document) wrong(n *node, code Code, hint, format string, args ...any) {
	d.reportIn(d.pageOf(n), Error, code, n.line, n.col, n.width, hint, format, args...)
}

// inside is a part of a scalar, of so many characters from one on: where the
// file shows the text as it is read, else all of it.
func (d *document) inside(n *node, from, width int) *node {
	start := n.col - 1
	if !n.plain {
		start++ // the quote
	}
	lines := d.pageOf(n).lines
	if n.line < 1 || n.line > len(lines) || start < 0 {
		return n
	}
	line := []rune(lines[n.line-1])
	if start > len(line) || !strings.HasPrefix(string(line[start:]), n.text) {
		return n
	}
	part := *n
	part.col, part.width = start+from+1, width
	return &part
}

// pageOf is the file that a node stands in.
func (d *document) pageOf(n *node) *page {
	if n.in != nil {
		return n.in
	}
	return d.page
}

// placeOf is where a node stands, for a message at another one: its line, with the
// file where that is another.
func (d *document) placeOf(n, seenFrom *node) string {
	line := "line " + strconv.Itoa(n.line)
	if p := d.pageOf(n); p != d.pageOf(seenFrom) {
		return p.file + ", " + line
	}
	return line
}

// doubt reports a finding at a node.
func (d *document) doubt(n *node, code Code, hint, format string, args ...any) {
	d.reportIn(d.pageOf(n), Warning, code, n.line, n.col, n.width, hint, format, args...)
}

// hideLast takes the line out of the last report.
func (d *document) hideLast() { d.problems[len(d.problems)-1].Excerpt = "" }

// failed reports whether anything found so far keeps the policy from loading.
func (d *document) failed() bool {
	for _, p := range d.problems {
		if p.Severity == Error {
			return true
		}
	}
	return false
}

// parse reads the whole text. It returns nil when nothing of it can be used;
// then a problem says why.
func (d *document) parse(text []byte) *node {
	if !d.readable(text) {
		return nil
	}
	file, err := parseYAML(text)
	if err != nil {
		d.syntax(err)
		return nil
	}
	var root *node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, ok := doc.Body.(*ast.DirectiveNode); ok {
			d.wrong(d.at(doc.Body), codeYAML, "remove the line", "YAML directives are not used in a policy")
			continue
		}
		if root != nil {
			d.wrong(d.at(doc.Body), codeSecondDocument, "remove the `---` line, or keep the second document in a file of its own", "a second document begins here; a policy is one document")
			break
		}
		root = d.convert(doc.Body, 0)
	}
	if root == nil && len(d.problems) == 0 {
		d.report(Error, codeEmptyFile, 0, 0, 0, beginning, "the file is empty")
	}
	return root
}

// parseYAML keeps a fault of the parser from ending the process.
func parseYAML(text []byte) (f *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML parser gave up: %v", r)
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// readable checks what must hold before the parser may see the text.
func (d *document) readable(text []byte) bool {
	if len(text) > maxFile {
		d.report(Error, codeTooLarge, 0, 0, 0, "a policy of this size is usually a wrong file; split what is generated", "the file has %d bytes; at most %d are read", len(text), maxFile)
		return false
	}
	if n := bytes.Count(text, []byte("\n")); n > maxLines {
		d.report(Error, codeTooLarge, 0, 0, 0, "is this the right file? Split what is generated, and include: the parts", "the file has %d lines; at most %d are read", n, maxLines)
		return false
	}
	d.lines = strings.Split(string(text), "\n")
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		d.lines[0] = d.lines[0][3:]
		d.report(Error, codeEncoding, 1, 1, 1, "save the file as UTF-8 without a byte order mark", "the file begins with a byte order mark")
		return false
	}
	for i, line := range d.lines {
		if len(line) > maxLine {
			d.report(Error, codeTooLarge, i+1, 1, 1, "break the line", "the line has %d bytes; at most %d are read", len(line), maxLine)
			return false
		}
		at := 0
		for at < len(line) {
			r, n := utf8.DecodeRuneInString(line[at:])
			if r == utf8.RuneError && n == 1 {
				d.report(Error, codeEncoding, i+1, utf8.RuneCountInString(line[:at])+1, 1, "save the file as UTF-8", "byte 0x%02X is not UTF-8", line[at])
				return false
			}
			if r < ' ' && r != '\t' && !(r == '\r' && at == len(line)-1) {
				d.report(Error, codeEncoding, i+1, utf8.RuneCountInString(line[:at])+1, 1, "remove it", "control character 0x%02X", r)
				return false
			}
			at += n
		}
	}
	if b := tooMuch(d.lines); b != nil {
		d.report(Error, codeTooLarge, b.line, b.col, 1, "is this the right file? A policy is short, and 8 levels deep at most", "%s", b.message)
		return false
	}
	return true
}

// burden is where a text becomes too much for the parser, which works through
// nesting by recursion, through the keys of one mapping and the items in one pair
// of brackets in quadratic time, and needs much memory for every token.
type burden struct {
	line, col int
	message   string
}

// maxSiblings bounds the work on keys: the sum, over all block mappings, of
// half the square of their number. One mapping may have some 3,000.
const maxSiblings = 3_000 * 3_000 / 2

// tooMuch looks for the first such place, by brackets outside quotes and
// comments, indentation, and dashes in one line.
func tooMuch(source []string) *burden {
	type level struct{ indent, keys int }
	var levels []level
	brackets, work, tokens := 0, 0, 0
	var commas [maxNesting + 1]int // in each pair of brackets that is open
	for i, s := range source {
		rest := strings.TrimSpace(s)
		if rest == "" {
			continue
		}
		if tokens++; tokens > maxTokens {
			return &burden{i + 1, 1, "too many values in one file"}
		}
		if rest[0] == '#' {
			continue
		}
		first := len(s) - len(strings.TrimLeft(s, " "))
		at, dashes, marks := first, 0, 0
		for ; at < len(s) && strings.IndexByte("-?: \t", s[at]) >= 0; at++ {
			switch s[at] {
			case '-':
				dashes++
			case '?', ':':
				marks++
			}
		}
		if marks > 0 && dashes == 0 {
			at = first // an explicit key: a sibling of those at its mark
		}
		dashes += marks
		tokens += dashes
		for len(levels) > 0 && (levels[len(levels)-1].indent > first || at > first && levels[len(levels)-1].indent == at) {
			levels = levels[:len(levels)-1]
		}
		if len(levels) == 0 || levels[len(levels)-1].indent != at {
			levels = append(levels, level{indent: at})
		}
		top := &levels[len(levels)-1]
		top.keys++
		if work += top.keys; work > maxSiblings {
			return &burden{i + 1, 1, "too many fields in one place"}
		}
		var quote byte // a text of several lines is taken for lines of their own: counted too often, never too little
		for ; at < len(s); at++ {
			switch c := s[at]; {
			case quote == '"' && c == '\\':
				at++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case (c == '"' || c == '\'') && startsValue(s[:at]):
				quote = c
			case c == '#' && (at == 0 || s[at-1] == ' ' || s[at-1] == '\t'):
				at = len(s)
			case c == '[' || c == '{':
				brackets++
				tokens++
				commas[min(brackets, maxNesting)] = 0
			case (c == ']' || c == '}') && brackets > 0:
				brackets--
			case c == ',' && brackets > 0:
				tokens += 2
				commas[brackets]++
				if commas[brackets] > maxCommas {
					return &burden{i + 1, utf8.RuneCountInString(s[:at]) + 1, "too many values in one pair of brackets: write them one a line, with dashes"}
				}
			case c == ':':
				tokens += 2
			}
			if brackets+len(levels)+dashes > maxNesting {
				return &burden{i + 1, utf8.RuneCountInString(s[:min(at, len(s))]) + 1, fmt.Sprintf("nested deeper than %d levels", maxNesting)}
			}
		}
		if len(levels)+dashes > maxNesting {
			return &burden{i + 1, 1, fmt.Sprintf("nested deeper than %d levels", maxNesting)}
		}
	}
	return nil
}

// startsValue reports whether a quote that follows this text opens a quoted
// value: elsewhere, as in "don't", it is a character like any other.
func startsValue(before string) bool {
	before = strings.TrimRight(before, " \t")
	return before == "" || strings.IndexByte("[{,:-?", before[len(before)-1]) >= 0
}

// syntax reports what the parser stopped at.
func (d *document) syntax(err error) {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) || se.Token == nil || se.Token.Position == nil {
		d.report(Error, codeSyntax, 0, 0, 0, "", "this is not YAML: %v", err)
		return
	}
	line, col := d.locate(se.Token)
	text := ""
	if line >= 1 && line <= len(d.lines) {
		text = d.lines[line-1]
	}
	hint := ""
	unclosed := strings.Contains(se.Message, "not found") || strings.Contains(se.Message, "could not find end")
	switch {
	case strings.Contains(text, "{{"):
		hint = `a text with {{ needs quotes: message: "... {{.Wait}} ..."`
	case strings.Contains(se.Message, "tab character"), strings.HasPrefix(strings.TrimLeft(text, " "), "\t"):
		hint, se.Message = "indent with spaces", "a tab in the indentation"
	case unclosed:
		hint = "close it; is the file complete?"
	case hasInner(text):
		hint = `inside { } a text with braces or a comma needs quotes: {match: "POST /events/{event}"}`
	case strings.Contains(se.Message, "reserved character"):
		hint = "put the text in quotes"
	case strings.Contains(se.Message, "mapping value is not allowed"):
		hint = "a text with `: ` needs quotes; or the indentation of this line is wrong"
	case strings.Contains(se.Message, "'}'"), strings.Contains(se.Message, "']'"):
		hint = "close the bracket, or put the text in quotes; is the file complete?"
	}
	if runes := []rune(text); unclosed || col > len(runes) {
		d.report(Error, codeSyntax, line, col, 1, hint, "this is not YAML: %s", printable(se.Message))
	} else {
		for col < len(runes) && runes[col-1] == ' ' {
			col++
		}
		d.report(Error, codeSyntax, line, col, 1, hint, "this is not YAML: %s", printable(se.Message))
	}
}

// hasInner reports whether a line holds a brace within braces.
func hasInner(line string) bool {
	depth := 0
	for _, c := range line {
		switch c {
		case '{':
			if depth++; depth == 2 {
				return true
			}
		case '}':
			depth--
		}
	}
	return false
}

// locate gives the position of a token in characters. The parser's own column
// is trusted only where the text stands there.
func (d *document) locate(t *token.Token) (line, col int) {
	line, col = t.Position.Line, max(1, t.Position.Column)
	if line < 1 || line > len(d.lines) {
		return max(1, min(line, len(d.lines))), 1
	}
	value := t.Value
	if value == "" {
		return line, col
	}
	text := []rune(d.lines[line-1])
	if col <= len(text) && (strings.HasPrefix(string(text[col-1:]), value) || text[col-1] == '"' || text[col-1] == '\'') {
		return line, col
	}
	if at := strings.Index(d.lines[line-1], value); at >= 0 {
		return line, utf8.RuneCountInString(d.lines[line-1][:at]) + 1
	}
	return line, min(col, len(text)+1)
}

// at makes a node that only has a place.
func (d *document) at(n ast.Node) *node {
	t := n.GetToken()
	switch x := n.(type) {
	case *ast.MappingNode: // the token of a block mapping is its first colon
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return d.at(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return d.at(x.Key)
	}
	if t == nil || t.Position == nil {
		return &node{in: d.page, line: 1, col: 1, width: 1}
	}
	line, col := d.locate(t)
	width := utf8.RuneCountInString(t.Value)
	if t.Type == token.DoubleQuoteType || t.Type == token.SingleQuoteType {
		width += 2
	}
	if line <= len(d.lines) { // a value of several lines is underlined in its first
		width = min(width, utf8.RuneCountInString(strings.TrimRight(d.lines[line-1], " \r"))-col+1)
	}
	return &node{in: d.page, line: line, col: col, width: max(1, width)}
}

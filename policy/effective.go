package policy

import (
	"bytes"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlabs/weir"
)

// Effective is the policy that [Load] would load, written out: the files that it
// includes are part of it, the environment in force is laid over it, and every field
// that was left out has its default. Loaded again it means the same. The error is
// [Problems], as of Load.
func Effective(fsys fs.FS, name string, o Options) ([]byte, error) {
	if _, err := Load(fsys, name, o); err != nil {
		return nil, err
	}
	l := &loader{document: document{page: &page{file: name}}, fsys: fsys, name: name, environment: o.Environment}
	text, err := readAll(fsys, name)
	if err != nil {
		return nil, err // it was there a moment ago
	}
	root := l.include(l.parse(text))
	for _, e := range l.environments(root) {
		if e.key.text == o.Environment {
			root = overlay(root, e.value)
		}
	}
	root.fields = slices.DeleteFunc(slices.Clone(root.fields), func(f field) bool {
		return f.key.text == "include" || f.key.text == "environments"
	})
	l.fill(root)
	var b bytes.Buffer
	write(&b, root, 0, false)
	return b.Bytes(), nil
}

// fill adds the defaults of a policy.
func (l *loader) fill(root *node) {
	l.defaults(root,
		"mode", "enforce", "revision", "0", "edge_store", "memory", "log_keys", "hash", "header_styles", "[ietf]", "callers_per_address", strconv.Itoa(usualCallers),
		"callers", "{account: jwt.sub, partner: api_key.owner, ip: client_ip}", "client_ip", "{}", "accounts", "{max_age: 5s}")
	l.defaults(root.get("client_ip"), "ipv6_prefix", strconv.Itoa(usualPrefix))
	common := []string{"mode", root.get("mode").text, "header_styles", flowOf(root.get("header_styles"))}
	counted := append([]string{"count", "always", "cost", "1", "case", "ignore"}, common...)
	if edge := root.get("edge"); edge != nil {
		for _, rule := range edge.items {
			l.rule(rule, append([]string{"on_store_error", "allow"}, common...))
		}
	}
	if g := root.get("gateway"); g != nil {
		l.rule(g, append([]string{"on_store_error", "allow"}, common...))
		canonicalPlans(g.get("plans"))
	}
	app := root.get("application")
	if plans := app.get("plans"); plans != nil {
		l.defaults(plans, "from", "jwt.plans")
		for _, f := range plans.fields {
			canonicalPlans(f.value)
		}
	}
	if ops := app.get("operations"); ops != nil {
		for _, f := range ops.fields {
			l.rule(f.value, append([]string{"on_store_error", "deny"}, counted...))
		}
	}
	if limits := app.get("limits"); limits != nil {
		for _, rule := range limits.items {
			l.rule(rule, append([]string{"on_store_error", "allow"}, counted...))
		}
	}
}

// rule adds the defaults of a rule, with those that depend on its other fields.
func (l *loader) rule(n *node, pairs []string) {
	l.defaults(n, pairs...)
	if v := n.get("on_store_error"); v != nil && v.text == "local" {
		l.defaults(n, "share", "1/replicas")
	}
	if v := n.get("count"); v != nil && v.text == "on_success" {
		l.defaults(n, "success", "100-399")
	}
	if n.get("when") != nil {
		l.defaults(n, "on_error", "apply")
	}
	canonical(n.get("limit"))
	canonical(n.get("anonymous"))
}

// defaults adds fields that an object lacks: names and values in turn.
func (l *loader) defaults(n *node, pairs ...string) {
	for i := 0; n != nil && i < len(pairs); i += 2 {
		if n.get(pairs[i]) == nil {
			d := document{page: &page{}}
			n.fields = append(slices.Clip(n.fields), d.parse([]byte(pairs[i]+": "+pairs[i+1])).fields...)
		}
	}
}

// flowOf is a list of words as it stands in one line.
func flowOf(n *node) string {
	if n.shape != list {
		return n.text
	}
	words := make([]string, len(n.items))
	for i, item := range n.items {
		words[i] = item.text
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func canonicalPlans(n *node) {
	if n == nil || n.shape != object {
		return
	}
	for _, f := range n.fields {
		canonical(f.value)
	}
}

// canonical writes limits out, with the burst that they have by default.
func canonical(n *node) {
	switch {
	case n == nil:
	case n.shape == list:
		for _, item := range n.items {
			canonical(item)
		}
	default:
		if l, err := weir.ParseLimit(n.text); err == nil {
			if n.text = l.String(); l.IsBucket() && !strings.Contains(n.text, " burst ") {
				n.text += " burst " + strconv.FormatInt(l.Max(), 10)
			}
		}
	}
}

var plainScalar = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9 ./_@+-]*$|^[0-9][0-9.]*/[A-Za-z0-9 ./_-]+$`)

// write writes a value in block style. In a list the first field of an object stands
// behind the dash.
func write(b *bytes.Buffer, n *node, indent int, behind bool) {
	margin := strings.Repeat(" ", indent)
	switch {
	case n.shape == object && len(n.fields) > 0:
		for i, f := range n.fields {
			if i > 0 || !behind {
				b.WriteString(margin)
			}
			b.WriteString(scalarOf(f.key) + ":")
			writeValue(b, f.value, indent+2)
		}
	case n.shape == list:
		for _, item := range n.items {
			b.WriteString(margin + "-")
			if item.shape == object && len(item.fields) > 0 {
				b.WriteByte(' ')
				write(b, item, indent+2, true)
			} else {
				writeValue(b, item, indent+2)
			}
		}
	}
}

func writeValue(b *bytes.Buffer, n *node, indent int) {
	switch {
	case n.shape == object && len(n.fields) == 0:
		b.WriteString(" {}\n")
	case n.shape == object || n.shape == list:
		b.WriteByte('\n')
		write(b, n, indent, false)
	default:
		b.WriteString(" " + brokenUp(scalarOf(n), indent) + "\n")
	}
}

// brokenUp writes a long text in double quotes as several lines, none longer than what
// is read: a backslash at the end of a line joins it with the next.
func brokenUp(text string, indent int) string {
	const longest = maxLine / 2
	if len(text) <= longest || text[0] != '"' {
		return text
	}
	var b strings.Builder
	room := longest
	for rest := text; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		if rest[0] == '\\' { // an escape is not divided
			size = map[byte]int{'x': 4, 'u': 6, 'U': 10}[rest[1]]
			size = max(size, 2)
		}
		if room < size && rest != `"` {
			b.WriteString("\\\n" + strings.Repeat(" ", indent))
			if room = longest; rest[0] == ' ' { // else it would be indentation
				b.WriteByte('\\')
			}
		}
		b.WriteString(rest[:size])
		rest, room = rest[size:], room-size
	}
	return b.String()
}

func scalarOf(n *node) string {
	if n.shape == integer || plainScalar.MatchString(n.text) && strings.TrimSpace(n.text) == n.text && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off"}, strings.ToLower(n.text)) {
		return n.text
	}
	return strconv.Quote(n.text)
}

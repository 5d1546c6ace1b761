package policy

import (
	"errors"
	"fmt"
	"strings"
)

// pattern is a compiled `match:` or `path:`.
type pattern struct {
	text   string
	method string // "" covers every method, GET covers HEAD
	host   string // "" covers every host
	segs   []segment
	tail   tail
	rest   string // the name of {name...}
	exact  bool   // literals compare with their case
	edge   bool   // written as `path:`, where a last slash counts

	order    int // among the patterns of its rule
	generals int // how many patterns of operations are more general
}

// segment is one part of a pattern between slashes.
type segment struct {
	literal string // lower case; "" for a wildcard
	written string // with its case
	name    string // of a wildcard
}

// tail is what may follow the segments of a pattern.
type tail uint8

const (
	nothing tail = iota // /a
	slash               // /a/{$}
	multi               // /a/ and /a/{name...}: a slash, and whatever follows it
)

// flaw is a mistake in a pattern with the way out of it.
type flaw struct {
	error
	hint string
}

func flawed(hint, format string, args ...any) error {
	return flaw{fmt.Errorf(format, args...), hint}
}

func hintOf(err error) string {
	var f flaw
	if errors.As(err, &f) {
		return f.hint
	}
	return ""
}

// parsePattern reads a pattern in the form of net/http.ServeMux.
func parsePattern(text string, exact bool) (*pattern, error) {
	p := &pattern{text: text, exact: exact}
	rest := text
	if at := strings.IndexAny(text, " \t"); at >= 0 {
		p.method, rest = text[:at], strings.TrimLeft(text[at+1:], " \t")
		if err := checkMethod(p.method); err != nil {
			return nil, err
		}
	}
	at := strings.IndexByte(rest, '/')
	if at < 0 {
		return nil, flawed("write [METHOD] [HOST]/PATH, such as POST /orders", "pattern %s has no path", show(text))
	}
	p.host, rest = normalHost(rest[:at]), rest[at:]
	if strings.ContainsAny(p.host, "{} ") {
		return nil, flawed("wildcards stand in the path", "the host of %s has a wildcard or a space", show(text))
	}
	if strings.Contains(rest, "*") {
		return nil, flawed("write {name} for one segment, {name...} for all that follow", "* has no meaning in match:, and %s has one", show(text))
	}
	seen := map[string]bool{}
	parts := strings.Split(rest[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "" && last:
			p.tail = multi
		case part == "":
			return nil, flawed("write one slash", "pattern %s has two slashes in a row", show(text))
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			name := part[1 : len(part)-1]
			if name == "$" {
				if !last {
					return nil, flawed("{$} marks the end of a path", "{$} does not end the pattern %s", show(text))
				}
				p.tail = slash
				break
			}
			name, all := strings.CutSuffix(name, "...")
			if all && !last {
				return nil, flawed("{name...} ends a pattern", "{%s...} does not end the pattern %s", name, show(text))
			}
			if !isIdent(name) {
				return nil, flawed("use letters, digits and _", "{%s} is not the name of a wildcard", name)
			}
			if seen[name] {
				return nil, flawed("give every wildcard a name of its own", "{%s} stands twice in %s", name, show(text))
			}
			seen[name] = true
			if all {
				p.tail, p.rest = multi, name
			} else {
				p.segs = append(p.segs, segment{name: name})
			}
		case strings.ContainsAny(part, "{}"):
			return nil, flawed("a wildcard is a whole segment: /events/{event}/seats", "a brace stands within the segment %s", show(part))
		default:
			if err := p.add(part); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// parseGlob reads a `path:` of the edge or of an exemption.
func parseGlob(text string) (*pattern, error) {
	p := &pattern{text: text, edge: true}
	if !strings.HasPrefix(text, "/") {
		hint := "write /" + text
		if at := strings.IndexByte(text, ' '); at >= 0 {
			hint = "path: names no method; write " + strings.TrimSpace(text[at:])
		}
		return nil, flawed(hint, "path %s does not begin with a slash", show(text))
	}
	if strings.ContainsAny(text, "{}") {
		return nil, flawed("end it in /* for everything below", "path: knows no wildcards in braces, and %s has one", show(text))
	}
	rest, all := strings.CutSuffix(text, "/*")
	if strings.Contains(rest, "*") {
		return nil, flawed("* stands alone after the last slash: /api/*", "* stands in the middle of %s", show(text))
	}
	if all {
		p.tail = multi
	} else if cut, ok := strings.CutSuffix(rest, "/"); ok {
		rest, p.tail = cut, slash
	}
	if rest == "" {
		return p, nil
	}
	for _, part := range strings.Split(rest[1:], "/") {
		if part == "" {
			return nil, flawed("write one slash", "path %s has two slashes in a row", show(text))
		}
		if err := p.add(part); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Path is what a `path:` of a policy names: paths that begin with /P/ for /P/*,
// else exactly one. Case does not matter. The zero Path names nothing.
type Path struct{ p *pattern }

// ParsePath reads a path in the form of an exemption or an edge rule, such as
// /healthz or /api/*.
func ParsePath(text string) (Path, error) {
	p, err := parseGlob(text)
	if err != nil {
		if hint := hintOf(err); hint != "" {
			err = fmt.Errorf("%w: %s", err, hint)
		}
		return Path{}, err
	}
	return Path{p}, nil
}

// Matches reports whether a path as received, still escaped and without its
// query, is one of those in any of its readings, see [Policy.Match]: a server
// may read it that way. A path that no server should read matches nothing.
func (p Path) Matches(received string) bool {
	var paths readings
	if p.p == nil || paths.read(received) != nil {
		return false
	}
	for i := range paths.n {
		if p.p.reads(paths.at(i)) {
			return true
		}
	}
	return false
}

// reads reports whether a pattern without wildcards matches a reading.
func (p *pattern) reads(r *reading) bool {
	rest := r.text
	for _, s := range p.segs {
		if rest == "" {
			return false
		}
		var seg string
		if seg, rest = cutSegment(rest); seg != s.literal {
			return false
		}
	}
	if p.tail == multi {
		return rest != "" || r.slash
	}
	return rest == "" && r.slash == (p.tail == slash)
}

func checkMethod(m string) error {
	if m == "CONNECT" || m == "TRACE" {
		return flawed("remove it", "%s is always answered with 405", m)
	}
	if m != strings.ToUpper(m) {
		return flawed("write "+strings.ToUpper(m), "method %s is not in upper case", show(m))
	}
	if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return flawed("write METHOD, one space and the path", "%s is not a method", show(m))
	}
	return nil
}

// add appends a literal segment, written as in a URL.
func (p *pattern) add(part string) error {
	text, bad := unescape(part)
	if bad != "" {
		return flawed("write % as %25", "%s is not an escape", show(bad))
	}
	if text == "." || text == ".." {
		return flawed("write the path that is meant", "%s has a dot segment, which no path keeps", show(p.text))
	}
	if control(text) {
		return flawed("", "%s has a control character", show(p.text))
	}
	if strings.ContainsAny(part, "?#") {
		return flawed("conditions on the query belong into when:", "%s has a query or fragment", show(p.text))
	}
	text = strings.ReplaceAll(text, "/", inner)
	p.segs = append(p.segs, segment{literal: lower(text), written: text})
	return nil
}

func isIdent(s string) bool {
	for i, r := range s {
		if !(r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || i > 0 && '0' <= r && r <= '9') {
			return false
		}
	}
	return s != ""
}

// names lists the wildcards of a pattern.
func (p *pattern) names() []string {
	var out []string
	for _, s := range p.segs {
		if s.name != "" {
			out = append(out, s.name)
		}
	}
	if p.rest != "" {
		out = append(out, p.rest)
	}
	return out
}

// fits reports whether a path of n segments, which ends in a slash or does
// not, has a length that the pattern wants.
func (t tail) fits(want, n int, slashed bool) bool {
	switch t {
	case nothing:
		return n == want && !slashed
	case slash:
		return n == want && slashed
	}
	return n > want || n == want && slashed
}

// within reports whether whatever matches p matches q too, in the sense of
// ServeMux, in which a last slash counts. Hosts are left out.
func (p *pattern) within(q *pattern) bool {
	if q.method != "" && q.method != p.method && !(q.method == "GET" && p.method == "HEAD") {
		return false
	}
	if p.tail == multi && q.tail != multi || p.tail == multi && len(p.segs) < len(q.segs) ||
		p.tail != multi && !q.tail.fits(len(q.segs), len(p.segs), p.tail == slash) {
		return false
	}
	for i, s := range q.segs {
		if s.literal == "" {
			continue
		}
		if !same(p, q, i) || q.exact && !p.exact && s.literal != strings.ToUpper(s.literal) {
			return false
		}
	}
	return true
}

// same reports whether two literals can stand for the same segment.
func same(p, q *pattern, i int) bool {
	if p.exact && q.exact {
		return p.segs[i].written == q.segs[i].written
	}
	return p.segs[i].literal == q.segs[i].literal
}

// meets reports whether some request matches both, in the same sense.
func (p *pattern) meets(q *pattern) bool {
	if p.method != "" && q.method != "" && p.method != q.method &&
		!(p.method == "GET" && q.method == "HEAD") && !(p.method == "HEAD" && q.method == "GET") {
		return false
	}
	if p.tail != multi && !q.tail.fits(len(q.segs), len(p.segs), p.tail == slash) ||
		q.tail != multi && !p.tail.fits(len(p.segs), len(q.segs), q.tail == slash) {
		return false
	}
	for i := range min(len(p.segs), len(q.segs)) {
		if p.segs[i].literal != "" && q.segs[i].literal != "" && !same(p, q, i) {
			return false
		}
	}
	return true
}

// conflicts reports whether two patterns match a request in common and neither
// is the more specific one, in the sense of ServeMux.
func (p *pattern) conflicts(q *pattern) bool {
	return p.host == q.host && p.meets(q) && p.within(q) == q.within(p)
}

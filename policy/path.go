package policy

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// inner stands for a slash within a segment. A path cannot hold the byte
// otherwise: control bytes are refused.
const inner = "\x00"

// reading is one way in which a server may understand a path: segments, each
// after a slash, in lower case and as written. The root has none.
type reading struct {
	text  string
	exact string
	slash bool // the path ends in a slash
	dots  dots
	last  uint8 // of the ways to decode that make it so, the lenient one being the last
}

// dots is what a server makes of dot segments.
type dots uint8

const (
	cleanDots dots = iota // they are resolved when empty segments are gone, as path.Clean does
	rfcDots               // a .. goes back by an empty segment too, as of RFC 3986 and of the URLs of browsers
	keepDots              // they are segments like any other
)

// readings are the different ways to read one path, the strict one first: by what
// becomes of dot segments, and of those that agree in it the lenient one last.
type readings struct{ few[reading] }

// maxReadings are seven ways to decode, each with three to treat dot segments.
const maxReadings = 21

// add appends a reading that is not there yet.
func (rs *readings) add(r reading) {
	for i := range rs.n {
		if o := rs.at(i); o.text == r.text && o.exact == r.exact && o.slash == r.slash {
			if o.dots == r.dots {
				o.last = r.last
			}
			return
		}
	}
	rs.few.add(r)
}

// maxRounds is how often an escape may hide another one.
const maxRounds = 3

// read reads a path as received, into readings that hold none. Servers differ in what
// they make of escapes, backslashes and parameters: in whether they find segments before they decode, as
// ServeMux does, or after, as file servers do; in whether a backslash is a slash, as
// in the URLs of browsers; in whether parameters after ; are dropped; and in whether
// they do all that again. So a path that has any of these is read in each way. They
// differ too in whether they resolve dot segments: ServeMux does only with those that
// have no escape, many routers with none. A path with any is read both ways, and
// beside empty segments in a third.
func (rs *readings) read(raw string) (err error) {
	if raw == "" {
		raw = "/"
	}
	if raw[0] != '/' {
		if raw != "*" {
			return badRequest("The path does not begin with a slash.")
		}
		raw = "/*"
	}
	if plain(raw) {
		one := &rs.first[0]
		one.text = strings.TrimSuffix(raw, "/")
		one.exact, one.slash = one.text, len(one.text) < len(raw)
		rs.n = 1
		return nil
	}
	var room [16]string // of most paths
	var ways [maxReadings / 3][]string
	n := 0
	add := func(parts []string) {
		for _, other := range ways[:n] {
			if slices.Equal(parts, other) {
				return
			}
		}
		ways[n] = parts
		n++
	}
	split := func(room []string, text string) error {
		parts, err := segments(room, text)
		if err != nil {
			return err
		}
		add(parts)
		if slices.ContainsFunc(parts, func(part string) bool { return strings.IndexByte(part, '/') >= 0 }) {
			add(strings.Split(strings.Join(parts, "/"), "/"))
		}
		return nil
	}
	if err := split(room[:0], raw); err != nil {
		return err
	}
	for _, text := range [...]string{strings.ReplaceAll(raw, `\`, "/"), bare(raw)} {
		if text != raw {
			if err := split(nil, text); err != nil {
				return err
			}
		}
	}
	if strings.IndexByte(raw, '%') >= 0 || strings.IndexByte(raw, '\\') >= 0 || strings.IndexByte(raw, ';') >= 0 {
		text := raw
		for range maxRounds {
			next := unescapeAny(text)
			if next == text {
				break
			}
			text = next
		}
		if control(text) {
			return badRequest("The path has a control character.")
		}
		add(strings.Split(bare(strings.ReplaceAll(text, `\`, "/"))[1:], "/"))
	}
	for _, d := range []dots{cleanDots, rfcDots, keepDots} {
		for i, parts := range ways[:n] {
			if d == cleanDots || slices.ContainsFunc(parts, isDots) && (d == keepDots || slices.Contains(parts, "")) {
				r := settle(parts, d)
				r.last = uint8(i)
				rs.add(r)
			}
		}
	}
	return nil
}

// segments appends the segments of a path, found before each is decoded, once.
func segments(parts []string, raw string) ([]string, error) {
	for part := range strings.SplitSeq(raw[1:], "/") {
		text, bad := unescape(part)
		if bad != "" {
			return nil, badRequest("The path has a bad escape.")
		}
		if control(text) {
			return nil, badRequest("The path has a control character.")
		}
		parts = append(parts, text)
	}
	return parts, nil
}

// bare is a path without parameters.
func bare(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	var b strings.Builder
	b.Grow(len(path))
	for part := range strings.SplitSeq(path[1:], "/") {
		part, _, _ = strings.Cut(part, ";")
		b.WriteByte('/')
		b.WriteString(part)
	}
	return b.String()
}

func isDots(part string) bool { return part == "." || part == ".." }

// plain reports whether every server reads a path in the same way, as written.
func plain(raw string) bool {
	for i, c := range []byte(raw) {
		if k := oddities[c]; k != 0 && (k == odd || i > 0 && raw[i-1] == '/') {
			return false
		}
	}
	return true
}

// oddities are the bytes that make a path one that servers may read differently:
// anywhere, or after a slash.
var oddities = func() (kinds [256]byte) {
	for c := range kinds {
		switch c := byte(c); {
		case c == '/', c == '.':
			kinds[c] = oddAfterSlash
		case c == '%', c == '\\', c == ';', 'A' <= c && c <= 'Z', c < ' ', c >= 0x7f:
			kinds[c] = odd
		}
	}
	return kinds
}()

const (
	odd = iota + 1
	oddAfterSlash
)

// settle resolves dot segments, or not, drops empty segments except a last one, and
// folds case.
func settle(parts []string, d dots) reading {
	kept := make([]string, 0, 16)
	slash := false
	size := 0
	for _, part := range parts {
		slash = part == "" || d != keepDots && isDots(part)
		switch {
		case !slash, part == "" && d == rfcDots:
			kept = append(kept, part)
			size += 1 + len(part)
		case part == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		}
	}
	var b strings.Builder
	b.Grow(size)
	for _, part := range kept {
		if part == "" {
			continue
		}
		b.WriteByte('/')
		if strings.IndexByte(part, '/') >= 0 {
			part = strings.ReplaceAll(part, "/", inner)
		}
		b.WriteString(part)
	}
	text := b.String()
	return reading{text: lower(text), exact: text, slash: slash, dots: d}
}

// unescape decodes every escape once. The first bad one is returned as bad.
func unescape(s string) (text, bad string) {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return s, ""
	}
	var b strings.Builder
	b.Grow(len(s))
	for {
		b.WriteString(s[:at])
		s = s[at:]
		if len(s) < 3 || !isHex(s[1]) || !isHex(s[2]) {
			return b.String(), s[:min(3, len(s))]
		}
		b.WriteByte(unhex(s[1])<<4 | unhex(s[2]))
		s = s[3:]
		if at = strings.IndexByte(s, '%'); at < 0 {
			b.WriteString(s)
			return b.String(), ""
		}
	}
}

// unescapeAny decodes what is an escape and leaves what is not: after the
// first round a lone % is a character like any other.
func unescapeAny(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

func control(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// lower folds case, and leaves bytes alone that are no character: two paths
// that differ in such bytes stay different.
func lower(s string) string {
	ascii, upper := true, false
	for i := 0; i < len(s); i++ {
		ascii = ascii && s[i] < utf8.RuneSelf
		upper = upper || 'A' <= s[i] && s[i] <= 'Z'
	}
	if ascii {
		if !upper {
			return s
		}
		return strings.ToLower(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			b.WriteByte(s[0])
		} else {
			// Both ways, because a server that compares in upper case takes ſ for s.
			b.WriteRune(unicode.ToLower(unicode.ToUpper(r)))
		}
		s = s[n:]
	}
	return b.String()
}

// segmentAt returns the segment with an index of a reading's text, and all
// that follows it.
func segmentAt(text string, index int) (one, rest string) {
	for {
		if text == "" {
			return "", ""
		}
		text = text[1:]
		end := strings.IndexByte(text, '/')
		if end < 0 {
			end = len(text)
		}
		if index == 0 {
			return text[:end], text
		}
		text = text[end:]
		index--
	}
}

// value is what a wildcard of the pattern stands for in a path that matches.
func (p *pattern) value(text, name string) string {
	value := ""
	if name == p.rest {
		_, value = segmentAt(text, len(p.segs))
	} else {
		for i, s := range p.segs {
			if s.name == name {
				value, _ = segmentAt(text, i)
			}
		}
	}
	return strings.ReplaceAll(value, inner, "/")
}

func badRequest(reason string) error {
	return &RequestError{Status: http.StatusBadRequest, Code: "bad_request", Reason: reason}
}

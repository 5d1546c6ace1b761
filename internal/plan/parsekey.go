package plan

import "strings"

// ParseKey is the inverse of Key.String. It answers false for any text that
// NewKey would not make: one with an empty part, an odd part or an escape that
// is not the one way to write its byte.
func ParseKey(text string) (Key, bool) {
	k := KeyFromText(text)
	if !k.Valid() {
		return Key{}, false
	}
	for more := true; more; {
		var pair string
		pair, text, more = strings.Cut(text, "|")
		kind, id, both := strings.Cut(pair, "#")
		if !both || !canonical(kind) || !canonical(id) {
			return Key{}, false
		}
	}
	return k, true
}

// canonical reports whether a part is not empty and as escape writes it.
func canonical(part string) bool {
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			if !plain(part[i]) {
				return false
			}
			continue
		}
		if i+2 >= len(part) {
			return false
		}
		high, low := strings.IndexByte(hex, part[i+1]), strings.IndexByte(hex, part[i+2])
		if high < 0 || low < 0 || plain(byte(high<<4|low)) {
			return false
		}
		i += 2
	}
	return part != ""
}

// hex are the digits of an escape.
const hex = "0123456789ABCDEF"

// plain reports whether a byte stands for itself in a key.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '_' || c == '.' || c == '@' || c == ':'
}

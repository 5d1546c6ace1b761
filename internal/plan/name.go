package plan

import "strings"

// maxName is how long a word of a name may be.
const maxName = 32

// IsWord reports whether a name is a lower-case letter, then up to 31 letters,
// digits or -. (A regular expression for this is 500 instructions that every
// process compiles at its start.)
func IsWord(name string) bool {
	return name != "" && 'a' <= name[0] && name[0] <= 'z' && len(name) <= maxName && isName(name)
}

// validName takes a word, and after a dot what tells further limits of a list
// apart.
func validName(name string) bool {
	word, more, dotted := strings.Cut(name, ".")
	return IsWord(word) && (!dotted || more != "" && len(more) < maxName && isName(more))
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

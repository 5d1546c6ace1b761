package curl

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// split divides a line into words as a POSIX shell does, with the $'...' in which
// browsers quote. It knows no variables and no commands within: a line that has
// any of them says something only to the shell that it was written for.
func split(line string) (words []string, err error) {
	var b strings.Builder
	in := false // a word has begun
	for i := 0; i < len(line); {
		c := line[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if in {
				words, in = append(words, b.String()), false
				b.Reset()
			}
			i++
			continue
		case c == '\\' && strings.HasPrefix(line[i+1:], "\r\n"):
			i += 3
			continue
		case c == '\\' && strings.HasPrefix(line[i+1:], "\n"):
			i += 2
			continue
		case c == '\\':
			if i+1 == len(line) {
				return nil, errors.New("the line ends in a backslash")
			}
			b.WriteByte(line[i+1])
			i += 2
		case c == '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a ' has no end")
			}
			b.WriteString(line[i+1 : i+1+end])
			i += end + 2
		case c == '"':
			if i, err = double(&b, line, i+1); err != nil {
				return nil, err
			}
		case c == '$' && strings.HasPrefix(line[i+1:], "'"):
			if i, err = escaped(&b, line, i+2); err != nil {
				return nil, err
			}
		case c == '$' && i+1 < len(line) && (line[i+1] == '(' || line[i+1] == '{' || isName(line[i+1])), c == '`':
			return nil, errNested
		case !in && (c == '|' || c == ';' || c == '>' || c == '<' || c == '&' || c == '#'):
			return words, nil // what follows is for the shell
		default:
			b.WriteByte(c)
			i++
		}
		in = true
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}

var errNested = errors.New("the line holds a variable or a command, which only your shell knows: put its value there")

func isName(c byte) bool {
	return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// double reads up to the second of two double quotes.
func double(b *strings.Builder, line string, i int) (int, error) {
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\' && i+1 < len(line) && strings.IndexByte("\\\"$`\n", line[i+1]) >= 0:
			if i++; line[i] != '\n' {
				b.WriteByte(line[i])
			}
		case c == '`', c == '$' && i+1 < len(line) && (line[i+1] == '(' || line[i+1] == '{' || isName(line[i+1])):
			return 0, errNested
		default:
			b.WriteByte(c)
		}
	}
	return 0, errors.New(`a " has no end`)
}

// escaped reads up to the end of $'...'.
func escaped(b *strings.Builder, line string, i int) (int, error) {
	single := map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, '?': "?", 'a': "\a", 'b': "\b", 'e': "\x1b", 'f': "\f", 'v': "\v"}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			return i + 1, nil
		case c != '\\' || i+1 == len(line):
			b.WriteByte(c)
		case single[line[i+1]] != "":
			i++
			b.WriteString(single[line[i]])
		case digits[line[i+1]] > 0:
			kind := line[i+1]
			from := i + 2
			to := from
			for to < len(line) && to < from+digits[kind] && strings.IndexByte("0123456789abcdefABCDEF", line[to]) >= 0 {
				to++
			}
			n, err := strconv.ParseUint(line[from:to], 16, 32)
			if err != nil || n > utf8.MaxRune {
				return 0, errors.New("a \\" + string(kind) + " has no digits, or too large ones")
			}
			if kind == 'x' {
				b.WriteByte(byte(n))
			} else {
				b.WriteRune(rune(n))
			}
			i = to - 1
		default:
			b.WriteByte(c)
		}
	}
	return 0, errors.New("a $' has no end")
}

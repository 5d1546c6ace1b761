package policy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyFile reads a file of API keys: lines of OWNER PLAN SHA256HEX, comments that
// begin with # and empty lines.
type keyFile struct {
	document
	keys  *APIKeys
	plans []string // that a key may have
	seen  map[digest]int
}

// readKeys reads the file that n names into keys. Mistakes are reported at their
// line of that file, which is shown without what may be a key: somebody may have
// put one there instead of its hash.
func (l *loader) readKeys(keys *APIKeys, n *node, plans []string) {
	text := l.readFile(n)
	if text == nil {
		return
	}
	f := &keyFile{document: document{page: &page{file: l.page.beside(n.text)}}, keys: keys, plans: plans, seen: map[digest]int{}}
	sc := bufio.NewScanner(bytes.NewReader(text))
	sc.Buffer(nil, 64<<10)
	line := 0
	for sc.Scan() {
		line++
		f.read(line, sc.Text())
	}
	if err := sc.Err(); err != nil {
		f.report(Error, codeKeyLine, line+1, 1, 1, "break the line", "the line cannot be read: %v", err)
	}
	l.problems = append(l.problems, f.problems...)
}

// word is a part of a line, and where it stands there, in characters from 1.
type word struct {
	text string
	col  int
}

func (w word) width() int { return utf8.RuneCountInString(w.text) }

// wordsOf splits a line at its spaces, and ends at a comment.
func wordsOf(line string) []word {
	words := make([]word, 0, 4)
	col, from := 0, -1 // from is where the word under way begins
	for i, r := range line {
		col++
		switch space := unicode.IsSpace(r); {
		case space && from >= 0:
			words[len(words)-1].text = line[from:i]
			from = -1
		case !space && from < 0:
			if r == '#' && (len(words) == 0 || len(words) == 3) {
				return words
			}
			words, from = append(words, word{col: col}), i
		}
	}
	if from >= 0 {
		words[len(words)-1].text = line[from:]
	}
	return words
}

// read reads one line.
func (f *keyFile) read(line int, text string) {
	const mark = "\ufeff"
	if strings.HasPrefix(text, mark) {
		// Also where files were joined. An editor that wrote it shows nothing.
		text = text[len(mark):]
		f.at(line, text, word{"", 1}, codeEncoding, "save the file as UTF-8 without a byte order mark", "the line begins with a byte order mark")
	}
	if !utf8.ValidString(text) {
		f.report(Error, codeEncoding, line, 1, 1, "save the file as UTF-8", "the line is not UTF-8")
		return
	}
	words := wordsOf(text)
	if len(words) == 0 {
		return
	}
	wrong := func(at word, code Code, hint, format string, args ...any) {
		f.at(line, text, at, code, hint, format, args...)
	}
	if n := len(words); n != 3 {
		wrong(words[0], codeKeyLine, "write OWNER PLAN SHA256HEX, with - for no plan", "3 words are expected, and the line has %d", n)
		return
	}
	owner, plan := words[0], words[1]
	if len(owner.text) > maxID {
		wrong(owner, codeKeyLine, "", "the owner's name has more than %d bytes", maxID)
		return
	}
	for _, r := range owner.text {
		if !unicode.IsPrint(r) {
			wrong(owner, codeKeyLine, "remove it", "the owner's name has a character that cannot be seen, %U", r)
			return
		}
	}
	switch {
	case plan.text == "-":
		plan.text = ""
	case !contains(f.plans, plan.text):
		what := "the plan"
		if f.mayShow(1, words) {
			what = "plan " + show(plan.text)
		}
		wrong(plan, codeUnknownPlan, suggest(plan.text, f.plans, "write - for a key without a plan"), "%s is unknown", what)
	}
	sum, err := hex.DecodeString(words[2].text)
	if err != nil || len(sum) != sha256.Size {
		wrong(words[2], codeKeyHash, "printf %s KEY | sha256sum prints it", "the third word is not a SHA-256 in 64 hexadecimal digits")
		return
	}
	hash := digest(sum)
	if emptyKey(hash) {
		wrong(words[2], codeKeyHash, "make a key first: openssl rand -hex 32", "this is the SHA-256 of an empty text: no key was hashed")
		return
	}
	if first := f.seen[hash]; first > 0 {
		wrong(words[2], codeKeyTaken, "give every owner a key of its own", "this key is listed already, in line %d", first)
		return
	}
	f.keys.add(hash, APIKey{owner.text, plan.text})
	f.seen[hash] = line
}

// at reports a mistake at a word of a line, with what may be shown of the line.
func (f *keyFile) at(line int, text string, at word, code Code, hint, format string, args ...any) {
	f.report(Error, code, line, at.col, at.width(), hint, format, args...)
	if last := &f.problems[len(f.problems)-1]; last.Line == line {
		last.Excerpt = excerptOf(f.masked(text), line, at.col, at.width())
	}
}

// masked is a line with * in place of every word that may be a key or its hash,
// and without what follows.
func (f *keyFile) masked(text string) string {
	words := wordsOf(text)
	var b strings.Builder
	for i, w := range words {
		if n := w.col - 1 - utf8.RuneCountInString(b.String()); n > 0 {
			b.WriteString(strings.Repeat(" ", n))
		}
		if f.mayShow(i, words) {
			b.WriteString(w.text)
		} else {
			b.WriteString(strings.Repeat("*", w.width()))
		}
	}
	return b.String()
}

// shortKey is how long a key is at least, whatever it is written in: 128 bits in
// raw bytes.
const shortKey = 16

// mayShow reports whether a word of a line can be neither a key nor its hash: it
// is too short, or is a plan, or is the owner before the hash of something else.
func (f *keyFile) mayShow(i int, words []word) bool {
	w := words[i].text
	switch {
	case w == "-" || contains(f.plans, w):
		return true
	case i >= 2 || len(words) == 1:
		return false
	case i == 0 && len(words) == 3:
		sum := sha256.Sum256([]byte(w))
		if hash, err := hex.DecodeString(words[2].text); err == nil && len(hash) == len(sum) && !bytes.Equal(hash, sum[:]) {
			return true
		}
	}
	return len(w) < shortKey
}

// emptyKey reports whether nothing was hashed, or an empty line, as a shell does
// that has no key to hash.
func emptyKey(sum digest) bool {
	for _, text := range []string{"", "\n", "\r\n", " \n"} {
		if sum == digest(sha256.Sum256([]byte(text))) {
			return true
		}
	}
	return false
}

package plan

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseKeyIsTheInverseOfNewKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringN(1, 12, 40), 2, 6).Draw(t, "parts")
		parts = parts[:len(parts)/2*2]
		want := NewKey(parts[0], parts[1], parts[2:]...)
		got, ok := ParseKey(want.String())
		if ok != want.Valid() || ok && got != want {
			t.Fatalf("%q: %v, %v", want, got, ok)
		}
	})
}

func TestParseKeyRefusesWhatNewKeyDoesNotMake(t *testing.T) {
	for _, text := range []string{
		"", "#", "account", "account#", "#a", "account#a|", "|account#a", "account#a||event#1", "account#a|event", "account#a#b",
		"record##accounts/7", "account#a b", "account#a%", "account#a%2", "account#a%2f", "account#a%41", "account#a%GG", "account#é",
		"account#" + strings.Repeat("a", MaxKey),
	} {
		if k, ok := ParseKey(text); ok || k.Valid() {
			t.Errorf("%q is a key: %v", text, k)
		}
	}
	// Whatever it takes for a key is one that NewKey makes.
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("a1#|%F2c:é "))).Draw(t, "text")
		k, ok := ParseKey(text)
		if !ok {
			return
		}
		pairs := strings.FieldsFunc(k.String(), func(r rune) bool { return r == '#' || r == '|' })
		for i, p := range pairs {
			pairs[i] = unescape(p)
		}
		if again := NewKey(pairs[0], pairs[1], pairs[2:]...); again != k {
			t.Fatalf("%q is read as a key, and NewKey writes it %q", text, again)
		}
	})
}

// unescape reads a part independently of how ParseKey looks at it.
func unescape(part string) string {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			b.WriteByte(part[i])
			continue
		}
		var c byte
		for _, d := range part[i+1 : i+3] {
			c = c<<4 | byte(strings.IndexRune("0123456789ABCDEF", d))
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String()
}

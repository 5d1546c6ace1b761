package plan

import (
	"fmt"
	"strings"
	"testing"
)

// escapeSlow is the meaning of a key's text, byte by byte.
func escapeSlow(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@:", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func TestKeyText(t *testing.T) {
	parts := []string{"a", "a|b", "a#b", "|", "#", "%7C", "%", "x%", "%x", "a/b", " ", "\x00", "\xff", "ä", "user@shop.example:8_0-",
		"ab|", "|ab", strings.Repeat("/", 50), strings.Repeat("k", 200)}
	seen := map[string]string{}
	check := func(k Key, want string) {
		t.Helper()
		if k.String() != want {
			t.Errorf("got the key %s, want %s", k, want)
		}
	}
	for _, kind := range parts {
		for _, id := range parts {
			text := escapeSlow(kind) + "#" + escapeSlow(id)
			check(NewKey(kind, id), text)
			if other, ok := seen[text]; ok {
				t.Errorf("%q and %q have the same key", other, kind+" "+id)
			}
			seen[text] = kind + " " + id
			check(NewKey("account", "a", kind, id), "account#a|"+text)
		}
	}
	for _, k := range []Key{NewKey("", "a"), NewKey("a", ""), NewKey("a", "b", ""), NewKey("a", "b", "c", ""), {}} {
		if k.Valid() {
			t.Errorf("the key %q with an empty part is valid", k)
		}
	}
}

// A key costs its text and no more, however its parts came about.
func TestNewKeyAllocatesItsTextOnly(t *testing.T) {
	room := []byte("192.0.2.44")
	if n := testing.AllocsPerRun(100, func() { _ = NewKey("ip", string(room)) }); n > 1 {
		t.Errorf("%v allocations for a key", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = NewKey("account", "a b", "event", "12") }); n > 1 {
		t.Errorf("%v allocations for a key of two parts", n)
	}
}

package plan

import (
	"hash/maphash"
	"strings"
)

// MaxKey is the longest text of a key, in bytes. DynamoDB takes 2,048 for a
// partition key; the rest is room for a store's prefix.
const MaxKey = 1024

// seed makes hashes of keys unpredictable to whoever chooses the keys.
var seed = maphash.MakeSeed()

// Key names an item: the caller, or the caller together with a resource.
// Different parts always give different keys. The zero Key is invalid.
type Key struct {
	text string
	hash uint64
}

// NewKey joins a kind and an id, and any further kinds and ids, to a key such
// as "account#customer-42" or "account#a7|event#12". Letters, digits and
// -_.@: stand for themselves, every other byte is written %XX, so that no id
// can reach another's item whatever it contains. An empty kind or id gives an
// invalid key.
func NewKey(kind, id string, more ...string) Key {
	if kind == "" || id == "" {
		return Key{}
	}
	var room [128]byte
	b := escape(room[:0], kind)
	b = append(b, '#')
	b = escape(b, id)
	for i, part := range more {
		if part == "" {
			return Key{}
		}
		b = append(b, "|#"[i%2])
		b = escape(b, part)
	}
	return KeyFromText(string(b))
}

// KeyFromText returns the key whose text is already known, for example from a
// listing of a store.
func KeyFromText(text string) Key {
	return Key{text: text, hash: maphash.String(seed, text)}
}

// String returns the key's text as it stands in a store.
func (k Key) String() string { return k.text }

// Hash returns a hash of the text which differs from process to process.
func (k Key) Hash() uint64 { return k.hash }

// Valid reports whether the key is not empty and at most MaxKey bytes long.
func (k Key) Valid() bool { return uint(len(k.text))-1 < MaxKey }

// Parts is the number of kind#id pairs: more parts name something narrower.
func (k Key) Parts() int { return strings.Count(k.text, "|") + 1 }

func escape(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	from := 0 // where what stands for itself begins
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '.', c == '@', c == ':':
		default:
			b = append(b, s[from:i]...)
			b = append(b, '%', hex[c>>4], hex[c&15])
			from = i + 1
		}
	}
	return append(b, s[from:]...)
}

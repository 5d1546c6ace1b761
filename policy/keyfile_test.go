package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

const withKeys = "weir: 1\nauth: {api_keys: {header: x-api-key, file: keys.txt}}\ngateway: {plans: {gold: 1/s}}\n"

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Characters that nobody sees would make two owners of one, or one of two.
func TestOwnersAreWhatIsSeen(t *testing.T) {
	const bom = "\ufeff"
	hash := hashOf("the key")
	stars := strings.Repeat("*", 64)
	for _, c := range []struct{ name, text, want string }{
		{"a mark at the start", bom + "acme gold " + hash + "\n",
			"keys.txt:1:1: error: the line begins with a byte order mark [WEIR1004]\n    1 | acme gold " + stars + "\n      | ^\n    fix: save the file as UTF-8 without a byte order mark"},
		{"a mark before a comment", bom + "# OWNER PLAN SHA256HEX\n", "keys.txt:1:1: error: the line begins with a byte order mark"},
		{"a mark where files were joined", "\n" + bom + "acme gold " + hash + "\n", "keys.txt:2:1: error: the line begins with a byte order mark"},
		{"a mark in the name", "ac" + bom + "me gold " + hash + "\n", "keys.txt:1:1: error: the owner's name has a character that cannot be seen, U+FEFF [WEIR1607]\n    1 | ac.me gold"},
		{"a mark after the name", "acme" + bom + " gold " + hash + "\n", "U+FEFF"},
		{"a space of no width", "acme\u200b gold " + hash + "\n", "U+200B"},
		{"a change of direction", "acme\u202e gold " + hash + "\n", "U+202E"},
		{"a control character", "acme\x07 gold " + hash + "\n", "U+0007"},
		{"UTF-16", "\xff\xfea\x00c\x00", "keys.txt:1:1: error: the line is not UTF-8"},
		{"Latin 1", "caf\xe9 gold " + hash + "\n", "keys.txt:1:1: error: the line is not UTF-8"},
		{"letters of any script", "café-株式会社 gold " + hash + "\n", ""},
	} {
		p, err := loadText(withKeys, "keys.txt", c.text)
		switch {
		case c.want != "" && (p != nil || err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v\nwant\n%s", c.name, err, c.want)
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whatever is wrong with a line, what it shows of it is no key and no hash.
func TestKeyFileExcerptsHoldNoSecrets(t *testing.T) {
	const key, old = "sk_live_4f9a1c77d0e25b83", "gone_8e1f20b7c5d3a964"
	hash, other := hashOf(key), hashOf(old)
	for _, text := range []string{
		"acme gold " + key, "acme " + key + " gold", key + " gold acme", "acme " + key, key + " gold", key, hash, "acme gold " + hash + " " + key,
		"acme " + hash + " gold", hash + " gold acme", "acme gold " + key + " # was " + old, "acme none " + hash + " # " + key,
		key + " none " + hash, "acme " + key + " " + hash, "acme " + hash + " " + other, "acme gold " + strings.ToUpper(hash) + "0", "\ufeffacme gold " + hash,
		"acme gold " + hash + "\nbeta gold " + hash,
	} {
		_, err := loadText(withKeys, "keys.txt", text+"\n")
		if err == nil {
			t.Errorf("%q loads", text)
			continue
		}
		said := err.Error()
		for _, secret := range []string{key, hash, other, old, strings.ToUpper(hash)} {
			if strings.Contains(said, secret) || strings.Contains(said, secret[:12]) {
				t.Errorf("%q: the message shows %s:\n%s", text, secret, said)
			}
		}
		if !strings.Contains(said, " | ") || !strings.Contains(said, "^") {
			t.Errorf("%q: no excerpt:\n%s", text, said)
		}
	}
}

func TestOneMistakeInAPIKeysDoesNotHideAnother(t *testing.T) {
	for text, want := range map[string][]string{
		"{heder: x, file: nope.keys}":             {"unknown field `heder`", "`nope.keys` cannot be read"},
		"{file: nope.keys}":                       {"api_keys needs a field `header`", "`nope.keys` cannot be read"},
		"{header: Host}":                          {"api_keys needs a field `file`", "Host names the server"},
		"{header: \"a b\", file: keys.txt}":       {"`a b` is not the name of a header", "keys.txt:1:6: error: plan `none` is unknown"},
		"{header: [x], file: [y]}":                {"a header's name must be a text", "file must be a text"},
		"{header: Host, file: keys.txt, file: a}": {"`file` is given twice", "Host names the server", "plan `none` is unknown"},
	} {
		_, err := loadText("weir: 1\nauth: {api_keys: "+text+"}\n", "keys.txt", "acme none "+hashOf("k")+"\n")
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nwant %s", text, err, w)
			}
		}
	}
}

// A message names the field that is wrong.
func TestAValueOfAWrongShapeIsNamedByItsField(t *testing.T) {
	for text, want := range map[string]string{
		"application: {plans: {from: [jwt.plans], order: [free], free: {a: 1/s}}, operations: {a: {match: /a}}}": "from must be a text, and a list stands here",
		"callers: {account: [jwt.sub]}":                                        "account must be a text, and a list stands here",
		"name: [a]":                                                            "the name of the policy must be a text",
		"edge: [{name: [a], by: ip, limit: 1/s}]":                              "the name of a limit must be a text",
		"application: {plans: {order: [[a]]}}":                                 "the name of a plan must be a text",
		"edge: [{name: a, by: {ip: x}, limit: 1/s}]":                           "by must be a text",
		"application: {limits: [{name: a, by: ip, limit: 1/s, success: [1]}]}": "success must be a text",
	} {
		_, err := loadText("weir: 1\n" + text + "\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}

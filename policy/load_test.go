package policy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// What would keep the parser busy for minutes is refused before it sees it.
func TestHostileFiles(t *testing.T) {
	fill := func(s string, n int) string { return strings.Repeat(s, n/len(s)) }
	for name, c := range map[string]struct{ text, want string }{
		"too large":        {fill("a: 1\n", maxFile+10), "at most 1048576 are read"},
		"brackets":         {"a: " + fill("[", 4000), "nested deeper than 64"},
		"brackets below":   {"a:\n" + fill(" [\n", 4000), "nested deeper than 64"},
		"dashes":           {fill("- ", 4000), "nested deeper than 64"},
		"question marks":   {fill("? ", 4000), "nested deeper than 64"},
		"braces":           {"a: " + fill("{a: ", 4000), "nested deeper than 64"},
		"steps":            {steps(100), "nested deeper than 64"},
		"keys":             {fill("a: 1\n", 200_000), "too many fields"},
		"keys of an item":  {"a:\n- b: 1\n" + fill("  a: 1\n", 200_000), "too many fields"},
		"explicit keys":    {fill("? a\n: b\n", 200_000), "too many fields"},
		"behind a quote":   {"weir: |\n  [ \" '\n" + fill("a: 1\n", 200_000), "too many fields"},
		"long line":        {"a: [" + fill("1,", 9000) + "]\n", "the line has"},
		"many mistakes":    {"weir: 1\nedge:\n" + fill("  - 1\n", 20_000), "there are more mistakes than these 100"},
		"not UTF-8":        {"weir: 1\nname: \xff\xfe\n", "byte 0xFF is not UTF-8"},
		"UTF-16":           {"\xff\xfew\x00", "not UTF-8"},
		"escape sequences": {"weir: 1\nname: \x1b[31mred\n", "control character 0x1B"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadText(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.300v, want %s", err, c.want)
			}
			if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r != '\n' && (r < ' ' || r == utf8.RuneError) }) {
				t.Error("the message holds control characters")
			}
		})
	}
}

func steps(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestAFileOfAThousandRulesLoads(t *testing.T) {
	var b strings.Builder
	b.WriteString("weir: 1\napplication:\n  limits:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "    - name: r%d\n      match: POST /r%d/{id}\n      by: account+path.id\n      limit: 10/s burst %d\n", i, i, 10+i)
	}
	p := load(t, b.String())
	if got := ask(t, p, get("POST", "/r999/7"), claims("sub", "A")); got != "r999 account#A|id#7" {
		t.Error(got)
	}
	if n := len(p.Limits()); n != 1000 {
		t.Errorf("%d limits", n)
	}
}

func TestCase_B163_B167_UnknownFieldsAreErrorsWithASuggestion(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"weir: 1\napplication: {limits: [{name: a, by: ip, limt: 1/s}]}", "weir.yaml:2:42: error: unknown field `limt` in a limit"},
		{"weir: 1\nunlimited_replaces: []\n", "weir.yaml:2:1: error: unknown field"},
	} {
		p, err := loadText(c.text)
		if p != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v", err)
		}
	}
	_, err := loadText("weir: 1\napplication: {limits: [{name: a, by: ip, limt: 1/s}]}")
	if !strings.Contains(err.Error(), "did you mean `limit`?") {
		t.Errorf("%v", err)
	}
}

func TestCase_B164_AMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	write := func(revision, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "..2026_"+revision), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string]string{"weir.yaml": text, "keys.txt": ""} {
			if err := os.WriteFile(filepath.Join(dir, "..2026_"+revision, name), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink("..2026_"+revision, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	write("1", "weir: 1\nname: first\nauth: {api_keys: {header: x-api-key, file: keys.txt}}\n")
	for _, name := range []string{"weir.yaml", "keys.txt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"first", "second"} {
		p, err := Load(os.DirFS(dir), "weir.yaml", Options{})
		if err != nil || p.Name() != want {
			t.Fatalf("%v, want the policy %s", err, want)
		}
		write("2", "weir: 1\nname: second\n")
		if want == "second" {
			break
		}
	}
}

func TestCase_B169_ALimitThatCannotAct(t *testing.T) {
	for limits, want := range map[string]string{
		"[10/s burst 20, 100/m burst 200]":                                   "", // the minute's rate is the lower one
		"[10/s burst 20, 1000/m burst 200]":                                  "the limit `1000/m burst 200` never acts",
		"[1/s burst 10, quota 100000/day]":                                   "the limit `quota 100000/day` never acts",
		"[1/s burst 10, quota 80000/day]":                                    "",
		"[quota 100/hour, quota 100/day]":                                    "", // an hour may hold the end of one day and the begin of the next
		"[quota 1000/hour, quota 500/day]":                                   "the limit `quota 1000/hour` never acts",
		"[quota 1000/minute, 1001/m]":                                        "", // two windows may meet within a second
		"[quota 10/hour, 20/m burst 20]":                                     "the limit `20/m burst 20` never acts",
		"[sliding 100/5m, quota 1000/day]":                                   "",
		"[10/s burst 20, quota 100000/month]":                                "",
		"[quota 1/day, 10/s burst 20]":                                       "the limit `10/s burst 20` never acts",
		"[quota 5/day, quota 6/day]":                                         "the limit `quota 6/day` never acts: `quota 5/day` always refuses first",
		"[quota 6/24h, quota 5/day]":                                         "the limit `quota 6/24h` never acts",
		"[quota 5/day, quota 5/24h]":                                         "the limit `quota 5/24h` never acts",
		"[sliding 9/5m, sliding 10/300s]":                                    "the limit `sliding 10/300s` never acts",
		"[quota 5/day, quota 6/day calendar]":                                "", // a day of the one meets two of the other
		"[sliding 5/day, quota 6/day]":                                       "",
		"[quota 5/month calendar, quota 6/month calendar UTC]":               "the limit `quota 6/month calendar UTC` never acts",
		"[quota 5/day calendar Europe/Berlin, quota 6/day calendar]":         "",
		"[quota 5/day calendar Asia/Tokyo, quota 6/day calendar Asia/Tokyo]": "the limit `quota 6/day calendar Asia/Tokyo` never acts",
		"[0.5/s burst 10, sliding 2000000/10m]":                              "the limit `sliding 2000000/10m` never acts",
	} {
		p := load(t, "weir: 1\napplication: {limits: [{name: a, match: POST /a, by: account, limit: "+limits+"}]}")
		var got []string
		for _, w := range p.Warnings() {
			got = append(got, w.Message)
		}
		if s := strings.Join(got, "; "); want == "" && s != "" || !strings.Contains(s, want) {
			t.Errorf("%s: %q, want %q", limits, s, want)
		}
	}
}

func TestCase_B170_ZeroIsRefused(t *testing.T) {
	for _, limit := range []string{"0/s", "10/s burst 0", "quota 0/day", "sliding 0/5m", "-1/s", "1e9/s", "Inf/s", "NaN/s", "", "10/0s", "10/-5m"} {
		if _, err := loadText(fmt.Sprintf("weir: 1\napplication: {limits: [{name: a, by: ip, limit: %q}]}", limit)); err == nil {
			t.Errorf("%q loads", limit)
		}
	}
}

// B172: where several key sources are given, the first that is present wins,
// whatever their order in the file.
func TestCase_B172_B088_OrderOfSources(t *testing.T) {
	id := claims("sub", "A", "tenant", "T")
	for by, want := range map[string]string{"[account, tenant, ip]": "account#A", "[tenant, account, ip]": "tenant#T", "ip": "ip#192.0.2.44", "tenant": "tenant#T"} {
		p := limits(t, "{name: a, by: "+by+", limit: 1/s}")
		if got := ask(t, p, get("GET", "/"), id); got != "a "+want {
			t.Errorf("by: %s: %s", by, got)
		}
	}
}

func TestCase_B178_DuplicatesAfterNormalisation(t *testing.T) {
	_, err := loadText(`
weir: 1
application:
  plans: {free: {a: 1/s, b: 1/s}}
  operations: {a: {match: POST /Actuator}, b: {match: POST /%61ctuator}}
`)
	if err == nil || !strings.Contains(err.Error(), "match the same requests") {
		t.Errorf("%v", err)
	}
	if _, err := loadText("weir: 1\nexempt: [{name: a, path: actuator}]\n"); err == nil || !strings.Contains(err.Error(), "does not begin with a slash") {
		t.Errorf("%v", err)
	}
}

func TestCase_B179_UnitsAreNormalisedBeforeComparing(t *testing.T) {
	p := limits(t, "{name: a, match: /a, by: account, limit: 6000/m burst 200}")
	if w := p.Warnings(); len(w) > 0 {
		t.Errorf("%v", w)
	}
}

func TestEveryLimitHasItsOwnName(t *testing.T) {
	for _, text := range []string{
		"edge: [{name: a, by: ip, limit: 1/s}]\napplication: {limits: [{name: a, by: ip, limit: 1/s}]}",
		"gateway: {plans: {a: 1/s}}\napplication: {limits: [{name: a, by: ip, limit: 1/s}]}",
		"application: {plans: {free: {a: 1/s}}, operations: {a: {match: /a}}, limits: [{name: a, by: ip, limit: 1/s}]}",
	} {
		if _, err := loadText("weir: 1\n" + text); err == nil || !strings.Contains(err.Error(), "a limit named `a` exists already") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNamesOfALimitList(t *testing.T) {
	p := limits(t, "{name: a, by: account, limit: [10/s, 100/m, quota 1000/day, quota 5000/month calendar Europe/Berlin, sliding 300/5m]}")
	var got []string
	for _, l := range p.Limits() {
		got = append(got, l.Name())
	}
	if s := strings.Join(got, " "); s != "a a.minute a.quota-day a.quota-month a.5m" {
		t.Error(s)
	}
}

func TestPublicKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  any
		want string
	}{{&rsaKey.PublicKey, ""}, {&ec.PublicKey, ""}, {ed, ""}, {&weak.PublicKey, "1024 bits"}} {
		der, err := x509.MarshalPKIXPublicKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		p, err := loadText("weir: 1\nauth: {jwt: {public_key_file: certs/key.pem, issuer: me, audience: you}}\n", "certs/key.pem", text)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%T: %v", c.key, err)
			continue
		}
		j := p.Auth().JWT
		if j.PublicKey == nil || j.Issuer != "me" || j.Audience != "you" || j.SecretEnv != "" || j.JWKS != "" {
			t.Errorf("%+v", j)
		}
	}
}

func TestFilesAreRelativeToThePolicy(t *testing.T) {
	sum := sha256.Sum256([]byte("the key"))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"conf/weir.yaml": "weir: 1\nauth: {api_keys: {header: X-API-Key, file: keys.txt}, jwt: {hs256_secret_env: SECRET}}\ngateway: {plans: {gold: 1/s}}\n",
		"conf/keys.txt":  "# comment\n\n  acme   gold " + strings.ToUpper(hex.EncodeToString(sum[:])) + "\r\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Load(os.DirFS(dir), "conf/weir.yaml", Options{File: "shown.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	keys := p.Auth().APIKeys
	if k, ok := keys.Lookup("the key"); !ok || k.Owner != "acme" || keys.Header != "X-Api-Key" || keys.Len() != 1 {
		t.Errorf("%+v %v %s %d", k, ok, keys.Header, keys.Len())
	}
	_, err = Load(os.DirFS(dir), "missing.yaml", Options{File: "shown.yaml"})
	var ps Problems
	if !errors.As(err, &ps) || !strings.HasPrefix(err.Error(), "shown.yaml: error: the policy cannot be read") {
		t.Errorf("%v", err)
	}
}

// The whole digest decides, not the part of it by which a key is found.
func TestAPIKeysThatBeginAlike(t *testing.T) {
	sum := digest(sha256.Sum256([]byte("right")))
	keys := &APIKeys{}
	for i := len(keyIndex{}); i < len(sum); i++ { // every digest that differs in one byte, and the right one in their midst
		near := sum
		near[i]++
		keys.add(near, APIKey{Owner: "wrong"})
		if i == 20 {
			keys.add(sum, APIKey{Owner: "acme", Plan: "gold"})
		}
	}
	if k, ok := keys.Lookup("right"); !ok || k != (APIKey{"acme", "gold"}) || keys.Len() != 25 || len(keys.All()) != 25 || !slices.Contains(keys.All(), k) {
		t.Errorf("%+v %v, %d keys", k, ok, keys.Len())
	}
	only := &APIKeys{}
	near := sum
	near[len(near)-1]++
	only.add(near, APIKey{Owner: "wrong"})
	for _, sent := range []string{"right", "", "wrong"} {
		if k, ok := only.Lookup(sent); ok {
			t.Errorf("%q is taken for the key of %q", sent, k.Owner)
		}
	}
	if _, ok := (&APIKeys{}).Lookup("right"); ok {
		t.Error("a key is found where there is none")
	}
}

// Nothing that a key file holds appears in a message: it may be a key itself.
func TestKeyFileMessagesHoldNoSecrets(t *testing.T) {
	_, err := loadText("weir: 1\nauth: {api_keys: {header: x-api-key, file: keys.txt}}\n", "keys.txt", "acme - canary_secret\ncanary_secret\n")
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
	_, err = loadText("weir: 1\nauth: {jwt: {hs256_secret_env: \"canary secret\"}}\n")
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v", err)
	}
}

func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/mistakes/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, files := archive(string(text))
		f.Add(files["weir.yaml"])
	}
	f.Add(little)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := loadText(text, "keys.txt", "a - 00\n")
		var ps Problems
		switch {
		case err == nil && p == nil:
			t.Fatal("neither policy nor error")
		case err != nil && (!errors.As(err, &ps) || len(ps) == 0 || p != nil):
			t.Fatalf("%v", err)
		}
		for _, one := range ps {
			if one.Message == "" || one.File == "" || one.Line > 0 && one.Col < 1 {
				t.Fatalf("%+v", one)
			}
		}
		if p != nil {
			for _, path := range []string{"/", "/a/b", "/%2e%2e/a"} {
				m, err := p.Match(get("POST", path))
				if err != nil {
					t.Fatal(err)
				}
				var re *RequestError
				if _, err := p.Ops(&m, get("POST", path), claims("sub", "A")); err != nil && !errors.As(err, &re) {
					t.Fatal(err)
				}
			}
		}
	})
}

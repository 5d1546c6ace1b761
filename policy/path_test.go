package policy

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// spellings of /orders/12 that some server takes for it.
var spellings = []string{
	"/orders/12", "/orders/12/", "//orders/12", "/orders//12", "///orders///12", "/./orders/12", "/orders/./12",
	"/x/../orders/12", "/../orders/12", "/..//orders/12", "/orders/12/.", "/orders/12/x/..", "/orders/12//",
	"/ORDERS/12", "/Orders/12", "/%6frders/12", "/%6Frders/12", "/%4frders/12", "/orders/%31%32", "/orders%2f12", "/orders%2F12",
	"/orders/12%2f", "/%2e/orders/12", "/x/%2e%2e/orders/12", "/x/%2E./orders/12", "/%252e/orders/12",
	"/x/%252e%252e/orders/12", "/%256frders/12", "/%25256frders/12", "/orders%252f12", `/\orders\12`, `/orders\12`,
	"/orders%5c12", "/orders%255c12", `/x\..\orders\12`, "/x/..;/orders/12", "/x/..;a=b/orders/12", "/orders/12;jsessionid=1",
	"/orders;v=1/12", "/orders/12%3bx", "/orders%3Bv/12", "/;x/orders/12",
}

func TestSpec_C1_OnePathManySpellings(t *testing.T) {
	p := load(t, `
weir: 1
edge:
  - {name: all, path: "/orders/*", by: ip, limit: 1/s}
application:
  plans: {free: {buy: 1/s}}
  operations: {buy: {match: "POST /orders/{id}"}}
  limits:
    - {name: orders, match: "POST /orders/{id}", by: everyone+path.id, limit: 1/s}
`)
	const want = "all ip#192.0.2.44; orders everyone#all|id#12; buy ip#192.0.2.44"
	for _, s := range spellings {
		if got := ask(t, p, get("POST", s), Identity{}); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
	if len(spellings) < 30 {
		t.Errorf("only %d spellings", len(spellings))
	}
}

func TestReadings(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want []string
	}{
		{"/", []string{""}},
		{"", []string{""}},
		{"/a/b", []string{"/a/b"}},
		{"/a/b/", []string{"/a/b +"}},
		{"//", []string{" +"}},
		{"/a%2Fb", []string{"/a|b", "/a/b"}},
		{"/a%252Fb", []string{"/a%2fb", "/a/b"}},
		{"/100%25", []string{"/100%"}},
		{"/a;b/c", []string{"/a;b/c", "/a/c"}},
		{`/a\b`, []string{`/a\b`, "/a/b"}},
		{"/..;/a", []string{"/..;/a", "/a", "/../a"}},
		{"/a/./b", []string{"/a/b", "/a/./b"}},
		{"/a/%2e/b", []string{"/a/b", "/a/./b"}},
		{"/a/%2E./b/", []string{"/b +", "/a/../b +"}},
		{"/A/..", []string{"", "/a/.."}},
		{"/a//.", []string{"/a +", "/a/."}},
		{"/a/%252e%252e/b", []string{"/a/%2e%2e/b", "/b", "/a/../b"}},
		{"/a/..%2fb", []string{"/a/..|b", "/b", "/a/../b"}},
		{"/a/../b%2fc", []string{"/b|c", "/b/c", "/a/../b|c", "/a/../b/c"}},
		{"/orders//../7", []string{"/7", "/orders/7", "/orders/../7"}},
		{"/a/..//b", []string{"/b", "/a/../b"}},
		{"//../a", []string{"/a", "/../a"}},
		{`/a\..\b`, []string{`/a\..\b`, "/b", "/a/../b"}},
		{`/a%5cb/..\c`, []string{`/a\b/..\c`, "/c", "/a/c", `/a\b/../c`, "/a/b/../c"}},
		{"/a%2fb%252fc", []string{"/a|b%2fc", "/a/b%2fc", "/a/b/c"}},
		{"/;a/b%252fc/..;/d", []string{"/;a/b%2fc/..;/d", "/d", "/b/d", "/b%2fc/../d", "/b/c/../d"}},
		{"/;a/b%2fc", []string{"/;a/b|c", "/;a/b/c", "/b|c", "/b/c"}},
		{"/É", []string{"/é"}},
		{"/%C3%89", []string{"/é"}},
		{"/%ff%FE", []string{"/\xff\xfe"}},
		{"/...", []string{"/..."}},
		{"*", []string{"/*"}},
	} {
		rs, err := readPath(c.raw)
		if err != nil {
			t.Errorf("%q: %v", c.raw, err)
			continue
		}
		var got []string
		for i := range rs.n {
			r := rs.at(i)
			s := strings.ReplaceAll(r.text, inner, "|")
			if r.slash && (r.text != "" || c.raw == "//") {
				s += " +"
			}
			got = append(got, s)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q is read as %q, want %q", c.raw, got, c.want)
		}
	}
}

func TestBadPaths(t *testing.T) {
	p := load(t, little)
	for _, raw := range []string{"/%", "/%2", "/%zz", "/a/%g1", "/%00", "/a%00b", "/%0a", "/%0D%0A", "/%7f", "/a\x00", "/a\nb", "/\x7f", "/%2500", "/%25250a", "orders", "?"} {
		_, err := p.Match(get("GET", raw))
		var re *RequestError
		if !errors.As(err, &re) || re.Status != http.StatusBadRequest {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, m := range []string{"CONNECT", "TRACE", "trace"} {
		_, err := p.Match(get(m, "/"))
		var re *RequestError
		if !errors.As(err, &re) || re.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v", m, err)
		}
	}
}

func TestVeryLongPaths(t *testing.T) {
	p := load(t, "weir: 1\napplication: {limits: [{name: a, by: everyone+path.rest, limit: 1/s, match: \"/a/{rest...}\"}]}")
	for _, raw := range []string{
		"/a/" + strings.Repeat("x", 64<<10), "/a/" + strings.Repeat("x/", 32<<10), "/a/" + strings.Repeat("%41", 20<<10),
		"/a/" + strings.Repeat("../a/", 10<<10) + "b", "/a/" + strings.Repeat("é", 400), "/a/" + strings.Repeat("%ff", 256),
	} {
		m, err := p.Match(get("GET", raw))
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, get("GET", raw), Identity{})
		if err != nil || len(ops) != 1 || !ops[0].Key.Valid() {
			t.Errorf("%.20s...: %v %v", raw, ops, err)
		}
	}
}

// What limits applies when any reading matches; what exempts only when all do.
func TestExemptionNeedsEveryReading(t *testing.T) {
	p := load(t, `
weir: 1
exempt: [{name: hooks, path: /hooks/*}, {name: below, path: /hooks/a/*}, {name: health, path: /healthz}, {name: other, path: /other/*}]
edge: [{name: all, by: ip, limit: 1/s}]
application: {limits: [{name: pay, by: everyone, limit: 1/s, match: /pay}]}
`)
	const limited = "all ip#192.0.2.44"
	for path, want := range map[string]string{
		"/hooks/a":              "exempt hooks",
		"/HOOKS/a":              "exempt hooks",
		"/hooks/":               "exempt hooks",
		"/hooks":                limited,
		"/healthz":              "exempt health",
		"/healthz/":             limited,
		"/hooks/../pay":         limited + "; pay everyone#all",
		"/hooks/%2e%2e/pay":     limited + "; pay everyone#all",
		"/hooks/..%2fpay":       limited + "; pay everyone#all",
		"/hooks/..;/pay":        limited + "; pay everyone#all",
		"/hooks/%252e%252e/pay": limited + "; pay everyone#all",
		`/hooks\..\pay`:         limited + "; pay everyone#all",
		"/hooks/a%2fb":          "exempt hooks",
		"/hooks/..%2fother/x":   "exempt hooks",
		"/hooks%2fa":            limited,
		"/hooks/./a":            "exempt hooks",
		"/hooks/%2e%2e/hooks/a": "exempt hooks",
		"/x/../hooks/a":         limited,
		"/hooks//../hooks/a":    "exempt hooks",
		"/hooks//../../b":       limited,
		"/hooks/a/..%2f..%2fb":  limited, // two exemptions of one reading
		"/pay/%2e%2e/hooks/a":   limited,
		"/%2e/healthz":          limited,
		"/healthz/%2e":          limited,
	} {
		if got := ask(t, p, get("POST", path), Identity{}); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Not every server resolves dot segments, so what they stand in is limited too.
func TestDotSegmentsThatNobodyResolves(t *testing.T) {
	p := load(t, `
weir: 1
edge: [{name: auth, path: /auth/*, by: ip, limit: 1/s}]
application:
  plans: {free: {look: 1/s, buy: 1/s}}
  operations: {look: {match: "/shop/{item}"}, buy: {match: "/shop/{item}/buy"}}
  limits:
    - {name: files, match: "/files/{rest...}", by: everyone+path.rest, limit: 1/s}
    - {name: orders, match: "/orders/{id}", by: everyone+path.id, limit: 1/s}
    - {name: event, match: "/events/{event}/{rest...}", by: everyone+path.event, limit: 1/s}
`)
	for path, want := range map[string]string{
		"/events/7/%2e%2e/8/x":     "event everyone#all|event#8", // the resolved reading's
		"/events/7/a//../x":        "event everyone#all|event#7",
		"/events/7%2f..%2f8/x":     "event everyone#all|event#8",
		`/orders/x;y\..\7`:         "orders everyone#all|id#7", // that of the lenient reading, which a less lenient one shares
		"/orders/x%3by%5c..%5c7":   "orders everyone#all|id#7",
		"/auth/%2e%2e/login":       "auth ip#192.0.2.44",
		"/auth/../login":           "auth ip#192.0.2.44",
		"/x/../auth/login":         "auth ip#192.0.2.44",
		"/auth%2f..%2flogin":       "auth ip#192.0.2.44",
		"/orders/%2e%2E":           "orders everyone#all|id#..",
		"/orders/.":                "orders everyone#all|id#.",
		"/orders/./12":             "orders everyone#all|id#12",
		"/files/%2e%2e":            "files everyone#all|rest#..",
		"/files/..%2fa%2fb":        "files everyone#all|rest#..%2Fa%2Fb",
		"/shop/%2e%2e":             "look ip#192.0.2.44",
		"/shop/x/../y":             "look ip#192.0.2.44",
		"/shop/%2e/buy":            "look ip#192.0.2.44; buy ip#192.0.2.44",
		"/shop/x/./buy":            "buy ip#192.0.2.44",
		"/shop/%2e%2e/shop/./buy":  "look ip#192.0.2.44",
		"/shop/..":                 "look ip#192.0.2.44",
		"/shop/../shop/x/../y/buy": "buy ip#192.0.2.44",
		"/elsewhere/../and/back":   "",
	} {
		if got := ask(t, p, get("GET", path), Identity{}); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Reading a path twice changes nothing, and two paths of one strict reading
// are one path to every server.
func TestReadingIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := "/" + rapid.StringOfN(rapid.SampledFrom([]rune(`aB./\;%2eé`)), 0, 24, -1).Draw(t, "path")
		rs, err := readPath(raw)
		if err != nil {
			return
		}
		for i := range rs.n {
			r := rs.at(i)
			if strings.Contains(r.text, "//") || r.text != lower(r.text) || strings.HasSuffix(r.text, "/") {
				t.Fatalf("%q is read as %q", raw, r.text)
			}
			for seg := range strings.SplitSeq(r.text, "/") {
				if isDots(seg) && r.dots != keepDots {
					t.Fatalf("%q is read as %q", raw, r.text)
				}
			}
			if strings.Count(r.text, "/") != strings.Count(r.exact, "/") {
				t.Fatalf("%q: %q and %q", raw, r.text, r.exact)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	p, err := loadText(little)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a := get("POST", raw)
		m, err := p.Match(a)
		if err != nil {
			var re *RequestError
			if !errors.As(err, &re) {
				t.Fatal(err)
			}
			return
		}
		ops, err := p.Ops(&m, a, Identity{})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range append(p.AppendEdge(nil, &m, a), ops...) {
			if !op.Key.Valid() {
				t.Fatalf("%q gives the key %q", raw, op.Key)
			}
		}
	})
}

func readPath(raw string) (rs readings, err error) {
	err = rs.read(raw)
	return rs, err
}

// A Path matches what an edge rule of the same `path:` limits.
func TestPathMatchesLikeAnEdgeRule(t *testing.T) {
	raws := []string{"", "/", "//", "/.weir", "/.weir/", "/.weir//", "/.weir/usage", "/.WEIR/Usage", "/.weir/usage/", "/.weir%2fusage", "/%2eweir/usage",
		"/.weir%252fusage", "/a/../.weir/usage", "/.weir/usage;x=1", "/.weir;a/usage", "/.weir\\usage", "/.weirdness", "/x/.weir/usage", "/.weir/usage/more",
		"/.weir/../usage", "/.weir/%2e%2e/usage", "/.weir/usage/.", "/.weir/..%2fhealthz", "/.weir/%zz", "/.weir/\x01", "*", "weir", "/ÄÖ/b", "/äö/b", "/%C3%84%C3%B6/b", "/healthz", "/healthz/"}
	for _, text := range []string{"/.weir/*", "/.weir/usage", "/.weir/", "/healthz", "/", "/*", "/ÄÖ/b"} {
		one, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		p := load(t, "weir: 1\nedge:\n  - {name: rule, limit: 1/s, by: ip, path: \""+text+"\"}\n")
		for _, raw := range raws {
			a := get("GET", raw)
			m, err := p.Match(a)
			want := err == nil && len(p.AppendEdge(nil, &m, a)) > 0
			if got := one.Matches(raw); got != want {
				t.Errorf("%s on %q: %v, and an edge rule says %v", text, raw, got, want)
			}
		}
	}
	if _, err := ParsePath("/a/*/b"); err == nil || !strings.Contains(err.Error(), "/api/*") {
		t.Errorf("a * in the middle: %v", err)
	}
	if (Path{}).Matches("/") {
		t.Error("the zero Path names something")
	}
}

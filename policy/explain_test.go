package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const explained = `
weir: 1
auth: {api_keys: {header: x-api-key, file: keys}}
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
exempt:
  - {name: hooks, path: /hooks/*}
  - {name: health, path: /healthz}
edge:
  - {name: all, limit: 100/s, by: ip, except_ips: [203.0.113.0/24]}
  - {name: login, limit: 5/m, by: ip, path: [/login, /auth/*]}
gateway:
  match: "GET /partner/{rest...}"
  plans:
    basic: [10/s burst 20, quota 1000/day]
    gold: 100/s
application:
  plans:
    from: jwt.tier
    order: [free, pro]
    free: {read: quota 10/day, any: quota 100/day}
    pro: {read: unlimited}
  operations:
    read: {match: GET /docs}
    any: {match: GET /}
  limits:
    - {name: write, match: [POST /docs, "PUT api.example/docs/{id}"], by: account, limit: 1/s}
    - {name: big, match: POST /docs, by: account, limit: 1/m, when: 'header("X-Size") == "big"'}
    - {name: free-ride, match: POST /docs, by: account, limit: 1/m, cost: '0 * len(path)'}
    - {name: cased, match: GET /Docs, case: exact, by: ip, limit: 2/s}
    - {name: watched, match: GET /docs, by: account, limit: 1/s, mode: shadow}
    - {name: asleep, match: GET /docs, by: account, limit: 1/s, mode: off}
`

func explain(t *testing.T, p *Policy, a *Attributes, id Identity) map[string]Fate {
	t.Helper()
	x, err := p.Explain(a, id)
	if err != nil {
		t.Fatal(err)
	}
	fates := map[string]Fate{}
	for _, f := range x.Fates {
		name := f.Name
		if f.Layer == Gateway {
			name = "plan " + name
		}
		if _, twice := fates[name]; twice {
			t.Errorf("%s is told of twice", name)
		}
		fates[name] = f
	}
	return fates
}

// The whole kind: for every way in which a rule can miss a request, the reason.
func TestExplainSaysWhyNot(t *testing.T) {
	p := load(t, explained, "keys", "acme basic "+strings.Repeat("ab", 32)+"\n")
	maya := claims("sub", "maya", "tier", "free")
	with := func(a *Attributes, pairs ...string) *Attributes {
		for i := 0; i < len(pairs); i += 2 {
			a.Header[pairs[i]] = []string{pairs[i+1]}
		}
		return a
	}
	from := func(a *Attributes, ip string) *Attributes {
		a.Peer = netip.MustParseAddr(ip)
		return a
	}
	preflight := func(path string) *Attributes {
		return with(get("OPTIONS", path), "Origin", "https://a.example", "Access-Control-Request-Method", "GET")
	}
	host := func(a *Attributes, name string) *Attributes {
		a.Host = name
		return a
	}
	for _, c := range []struct {
		rule    string
		a       *Attributes
		id      Identity
		applies bool
		why     string
	}{
		{"hooks", get("POST", "/hooks/stripe"), maya, true, "exempt from every layer"},
		{"hooks", get("POST", "/hooks"), maya, false, "path: /hooks/* counts a last slash"},
		{"hooks", get("POST", "/hooks/..%2fadmin"), maya, false, "in 3 ways, as /hooks/..%2fadmin and as /admin and as /hooks/../admin, and all"},
		{"hooks", get("POST", "/hooks/./..%2fadmin"), maya, false, "in 4 ways, as /hooks/..%2fadmin and as /admin and as /hooks/./..%2fadmin and as /hooks/./../admin, and all"},
		{"health", get("GET", "/healthz/"), maya, false, "path: /healthz counts a last slash"},
		{"health", get("GET", "/x"), maya, false, "the path is none of /healthz"},
		{"all", get("GET", "/hooks/stripe"), maya, false, "the exemption hooks wins"},
		{"login", get("GET", "/x"), maya, false, "the path is none of /login, /auth/*"},
		{"login", get("GET", "/Login"), maya, true, "matches /login"},
		{"plan basic", get("GET", "/x"), maya, false, "the path is none of GET /partner/{rest...}"},
		{"plan basic", get("POST", "/partner/x"), maya, false, "the method is POST, the route GET /partner/{rest...}"},
		{"plan basic", get("GET", "/hooks/x"), maya, false, "the exemption hooks wins"},
		{"plan basic", get("GET", "/partner/x"), Identity{KeyOwner: "acme", KeyPlan: "gold"}, false, "the API key of acme has the plan gold"},
		{"plan basic", get("GET", "/partner/x"), Identity{KeyOwner: "acme"}, false, "has the plan none"},
		{"plan basic", get("GET", "/partner/x"), Identity{KeyOwner: "acme", KeyPlan: "basic"}, true, "the API key of acme has this plan"},
		{"read", get("GET", "/docs"), maya, true, "matches GET /docs"},
		{"read", get("HEAD", "/docs"), maya, true, "matches GET /docs"},
		{"read", get("GET", "/docs"), claims("sub", "m", "tier", "pro"), true, "the plan pro has no limit here"},
		{"read", get("DELETE", "/docs"), maya, false, "the method is DELETE, the pattern GET /docs"},
		{"read", preflight("/docs"), maya, false, "the method is OPTIONS"},
		{"write", get("DELETE", "/docs"), maya, false, "the method is DELETE, the pattern POST /docs"},
		{"write", host(get("PUT", "/docs/7"), "www.example"), maya, false, `the host is "www.example", the pattern PUT api.example/docs/{id}`},
		{"write", host(get("PUT", "/docs/7"), "API.example:443"), maya, true, "matches PUT api.example/docs/{id}"},
		{"write", get("POST", "/other"), maya, false, "the path is none of POST /docs, PUT api.example/docs/{id}"},
		{"big", get("POST", "/docs"), maya, false, `its condition does not hold: when: header("X-Size") == "big"`},
		{"big", with(get("POST", "/docs"), "X-Size", "big"), maya, true, "matches POST /docs"},
		{"free-ride", get("POST", "/docs"), maya, false, "this call costs nothing"},
		{"cased", get("GET", "/docs"), maya, false, "the case of a letter differs from GET /Docs"},
		{"cased", get("GET", "/Docs"), maya, true, "matches GET /Docs"},
		{"watched", get("GET", "/docs"), maya, true, "matches GET /docs"},
		{"asleep", get("GET", "/docs"), maya, false, "mode: off"},
	} {
		f, told := explain(t, p, c.a, c.id)[c.rule]
		if !told || f.Applies != c.applies || !strings.Contains(f.Why, c.why) {
			t.Errorf("%s of %s %s: %v %q, want %v %q", c.rule, c.a.Method, c.a.Path, f.Applies, f.Why, c.applies, c.why)
		}
	}
	if f := explain(t, p, from(get("GET", "/x"), "203.0.113.9"), maya)["all"]; f.Applies || f.Why != "203.0.113.9 is in except_ips" {
		t.Errorf("an excepted address: %+v", f)
	}
	if f := explain(t, p, get("GET", "/docs"), maya)["any"]; f.Applies || f.Why != "another operation has a more specific pattern" {
		t.Errorf("the more general of two operations: %+v", f)
	}
	x, err := p.Explain(get("GET", "/partner/x"), maya)
	if err == nil || len(x.Fates) == 0 {
		t.Fatalf("without an API key: %v, %d fates", err, len(x.Fates))
	}
	for _, f := range x.Fates {
		if f.Layer == Gateway && (f.Applies || f.Why != "no API key was sent, and this route needs one") {
			t.Errorf("%+v", f)
		}
	}
	if _, err := p.Explain(get("GET", "/%zz"), maya); err == nil {
		t.Error("a path that nobody can read is explained")
	}
}

// What is told is what was decided: for any request the ops are those of Match,
// AppendEdge and Ops, every op belongs to one rule that applies, and a rule that
// applies asks for something, unless the caller's plan is unlimited.
func TestExplainAgreesWithWhatIsDecided(t *testing.T) {
	p := load(t, explained, "keys", "acme basic "+strings.Repeat("ab", 32)+"\n")
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	for range 20_000 {
		a := get(pick("GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"), pick("/", "/docs", "/Docs", "/docs/", "/docs/7", "/hooks/x", "/hooks/..%2fdocs", "/healthz", "/login", "/auth/a/b", "/partner/e", "/x;y", "//docs"))
		a.Host = pick("", "api.example", "www.example")
		a.Peer = netip.MustParseAddr(pick("192.0.2.1", "203.0.113.5"))
		if pick("", "p") != "" {
			a.Header["Origin"], a.Header["Access-Control-Request-Method"] = []string{"https://a"}, []string{"GET"}
		}
		a.Header["X-Size"] = []string{pick("big", "small")}
		id := claims("sub", pick("", "maya"), "tier", pick("free", "pro", "none"))
		if pick("", "k") != "" {
			id.KeyOwner, id.KeyPlan = "acme", pick("", "basic", "gold")
		}
		what := fmt.Sprintf("%s %s%s from %s by %v %s %s", a.Method, a.Host, a.Path, a.Peer, id.Claims, id.KeyOwner, id.KeyPlan)
		m, err := p.Match(a)
		x, failed := p.Explain(a, id)
		if err != nil || m.Exempt != x.Match.Exempt || m.Client != x.Match.Client || m.NeedsKey != x.Match.NeedsKey || m.NeedsIdentity != x.Match.NeedsIdentity {
			t.Fatalf("%s: %v, %+v, explained %+v", what, err, m, x.Match)
		}
		var edge, ops []Op
		if m.Exempt == "" {
			edge = p.AppendEdge(nil, &m, a)
			ops, err = p.Ops(&m, a, id)
		}
		if !reflect.DeepEqual(edge, x.Edge) || !reflect.DeepEqual(ops, x.Ops) || (err == nil) != (failed == nil) {
			t.Fatalf("%s: %v %v, %v; explained %v %v, %v", what, edge, ops, err, x.Edge, x.Ops, failed)
		}
		var told []Op
		for _, f := range x.Fates {
			if !f.Applies && len(f.Ops) > 0 || f.Why == "" {
				t.Errorf("%s: %+v", what, f)
			}
			if f.Applies && f.Layer != "" && len(f.Ops) == 0 && !strings.Contains(f.Why, "has no limit here") {
				t.Errorf("%s: %s applies and asks for nothing: %s", what, f.Name, f.Why)
			}
			if f.Applies != (len(f.Ops) > 0) && f.Layer != "" && f.Name != "read" {
				t.Errorf("%s: %+v", what, f)
			}
			told = append(told, f.Ops...)
		}
		if len(told) != len(edge)+len(ops) {
			t.Errorf("%s: %d ops are told of, %d asked for", what, len(told), len(edge)+len(ops))
		}
		for _, op := range slices.Concat(edge, ops) {
			if !slices.ContainsFunc(told, func(o Op) bool { return o.Rule == op.Rule }) {
				t.Errorf("%s: nothing is told of %s", what, op.Rule.Name)
			}
		}
	}
}

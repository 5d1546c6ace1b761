package policy

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

const gatewayPolicy = `
weir: 1
auth: {api_keys: {header: x-api-key, file: keys.txt}}
gateway:
  match: /partner/{rest...}
  plans: {basic: [10/s burst 20, quota 100000/month]}
application:
  limits:
    - {name: orders, match: POST /partner/orders, by: [partner, ip], limit: 1/s}
`

func TestSpec_C2_Gateway(t *testing.T) {
	p := load(t, gatewayPolicy, "keys.txt", "# none yet\n")
	m, err := p.Match(get("GET", "/partner/x"))
	if err != nil || !m.NeedsKey || !m.NeedsIdentity {
		t.Fatalf("%+v %v", m, err)
	}
	var re *RequestError
	if _, err := p.Ops(&m, get("GET", "/partner/x"), claims("sub", "A")); !errors.As(err, &re) || re.Status != http.StatusUnauthorized {
		t.Errorf("a route that needs a key, without one: %v", err)
	}
	partner := Identity{KeyOwner: "acme", KeyPlan: "basic"}
	for _, c := range []struct {
		method, path string
		id           Identity
		want         string
	}{
		{"GET", "/partner/x", partner, "basic partner#acme; basic.quota-month partner#acme"},
		{"POST", "/partner/orders", partner, "orders partner#acme; basic partner#acme; basic.quota-month partner#acme"},
		{"GET", "/partner/x", Identity{KeyOwner: "acme"}, ""},
		{"GET", "/elsewhere", partner, ""},
		{"GET", "/elsewhere", Identity{}, ""},
	} {
		if got := ask(t, p, get(c.method, c.path), c.id); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

// Without gateway.match a key is limited wherever it is sent, and needed
// nowhere.
func TestGatewayWithoutRoutes(t *testing.T) {
	p := load(t, "weir: 1\nauth: {api_keys: {header: x-api-key, file: keys.txt}}\ngateway: {plans: {basic: 1/s}}\n", "keys.txt", "")
	a := get("GET", "/x")
	m, err := p.Match(a)
	if err != nil || m.NeedsKey || m.NeedsIdentity {
		t.Errorf("without a key: %+v %v", m, err)
	}
	a.Header["X-Api-Key"] = []string{"secret"}
	if m, err = p.Match(a); err != nil || m.NeedsKey || !m.NeedsIdentity {
		t.Errorf("with a key: %+v %v", m, err)
	}
	if got := ask(t, p, a, Identity{KeyOwner: "acme", KeyPlan: "basic"}); got != "basic partner#acme" {
		t.Error(got)
	}
}

// Keys of more parts first, then in the order of callers:, the gateway after
// them, and last what everybody shares.
func TestNarrowBeforeBroad(t *testing.T) {
	p := load(t, `
weir: 1
callers: {tenant: jwt.tenant, account: jwt.sub, partner: api_key.owner}
gateway: {plans: {basic: 1/s}}
application:
  plans: {free: {op: 1/s}}
  operations: {op: {match: "/e/{event}"}}
  limits:
    - {name: everyone, by: everyone, limit: 1/s}
    - {name: tenant, by: tenant, limit: 1/s}
    - {name: account, by: account, limit: 1/s}
    - {name: address, by: ip, limit: 1/s}
    - {name: event, by: account+path.event, match: "/e/{event}", limit: 1/s}
`)
	id := Identity{Claims: map[string]any{"sub": "A", "tenant": "T"}, KeyOwner: "acme", KeyPlan: "basic"}
	want := "event account#A|event#1; tenant tenant#T; op account#A; account account#A; address ip#192.0.2.44; basic partner#acme; everyone everyone#all"
	if got := ask(t, p, get("GET", "/e/1"), id); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSpec_C1_EdgeOrderIsByPriority(t *testing.T) {
	p := load(t, `
weir: 1
edge:
  - {name: last, by: ip, limit: 1/s}
  - {name: second, by: everyone, limit: 1/s, priority: 41}
  - {name: first, by: ip+header.user-agent, limit: 1/s, priority: 40}
  - {name: tried, by: ip, limit: 1/s, mode: shadow, priority: 50}
  - {name: never, by: ip, limit: 1/s, mode: off}
`)
	a := get("GET", "/")
	a.Header["User-Agent"] = []string{"bot/1"}
	want := "first ip#192.0.2.44|user-agent#bot%2F1; second everyone#all; tried ip#192.0.2.44 shadow; last ip#192.0.2.44"
	if got := ask(t, p, a, Identity{}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(p.Limits()) != 0 || p.EdgeShared() {
		t.Errorf("edge limits are not in the store: %v", p.Limits())
	}
	if shared := load(t, "weir: 1\nedge_store: shared\nedge: [{name: a, by: ip, limit: 1/s}]\n"); len(shared.Limits()) != 1 || !shared.EdgeShared() {
		t.Errorf("edge_store: shared: %v", shared.Limits())
	}
}

func TestSpec_C5_NeverLimited(t *testing.T) {
	p := load(t, little)
	for _, path := range []string{"/webhooks/stripe", "/webhooks/a/b", "/healthz"} {
		m, err := p.Match(get("POST", path))
		if err != nil || m.Exempt == "" || len(p.AppendEdge(nil, &m, get("POST", path))) > 0 || m.NeedsIdentity {
			t.Errorf("%s: %+v %v", path, m, err)
		}
		if ops, err := p.Ops(&m, get("POST", path), claims("sub", "A")); len(ops) > 0 || err != nil {
			t.Errorf("%s: %v %v", path, ops, err)
		}
	}
}

func TestCase_B101_HealthIsExemptFromEverything(t *testing.T) {
	p := load(t, "weir: 1\nexempt: [{name: health, path: /healthz}]\nedge: [{name: all, by: everyone, limit: 1/h}]\napplication: {limits: [{name: a, by: everyone, limit: 1/h}]}\n")
	if got := ask(t, p, get("GET", "/healthz"), Identity{}); got != "exempt health" {
		t.Error(got)
	}
}

func TestPreflight(t *testing.T) {
	p := load(t, `
weir: 1
auth: {api_keys: {header: x-api-key, file: keys.txt}}
edge: [{name: all, by: ip, limit: 1/s}]
gateway: {match: /, plans: {basic: 1/s}}
application:
  limits:
    - {name: any, by: ip, limit: 1/s}
    - {name: path, by: ip, limit: 1/s, match: /a}
    - {name: options, by: ip, limit: 1/s, match: OPTIONS /a}
`, "keys.txt", "")
	a := get("OPTIONS", "/a")
	id := Identity{KeyOwner: "acme"}
	if got := ask(t, p, a, id); got != "all ip#192.0.2.44; any ip#192.0.2.44; path ip#192.0.2.44; options ip#192.0.2.44" {
		t.Errorf("an OPTIONS of its own: %s", got)
	}
	a.Header["Origin"], a.Header["Access-Control-Request-Method"] = []string{"https://shop.example"}, []string{"POST"}
	if got := ask(t, p, a, Identity{}); got != "all ip#192.0.2.44; options ip#192.0.2.44" {
		t.Errorf("a preflight: %s", got)
	}
}

func TestHostsAndMethods(t *testing.T) {
	p := limits(t, `{name: a, by: ip, limit: 1/s, match: [GET Shop.Example/a, "POST shop.example./b"]}`)
	for _, c := range []struct {
		method, host, path string
		want               bool
	}{
		{"GET", "shop.example", "/a", true},
		{"HEAD", "SHOP.example:8080", "/a", true},
		{"get", "shop.example", "/a", true}, // some servers take it
		{"GET", "shop.example.", "/a", true},
		{"GET", "shop.example.:443", "/A/", true},
		{"POST", "shop.example", "/a", false},
		{"GET", "other.example", "/a", false},
		{"GET", "", "/a", false},
		{"POST", "shop.example", "/b", true},
	} {
		a := get(c.method, c.path)
		a.Host = c.host
		if got := ask(t, p, a, Identity{}) != ""; got != c.want {
			t.Errorf("%s %s%s: %v", c.method, c.host, c.path, got)
		}
	}
}

// A limit that several patterns or readings match is taken once.
func TestOnce(t *testing.T) {
	p := limits(t, `{name: a, by: ip, limit: 1/s, match: [/a, "/{x}", "/{x...}", GET /a]}`)
	for _, path := range []string{"/a", "/a;b", "/%2561"} {
		if got := ask(t, p, get("GET", path), Identity{}); got != "a ip#192.0.2.44" {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A server may read a path either way, so both operations are taken when
// neither pattern is the more specific one.
func TestOperationsOfTwoReadings(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans: {free: {cheap: 1/s, dear: 1/s, rest: 1/s}}
  operations: {cheap: {match: "/cheap/{x}"}, dear: {match: "/dear/{x}"}, rest: {match: /}}
`)
	for path, want := range map[string]string{
		"/dear/1":                           "dear ip#192.0.2.44",
		"/cheap/..%2fdear%2f1":              "cheap ip#192.0.2.44; dear ip#192.0.2.44",
		"/cheap%2f..%2fdear/1":              "dear ip#192.0.2.44",
		"/x%2f..%2fdear%2f1":                "dear ip#192.0.2.44",
		"/cheap/%2e%2e%2f%2e%2e%2fdear%2f1": "cheap ip#192.0.2.44; dear ip#192.0.2.44",
		"/unknown":                          "rest ip#192.0.2.44",
	} {
		got := ask(t, p, get("GET", path), Identity{})
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestSpec_B05_UsageOps(t *testing.T) {
	p := load(t, little)
	id := Identity{Claims: map[string]any{"sub": "customer-42", "plans": "advanced"}, KeyOwner: "acme", KeyPlan: "partner-basic"}
	ops, err := p.UsageOps(get("GET", "/.weir/usage"), netip.MustParseAddr("192.0.2.44"), id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range ops {
		got = append(got, op.Limit.Name()+" "+op.Limit.String()+" "+op.Key.String())
	}
	want := "analyze quota 1000/day account#customer-42; generate quota 100/minute account#customer-42; reservations 0.5/s burst 10 account#customer-42; partner-basic 10/s burst 20 partner#acme; partner-basic.quota-month quota 100000/month partner#acme"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestFromLimit(t *testing.T) {
	for _, by := range []string{"ip", "account", "account,ip", "everyone"} {
		p, text, err := FromLimit("10/s burst 20", by)
		if err != nil {
			t.Fatal(err)
		}
		again := load(t, string(text))
		a := get("GET", "/x")
		if x, y := ask(t, p, a, claims("sub", "A")), ask(t, again, a, claims("sub", "A")); x != y || !strings.HasPrefix(x, "requests ") {
			t.Errorf("by %s: %q, and from the file %q", by, x, y)
		}
	}
	for _, c := range [][2]string{{"10", "ip"}, {"10/s", "header.x"}, {"10/s\nx: y", "ip"}, {"", "ip"}, {"10/s", ""}, {"10/s", "[ip"}} {
		p, _, err := FromLimit(c[0], c[1])
		var ps Problems
		if !errors.As(err, &ps) || p != nil {
			t.Errorf("--limit %q --by %q: %v", c[0], c[1], err)
		}
	}
}

// Whatever is wrong with a flag is shown in the flag, and not in a line of a file
// that nobody wrote.
func TestFromLimitShowsTheFlag(t *testing.T) {
	for _, c := range []struct{ limit, by, want string }{
		{"10/x", "ip", "--limit: error: *\n    --limit 10/x\n            ^^^^\n"},
		{"quota 5/day calendar Mars/Base", "ip", "--limit: error: *\n    --limit quota 5/day calendar Mars/Base\n            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"},
		{`10/"s`, "ip", "--limit: error: *\n    --limit 10/\"s\n            ^^^^^\n"},
		{"", "ip", "--limit: error: *\n    --limit \n            ^\n"},
		{"10/s", "nobody", "--by: error: *\n    --by nobody\n         ^^^^^^\n"},
		{"10/s", "account, nobody", "--by: error: *\n    --by account, nobody\n                  ^^^^^^\n"},
	} {
		_, _, err := FromLimit(c.limit, c.by)
		before, after, _ := strings.Cut(c.want, "*")
		if err == nil || !strings.HasPrefix(err.Error(), before) || !strings.Contains(err.Error()+"\n", after) {
			t.Errorf("--limit %q --by %q:\n%v\nwant\n%s", c.limit, c.by, err, c.want)
		}
	}
	p, _, err := FromLimit("10/s", "account")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, w := range p.Warnings() {
		found = found || w.File == "--by" && w.Line == 0 && strings.Contains(w.Message, "the address")
	}
	if !found {
		t.Errorf("nothing says that nobody can be an account: %v", p.Warnings())
	}
}

func TestRules(t *testing.T) {
	p := load(t, little)
	var got []string
	for _, r := range p.Rules() {
		got = append(got, string(r.Layer)+" "+r.Name)
	}
	if !strings.HasPrefix(strings.Join(got, ", "), "edge rate-all, edge rate-auth, gateway partner-basic, gateway partner-basic.quota-month, application analyze,") {
		t.Errorf("%v", got)
	}
	for _, r := range p.Rules() {
		if r.Name == "reservations" && (r.Denied.UpgradeURL != "/billing" || r.Denied.Message == nil || r.Success != StatusRange{100, 399} || len(r.Headers) != 1) {
			t.Errorf("%+v", r)
		}
	}
	if p.Name() != "little-stage" || p.LogKeys() != "hash" || p.Store() != "" || p.Revision() != 0 {
		t.Errorf("%s %s %s %d", p.Name(), p.LogKeys(), p.Store(), p.Revision())
	}
}

func TestSpec_C7_WrongLayers(t *testing.T) {
	for text, want := range map[string]string{
		"application: {limits: [{name: all, by: account, limit: 10/s}]}":                             "one limit for everything",
		"application: {limits: [{name: a, match: POST /orders, by: ip, limit: 1/s}]}":                "a business limit by address",
		"edge: [{name: a, by: ip, limit: 1/s, denied: {message: Upgrade now}}]":                      "a message for customers at the edge",
		"edge: [{name: a, by: ip, limit: 1/s}]":                                                      "",
		"application: {limits: [{name: a, match: POST /orders, by: [account, ip], limit: 1/s}]}":     "",
		"application: {limits: [{name: a, match: POST /orders, by: ip+path.x, limit: 1/s}]}":         "error",
		"application: {limits: [{name: a, match: [POST /a, POST /b], by: everyone, limit: 400/s}]}":  "",
		"application: {limits: [{name: a, match: [POST /a, POST /b], by: everyone, limit: 5000/s}]}": "counted in one item",
	} {
		p, err := loadText("weir: 1\n" + text + "\n")
		if (err != nil) != (want == "error") {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err != nil {
			continue
		}
		got := Problems(p.Warnings()).Error()
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, ": error:") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The whole kind: of limits that are equal, however they are laid out, all but one are
// told of, so that whoever removes those keeps one.
func TestOfEqualLimitsOneIsKept(t *testing.T) {
	rule := func(name string) string { return "{name: " + name + ", match: GET /a, by: account, limit: 1/s}" }
	a, b, c := rule("a"), rule("b"), rule("c")
	for name, files := range map[string]map[string]string{
		"lines":    {"weir.yaml": "weir: 1\napplication:\n  limits:\n    - " + a + "\n    - " + b + "\n    - " + c + "\n"},
		"one line": {"weir.yaml": "weir: 1\napplication: {limits: [" + a + ", " + b + ", " + c + "]}\n"},
		"files":    {"weir.yaml": "weir: 1\ninclude: [b.yaml, c.yaml]\n\n\napplication: {limits: [" + a + "]}\n", "b.yaml": "\napplication: {limits: [" + b + "]}\n", "c.yaml": "application: {limits: [" + c + "]}\n"},
	} {
		said := rendered(files)
		if strings.Count(said, "WEIR2104") != 2 || strings.Contains(said, "limit `a` never acts") {
			t.Errorf("%s:\n%s", name, said)
		}
	}
}

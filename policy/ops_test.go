package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlabs/weir"
)

func claims(pairs ...any) Identity {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return Identity{Claims: m}
}

// limits is a policy of application limits only.
func limits(t testing.TB, entries ...string) *Policy {
	t.Helper()
	return load(t, "weir: 1\ncallers: {account: jwt.sub, agent: jwt.agent, tenant: jwt.tenant, partner: api_key.owner}\napplication:\n  limits:\n    - "+strings.Join(entries, "\n    - ")+"\n")
}

func TestSpec_A07_KeyFromAccountOrAddress(t *testing.T) {
	p := load(t, little)
	a := get("POST", "/reservations")
	a.Header["X-Account"] = []string{"customer-42"}
	a.Header["Authorization"] = []string{"Bearer forged"}
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{claims("sub", "customer-42"), "reservations account#customer-42"},
		{claims("sub", ""), "reservations ip#192.0.2.44"},
		{claims(), "reservations ip#192.0.2.44"},
		{Identity{}, "reservations ip#192.0.2.44"},
		{claims("sub", "127.0.0.1"), "reservations account#127.0.0.1"},
		{claims("sub", "a#b|c"), "reservations account#a%23b%7Cc"},
		{claims("sub", "A"), "reservations account#A"}, // ids keep their case
		{claims("sub", json.Number("42")), "reservations account#42"},
		{claims("sub", 42.0), "reservations account#42"},
		{claims("sub", 4.5), "unauthorized: The claim sub of the token is not an id."},
		{claims("sub", true), "unauthorized: The claim sub of the token is not a text."},
		{claims("sub", []any{"a"}), "unauthorized: The claim sub of the token is not a text."},
		{claims("sub", strings.Repeat("x", 256)), "reservations account#" + strings.Repeat("x", 256)},
		{claims("sub", strings.Repeat("x", 257)), "unauthorized: The claim sub of the token is too long."},
	} {
		if got := strings.TrimPrefix(ask(t, p, a, c.id), "rate-all ip#192.0.2.44; "); got != c.want {
			t.Errorf("%v: got %s, want %s", c.id, got, c.want)
		}
	}
}

func TestBy(t *testing.T) {
	who := claims("sub", "A", "agent", "G", "tenant", "T")
	for _, c := range []struct {
		by   string
		id   Identity
		want string
	}{
		{"account", who, "account#A"},
		{"account", Identity{}, "ip#192.0.2.44"},
		{"ip", who, "ip#192.0.2.44"},
		{"[agent, account]", who, "agent#G"},
		{"[agent, account]", claims("sub", "A"), "account#A"},
		{"[agent, account]", Identity{}, "ip#192.0.2.44"},
		{"everyone", who, "everyone#all"},
		{"everyone+path.event", Identity{}, "everyone#all|event#e1"},
		{"account+path.event", who, "account#A|event#e1"},
		{"account+path.event", Identity{}, "ip#192.0.2.44|event#e1"},
		{"account+agent", who, "account#A|agent#G"},
		{"account+agent", claims("sub", "A"), "ip#192.0.2.44"},
		{"[account+agent, account]", claims("sub", "A"), "account#A"},
		{"account+header.x-shop", who, "account#A|x-shop#S1"},
		{"account+query.room", who, "account#A|room#7"},
		{"ip+query.room", who, "ip#192.0.2.44|room#7"},
		{"account+query.none", who, "account#A"},
		{"tenant+account+path.event+query.room", who, "tenant#T|account#A|event#e1|room#7"},
		{"partner", Identity{KeyOwner: "acme"}, "partner#acme"},
	} {
		p := limits(t, fmt.Sprintf(`{name: a, by: %s, match: "POST /events/{event}", limit: 1/s}`, c.by))
		a := get("POST", "/events/E1")
		a.RawQuery, a.Header["X-Shop"] = "room=7", []string{"S1"}
		if got := ask(t, p, a, c.id); got != "a "+c.want {
			t.Errorf("by: %s: got %s, want %s", c.by, got, c.want)
		}
	}
}

func TestAnonymous(t *testing.T) {
	p := limits(t, `{name: a, by: [account, ip], limit: 10/s, anonymous: [1/s, quota 5/day]}`)
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{claims("sub", "A"), "10/s"},
		{Identity{}, "1/s quota 5/day"},
	} {
		m, err := p.Match(get("GET", "/"))
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, get("GET", "/"), c.id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, op := range ops {
			got = append(got, op.Limit.String())
			if op.Rule.Anonymous != (c.id.Claims == nil) {
				t.Errorf("%s: anonymous is %v", op.Limit, op.Rule.Anonymous)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("got %s, want %s", s, c.want)
		}
	}
}

// B100: what an anonymous caller may cost is limited before anybody is
// identified, so guessing tokens is too.
func TestCase_B100_EdgeComesBeforeIdentification(t *testing.T) {
	p := load(t, little)
	login := get("POST", "/api/auth/login")
	m, err := p.Match(login)
	if ops := p.AppendEdge(nil, &m, login); err != nil || len(ops) != 2 {
		t.Errorf("%d edge ops before identification, %v", len(ops), err)
	}
	if m.NeedsIdentity {
		t.Error("a path without business limits asks for an identity")
	}
	m, err = p.Match(get("POST", "/reservations"))
	if err != nil || !m.NeedsIdentity || m.NeedsKey {
		t.Errorf("%+v %v", m, err)
	}
}

func TestCase_B092_B094_KindsKeepIdsApart(t *testing.T) {
	p := limits(t, `{name: a, by: [account, ip], limit: 1/s}`)
	user, anonymous := ask(t, p, get("GET", "/"), claims("sub", "192.0.2.44")), ask(t, p, get("GET", "/"), Identity{})
	if user == anonymous {
		t.Errorf("an account and an address share %s", user)
	}
	a, b := get("GET", "/"), get("GET", "/")
	a.Header["X-Tenant-Id"], b.Header["X-Tenant-Id"] = []string{"1"}, []string{"2"}
	if ask(t, p, a, Identity{}) != ask(t, p, b, Identity{}) {
		t.Error("a header of the client's choice gives a fresh key")
	}
}

func TestCase_B095_TheSameNumbersAreNotTheSameCounter(t *testing.T) {
	p := limits(t, `{name: a, match: /a, by: ip, limit: 10/m}`, `{name: b, match: /b, by: ip, limit: 10/m}`)
	if a, b := ask(t, p, get("GET", "/a"), Identity{}), ask(t, p, get("GET", "/b"), Identity{}); a == b {
		t.Errorf("two routes share %s", a)
	}
}

func TestCase_B097_AliasesOfAPath(t *testing.T) {
	p := limits(t, `{name: lang, match: /lang, by: ip, limit: 3/m}`)
	for _, path := range []string{"/lang", "/LANG", "/lang/", "/Lang/", "//lang", "/%6cang", "/lang;v"} {
		if got := ask(t, p, get("GET", path), Identity{}); got != "lang ip#192.0.2.44" {
			t.Errorf("%s: %q", path, got)
		}
	}
	// Letters that only some ways of folding take for ASCII ones: strings.EqualFold
	// does, and so may a router.
	kelvin := limits(t, `{name: desks, match: /desks, by: ip, limit: 3/m}`)
	for _, path := range []string{"/DESKS", "/de\u017fks", "/des\u212as", "/%64e%C5%BF%E2%84%AA\u017f"} {
		if got := ask(t, kelvin, get("GET", path), Identity{}); got != "desks ip#192.0.2.44" {
			t.Errorf("%s: %q", path, got)
		}
	}
	exact := limits(t, `{name: lang, match: /Lang, by: ip, limit: 3/m, case: exact}`)
	for path, want := range map[string]string{"/Lang": "lang ip#192.0.2.44", "/lang": "", "/L%61ng": "lang ip#192.0.2.44"} {
		if got := ask(t, exact, get("GET", path), Identity{}); got != want {
			t.Errorf("case: exact and %s: %q", path, got)
		}
	}
}

func TestCase_B098_KeysSurviveAReload(t *testing.T) {
	a := limits(t, `{name: a, by: account, limit: 1/s}`)
	b := load(t, "weir: 1\nrevision: 9\napplication: {limits: [{name: z, match: /z, by: ip, limit: 3/s}, {name: a, by: account, limit: 2/s, denied: {message: no}}]}")
	if x, y := ask(t, a, get("GET", "/"), claims("sub", "A")), ask(t, b, get("GET", "/"), claims("sub", "A")); x != y {
		t.Errorf("%s became %s", x, y)
	}
}

func TestCase_B091_LongSecretsAreHashedWhole(t *testing.T) {
	p := limits(t, `{name: a, by: everyone+header.x-token, limit: 1/s}`)
	seen := map[string]bool{}
	for i := range 200 {
		a := get("GET", "/")
		a.Header["X-Token"] = []string{"live_" + strings.Repeat("A", 300) + fmt.Sprint(i)}
		seen[ask(t, p, a, Identity{})] = true
	}
	if len(seen) != 200 {
		t.Errorf("200 tokens make %d keys", len(seen))
	}
}

// Different callers, different keys; the same caller, the same key; and the
// length is bounded. R29.
func TestKeysAreInjective(t *testing.T) {
	p := limits(t, `{name: a, match: "/e/{event}", case: exact, by: [tenant+account+path.event+query.q, account+path.event, account], limit: 1/s}`)
	text := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("aA#|:%+-.é\x00")), 0, 6, -1),
		rapid.StringN(0, 300, 300),
		rapid.Just("sha256:"+strings.Repeat("0", 64)),
	)
	type caller struct{ tenant, account, event, q string }
	seen := map[string]caller{} // every key is compared with all before it: above a million pairs
	check := func(t *rapid.T) {
		c := caller{text.Draw(t, "tenant"), text.Draw(t, "account"), text.Draw(t, "event"), text.Draw(t, "q")}
		if len(c.tenant) > maxID || len(c.account) > maxID {
			return
		}
		a := get("GET", "/e/"+escapeAll(c.event))
		a.RawQuery = "q=" + escapeAll(c.q)
		m, err := p.Match(a)
		if err != nil || m.found.app.n == 0 {
			return // a control character, a dot segment, an empty one
		}
		ops, err := p.Ops(&m, a, claims("tenant", c.tenant, "account", c.account, "sub", c.account))
		if err != nil || len(ops) != 1 || !ops[0].Key.Valid() {
			t.Fatalf("%+v: %v %v", c, ops, err)
		}
		// Where the path has a second reading, that one's value counts.
		rs, _ := readPath(a.Path)
		if rs.n == 2 && m.found.app.n == 1 {
			c.event = m.found.app.at(0).pattern.value(m.found.app.at(0).path, "event")
		}
		if c.account == "" {
			return // the address: others share it
		}
		if c.tenant == "" {
			c.q = "" // the second form
		}
		k := ops[0].Key.String()
		if other, ok := seen[k]; ok && other != c {
			t.Fatalf("%+v and %+v are both %s", c, other, k)
		}
		seen[k] = c
	}
	for range 30 {
		rapid.Check(t, check)
	}
	if pairs := len(seen) * (len(seen) - 1) / 2; pairs < 1_000_000 {
		t.Errorf("only %d pairs", pairs)
	}
	a, b := claims("tenant", "a:b", "sub", "c"), claims("tenant", "a", "sub", "b:c")
	x, y := get("GET", "/e/1?"), get("GET", "/e/1?")
	if ask(t, p, x, a) == ask(t, p, y, b) {
		t.Error("two tenants with the same concatenation share a key")
	}
}

func escapeAll(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		cost, header string
		want         int64 // 0: no op
	}{
		{"1", "", 1}, {"3", "", 3}, {"0", "", 0},
		{"header.X-Units", "7", 7}, {"header.x-units", "", 1}, {"header.x-units", "abc", 1},
		{"header.x-units", "0", 1}, {"header.x-units", "-5", 1}, {"header.x-units", "1.5", 1},
		{"header.x-units", "99999999999999999999", 1}, {"header.x-units", "9007199254740993", maxCost},
		{`"method == 'POST' ? 5 : 0"`, "", 5}, {`"method == 'GET' ? 5 : 0"`, "", 0},
		{`"int(header('x-units')) * 2"`, "4", 8}, {`"int(header('x-units')) * 2"`, "x", 1},
		{`"int(header('x-units'))"`, "-5", 1}, {`"len(path) / 3"`, "", 1}, {`"7 * len(path) / 2"`, "", 4}, {`"len(path) / 0"`, "", maxCost}, {`"0 * len(path) / 0"`, "", 1}, {`"3 * 4"`, "", 12},
		{`"claims.units"`, "", 6}, {`"claims.none"`, "", 1}, {`"len(query('q'))"`, "", 3},
	} {
		p := limits(t, "{name: a, by: account, limit: 100/s, cost: "+c.cost+"}")
		a := get("POST", "/")
		a.RawQuery = "q=abc"
		if c.header != "" {
			a.Header["X-Units"] = []string{c.header}
		}
		id := claims("sub", "A", "units", 6)
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, a, id)
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		if len(ops) == 1 {
			got = ops[0].Cost
		}
		if got != c.want {
			t.Errorf("cost: %s with %q: %d, want %d", c.cost, c.header, got, c.want)
		}
	}
}

func TestCase_B116_B118_B119_CostBeyondTheLimit(t *testing.T) {
	_, err := loadText("weir: 1\napplication: {limits: [{name: a, by: ip, limit: 1/s burst 4, cost: 5}]}")
	if err == nil || !strings.Contains(err.Error(), "can never hold") {
		t.Errorf("%v", err)
	}
}

func TestCase_B122_NegativeCostIsRefused(t *testing.T) {
	_, err := loadText("weir: 1\napplication: {limits: [{name: a, by: ip, limit: 1/s, cost: -5}]}")
	if err == nil || !strings.Contains(err.Error(), "-5") {
		t.Errorf("%v", err)
	}
}

func TestWhen(t *testing.T) {
	for when, want := range map[string]bool{
		`method == "POST"`:                     true,
		`method == "GET"`:                      false,
		`path == "/a/b"`:                       true,
		`path startsWith "/a/"`:                true,
		`host == "shop.example"`:               true,
		`ip == "192.0.2.44"`:                   true,
		`header("user-agent") contains "curl"`: true,
		`query("x") == "1"`:                    true,
		`query("x") == "2"`:                    false,
		`header("user-agent") == ""`:           false,
		`claims.role == "admin"`:               false,
		`claims["sub"] == "A"`:                 true,
		`claims.missing.deeper == 1`:           true, // fails, and so holds
		`plan == ""`:                           true,
	} {
		p := limits(t, fmt.Sprintf("{name: a, by: account, limit: 1/s, when: %q}", when))
		a := get("POST", "/A/./b")
		a.Host, a.RawQuery, a.Header["User-Agent"] = "Shop.Example:8080", "x=1", []string{"curl/8"}
		if got := ask(t, p, a, claims("sub", "A")) != ""; got != want {
			t.Errorf("when: %s: %v", when, got)
		}
	}
}

func TestExpressionsHaveNoClock(t *testing.T) {
	if _, err := loadText("weir: 1\napplication: {limits: [{name: a, by: ip, limit: 1/s, when: \"now().Hour() > 8\"}]}"); err == nil {
		t.Error("now() is known")
	}
}

func TestModesAndFailure(t *testing.T) {
	p := load(t, `
weir: 1
gateway: {plans: {basic: 1/s}}
application:
  plans: {free: {op: 1/s, denied: 1/s}}
  operations: {op: {match: /op}, denied: {match: /denied, on_store_error: allow, mode: shadow}}
  limits:
    - {name: a, by: ip, limit: 1/s, mode: shadow}
    - {name: b, by: ip, limit: 1/s, mode: off}
    - {name: c, by: ip, limit: 1/s, mode: enforce, on_store_error: deny}
`)
	type expect struct {
		shadow bool
		fail   weir.FailureMode
	}
	want := map[string]expect{
		"a": {true, weir.FailAllow}, "c": {false, weir.FailDeny}, "op": {false, weir.FailDeny},
		"denied": {true, weir.FailAllow}, "basic": {false, weir.FailAllow},
	}
	seen := 0
	for _, path := range []string{"/op", "/denied"} {
		m, err := p.Match(get("GET", path))
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, get("GET", path), Identity{KeyOwner: "acme", KeyPlan: "basic"})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			seen++
			if got := (expect{op.Shadow, op.OnFail}); got != want[op.Limit.Name()] {
				t.Errorf("%s: %+v, want %+v", op.Limit.Name(), got, want[op.Limit.Name()])
			}
		}
	}
	if seen != 8 {
		t.Errorf("%d ops", seen)
	}
}

func TestSpec_B01_B02_B03_PlansAndOperations(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans:
    from: jwt.plans
    order: [free, basic, advanced, enterprise]
    free:       {analyze: quota 100/day, generate: [quota 10/minute, quota 50/day]}
    advanced:   {analyze: quota 1000/day}
    enterprise: {analyze: quota 1000/hour, generate: unlimited}
  operations:
    analyze:  {match: POST /analyze, count: on_success, success: 200-299}
    generate: {match: POST /generate}
`)
	for _, c := range []struct {
		plans any
		path  string
		want  string
	}{
		{nil, "/analyze", "analyze quota 100/day free"},
		{"free", "/analyze", "analyze quota 100/day free"},
		{"basic", "/analyze", "analyze quota 100/day basic"},
		{"advanced", "/analyze", "analyze quota 1000/day advanced"},
		{[]any{"free", "enterprise", "advanced"}, "/analyze", "analyze quota 1000/hour enterprise"},
		{[]string{"advanced", "free"}, "/analyze", "analyze quota 1000/day advanced"},
		{[]any{"gold", 7, nil}, "/analyze", "analyze quota 100/day free"},
		{"gold", "/analyze", "analyze quota 100/day free"},
		{true, "/analyze", "analyze quota 100/day free"},
		{"advanced", "/generate", "generate quota 10/minute advanced; generate.quota-day quota 50/day advanced"},
		{"enterprise", "/generate", ""},
		{"enterprise", "/other", ""},
	} {
		a := get("POST", c.path)
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		id := claims("sub", "A")
		if c.plans != nil {
			id.Claims["plans"] = c.plans
		}
		ops, err := p.Ops(&m, a, id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, op := range ops {
			got = append(got, op.Limit.Name()+" "+op.Limit.String()+" "+op.Rule.Plan)
			if op.Key.String() != "account#A" || !strings.HasPrefix(c.path, "/"+op.Rule.Operation) {
				t.Errorf("%v: key %s, operation %s", c.plans, op.Key, op.Rule.Operation)
			}
			if op.Rule.Operation == "analyze" && (!op.Rule.OnSuccess || op.Rule.Success != StatusRange{200, 299}) {
				t.Errorf("%+v", op.Rule)
			}
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%v %s: got %q, want %q", c.plans, c.path, s, c.want)
		}
	}
	// Without an account: by address, and of the first plan.
	if got := ask(t, p, get("POST", "/analyze"), claims("plans", "enterprise")); got != "analyze ip#192.0.2.44" {
		t.Error(got)
	}
	var unauthorizedErr *RequestError
	m, _ := p.Match(get("POST", "/analyze"))
	if _, err := p.Ops(&m, get("POST", "/analyze"), claims("sub", 1.5)); !errors.As(err, &unauthorizedErr) || unauthorizedErr.Status != 401 {
		t.Errorf("%v", err)
	}
}

func TestPlanFromAPIKey(t *testing.T) {
	p := load(t, `
weir: 1
callers: {account: api_key.owner}
auth: {api_keys: {header: x-api-key, file: keys.txt}}
application:
  plans:
    from: api_key.plan
    order: [free, paid]
    free: {render: quota 3/hour}
    paid: {render: quota 30/hour}
  operations: {render: {match: POST /render}}
`, "keys.txt", "acme paid 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n")
	key, ok := p.Auth().APIKeys.Lookup("test")
	if !ok || key != (APIKey{"acme", "paid"}) {
		t.Fatalf("%+v %v", key, ok)
	}
	if _, ok := p.Auth().APIKeys.Lookup("Test"); ok {
		t.Error("a wrong key is found")
	}
	a := get("POST", "/render")
	m, err := p.Match(a)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := p.Ops(&m, a, Identity{KeyOwner: key.Owner, KeyPlan: key.Plan})
	if err != nil || len(ops) != 1 || ops[0].Limit.String() != "quota 30/hour" || ops[0].Key.String() != "account#acme" {
		t.Errorf("%v %v", ops, err)
	}
}

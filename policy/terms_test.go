package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

// askedOf is what a request of a caller is asked for, as "name limit plan".
func askedOf(t *testing.T, p *Policy, a *Attributes, id Identity) (all []string, once *weir.Op) {
	t.Helper()
	m, err := p.Match(a)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := p.Ops(&m, a, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		all = append(all, strings.TrimSpace(op.Limit.Name()+" "+op.Limit.String()+" "+op.Rule.Plan))
	}
	return all, m.Once()
}

// An operation may be told by a condition alone. A pattern's goes first; what
// matches nothing passes.
func TestSpec_B01_OperationsByCondition(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans:
    order: [free]
    free: {export: quota 1/day, render: quota 2/day, batch: quota 3/day, rpc: quota 4/day, field: quota 5/day}
  operations:
    export: {when: 'query("format") == "csv"'}
    batch:  {when: 'header("X-Batch") != ""'}
    render: {match: POST /render, when: 'header("X-Draft") == ""'}
    rpc:    {match: POST /shop.v1.Orders/Place}
    field:  {match: POST /Mutation/generate}
`)
	for _, c := range []struct {
		method, path, query string
		header              map[string][]string
		want                string
	}{
		{"GET", "/list", "format=csv", nil, "export quota 1/day free"},
		{"GET", "/list", "", nil, ""},
		{"GET", "/list", "", map[string][]string{"X-Batch": {"7"}}, "batch quota 3/day free"},
		{"GET", "/list", "format=csv", map[string][]string{"X-Batch": {"7"}}, "export quota 1/day free"}, // the first of the file
		{"POST", "/render", "format=csv", nil, "render quota 2/day free"},
		{"POST", "/render", "format=csv", map[string][]string{"X-Draft": {"1"}}, "export quota 1/day free"},
		{"POST", "/render", "", map[string][]string{"X-Draft": {"1"}}, ""},
		{"POST", "/shop.v1.Orders/Place", "", nil, "rpc quota 4/day free"}, // a gRPC method
		{"POST", "/shop.v1.Orders/List", "", nil, ""},
		{"POST", "/Mutation/generate", "", nil, "field quota 5/day free"}, // an AppSync field
		{"POST", "/Query/generate", "", nil, ""},
	} {
		a := get(c.method, c.path)
		a.RawQuery = c.query
		if c.header != nil {
			a.Header = c.header
		}
		got, _ := askedOf(t, p, a, claims("sub", "A"))
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s %s?%s %v: %v, want %q", c.method, c.path, c.query, c.header, got, c.want)
		}
	}
}

// The plan may come from an expression over what is verified: one name, or a list.
func TestSpec_B03_EntitlementsFromAnExpression(t *testing.T) {
	const text = `
weir: 1
application:
  plans:
    from: %s
    order: [free, advanced, enterprise]
    free: {render: quota 1/day}
    advanced: {render: quota 2/day}
    enterprise: {render: quota 3/day}
  operations: {render: {match: POST /render}}
`
	for _, c := range []struct {
		from string
		id   Identity
		want string
	}{
		{`'claims.tier == "gold" ? "enterprise" : "free"'`, claims("sub", "A", "tier", "gold"), "enterprise"},
		{`'claims.tier == "gold" ? "enterprise" : "free"'`, claims("sub", "A"), "free"},
		{`claims.grants`, claims("sub", "A", "grants", []any{"advanced", "free", 3}), "advanced"},
		{`claims.grants`, claims("sub", "A"), "free"},
		{`'map(claims.seats, #.plan)'`, claims("sub", "A", "seats", []any{map[string]any{"plan": "advanced"}, map[string]any{"plan": "enterprise"}}), "enterprise"},
		{`'map(claims.seats, #.plan)'`, claims("sub", "A"), "free"}, // it fails, and entitles to nothing
		{`'key_owner == "acme" ? "advanced" : key_plan'`, Identity{KeyOwner: "acme"}, "advanced"},
	} {
		p := load(t, strings.Replace(text, "%s", c.from, 1))
		id := c.id
		if id.Claims == nil {
			id.Claims = map[string]any{"sub": "A"}
		}
		got, _ := askedOf(t, p, get("POST", "/render"), id)
		if len(got) != 1 || !strings.HasSuffix(got[0], " "+c.want) {
			t.Errorf("%s for %v: %v, want %s", c.from, id, got, c.want)
		}
	}
}

// Who looks from outside says which plans a caller has, wherever the policy takes
// them from; and is told where that is, as the file says it.
func TestIdentityOfIsEntitledToThePlansThatAreNamed(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner}
application:
  plans:
    from: %s
    order: [free, advanced, enterprise]
    free: {render: quota 1/day}
    advanced: {render: quota 2/day}
    enterprise: {render: quota 3/day}
  operations: {render: {match: POST /render}}
`
	for _, from := range []string{"jwt.plans", "jwt.tier", "api_key.plan", "account.plan", `claims.tier == "gold" ? "enterprise" : "advanced"`, "claims.grants", "key_plan"} {
		p := load(t, strings.Replace(text, "%s", "'"+from+"'", 1))
		if got := p.PlansFrom(); got != from {
			t.Errorf("plans come from %s, want %s", got, from)
		}
		for _, c := range []struct {
			plans []string
			want  string
		}{
			{[]string{"free"}, "free"}, {[]string{"advanced"}, "advanced"}, {[]string{"enterprise", "free"}, "enterprise"}, {[]string{"gold"}, "free"},
		} {
			id, ok := p.IdentityOf("account", "A", c.plans...)
			if !ok {
				t.Fatal("an account is unknown")
			}
			if from == "api_key.plan" {
				c.plans = c.plans[:1] // a key has one
			}
			got, _ := askedOf(t, p, get("POST", "/render"), id)
			if len(got) != 1 || !strings.HasSuffix(got[0], " "+c.want) {
				t.Errorf("%s, %v: %v, want %s", from, c.plans, got, c.want)
			}
			if id, _ = p.IdentityOf("partner", "acme", c.plans...); id.KeyOwner != "acme" || from == "api_key.plan" && id.KeyPlan != c.plans[0] {
				t.Errorf("%s: %+v", from, id)
			}
		}
	}
}

// Terms of the file become those of the limits that can have them.
func TestTermsOfTheFile(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans: {order: [free], free: {complete: [2000/m burst 2000, quota 50000/month calendar]}}
  operations:
    complete: {match: POST /complete, over: charge, debt: 2500, settle: header.x-tokens, notify_at: [80, 100%], cost: header.X-Estimate}
`)
	rules := p.Rules()
	if len(rules) != 2 {
		t.Fatalf("%d rules", len(rules))
	}
	rate, quota := rules[0], rules[1]
	if rate.Limit.IsMetered() || !quota.Limit.IsMetered() {
		t.Errorf("metered: %v and %v, want the quota alone", rate.Limit.IsMetered(), quota.Limit.IsMetered())
	}
	if rate.Limit.Debt() != 2000 { // its capacity: it cannot owe more
		t.Errorf("the rate may owe %d", rate.Limit.Debt())
	}
	if !quota.Settled() || quota.Settle != "X-Tokens" || !slices.Equal(quota.NotifyAt, []int{80, 100}) || quota.Debt != 2500 {
		t.Errorf("%+v", quota.Terms)
	}
	for _, r := range rules {
		again, err := Divided(r.Limit, 4)
		if err != nil || again.IsMetered() != r.Limit.IsMetered() {
			t.Errorf("a quarter of %s: metered %v, %v", r.Limit, again.IsMetered(), err)
		}
	}
}

// The id of a request belongs to its caller and to its operation, and has an item
// of its own.
func TestRequestIDs(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans: {order: [free], free: {render: quota 3/hour, other: quota 3/hour}}
  operations:
    render: {match: POST /render, once: header.idempotency-key}
    other: {match: POST /other, once: 'header("Idempotency-Key") + query("n")'}
  limits:
    - {name: seats, match: POST /seats, by: account, limit: 1/s}
`)
	of := func(path, query, sub string, ids ...string) *weir.Op {
		a := get("POST", path)
		a.RawQuery = query
		a.Header = map[string][]string{"Idempotency-Key": ids}
		_, once := askedOf(t, p, a, claims("sub", sub))
		return once
	}
	one := of("/render", "", "A", "k1")
	if one == nil || one.Limit.String() != "quota 1/10m" || one.Key.Parts() != 1 || !strings.HasPrefix(one.Key.String(), "once#") || one.OnFail != weir.FailAllow {
		t.Fatalf("%+v", one)
	}
	if again := of("/render", "", "A", " k1 "); again == nil || again.Key != one.Key {
		t.Errorf("the same id again: %+v", again)
	}
	for name, other := range map[string]*weir.Op{
		"another id":        of("/render", "", "A", "k2"),
		"another caller":    of("/render", "", "B", "k1"),
		"another operation": of("/other", "", "A", "k1"),
	} {
		if other == nil || other.Key == one.Key {
			t.Errorf("%s: %+v", name, other)
		}
	}
	long := strings.Repeat("x", 60_000)
	for name, sent := range map[string][]string{"a long id": {long}, "an id in two lines": {"a", "b"}} {
		first, again := of("/render", "", "A", sent...), of("/render", "", "A", sent...)
		if first == nil || again == nil || first.Key != again.Key || first.Key == one.Key || len(first.Key.String()) > 100 {
			t.Errorf("%s: %+v, and again %+v", name, first, again)
		}
	}
	if a, b := of("/render", "", "A", long), of("/render", "", "A", long+"y"); a.Key == b.Key {
		t.Error("two long ids are one")
	}
	if a, b := of("/render", "", "A", "a", "b"), of("/render", "", "A", "a", "c"); a.Key == b.Key {
		t.Error("two ids in two lines each are one")
	}
	if a, b := of("/other", "n=1", "A", "k"), of("/other", "n=2", "A", "k"); a == nil || b == nil || a.Key == b.Key {
		t.Error("an expression's id is not its own")
	}
	for name, none := range map[string]*weir.Op{
		"no id":         of("/render", "", "A"),
		"an empty id":   of("/render", "", "A", " "),
		"empty lines":   of("/render", "", "A", "", " "),
		"nothing asked": of("/seats", "", "A", "k1"),
	} {
		if none != nil {
			t.Errorf("%s: %v", name, none.Key)
		}
	}
	if got := p.KeepFor(one.Key); got != OnceFor {
		t.Errorf("an id is kept for %v", got)
	}
}

package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// The whole kind: whichever expression fails and whatever on_error says, the
// explanation names the expression, the reason and what came of it.
func TestExplainSaysWhatFailed(t *testing.T) {
	for _, c := range []struct{ rule, onError, want string }{
		{`when: "claims.x.y == 1"`, "", "the request matches GET /a, and on_error: apply lets it act, although when: claims.x.y == 1 cannot be computed: cannot fetch y"},
		{`when: "claims.x.y == 1"`, "apply", "on_error: apply lets it act, although when: claims.x.y == 1 cannot"},
		{`when: "claims.x.y == 1"`, "skip", "on_error: skip leaves it out, because when: claims.x.y == 1 cannot"},
		{`when: "claims.x.y == 1"`, "deny", "on_error: deny refuses the request, because when: claims.x.y == 1 cannot"},
		{`when: "len(1..1000000000) > 1"`, "", "although when: len(1..1000000000) > 1 cannot be computed: memory budget exceeded"},
		{`cost: "claims.x.y + 1"`, "", "although cost: claims.x.y + 1 cannot"},
		{`cost: "claims.x.y + 1"`, "skip", "because cost: claims.x.y + 1 cannot"},
		{`cost: "claims.x.y + 1"`, "deny", "because cost: claims.x.y + 1 cannot"},
		{`cost: "len(path) - 9"`, "", "although cost: len(path) - 9 cannot be computed: its result is -7, which is no cost"},
		{`cost: "0 / (len(path) - 2)"`, "deny", "because cost: 0 / (len(path) - 2) cannot be computed: its result is NaN"},
		{`when: "claims.x.y == 1", cost: "claims.z.y + 1"`, "", "although when: claims.x.y == 1 and cost: claims.z.y + 1 cannot be computed: cannot fetch y"},
	} {
		rule := c.rule
		if c.onError != "" {
			rule += ", on_error: " + c.onError
		}
		p := load(t, "weir: 1\napplication: {plans: {free: {op: 1/s}}, operations: {op: {match: GET /a, "+rule+"}}, limits: [{name: a, match: GET /a, by: account, limit: 10/s, "+rule+"}, {name: later, match: GET /a, by: ip, limit: 10/s}]}\n")
		x, err := p.Explain(get("GET", "/a"), Identity{})
		if deny := c.onError == "deny"; deny != (err != nil) || deny != (x.Refused != nil) {
			t.Errorf("%s: %v, refused by %+v", rule, err, x.Refused)
		}
		for _, f := range x.Fates {
			switch {
			case f.Name == "later" && c.onError == "deny":
				if f.Applies || f.Why != "not asked: the request is refused with 400 before" {
					t.Errorf("%s: %+v", rule, f)
				}
			case f.Name == "later":
				if !f.Applies || f.Why != "the request matches GET /a" {
					t.Errorf("%s: %+v", rule, f)
				}
			case f.Name == "a" && c.onError == "deny": // the operation came first
				if f.Applies {
					t.Errorf("%s: %+v", rule, f)
				}
			case !strings.Contains(f.Why, c.want):
				t.Errorf("%s: of %s: %s\nwant %s", rule, f.Name, f.Why, c.want)
			case f.Applies != (c.onError == "" || c.onError == "apply"), f.Applies != (len(f.Ops) == 1):
				t.Errorf("%s: %+v", rule, f)
			}
		}
	}
}

// Neither is an expression that fails elsewhere passed over in silence.
func TestExplainSaysWhichPlanAndIDFailed(t *testing.T) {
	p := load(t, `
weir: 1
application:
  plans: {from: 'claims.org.plan', order: [free, pro], free: {op: 1/s}, pro: {op: 2/s}}
  operations: {op: {match: GET /a}}
  limits: [{name: a, match: GET /a, by: account, limit: 10/s, once: 'claims.req.id'}]
`)
	x, err := p.Explain(get("GET", "/a"), Identity{})
	if err != nil || x.Plan != "free" || !strings.HasPrefix(x.PlanWhy, "from: claims.org.plan cannot be computed: cannot fetch plan") {
		t.Errorf("plan %s, %s, %v", x.Plan, x.PlanWhy, err)
	}
	for _, f := range x.Fates {
		if f.Name == "a" && (!f.Applies || !strings.Contains(f.Why, "it counts whatever was sent before, because once: claims.req.id cannot be computed: cannot fetch id")) {
			t.Errorf("%+v", f)
		}
	}
	x, err = p.Explain(get("GET", "/a"), claims("org", map[string]any{"plan": "pro"}, "req", map[string]any{"id": "x"}))
	if err != nil || x.Plan != "pro" || x.PlanWhy != "" || strings.Contains(x.Fates[1].Why, "cannot") {
		t.Errorf("plan %s, %s, %v, %+v", x.Plan, x.PlanWhy, err, x.Fates)
	}
}

// The whole kind: an address was reported only where a trusted proxy reported one,
// in whichever spelling the peer's stands.
func TestExplainSaysWhoReportedAnAddress(t *testing.T) {
	for _, c := range []struct {
		trusted, peer, forwarded string
		client                   string
		reported                 bool
	}{
		{"", "192.0.2.1", "", "192.0.2.1", false},
		{"", "192.0.2.1", "198.51.100.7", "192.0.2.1", false},
		{"", "::ffff:192.0.2.1", "", "192.0.2.1", false},
		{"", "fe80::1%eth0", "", "fe80::1", false},
		{"192.0.2.0/24", "192.0.2.1", "", "192.0.2.1", false},
		{"192.0.2.0/24", "192.0.2.1", "junk", "192.0.2.1", false},
		{"192.0.2.0/24", "192.0.2.1", "198.51.100.7", "198.51.100.7", true},
		{"192.0.2.0/24", "::ffff:192.0.2.1", "198.51.100.7", "198.51.100.7", true},
		{"192.0.2.0/24", "192.0.2.1", "junk, 192.0.2.1", "192.0.2.1", true},
		{"fe80::/10", "fe80::1%eth0", "2001:db8::1", "2001:db8::1", true},
		{"203.0.113.0/24", "192.0.2.1", "198.51.100.7", "192.0.2.1", false},
	} {
		text := "weir: 1\n"
		if c.trusted != "" {
			text += "trusted_proxies: [\"" + c.trusted + "\"]\n"
		}
		a := get("GET", "/")
		if a.Peer = netip.MustParseAddr(c.peer); c.forwarded != "" {
			a.Header["X-Forwarded-For"] = []string{c.forwarded}
		}
		x, err := load(t, text).Explain(a, Identity{})
		if err != nil || x.Match.Client.String() != c.client || x.Reported != c.reported {
			t.Errorf("%+v: %s, reported %v, %v", c, x.Match.Client, x.Reported, err)
		}
	}
}

// The whole kind: of a caller whose word is not true no rule behind the edge is asked,
// whatever it is and whatever its expressions would come to.
func TestExplainOfACallerWhomNobodyKnows(t *testing.T) {
	const text = `
weir: 1
auth: {api_keys: {header: x-api-key, file: keys}}
edge: [{name: e, by: ip, limit: 100/s}]
gateway: {plans: {basic: 10/s}}
application:
  plans: {order: [free], free: {op: 10/s, other: 5/s}}
  operations:
    op: {match: GET /a, when: 'claims.x.y == 1', on_error: %s}
    other: {match: GET /other}
  limits:
    - {name: l, match: GET /a, by: account, limit: 1/s, cost: 'claims.x.y + 1', on_error: %s}
    - {name: always, by: ip, limit: 1/s, when: 'claims.x.y == 1', on_error: %s}
    - {name: plain, by: ip, limit: 1/s}
    - {name: no, by: ip, limit: 1/s, mode: off}
`
	for _, onError := range []string{"apply", "skip", "deny"} {
		p, err := Load(files("weir.yaml", strings.ReplaceAll(text, "%s", onError), "keys", "#weir keys 1\n"), "weir.yaml", Options{Expressions: Expressions})
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.ExplainUnknown(get("GET", "/a"), &RequestError{Status: 401, Reason: "the API key is not known"})
		var re *RequestError
		if !errors.As(err, &re) || re.Status != 401 || len(x.Ops) > 0 || len(x.Edge) != 1 || x.Refused != nil {
			t.Errorf("%s: %v, %+v", onError, err, x)
		}
		for _, f := range x.Fates {
			want := "not asked: the request is refused with 401 before"
			switch f.Name {
			case "e":
				want = "it holds for every request"
			case "other":
				want = "the path is none of GET /other"
			case "no":
				want = "mode: off"
			}
			if f.Why != want || f.Applies != (f.Name == "e") || len(f.Ops) > 0 != f.Applies {
				t.Errorf("%s: %s: %+v, want %s", onError, f.Name, f, want)
			}
		}
		if len(x.Fates) != 8 {
			t.Errorf("%d fates: %+v", len(x.Fates), x.Fates)
		}
	}
}

package policy

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// An expression that fails does what the limit says of it.
func TestOnError(t *testing.T) {
	for _, c := range []struct{ fields, query, want string }{
		{`cost: 'int(query("n"))'`, "n=3", "costs 3"},
		{`cost: 'int(query("n"))'`, "n=x", "costs 1"},
		{`cost: 'int(query("n"))', on_error: apply`, "n=x", "costs 1"},
		{`cost: 'int(query("n"))', on_error: skip`, "n=x", ""},
		{`cost: 'int(query("n"))', on_error: skip`, "n=2", "costs 2"},
		{`cost: 'int(query("n"))', on_error: deny`, "n=2", "costs 2"},
		{`cost: 'int(query("n"))', on_error: deny`, "n=x", "400"},
		{`cost: 'int(query("n")) - 5', on_error: deny`, "n=2", "400"},
		{`when: 'int(query("n")) > 5'`, "n=x", "costs 1"},
		{`when: 'int(query("n")) > 5', on_error: skip`, "n=x", ""},
		{`when: 'int(query("n")) > 5', on_error: deny`, "n=x", "400"},
		{`when: 'int(query("n")) > 5', on_error: deny`, "n=1", ""},
		{`when: 'claims.groups.first == "staff"', on_error: skip`, "", ""},
	} {
		p := limits(t, `{name: a, by: ip, match: /a, limit: 9/s, `+c.fields+`}`)
		a := get("GET", "/a")
		a.RawQuery = c.query
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var re *RequestError
		if ops, err := p.Ops(&m, a, Identity{}); errors.As(err, &re) {
			got = "400"
			if re.Status != 400 || re.Reason == "" {
				t.Errorf("%s: %+v", c.fields, re)
			}
		} else if err == nil && len(ops) > 0 {
			got = fmt.Sprint("costs ", ops[0].Cost)
		}
		if got != c.want {
			t.Errorf("%s, %s: got %q, want %q", c.fields, c.query, got, c.want)
		}
	}
}

// The mode of the whole policy holds back what a rule would do, and never adds to
// it.
func TestModeOfAll(t *testing.T) {
	const text = `
edge: [{name: e, by: ip, limit: 1/s}, {name: es, by: ip, limit: 1/s, mode: shadow}, {name: eo, by: ip, limit: 1/s, mode: off}]
auth: {api_keys: {header: x-api-key, file: keys}}
gateway: {plans: {g: 1/s}}
application:
  plans: {free: {op: 1/s}}
  operations: {op: {match: /a}}
  limits: [{name: l, match: /a, by: ip, limit: 1/s}, {name: ls, match: /a, by: ip, limit: 1/s, mode: shadow}]
`
	for mode, want := range map[string]string{
		"":              "e ip#192.0.2.44; es ip#192.0.2.44 shadow; op ip#192.0.2.44; l ip#192.0.2.44; ls ip#192.0.2.44 shadow; g partner#acme",
		"mode: enforce": "e ip#192.0.2.44; es ip#192.0.2.44 shadow; op ip#192.0.2.44; l ip#192.0.2.44; ls ip#192.0.2.44 shadow; g partner#acme",
		"mode: shadow":  "e ip#192.0.2.44 shadow; es ip#192.0.2.44 shadow; op ip#192.0.2.44 shadow; l ip#192.0.2.44 shadow; ls ip#192.0.2.44 shadow; g partner#acme shadow",
		"mode: off":     "",
	} {
		p := load(t, "weir: 1\n"+mode+text, "keys", "")
		if got := ask(t, p, get("GET", "/a"), Identity{KeyOwner: "acme", KeyPlan: "g"}); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", mode, got, want)
		}
	}
}

func TestRetryAfterJitterOfTheFile(t *testing.T) {
	if p := load(t, "weir: 1\nretry_after_jitter: 10s\n"); p.RetryAfterJitter() != 10*time.Second {
		t.Error(p.RetryAfterJitter())
	}
	if p := load(t, "weir: 1\n"); p.RetryAfterJitter() != 0 {
		t.Error(p.RetryAfterJitter())
	}
}

package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// What the file says of its rules can be read back, for those who show, compare
// or translate policies.
func TestRulesSayWhatTheFileSays(t *testing.T) {
	text := little + `
    - name: mail
      match: ["POST /mail/{list}", "POST /Bulk/{list}"]
      by: [account+path.list, ip]
      limit: [10/s burst 20, quota 100/day]
      case: exact
      cost: "plan == 'free' ? 2 : 1"
      when: header('x-test') == ''
      mode: shadow
      on_store_error: local
      share: 1/4
    - {name: calls, by: ip, limit: 5/s burst 9, cost: header.x-units, mode: off, on_store_error: deny}
`
	p := load(t, text)
	lines := strings.Split(text, "\n")
	for _, r := range p.Rules() {
		if r.Line < 1 || !strings.Contains(lines[r.Line-1], r.Limit.String()) {
			t.Errorf("%s %s is said to stand in line %d", r.Name, r.Limit, r.Line)
		}
	}
	for _, x := range p.Exemptions() {
		if x.Line < 1 || !strings.Contains(lines[x.Line-1], "name: "+x.Name) {
			t.Errorf("the exemption %s is said to stand in line %d", x.Name, x.Line)
		}
	}
	var got []string
	for _, r := range p.Rules() {
		got = append(got, fmt.Sprintf("%s %s %s|by %s|%v|prio %d|not %v|%s|cost %s|when %s|fail %d 1/%d|exact %v anon %v plan %s",
			r.Layer, r.Name, r.Limit, r.By, r.Patterns, r.Priority, r.ExceptIPs, r.Mode, r.Cost, r.When, r.OnStoreError, r.Share, r.ExactCase, r.Anonymous, r.Plan))
	}
	for _, want := range []string{
		fmt.Sprintf("edge rate-all sliding 2000/5m|by ip|[]|prio 40|not [203.0.113.0/24]|enforce|cost 1|when |fail %d 1/0|exact false anon false plan ", weir.FailAllow),
		fmt.Sprintf("edge rate-auth sliding 100/5m|by ip|[/api/auth/*]|prio 41|not [203.0.113.0/24]|enforce|cost 1|when |fail %d 1/0|exact false anon false plan ", weir.FailAllow),
		fmt.Sprintf("gateway partner-basic 10/s burst 20|by partner|[]|prio -1|not []|enforce|cost 1|when |fail %d 1/0|exact false anon false plan partner-basic", weir.FailAllow),
		fmt.Sprintf("application analyze quota 100/day|by account|[POST /analyze]|prio -1|not []|enforce|cost 1|when |fail %d 1/0|exact false anon false plan free", weir.FailDeny),
		fmt.Sprintf("application seats 1/s burst 2|by account+path.event|[POST /events/{event}/seats]|prio -1|not []|enforce|cost 1|when |fail %d 1/0|exact false anon true plan ", weir.FailAllow),
		fmt.Sprintf("application mail.quota-day quota 100/day|by account+path.list, ip|[POST /mail/{list} POST /Bulk/{list}]|prio -1|not []|shadow|cost plan == 'free' ? 2 : 1|when header('x-test') == ''|fail %d 1/4|exact true anon false plan ", weir.FailLocal),
		fmt.Sprintf("application calls 5/s burst 9|by ip|[]|prio -1|not []|off|cost header.x-units|when |fail %d 1/0|exact false anon false plan ", weir.FailDeny),
	} {
		found := false
		for _, g := range got {
			found = found || g == want
		}
		if !found {
			t.Errorf("missing %s\nin\n%s", want, strings.Join(got, "\n"))
		}
	}
	if callers := fmt.Sprint(p.CallerSources()); callers != "[{account jwt.sub} {tenant jwt.tenant} {partner api_key.owner} {ip client_ip}]" {
		t.Errorf("callers %s", callers)
	}
	exempt := p.Exemptions()
	for i := range exempt {
		exempt[i].Line = 0
	}
	if want := []Exemption{
		{Name: "webhooks", Paths: []string{"/webhooks/*"}, Because: "signature-authenticated; a retry is the protocol working"},
		{Name: "health", Paths: []string{"/healthz"}},
	}; !reflect.DeepEqual(exempt, want) {
		t.Errorf("exemptions %+v", exempt)
	}
}

func TestSpec_A09_FailureModesReachTheOps(t *testing.T) {
	p := load(t, `
weir: 1
edge_store: shared
edge: [{name: all, limit: 9/s, by: ip, on_store_error: local}]
gateway: {on_store_error: deny, plans: {gold: 1/s}}
application:
  plans: {free: {render: 1/s, export: 2/s}}
  operations:
    render: {match: /render}
    export: {match: /export, on_store_error: local, share: 1/2}
  limits:
    - {name: a, by: ip, match: /a, limit: 1/s}
    - {name: b, by: ip, match: /b, limit: 1/s, on_store_error: local, share: 1/replicas}
`)
	for path, want := range map[string]weir.FailureMode{"/render": weir.FailDeny, "/export": weir.FailLocal, "/a": weir.FailAllow, "/b": weir.FailLocal} {
		a := get("GET", path)
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, a, Identity{})
		if err != nil || len(ops) != 1 || ops[0].OnFail != want || ops[0].Rule.OnStoreError != want {
			t.Errorf("%s: %+v, %v; want mode %d", path, ops, err, want)
		}
		if edge := p.AppendEdge(nil, &m, a); len(edge) != 1 || edge[0].OnFail != weir.FailLocal {
			t.Errorf("%s: %+v", path, edge)
		}
	}
}

// More limits on one request than a call to the store can ask would answer every
// such request with 503.
func TestMoreLimitsThanCanBeAskedAtOnce(t *testing.T) {
	limits := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "    - {name: l%d, by: ip, limit: [10/s, quota 1000/day]%s}\n", i, more)
		}
		return b.String()
	}
	app := "weir: 1\napplication:\n  limits:\n"
	for _, c := range []struct{ name, text, want string }{
		{"as many as can be", app + limits(32, ""), ""},
		{"one too many", app + limits(33, ""), "66 limits match one request here; at most 64"},
		{"on one route", app + limits(33, ", match: /a"), "66 limits match one request here; at most 64"},
		{"on routes apart", app + limits(32, ", match: /a") + strings.ReplaceAll(limits(32, ", match: /b"), "name: l", "name: m"), ""},
		{"a route below another", app + limits(32, ", match: /a/") + "    - {name: m, by: ip, limit: 1/s, match: /a/b}\n", "65 limits match one request here"},
		{"off", app + limits(40, ", mode: off"), ""},
		{"at the edge", "weir: 1\nedge:\n" + limits(33, ", path: /a/*"), "66 limits match one request here"},
		{"edge and application apart", "weir: 1\nedge:\n" + limits(32, "") + "application:\n  limits:\n" + strings.ReplaceAll(limits(32, ""), "name: l", "name: m"), ""},
	} {
		p, err := loadText(c.text)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case c.want == "":
			a := get("GET", "/a/b")
			m, err := p.Match(a)
			if err != nil {
				t.Fatal(err)
			}
			if ops, err := p.Ops(&m, a, Identity{}); err != nil || len(ops) > maxOps || len(p.AppendEdge(nil, &m, a)) > maxOps {
				t.Errorf("%s: %d ops, %v", c.name, len(ops), err)
			}
		}
	}
}

func TestBillingWithoutAnAnchorCanBeTaken(t *testing.T) {
	p := load(t, "weir: 1\napplication:\n  plans: {free: {render: quota 2/month billing}}\n  operations: {render: {match: /render}}\n")
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{Limits: p.Limits()})
	a := get("GET", "/render")
	var allowed []bool
	for range 3 {
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := p.Ops(&m, a, Identity{})
		if err != nil || len(ops) != 1 {
			t.Fatal(ops, err)
		}
		d, err := lim.Take(t.Context(), ops[0].Op)
		if err != nil {
			t.Fatal(err)
		}
		allowed = append(allowed, d.Allowed)
	}
	if !reflect.DeepEqual(allowed, []bool{true, true, false}) {
		t.Errorf("allowed %v", allowed)
	}
}

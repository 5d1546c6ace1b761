package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
)

func itemOps(t *testing.T, p *Policy, text string) string {
	t.Helper()
	key, ok := weir.ParseKey(text)
	if !ok {
		t.Fatalf("%q is no key", text)
	}
	var out []string
	for _, op := range p.ItemOps(key) {
		if op.Key != key || op.Cost != 1 || op.Rule == nil {
			t.Errorf("%s: op %+v", text, op)
		}
		who := op.Rule.Plan
		if op.Rule.Anonymous {
			who = "anonymous"
		}
		if op.Shadow {
			who += "~"
		}
		out = append(out, strings.TrimSpace(op.Rule.Name+" "+who))
	}
	return strings.Join(out, ", ")
}

func TestItemOps(t *testing.T) {
	p := load(t, `
weir: 1
callers: {account: jwt.sub, agent: jwt.agent, partner: api_key.owner, ip: client_ip}
edge: [{name: rate, limit: 1/s, by: ip}]
gateway: {plans: {basic: 10/s, big: [20/s, quota 5/day]}}
application:
  plans:
    order: [free, paid]
    free: {orders: quota 5/hour}
    paid: {orders: quota 50/hour}
  operations: {orders: {match: POST /orders}}
  limits:
    - {name: seats, match: "POST /e/{event}", by: account+path.event, limit: 1/s}
    - {name: calls, match: GET /, by: [account, ip], limit: 10/s, anonymous: 1/s, mode: shadow}
    - {name: all, match: GET /all, by: everyone, limit: 100/s}
    - {name: agents, match: GET /agents, by: [account+agent, account], limit: 1/s}
    - {name: unused, match: GET /unused, by: account, limit: 1/s, mode: off}
`)
	for text, want := range map[string]string{
		"account#a":                  "orders free, orders paid, calls ~, agents",
		"account#a%7Cb":              "orders free, orders paid, calls ~, agents",
		"ip#192.0.2.1":               "orders free, calls anonymous~, agents",
		"account#a|event#e":          "seats",
		"ip#192.0.2.1|event#e":       "seats",
		"account#a|agent#g":          "agents",
		"agent#g|account#a":          "",
		"partner#acme":               "basic basic, big big, big.quota-day big",
		"everyone#all":               "all",
		"tenant#t":                   "",
		"account#a|event#e|event#e2": "",
	} {
		if got := itemOps(t, p, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	shared := load(t, "weir: 1\nedge_store: shared\nedge: [{name: rate, limit: 1/s, by: ip+query.room}]\n")
	if got := itemOps(t, shared, "ip#192.0.2.1|room#7"); got != "rate" {
		t.Errorf("a shared edge rule: %s", got)
	}
}

// Whatever a request takes from an item, ItemOps of that item has.
func TestItemOpsHaveAllThatCallsTake(t *testing.T) {
	for _, by := range []string{
		"account", "ip", "everyone", "everyone+path.event", "account+path.event", "account+agent", "[account+agent, account]", "[agent, account, ip]",
		"account+header.x-shop", "ip+query.room", "account+query.none+path.event", "tenant+account+path.event+query.room", "[agent+path.event, ip+query.room]", "partner",
	} {
		p := limits(t, fmt.Sprintf(`{name: a, by: %s, match: "POST /events/{event}", limit: [1/s, quota 5/day], anonymous: quota 2/hour}`, by))
		for _, id := range []Identity{{}, claims("sub", "A|b"), claims("agent", "G"), claims("sub", "A", "agent", "G", "tenant", "T"), {KeyOwner: "acme"}} {
			for _, query := range []string{"", "room=7", "room="} {
				a := get("POST", "/events/E1")
				a.RawQuery, a.Header["X-Shop"] = query, []string{"S1"}
				m, err := p.Match(a)
				if err != nil {
					t.Fatal(err)
				}
				taken, err := p.Ops(&m, a, id)
				if err != nil || len(taken) == 0 {
					t.Fatalf("%v, %v", taken, err)
				}
				for _, op := range taken {
					if !slices.ContainsFunc(p.ItemOps(op.Key), func(o Op) bool { return o.Rule == op.Rule && o.Shadow == op.Shadow }) {
						t.Errorf("by: %s, %s: a call takes %s (anonymous %v), and the item does not show it", by, op.Key, op.Limit, op.Rule.Anonymous)
					}
				}
			}
		}
	}
}

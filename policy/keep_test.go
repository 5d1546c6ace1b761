package policy

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

const days = 24 * time.Hour

func keepFor(t *testing.T, p *Policy, text string) time.Duration {
	t.Helper()
	key, ok := weir.ParseKey(text)
	if !ok {
		t.Fatalf("%q is no key", text)
	}
	return p.KeepFor(key)
}

// An item lives as long as the limits of its own need: a partner's month is
// nothing to an account.
func TestKeepForOfTheLittleStage(t *testing.T) {
	text, err := os.ReadFile("../examples/little-stage/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, string(text), "partners.keys", "")
	for item, want := range map[string]time.Duration{
		"account#c1":          time.Hour,               // quota 50/hour, 0.5/s burst 10, 2/s burst 5
		"account#c1|agent#g":  2500 * time.Millisecond, // 2/s burst 5
		"ip#192.0.2.1":        time.Hour,               // anonymous callers have the first plan's orders
		"partner#acme":        30 * days,               // quota 100000/month
		"tenant#t":            30 * days,               // nothing of this policy: as long as anything
		"account#c1|event#12": 30 * days,
	} {
		if got := keepFor(t, p, item); got != want {
			t.Errorf("%s: %v, want %v", item, got, want)
		}
	}
}

func TestKeepForByPlanAndForm(t *testing.T) {
	p := load(t, `
weir: 1
callers: {account: jwt.sub, agent: jwt.agent, partner: api_key.owner, ip: client_ip}
edge: [{name: rate, limit: quota 1/year, by: ip}]
gateway: {plans: {basic: 10/s, big: [20/s, quota 5/day]}}
application:
  plans:
    order: [free, paid]
    free: {orders: quota 5/hour}
    paid: {orders: quota 50/2h}
  operations: {orders: {match: POST /orders}}
  limits:
    - {name: seats, match: "POST /e/{event}", by: "account+path.event+header.x|y", limit: 1/m, anonymous: quota 1/3m}
    - {name: all, match: GET /all, by: everyone, limit: [100/s, quota 9/month], mode: shadow}
    - {name: unused, match: GET /unused, by: account, limit: quota 1/year, mode: off}
`)
	for item, want := range map[string]time.Duration{
		"account#a":                    2 * time.Hour,
		"ip#192.0.2.1":                 time.Hour,
		"partner#acme":                 24 * time.Hour,
		"everyone#all":                 30 * days,
		"account#a%7Cb|event#e":        time.Minute,
		"account#a|event#e|x%7Cy#v":    time.Minute,
		"ip#192.0.2.1|event#e":         3 * time.Minute,
		"ip#192.0.2.1|event#e|x%7Cy#v": 3 * time.Minute,
	} {
		if got := keepFor(t, p, item); got != want {
			t.Errorf("%s: %v, want %v", item, got, want)
		}
	}
	shared := load(t, "weir: 1\nedge_store: shared\nedge: [{name: rate, limit: quota 1/year, by: ip}]\napplication: {limits: [{name: a, by: ip, limit: 1/s}]}\n")
	if got := keepFor(t, shared, "ip#192.0.2.1"); got != 365*days {
		t.Errorf("a shared edge rule: %v", got)
	}
}

// Whatever counts on an item, KeepFor outlives it, and nothing longer.
func TestKeepForIsTheLongestOfItemOps(t *testing.T) {
	for _, by := range []string{
		"account", "ip", "everyone", "everyone+path.event", "account+path.event", "account+agent", "[account+agent, account]", "[agent, account, ip]",
		"account+header.x-shop", "ip+query.room", "account+query.none+path.event", "tenant+account+path.event+query.room", "[agent+path.event, ip+query.room]", "partner",
	} {
		p := limits(t, fmt.Sprintf(`{name: a, by: %s, match: "POST /events/{event}", limit: [1/s, quota 5/day], anonymous: quota 2/hour}`, by))
		for _, id := range []Identity{{}, claims("sub", "A|b"), claims("agent", "G"), claims("sub", "A", "agent", "G", "tenant", "T"), {KeyOwner: "acme"}} {
			for _, query := range []string{"", "room=7"} {
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
					var longest time.Duration
					for _, o := range p.ItemOps(op.Key) {
						longest = max(longest, o.Limit.Horizon())
					}
					if got := p.KeepFor(op.Key); got != longest {
						t.Errorf("by: %s: %s is kept for %v, want %v", by, op.Key, got, longest)
					}
				}
			}
		}
	}
}

func TestKeepForCostsNoAllocation(t *testing.T) {
	p := load(t, little)
	for _, key := range []weir.Key{weir.NewKey("account", "customer-42"), weir.NewKey("account", "customer-42", "event", "a long name of an event, of 64 bytes or more, so that it shows")} {
		if n := testing.AllocsPerRun(100, func() { p.KeepFor(key) }); n != 0 {
			t.Errorf("%s: %v allocations", key, n)
		}
	}
}

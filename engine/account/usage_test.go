package account_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/internal/everystore"
	"github.com/weirlabs/weir/policy"
)

// usageOf is what a caller is told at /.weir/usage, by the limits' names.
func (p *process) usageOf(sub string) map[string]engine.Usage {
	p.t.Helper()
	a := &policy.Attributes{Method: "GET", Path: "/.weir/usage", Header: map[string][]string{"Sub": {sub}}, Peer: netip.MustParseAddr("192.0.2.1")}
	o := new(engine.Outcome)
	body := p.Usage(context.Background(), a, o)
	var report struct{ Limits []engine.Usage }
	if err := json.Unmarshal(body, &report); err != nil {
		p.t.Fatalf("%s: status %d, %s, %v", sub, o.Status, body, err)
	}
	out := map[string]engine.Usage{}
	for _, u := range report.Limits {
		out[u.Name] = u
	}
	return out
}

// Usage shows the version and the override that a call would meet, takes nothing,
// and writes nothing down of whom it has never seen.
func TestSpec_B05_UsageShowsVersionAndOverride(t *testing.T) {
	text := after(time.Now().Add(-time.Hour)) + "  limits:\n    - {name: orders, match: POST /orders, by: account, limit: quota 5/hour}\n"
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		p, other := start(t, open(), c, text), start(t, open(), c, text)
		p.edit("account#a", func(r *account.Record) {
			r.Pins = map[string]int{"free": 1}
			override("orders", "quota 9/hour", account.Terms{})(r)
		})
		p.ask("/render", "Sub", "a")
		p.ask("/render", "Sub", "a")
		p.ask("/orders", "Sub", "a")
		for range 2 {
			u := other.usageOf("a")
			render, orders := u["render"], u["orders"]
			if render.Plan != "free" || render.Version != 1 || render.Limit != 3 || render.Used != 2 || render.Remaining != 1 || render.Period != "hour" || render.Override != nil {
				t.Errorf("render: %+v", render)
			}
			if left := render.ResetAt.Sub(c.time()); left <= 0 || left > time.Hour {
				t.Errorf("render resets in %v", left)
			}
			if orders.Version != 0 || orders.Limit != 9 || orders.Used != 1 || orders.Override == nil || *orders.Override != "quota 9/hour" {
				t.Errorf("orders: %+v", orders)
			}
			c.advance(2 * time.Second)
		}
		if u := other.usageOf("stranger"); u["render"].Version != 2 || u["render"].Used != 0 {
			t.Errorf("a stranger: %+v", u)
		}
		key := weir.NewKey("account", "stranger")
		if r, err := p.records().Read(context.Background(), key); err != nil || !r.Empty() {
			t.Errorf("a question pins: %+v, %v", r, err)
		}
	})
}

// A limit of a caller's own whose period the store cannot keep is not followed by
// any process: the policy's holds, and the log says so.
func TestSpec_B11_AnOverrideThatTheStoreCannotKeep(t *testing.T) {
	everystore.Run(t, everystore.Options{MaxKeep: 48 * time.Hour}, func(t *testing.T, s *everystore.Stores) {
		c := new(clock)
		p, other := start(t, s.Open(t), c, many), start(t, s.Open(t), c, many)
		p.edit("account#a", override("orders", "quota 9/year", account.Terms{}))
		p.edit("account#b", override("orders", "quota 9/hour", account.Terms{}))
		for _, process := range []*process{p, other} {
			if got := limits(process.ask("/orders", "Sub", "a")); got["orders"] != "quota 5/hour" {
				t.Errorf("%v", got)
			}
			if log := process.log.String(); !strings.Contains(log, "the override of orders, quota 9/year: the store keeps items for 48h0m0s at most") {
				t.Errorf("the log: %s", log)
			}
			if got := limits(process.ask("/orders", "Sub", "b")); got["orders"] != "quota 9/hour" {
				t.Errorf("what the store can keep: %v", got)
			}
		}
	})
}

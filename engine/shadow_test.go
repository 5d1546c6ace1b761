package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Lines that end in #shadow watch, beside what is enforced of the same callers.
const enforcedAndWatched = `weir: 1
header_styles: [ietf, draft6, x]
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
exempt:
  - {name: hooks, path: /hooks/*}
edge:
  - {name: flood, limit: sliding 400/5m, by: ip}
  - {name: flood-tight, limit: 1/s burst 3, by: ip, mode: shadow} #shadow
  - {name: login, limit: 5/m, by: ip, path: /login}
gateway:
  plans: {basic: [2/s burst 5, quota 300/day]}
application:
  plans:
    order: [free, paid]
    free: {orders: quota 20/10m}
    paid: {orders: quota 60/10m}
  operations:
    orders: {match: POST /orders, count: on_success}
  limits:
    - {name: all-tight, by: account, limit: 1/m burst 2, mode: shadow} #shadow
    - {name: all, by: account, limit: 1/s burst 15}
    - {name: orders-tight, match: POST /orders, by: account, limit: quota 3/hour, count: on_success, mode: shadow} #shadow
    - {name: seats-tight, match: "POST /seats/{row}", by: account+path.row, limit: sliding 2/h, mode: shadow} #shadow
    - {name: seats, match: "POST /seats/{row}", by: account+path.row, limit: 0.1/s burst 4, cost: header.X-Units}
    - {name: everyone-tight, match: "POST /seats/{row}", by: everyone, limit: 1/s burst 5, mode: shadow} #shadow
    - {name: everyone, match: "POST /seats/{row}", by: everyone, limit: 3/s burst 30}
`

// side is one engine with the policy as it is, or without what watches.
type side struct {
	*engine.Engine
	policy  *policy.Policy
	store   *memstore.Store
	writer  answer.Writer
	shadows int64 // refusals by what watches
}

func newSide(t *testing.T, text string, clock func() int64, who *policy.Identity) *side {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &side{policy: p, store: memstore.New(memstore.Options{Now: clock})}
	s.Engine, err = engine.New(engine.Options{
		Policy: p, Store: s.store, Now: clock, CanGiveBack: true, Logger: slog.New(slog.DiscardHandler),
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) { return *who, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// seen is all that anybody can see of what became of one request.
type seen struct {
	status   int
	err      string
	exempt   string
	degraded bool
	verdicts []verdict
	header   map[string][]string
	body     string
}

type verdict struct {
	rule string
	key  weir.Key
	weir.Decision
}

func (s *side) ask(ctx context.Context, a *policy.Attributes, status int, back bool) (x seen) {
	var o engine.Outcome
	s.Decide(ctx, a, &o)
	x.status, x.exempt, x.degraded = o.Status, o.Exempt, o.Degraded
	if o.Err != nil {
		x.err = o.Err.Error()
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if !v.Shadow {
			x.verdicts = append(x.verdicts, verdict{v.Rule.Name, v.Key, bare(v.Decision)})
		} else if !v.Allowed {
			s.shadows++
		}
	}
	if !o.Served() {
		r := s.writer.Refusal(http.Header{}, &o, a)
		x.header, x.body = r.Header, string(r.Body)
		if id := o.DenialID(); id != "" { // random
			x.body = strings.ReplaceAll(x.body, id, "ID")
		}
		o.Release()
		return x
	}
	if back {
		_ = o.GiveBack(ctx) // in memory neither can fail
	} else {
		_ = o.Settle(ctx, status)
	}
	x.header = map[string][]string{}
	s.writer.Fields(x.header, &o, nil)
	return x
}

func (x *seen) same(o *seen) bool {
	return x.status == o.status && x.err == o.err && x.exempt == o.exempt && x.degraded == o.degraded && x.body == o.body &&
		slices.Equal(x.verdicts, o.verdicts) && maps.EqualFunc(x.header, o.header, slices.Equal)
}

// bare is a decision without what says where it stands among others: its place in
// the call, and the limit, of which each policy has a value of its own.
func bare(d weir.Decision) weir.Decision {
	d.Op, d.Limit = 0, weir.Limit{}
	return d
}

// R39: over a hundred thousand requests at virtual time, nothing that is enforced
// depends on whether anything watches: no verdict, no header, no body, no balance.
func TestShadowChangesNothing(t *testing.T) {
	const seed, requests = 39, 100_000
	r := rand.New(rand.NewPCG(seed, seed))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	clock := func() int64 { return now }
	var who policy.Identity
	on := newSide(t, enforcedAndWatched, clock, &who)
	var kept []string
	for line := range strings.Lines(enforcedAndWatched) {
		if !strings.HasSuffix(strings.TrimSpace(line), "#shadow") {
			kept = append(kept, line)
		}
	}
	off := newSide(t, strings.Join(kept, ""), clock, &who)
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	statuses := map[int]int{}
	for i := range requests {
		now += int64(r.ExpFloat64() * float64(60*time.Millisecond))
		who = policy.Identity{}
		if n := r.IntN(12); n > 0 {
			who.Claims = map[string]any{"sub": fmt.Sprintf("account-%d", n*n/12), "plans": pick("free", "paid")}
		}
		if r.IntN(4) == 0 {
			who.KeyOwner, who.KeyPlan = pick("acme", "bolt"), pick("basic", "")
		}
		a := &policy.Attributes{
			Method: pick("POST", "POST", "POST", "GET", "HEAD"), Path: pick("/orders", "/orders", "/seats/a", "/seats/b", "/login", "/hooks/x", "/other"),
			Header: map[string][]string{"X-Units": {pick("1", "2", "5", "99", "none")}}, Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(9))}),
		}
		status, back := []int{200, 201, 404, 500}[r.IntN(4)], r.IntN(20) == 0
		with, without := on.ask(t.Context(), a, status, back), off.ask(t.Context(), a, status, back)
		if !with.same(&without) {
			t.Fatalf("request %d, seed %d: %s %s by %v\nwith shadows:\n%+v\n\nwithout:\n%+v", i, seed, a.Method, a.Path, who, with, without)
		}
		statuses[with.status]++
	}
	// The test saw what it should: all kinds of answers, and shadows that would have
	// refused, which the other side has none of.
	if statuses[429] < 1000 || statuses[0] < 1000 || on.shadows < 1000 || off.shadows != 0 {
		t.Errorf("answers %v, %d and %d refusals by shadows", statuses, on.shadows, off.shadows)
	}
	balances := func(s *side) map[string]weir.Decision {
		out := map[string]weir.Decision{}
		l := weir.NewLimiter(s.store, weir.Options{Now: clock})
		keys, next, err := s.store.ListKeys(t.Context(), "", "", 1<<20)
		if err != nil || next != "" {
			t.Fatal(err, next)
		}
		for _, key := range keys {
			for _, rule := range off.policy.Rules() {
				if rule.Layer == policy.Edge {
					continue
				}
				d, err := l.Peek(t.Context(), weir.Op{Limit: rule.Limit, Key: key})
				if err != nil {
					t.Fatal(err)
				}
				if d[0].Used > 0 {
					out[key.String()+" "+rule.Name+" "+rule.Plan] = bare(d[0])
				}
			}
		}
		return out
	}
	with, without := balances(on), balances(off)
	if len(with) < 10 || !maps.Equal(with, without) {
		t.Errorf("balances with shadows %v\nwithout %v", with, without)
	}
}

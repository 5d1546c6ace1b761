package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// figures are what the policy says of a scenario. They are worked out from its
// limits as they stand in the file: the same calls are made again, each once as
// in the scenario, of an engine with memory and a clock of its own.
//
// When the real calls were decided is not known to the instant. So they are made
// at the first instant of the measured time, at its last, and at the best one for
// each; what the real proxy allowed lies between.
type figures struct {
	AllowedMin int      `json:"allowed_min"`
	AllowedMax int      `json:"allowed_max"`
	Limits     []string `json:"limits"` // that may speak in a refusal

	min, max []int // by caller
	// shared: callers of the scenario count on the same item, so that who is
	// refused depends on who comes first, and only the sum is known.
	shared   bool
	used     bool   // some items hold what others have used, and nobody knows how much
	outer    string // a limit of another layer than the scenario's that refuses
	took     time.Duration
	refusals []*refusal
}

// refusal is one that the policy can give in a scenario.
type refusal struct {
	outcome *engine.Outcome
	to      *policy.Attributes

	first, last time.Duration // its wait as it was found first, and last
	least, most time.Duration
}

// rehearsal makes the calls of a scenario by the policy.
type rehearsal struct {
	policy *policy.Policy
	parts  []part
	who    []*policy.Attributes // by caller
	ids    []policy.Identity
	order  []int // the caller of each call
	found  map[*policy.Rule]*refusal
	rules  []*policy.Rule // of found, in order
}

// steps is how finely the measured time is divided where calls wait.
const steps = 100

// expect works out the figures of a scenario whose calls were made in an order,
// from an instant on for a time.
func expect(ctx context.Context, d *stage, sc *scenario, order []int, began time.Time, took time.Duration) (f figures, err error) {
	r := rehearsal{policy: d.server.engine.Policy(), parts: sc.parts, order: order, found: map[*policy.Rule]*refusal{}}
	items := map[string]int{}
	for i := range sc.parts {
		p := &sc.parts[i]
		edge, rest, id, err := opsOf(ctx, d.server, p)
		if err != nil {
			return f, err
		}
		r.who, r.ids = append(r.who, p.attributes()), append(r.ids, id)
		for _, op := range slices.Concat(edge, rest) {
			item := itemOf(&op)
			if by, known := items[item]; known && by != i {
				f.shared = true
			}
			items[item] = i
			f.used = f.used || !d.fresh(p, &op)
		}
	}
	for item := range items {
		d.seen[item] = true
	}
	from, to := began.UnixNano(), began.Add(took).UnixNano()
	atOnce, _, err := r.play(ctx, slices.Repeat([]int64{from}, len(order)), 0)
	if err != nil {
		return f, err
	}
	atLast, _, err := r.play(ctx, slices.Repeat([]int64{to}, len(order)), 0)
	if err != nil {
		return f, err
	}
	best, err := r.best(ctx, from, to)
	if err != nil {
		return f, err
	}
	f.min, f.max = make([]int, len(sc.parts)), make([]int, len(sc.parts))
	for i := range sc.parts {
		f.min[i], f.max[i] = min(atOnce[i], atLast[i], best[i]), max(atOnce[i], atLast[i], best[i])
		if f.used {
			f.min[i] = 0
		}
		f.AllowedMin += f.min[i]
		f.AllowedMax += f.max[i]
	}
	f.took, f.Limits = took, []string{}
	for _, rule := range r.rules {
		f.refusals = append(f.refusals, r.found[rule])
		if string(rule.Layer) != sc.layer {
			f.outer = rule.Name
		}
		if !slices.Contains(f.Limits, rule.Name) {
			f.Limits = append(f.Limits, rule.Name)
		}
	}
	return f, nil
}

// fresh reports whether nobody can have used a limit before a caller of the
// scenario did.
func (d *stage) fresh(p *part, op *policy.Op) bool {
	key := op.Key.String()
	switch {
	case d.seen[itemOf(op)]:
		return false
	case d.open.url.scheme == "memory", op.Rule.Layer == policy.Edge && !d.policy.EdgeShared():
		return true // was empty when this process began
	}
	network := netip.PrefixFrom(p.from, 64).Masked()
	return strings.Contains(key, d.tag) || p.from != office && strings.Contains(key, network.Addr().String())
}

func itemOf(op *policy.Op) string { return op.Key.String() + " " + op.Limit.Name() }

// best plays so that every call which waiting helps waits for as long as it
// must, if there is time for it.
func (r *rehearsal) best(ctx context.Context, from, to int64) ([]int, error) {
	at := slices.Repeat([]int64{from}, len(r.order))
	for {
		allowed, late, err := r.play(ctx, at, to)
		if err != nil || late.call < 0 {
			return allowed, err
		}
		// What was decided before it is decided again, as no store can go back.
		next := min(to, max(late.at, at[late.call]+(to-from)/steps))
		for i := late.call; i < len(at); i++ {
			at[i] = next
		}
	}
}

// late is the call that would pass if it came later; -1 for none.
type late struct {
	call int
	at   int64
}

// play makes each call at its time. It ends at the first refusal that is over
// before a time.
func (r *rehearsal) play(ctx context.Context, at []int64, before int64) (allowed []int, l late, err error) {
	var now int64
	clock := func() int64 { return now }
	caller := 0
	if len(at) > 0 {
		now = at[0]
	}
	e, err := engine.New(engine.Options{
		Policy: r.policy, Store: memstore.New(memstore.Options{Now: clock, MaxKeys: 1024}), Now: clock,
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) { return r.ids[caller], nil },
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, l, err
	}
	defer e.Close()
	allowed = make([]int, len(r.who))
	for i := range at {
		now, caller = at[i], r.order[i]
		o := new(engine.Outcome)
		e.Decide(ctx, r.who[caller], o)
		if o.Served() {
			allowed[caller]++
			if before > 0 { // that what did not succeed costs nothing is good for the calls that come then
				_ = o.Settle(ctx, r.parts[caller].status) // in memory this cannot fail
			}
			o.Release() // whether calls under way hold what is left is for compare to allow
			continue
		}
		if v := o.Speaks(); v != nil && o.Limited() {
			r.note(o, v, r.who[caller])
			if _, again := answer.RetryAfter(&v.Decision); again && now+int64(v.RetryAfter) <= before {
				return nil, late{i, now + int64(v.RetryAfter)}, nil
			}
		}
	}
	return allowed, late{call: -1}, nil
}

// note remembers the refusals of each limit.
func (r *rehearsal) note(o *engine.Outcome, v *engine.Verdict, to *policy.Attributes) {
	f := r.found[v.Rule]
	if f == nil {
		f = &refusal{outcome: o, to: to, first: v.RetryAfter, least: v.RetryAfter}
		r.found[v.Rule] = f
		r.rules = append(r.rules, v.Rule)
	}
	f.last = v.RetryAfter
	f.least, f.most = min(f.least, v.RetryAfter), max(f.most, v.RetryAfter)
}

// refusalBody is what the demo reads of a refusal.
type refusalBody struct {
	Error, Message, Limit string
	UpgradeURL            string `json:"upgradeUrl"`
	RetryAfterSeconds     *int64 `json:"retryAfterSeconds"`
}

// compare holds the first refusal against those that the policy can give, and
// says in what it differs from all of them.
func (f *figures) compare(d *denial) string {
	var got refusalBody
	if err := json.Unmarshal(d.Body, &got); err != nil || got.Message == "" {
		return fmt.Sprintf("the refusal has no message: %s", d.Body)
	}
	differs := ""
	for _, r := range f.refusals {
		if r.outcome.Speaks().Rule.Name != got.Limit {
			continue
		}
		if differs = f.difference(r, d, &got); differs == "" {
			return ""
		}
	}
	switch {
	case differs != "":
		return differs
	case f.used:
		return ""
	case len(f.refusals) == 0:
		return fmt.Sprintf("limit %q refused, and the policy says that none does", got.Limit)
	}
	return fmt.Sprintf("limit %q refused, the policy says %q", got.Limit, f.Limits)
}

// difference compares one refusal with another, word for word. Both are written
// by the same code; what it is told is worked out twice.
func (f *figures) difference(r *refusal, d *denial, got *refusalBody) string {
	v := r.outcome.Speaks()
	if reason := v.Reason; got.Error == "in_flight" && v.Rule.Settled() && d.RetryAfter != nil && *d.RetryAfter == 1 {
		v.Reason, v.RetryAfter = weir.ReasonInFlight, time.Second
		defer func() { v.Reason = reason }()
	} else if d.RetryAfter != nil {
		least, most := f.waits(r, v)
		if *d.RetryAfter < least || *d.RetryAfter > most {
			return fmt.Sprintf("Retry-After %d, the policy says %s seconds", *d.RetryAfter, between(int(least), int(most)))
		}
		v.RetryAfter = time.Duration(*d.RetryAfter) * time.Second // any of them is right
	}
	var w answer.Writer
	says := w.Refusal(http.Header{}, r.outcome, r.to)
	var want refusalBody
	if err := json.Unmarshal(says.Body, &want); err != nil {
		return fmt.Sprintf("the policy's refusal cannot be read: %v", err)
	}
	wantWait := says.Header.Get("Retry-After")
	switch {
	case d.Status != says.Status:
		return fmt.Sprintf("refused with %d, the policy says %d", d.Status, says.Status)
	case d.Headers["Retry-After"] != wantWait:
		return fmt.Sprintf("Retry-After is %q, the policy says %q", d.Headers["Retry-After"], wantWait)
	case seconds(got.RetryAfterSeconds) != wantWait:
		return fmt.Sprintf("the body says %q seconds, Retry-After %q", seconds(got.RetryAfterSeconds), wantWait)
	case got.Error != want.Error:
		return fmt.Sprintf("error %q, the policy says %q", got.Error, want.Error)
	case got.UpgradeURL != want.UpgradeURL:
		return fmt.Sprintf("upgradeUrl %q, the policy says %q", got.UpgradeURL, want.UpgradeURL)
	case clockTime.ReplaceAllString(got.Message, "") != clockTime.ReplaceAllString(want.Message, ""):
		return fmt.Sprintf("message %q, the policy says %q", got.Message, want.Message)
	}
	wanted := map[string]string{}
	for name, values := range says.Header {
		wanted[spelling(http.CanonicalHeaderKey(name))] = values[0]
	}
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "x-ratelimit-limit", "x-ratelimit-remaining"} {
		if v.Cost > 1 && (name == "RateLimit-Remaining" || name == "x-ratelimit-remaining") {
			continue // what is left is less than the cost, and may be more than nothing
		}
		if d.Headers[name] != wanted[name] {
			return fmt.Sprintf("%s is %q, the policy says %q", name, d.Headers[name], wanted[name])
		}
	}
	return ""
}

// clockTime is the one part of a message that is not known to the minute.
var clockTime = regexp.MustCompile(`\b\d\d:\d\d( on \d+ [A-Z][a-z]+ \d{4})?\b`)

func seconds(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// waits are the least and the most seconds that a refusal may say.
func (f *figures) waits(r *refusal, v *engine.Verdict) (least, most int64) {
	least, most = max(1, engine.Seconds(r.least-f.took)), max(1, engine.Seconds(r.most))
	rolled := !v.Limit.IsBucket() && (f.used || (r.first-r.last).Abs() > f.took+time.Second)
	if f.AllowedMax > f.AllowedMin || rolled {
		least = 1 // it may have come just before the next unit
	}
	if rolled { // a window began before, or ended meanwhile: how many calls each had is not known
		most = max(most, engine.Seconds(v.Limit.Period().Duration()))
	}
	return least, most
}

package account_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

const many = head + `application:
  plans: {order: [free, pro], free: {render: quota 3/hour}, pro: {render: unlimited}}
  operations: {render: {match: POST /render}}
  limits:
    - {name: orders, match: POST /orders, by: [account, ip], limit: [quota 5/hour, quota 50/day]}
    - {name: seats, match: "POST /events/{event}/seats", by: account+path.event, limit: 1/s burst 2}
gateway:
  plans: {partner: [quota 7/hour]}
`

// limits are what a call met, NAME: LIMIT.
func limits(o *engine.Outcome) map[string]string {
	out := map[string]string{}
	for _, v := range o.Verdicts {
		out[v.Rule.Name] = v.Limit.String()
	}
	return out
}

func wildcard(p *process, pattern string, change func(*account.Record)) {
	p.t.Helper()
	parsed, err := account.ParsePattern(pattern)
	if err == nil {
		_, _, err = p.records().EditPattern(context.Background(), parsed, func(r *account.Record) error { change(r); return nil })
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestSpec_B12_OverridesExactBeforeLongestWildcardBeforePlan(t *testing.T) {
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		p, other := start(t, open(), c, many), start(t, open(), c, many)
		for _, each := range []*process{p, other} { // both have seen that nothing is said
			if got := limits(each.ask("/orders", "Sub", "acme-7")); got["orders"] != "quota 5/hour" {
				t.Fatal(got)
			}
		}
		wildcard(p, "account#acme-*", override("orders", "quota 10/hour", account.Terms{Reason: "contract"}))
		wildcard(p, "account#acme-*", override("render", "quota 10/hour", account.Terms{}))
		wildcard(p, "account#acme-east-*", override("orders", "quota 20/hour", account.Terms{}))
		p.edit("account#acme-east-1", override("orders", "quota 30/hour", account.Terms{}))
		c.advance(p.Policy().AccountsAge())
		for _, each := range []*process{p, other} {
			for sub, want := range map[string]string{
				"acme-7":      "quota 10/hour", // the wildcard that holds
				"acme-east-2": "quota 20/hour", // the longer one
				"acme-east-1": "quota 30/hour", // its own
				"acme":        "quota 5/hour",  // none
				"acme-":       "quota 5/hour",  // none: there is nothing where the * is
				"xacme-7":     "quota 5/hour",
				"acme-*":      "quota 10/hour", // whose id ends with a * is like any other
			} {
				got := limits(each.ask("/orders", "Sub", sub))
				if got["orders"] != want || got["orders.quota-day"] != "quota 50/day" {
					t.Errorf("%s: %v, want orders %s", sub, got, want)
				}
			}
			// Each name has its own precedence.
			if got := limits(each.ask("/render", "Sub", "acme-east-1")); got["render"] != "quota 10/hour" {
				t.Errorf("render of acme-east-1: %v", got)
			}
			// Where a plan has no limit, an override makes one.
			if o := each.ask("/render", "Sub", "acme-8", "Plans", "pro"); limits(o)["render"] != "quota 10/hour" || o.Verdicts[0].Rule.Plan != "pro" {
				t.Errorf("pro: %v", limits(o))
			}
			if o := each.ask("/render", "Sub", "solo", "Plans", "pro"); len(o.Verdicts) != 0 {
				t.Errorf("pro without override: %v", limits(o))
			}
		}
	})
}

func TestOverridesOfEveryKindOfCaller(t *testing.T) {
	c := new(clock)
	s := memstore.New(memstore.Options{})
	defer s.Close()
	p := start(t, s, c, many)
	p.edit("account#a", override("seats", "quota 4/day", account.Terms{}))
	p.edit("ip#192.0.2.1", override("orders", "quota 1/hour", account.Terms{}))
	p.edit("partner#p", override("partner", "quota 1/hour", account.Terms{}))
	p.edit("account#b", override("orders", account.Unlimited, account.Terms{}))
	for _, tt := range []struct {
		path, header string
		want         map[string]string
	}{
		{"/events/7/seats", "Sub a", map[string]string{"seats": "quota 4/day"}},
		{"/events/7/seats", "Sub b", map[string]string{"seats": "1/s burst 2"}},
		{"/orders", "", map[string]string{"orders": "quota 1/hour", "orders.quota-day": "quota 50/day"}},
		{"/orders", "Owner p", map[string]string{"partner": "quota 1/hour", "orders": "quota 1/hour", "orders.quota-day": "quota 50/day"}},
		{"/orders", "Sub b", map[string]string{"orders.quota-day": "quota 50/day"}},
	} {
		if got := limits(p.ask(tt.path, strings.Fields(tt.header)...)); !maps.Equal(got, tt.want) {
			t.Errorf("%s, %q: %v, want %v", tt.path, tt.header, got, tt.want)
		}
	}
}

func TestAnOverrideEndsAtItsInstant(t *testing.T) {
	now := atomic.Int64{}
	now.Store(time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	s := memstore.New(memstore.Options{Now: now.Load})
	defer s.Close()
	e, err := engine.New(engine.Options{Policy: load(t, many), Store: s, Now: now.Load, LogKey: []byte("k"),
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: map[string]any{"sub": "a"}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := &process{Engine: e, t: t, store: s, log: new(syncBuffer)}
	end := time.Unix(0, now.Load()).Add(time.Second) // before the record is read again
	p.edit("account#a", override("orders", "quota 9/hour", account.Terms{Expires: end}))
	wildcard(p, "account#*", override("orders", "quota 8/hour", account.Terms{Expires: end.Add(time.Second)}))
	for at, want := range map[time.Duration]string{0: "quota 9/hour", time.Second - 1: "quota 9/hour", time.Second: "quota 8/hour", 2*time.Second - 1: "quota 8/hour", 2 * time.Second: "quota 5/hour", time.Hour: "quota 5/hour"} {
		now.Store(end.Add(at - time.Second).UnixNano())
		if got := limits(p.ask("/orders")); got["orders"] != want {
			t.Errorf("%v after: %v, want %s", at, got, want)
		}
	}
}

func TestBans(t *testing.T) {
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		p, other := start(t, open(), c, many), start(t, open(), c, many)
		if o := other.ask("/orders", "Sub", "bad"); !o.Served() {
			t.Fatal(o.Status)
		}
		ban := func(t account.Terms) func(*account.Record) {
			return func(r *account.Record) { r.Ban = &account.Ban{Terms: t} }
		}
		p.edit("account#bad", ban(account.Terms{Reason: "fraud", Expires: c.time().Add(time.Hour)}))
		wildcard(p, "account#bot-*", ban(account.Terms{}))
		p.edit("partner#p", ban(account.Terms{}))
		c.advance(p.Policy().AccountsAge())
		check := func(when string, want map[string]int) {
			t.Helper()
			for header, status := range want {
				for _, path := range []string{"/orders", "/render", "/events/7/seats"} {
					o := other.ask(path, strings.Fields(header)...)
					if o.Status != status || status == 403 && (o.Err == nil || o.Err.Code != "banned" || len(o.Verdicts) != 0) {
						t.Errorf("%s, %s as %s: status %d, %v, want %d", when, path, header, o.Status, o.Err, status)
					}
				}
			}
		}
		check("banned", map[string]int{"Sub bad": 403, "Sub bot-1": 403, "Sub good": 0, "Owner p": 403, "Sub good Owner p": 403})
		if o := other.ask("/elsewhere", "Sub", "bad"); !o.Served() {
			t.Error("a path that nothing limits is not served") // there nobody is identified
		}
		o := new(engine.Outcome)
		a := &policy.Attributes{Method: "GET", Path: "/.weir/usage", Header: map[string][]string{"Sub": {"bad"}}, Peer: netip.MustParseAddr("192.0.2.1")}
		if body := other.Usage(context.Background(), a, o); body != nil || o.Status != 403 {
			t.Errorf("usage: %d %s", o.Status, body)
		}
		p.edit("account#bad", func(r *account.Record) { r.Ban = nil })
		c.advance(p.Policy().AccountsAge())
		check("lifted", map[string]int{"Sub bad": 0})
		p.edit("account#bad", ban(account.Terms{Expires: c.time().Add(time.Hour)}))
		c.advance(p.Policy().AccountsAge())
		check("banned again", map[string]int{"Sub bad": 403})
		c.advance(time.Hour)
		check("over", map[string]int{"Sub bad": 0})
	})
}

func TestPlansFromRecords(t *testing.T) {
	text := strings.Replace(many, "{order: [free, pro]", "{from: account.plan, order: [free, pro]", 1)
	c := new(clock)
	s := memstore.New(memstore.Options{})
	defer s.Close()
	p := start(t, s, c, text)
	grant := func(at time.Time, plans ...string) func(*account.Record) {
		return func(r *account.Record) {
			r.Plans = nil
			for _, name := range plans {
				r.Plans = append(r.Plans, account.Grant{Plan: name, Terms: account.Terms{Expires: at}})
			}
		}
	}
	p.edit("account#a", grant(time.Time{}, "free", "pro"))
	p.edit("account#trial", grant(c.time().Add(time.Hour), "pro"))
	p.edit("account#odd", grant(time.Time{}, "platinum"))
	wildcard(p, "account#staff-*", grant(time.Time{}, "pro"))
	pro := func(sub string) bool { return len(p.ask("/render", "Sub", sub, "Plans", "pro").Verdicts) == 0 } // a claim means nothing here
	for sub, want := range map[string]bool{"a": true, "trial": true, "odd": false, "staff-1": true, "other": false} {
		if pro(sub) != want {
			t.Errorf("%s has pro: %v", sub, !want)
		}
	}
	c.advance(time.Hour)
	if pro("trial") {
		t.Error("the trial does not end")
	}
}

func TestBillingPeriodsBeginWithTheAccountsAnchor(t *testing.T) {
	text := head + `application:
  limits:
    - {name: exports, match: POST /exports, by: account, limit: quota 5/month billing}
`
	now := atomic.Int64{}
	s := memstore.New(memstore.Options{Now: now.Load})
	defer s.Close()
	at := func(when string) {
		i, err := time.Parse(time.RFC3339, when)
		if err != nil {
			t.Fatal(err)
		}
		now.Store(i.UnixNano())
	}
	at("2027-01-30T12:00:00Z")
	e, err := engine.New(engine.Options{Policy: load(t, text), Store: s, Now: now.Load, LogKey: []byte("k"),
		Identify: func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: map[string]any{"sub": a.Header["Sub"][0]}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := &process{Engine: e, t: t, store: s, log: new(syncBuffer)}
	p.edit("account#a", func(r *account.Record) { r.BillingAnchor = time.Date(2024, 1, 31, 0, 0, 0, 0, time.UTC) })
	for _, tt := range []struct {
		now, sub, resets string
		used             int64
	}{
		{"2027-01-30T12:00:00Z", "a", "2027-01-31T00:00:00Z", 1},
		{"2027-01-30T12:00:00Z", "none", "2027-02-01T00:00:00Z", 1}, // without an anchor, the calendar's
		{"2027-01-31T00:00:00Z", "a", "2027-02-28T00:00:00Z", 1},
		{"2027-02-27T23:59:59Z", "a", "2027-02-28T00:00:00Z", 2},
		{"2027-02-28T00:00:00Z", "a", "2027-03-31T00:00:00Z", 1},
		{"2028-02-10T00:00:00Z", "a", "2028-02-29T00:00:00Z", 1},
	} {
		at(tt.now)
		o := p.ask("/exports", "Sub", tt.sub)
		v := o.Speaks()
		if v == nil || v.Used != tt.used || o.Time().Add(v.ResetAfter).UTC().Format(time.RFC3339) != tt.resets {
			t.Errorf("%s at %s: %+v; want %d used until %s", tt.sub, tt.now, v, tt.used, tt.resets)
		}
	}
}

// counted counts what is asked of records, and can fail.
type counted struct {
	weir.Store
	weir.Records
	gets, puts atomic.Int64
	fails      atomic.Pointer[error]
}

func onMemory(t *testing.T) *counted {
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { s.Close() })
	return &counted{Store: s, Records: s}
}

func (c *counted) Get(ctx context.Context, key string) ([]byte, string, error) {
	c.gets.Add(1)
	if err := c.fails.Load(); err != nil {
		return nil, "", *err
	}
	return c.Records.Get(ctx, key)
}

func (c *counted) Put(ctx context.Context, key string, value []byte, ifVersion string, at time.Time) error {
	c.puts.Add(1)
	if err := c.fails.Load(); err != nil {
		return *err
	}
	return c.Records.Put(ctx, key, value, ifVersion, at)
}

func (c *counted) fail(err error) { c.fails.Store(&err) }

// The store is asked for records only where a policy needs them, and for what is
// said of nobody once in a while.
func TestRecordsAreReadOnlyWhereNeeded(t *testing.T) {
	age := load(t, many).AccountsAge()
	for _, tt := range []struct {
		name, policy, path string
		said               func(p *process)
		gets, puts         int64 // of 100 calls of 10 accounts, in a tenth of the age
	}{
		{"nothing matches", many, "/elsewhere", nil, 0, 0},
		{"edge rules", "weir: 1\nedge:\n  - {name: all, limit: sliding 1000/5m, by: ip}\n", "/orders", nil, 0, 0},
		{"nothing is said of anybody", many, "/orders", nil, 1, 0},
		{"wildcards only", many, "/orders", func(p *process) { wildcard(p, "account#x*", override("orders", "1/s", account.Terms{})) }, 1, 0},
		{"of another kind", many, "/orders", func(p *process) { p.edit("partner#p", override("partner", "1/s", account.Terms{})) }, 1, 0},
		{"something is said of an account", many, "/orders", func(p *process) { p.edit("account#x", override("orders", "1/s", account.Terms{})) }, 1 + 10, 0},
		{"versions", before, "/render", nil, 1 + 10, 10},
		{"versions, where they do not matter", before + "  limits:\n    - {name: orders, match: POST /orders, by: account, limit: 1000/s}\n", "/orders", nil, 1, 0},
	} {
		s := onMemory(t)
		c := new(clock)
		p := start(t, s, c, tt.policy)
		if tt.said != nil {
			tt.said(p)
		}
		s.gets.Store(0)
		s.puts.Store(0)
		for n := range 100 {
			p.ask(tt.path, "Sub", fmt.Sprint("customer-", n%10))
		}
		if gets, puts := s.gets.Load(), s.puts.Load(); gets != tt.gets || puts != tt.puts {
			t.Errorf("%s: %d gets and %d puts, want %d and %d", tt.name, gets, puts, tt.gets, tt.puts)
		}
		if tt.gets == 0 {
			continue
		}
		s.gets.Store(0)
		s.puts.Store(0)
		c.advance(age)
		for n := range 100 {
			p.ask(tt.path, "Sub", fmt.Sprint("customer-", n%10))
		}
		if gets, puts := s.gets.Load(), s.puts.Load(); gets != tt.gets || puts != 0 {
			t.Errorf("%s, later: %d gets and %d puts, want %d and none", tt.name, gets, puts, tt.gets)
		}
	}
}

// A store that keeps no records is no reason to be without a limit, but one to
// refuse a policy that needs them.
func TestAStoreWithoutRecords(t *testing.T) {
	type bare struct{ weir.Store }
	s := onMemory(t)
	c := new(clock)
	p := start(t, bare{s.Store}, c, many)
	if o := p.ask("/orders", "Sub", "a"); !o.Served() || len(o.Verdicts) != 2 {
		t.Errorf("%d %v", o.Status, limits(o))
	}
	for _, text := range []string{before, strings.Replace(many, "{order:", "{from: account.plan, order:", 1)} {
		if _, err := engine.New(engine.Options{Policy: load(t, text), Store: bare{s.Store}}); err == nil || !strings.Contains(err.Error(), "keeps no records") {
			t.Errorf("%v", err)
		}
	}
}

// Without its record nobody gets a better plan by guess: on_store_error decides,
// and the decision says that it is degraded.
func TestRecordsThatCannotBeRead(t *testing.T) {
	down := errors.New("connection refused")
	mode := func(text, mode string) string {
		return strings.Replace(text, "{match: POST /render}", "{match: POST /render, on_store_error: "+mode+"}", 1)
	}
	orders := func(text, mode string) string {
		return strings.Replace(text, "by: [account, ip],", "by: [account, ip], on_store_error: "+mode+",", 1)
	}
	for _, tt := range []struct {
		name, policy, path string
		status             int
		counted            bool
	}{
		{"a plan with versions, deny", mode(before, "deny"), "/render", 503, false},
		{"a plan with versions, allow", mode(before, "allow"), "/render", 0, false},
		{"a plan with versions, local", mode(before, "local"), "/render", 0, true},
		{"a limit of the policy's own, deny", orders(many, "deny"), "/orders", 503, false},
		{"a limit of the policy's own, allow", orders(many, "allow"), "/orders", 0, true},
		{"plan operations deny by default", before, "/render", 503, false},
	} {
		s := onMemory(t)
		s.fail(down)
		p := start(t, s, new(clock), tt.policy)
		for range 20 {
			o := p.ask(tt.path, "Sub", "a")
			if v := o.Speaks(); o.Status != tt.status || !o.Degraded || tt.counted == v.Unknown {
				t.Errorf("%s: status %d, degraded %v, %+v", tt.name, o.Status, o.Degraded, v)
			}
			if tt.counted {
				break
			}
		}
		if n := s.gets.Load(); n < 1 || n > 5 {
			t.Errorf("%s: a store that fails is asked %d times in a row", tt.name, n)
		}
		if log := p.log.String(); !strings.Contains(log, "connection refused") {
			t.Errorf("%s: the log does not say why: %s", tt.name, log)
		}
	}
}

// What is known goes on to hold while the store does not answer.
func TestWhatIsKnownOutlastsAnOutage(t *testing.T) {
	s := onMemory(t)
	c := new(clock)
	p := start(t, s, c, before+"  limits:\n    - {name: orders, match: POST /orders, by: account, limit: quota 5/hour}\n")
	p.edit("account#bad", func(r *account.Record) { r.Ban = new(account.Ban) })
	p.edit("account#a", override("orders", "quota 9/hour", account.Terms{}))
	p.ask("/orders", "Sub", "bad")
	p.ask("/orders", "Sub", "a")
	if v := p.version("a"); v != 1 {
		t.Fatal(v)
	}
	s.fail(errors.New("connection refused"))
	c.advance(time.Hour)
	if o := p.ask("/orders", "Sub", "bad"); o.Status != 403 {
		t.Errorf("the ban: %d", o.Status)
	}
	if o := p.ask("/orders", "Sub", "a"); !o.Served() || !o.Degraded || limits(o)["orders"] != "quota 9/hour" {
		t.Errorf("the override: %d, %v, %v", o.Status, o.Degraded, limits(o))
	}
	if v := p.version("a"); v != 1 {
		t.Errorf("the version: %d", v)
	}
	s.fails.Store(nil)
	c.advance(2 * time.Second)
	if o := p.ask("/orders", "Sub", "a"); o.Degraded {
		t.Error("still degraded when the store answers again")
	}
}

// A limit of a caller's own with a longer period keeps its count, although the
// policy alone would let the item go earlier.
func TestAnOverrideKeepsItsItem(t *testing.T) {
	s := &keeping{Store: memstore.New(memstore.Options{})}
	defer s.Store.Close()
	p := start(t, s, new(clock), many)
	p.edit("account#a", override("orders", "quota 9/year", account.Terms{}))
	p.ask("/orders", "Sub", "a")
	p.ask("/events/1/seats", "Sub", "a")
	p.ask("/orders") // by address
	for kind, want := range map[string]time.Duration{"account": 365 * 24 * time.Hour, "ip": 24 * time.Hour} {
		if got := s.keep(kind); got < want || got > want+2*time.Hour {
			t.Errorf("items of %s are kept for %v, want %v and a margin", kind, got, want)
		}
	}
}

// keeping notes for how long items are asked to be kept.
type keeping struct {
	*memstore.Store
	kept [2]atomic.Int64
}

func (k *keeping) keep(kind string) time.Duration {
	return time.Duration(k.kept[slices.Index([]string{"account", "ip"}, kind)].Load())
}

// Lock makes it a store that is not in this process.
func (k *keeping) Lock() {}

func (k *keeping) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	for _, w := range tries {
		if i := slices.Index([]string{"account", "ip"}, account.KindOf(item)); i >= 0 {
			k.kept[i].Store(int64(w.Keep))
		}
	}
	return k.Store.Apply(ctx, item, tries, state)
}

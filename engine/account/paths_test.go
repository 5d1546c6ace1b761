package account_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/internal/everystore"
	"github.com/weirlabs/weir/policy"
)

// Everything here runs on memory, on a DynamoDB-compatible server and on Redis
// alike, between engines that share nothing but the store.

// clock is the time of engines: that of the machine, and what was added to it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() int64              { return time.Now().UnixNano() + c.ahead.Load() }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }
func (c *clock) time() time.Time         { return time.Unix(0, c.now()) }

// onStores runs a test on every kind of store. open gives a store of its own to
// each process that the test stands for; they share what they keep.
func onStores(t *testing.T, test func(t *testing.T, open func() weir.Store)) {
	t.Helper()
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		test(t, func() weir.Store { return s.Open(t) })
	})
}

// process is an engine as one process has it.
type process struct {
	*engine.Engine
	t     *testing.T
	store weir.Store
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func load(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatalf("policy: %v", err)
	}
	return p
}

func start(t *testing.T, s weir.Store, c *clock, text string) *process {
	t.Helper()
	p := &process{t: t, store: s, log: new(syncBuffer)}
	e, err := engine.New(engine.Options{
		Policy: load(t, text), Store: s, Now: c.now, LogKey: []byte("k"), Deadline: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(p.log, nil)),
		Identify: func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			id := policy.Identity{}
			if sub := a.Header["Sub"]; sub != nil {
				id.Claims = map[string]any{"sub": sub[0]}
				if plans := a.Header["Plans"]; plans != nil {
					id.Claims["plans"] = plans
				}
			}
			if owner := a.Header["Owner"]; owner != nil {
				id.KeyOwner, id.KeyPlan = owner[0], "partner"
			}
			return id, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	p.Engine = e
	return p
}

// ask makes a call with header fields, NAME VALUE.
func (p *process) ask(path string, header ...string) *engine.Outcome {
	a := &policy.Attributes{Method: "POST", Path: path, Host: "shop", Header: map[string][]string{}, Peer: netip.MustParseAddr("192.0.2.1")}
	for i := 0; i < len(header); i += 2 {
		a.Header[header[i]] = append(a.Header[header[i]], header[i+1])
	}
	o := new(engine.Outcome)
	p.Decide(context.Background(), a, o)
	return o
}

// version is the plan version under which a call is counted.
func (p *process) version(sub string) int {
	p.t.Helper()
	o := p.ask("/render", "Sub", sub)
	if len(o.Verdicts) != 1 {
		p.t.Fatalf("%s: %d verdicts, status %d, %v\n%s", sub, len(o.Verdicts), o.Status, o.Err, p.log)
	}
	return o.Verdicts[0].Rule.Version
}

func (p *process) records() account.Editor { return account.Editor{Records: p.store.(weir.Records)} }

// edit changes the record of a caller.
func (p *process) edit(caller string, change func(*account.Record)) {
	p.t.Helper()
	key, ok := weir.ParseKey(caller)
	if !ok {
		p.t.Fatalf("%q is no key", caller)
	}
	if _, _, err := p.records().Edit(context.Background(), key, func(r *account.Record) error { change(r); return nil }); err != nil {
		p.t.Fatal(err)
	}
}

func override(name, limit string, t account.Terms) func(*account.Record) {
	return func(r *account.Record) {
		if r.Overrides == nil {
			r.Overrides = map[string]account.Override{}
		}
		r.Overrides[name] = account.Override{Limit: limit, Terms: t}
	}
}

const head = `weir: 1
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
`

const before = head + `application:
  plans: {order: [free, pro], free@1: {render: quota 3/hour}, pro: {render: unlimited}}
  operations: {render: {match: POST /render}}
`

// after is the policy whose prices have changed at an instant.
func after(since time.Time) string {
	return head + `application:
  plans:
    order: [free, pro]
    free@1: {render: quota 3/hour}
    free@2: {since: "` + since.UTC().Format(time.RFC3339) + `", render: quota 1/hour}
    pro: {render: unlimited}
  operations: {render: {match: POST /render}}
`
}

func TestSpec_B12_AnAccountKeepsTheVersionItWasFirstSeenWith(t *testing.T) {
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		old := start(t, open(), c, before)
		if v := old.version("early"); v != 1 {
			t.Fatalf("before the change: version %d", v)
		}
		change := c.time().Add(time.Hour)
		one, two := start(t, open(), c, after(change)), start(t, open(), c, after(change))
		if v := one.version("between"); v != 1 {
			t.Errorf("announced, not in force: version %d", v)
		}
		c.advance(2 * time.Hour)
		for _, p := range []*process{one, two} {
			for sub, want := range map[string]int{"early": 1, "between": 1, "late": 2} {
				if v := p.version(sub); v != want {
					t.Errorf("%s has version %d, want %d", sub, v, want)
				}
			}
		}
		// Another process has not moved early, but somebody has: a new price, what
		// was used stays used, and the new version is that of every process soon.
		one.edit("account#early", func(r *account.Record) { r.Pins["free"] = 2 })
		c.advance(old.Policy().AccountsAge())
		for _, p := range []*process{one, two} {
			if v := p.version("early"); v != 2 {
				t.Errorf("moved: version %d", v)
			}
		}
		// A process that still has the old policy knows no version 2.
		if v := old.version("late"); v != 1 {
			t.Errorf("the old policy gives version %d", v)
		}
	})
}

func TestSpec_B12_AnUpgradeOfTheVersionKeepsWhatWasUsed(t *testing.T) {
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		p := start(t, open(), c, after(time.Now().Add(-time.Hour)))
		p.edit("account#a", func(r *account.Record) { r.Pins = map[string]int{"free": 1} })
		for range 2 {
			if o := p.ask("/render", "Sub", "a"); !o.Served() {
				t.Fatal(o.Status)
			}
		}
		p.edit("account#a", func(r *account.Record) { r.Pins["free"] = 2 })
		c.advance(p.Policy().AccountsAge())
		o := p.ask("/render", "Sub", "a")
		if o.Status != 429 || o.Speaks().Used != 2 || o.Speaks().Limit.Max() != 1 {
			t.Errorf("status %d, %+v", o.Status, o.Speaks())
		}
	})
}

func TestSpec_B12_OfManyFirstCallsAtOnceOnePins(t *testing.T) {
	const each = 64
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		// The two do not agree on what is new.
		processes := []*process{
			start(t, open(), c, after(time.Now().Add(time.Hour))),
			start(t, open(), c, after(time.Now().Add(-time.Hour))),
		}
		for round := range 4 {
			sub := fmt.Sprint("customer-", round)
			var seen [3]atomic.Int64
			var wg sync.WaitGroup
			began := make(chan struct{})
			for n := range each {
				p := processes[n%2]
				wg.Go(func() {
					<-began
					o := p.ask("/render", "Sub", sub)
					if len(o.Verdicts) == 1 {
						seen[o.Verdicts[0].Rule.Version].Add(1)
					}
				})
			}
			close(began)
			wg.Wait()
			one, two := seen[1].Load(), seen[2].Load()
			if one+two != each || one != 0 && two != 0 {
				t.Errorf("round %d: %d calls of version 1, %d of version 2\n%s%s", round, one, two, processes[0].log, processes[1].log)
			}
		}
	})
}

// During a rollout a newer program writes a form of a record that this one does not
// know: its account is refused, no other, and no log names it.
func TestARecordThatCannotBeReadRefusesItsOwnAccountOnly(t *testing.T) {
	onStores(t, func(t *testing.T, open func() weir.Store) {
		c := new(clock)
		p := start(t, open(), c, after(c.time().Add(time.Hour)))
		r := p.store.(weir.Records)
		if err := r.Put(context.Background(), "accounts/account#poison", []byte(`{"schema_version":2}`), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if o := p.ask("/render", "Sub", "poison"); o.Status != 503 {
				t.Errorf("its account: %d", o.Status)
			}
			if o := p.ask("/render", "Sub", fmt.Sprint("fresh-", i)); o.Status != 0 {
				t.Errorf("another one right after: %d\n%s", o.Status, p.log)
			}
		}
		if log := p.log.String(); strings.Contains(log, "poison") || !strings.Contains(log, "form 2") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// Package storetest is what every store must pass.
//
// A store of your own needs one test:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB, now func() int64) weir.Store {
//			return mystore.New(mystore.Options{Now: now})
//		})
//	}
//
// [Run] begins with the vocabulary: what a guard, an action and a read mean, to
// the last bit of an int64, alone and with 64 callers at once; and that an item is
// kept for as long as it has to be. Then a model
// check drives the store and a plain value in memory with the same random
// writes and compares them; a failure prints the seed that repeats it. Last, a
// weir.Limiter on the store must keep every kind of limit: all or nothing over
// several of them, exact at the boundary, and never above what the limit allows
// in any interval, which an independent checker works out from the log of
// decisions. A store that implements [weir.Records], [weir.Lister] or [weir.Deleter]
// is tested for that too.
//
// A store may forget an item at any time once it is over: when no bucket is
// still filling and no window still counts. No test depends on that item then.
//
// [Bench] measures a store in the same terms.
package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// Open makes a store for one test. It may hand out the same items every time:
// tests use keys of their own. now, when it is not nil, is the clock that the
// store must use, in Unix nanoseconds; a store that can't, because its server
// has the clock, ignores it. Run finds out, and closes what it opens.
type Open func(tb testing.TB, now func() int64) weir.Store

// Run tests a store as a subtest for each behaviour. Which ones run depends on
// the store's Caps, clock and optional interfaces alone, and nothing is skipped.
func Run(t *testing.T, open Open) {
	caps := describe(t, open)
	suite := suite{open: open, caps: caps}
	t.Run("vocabulary", suite.vocabulary)
	t.Run("expiry", suite.expiry)
	t.Run("model", suite.model)
	t.Run("concurrent", suite.concurrent)
	if caps.gatherer {
		t.Run("gather", suite.gathered)
	}
	if caps.LossyReplies {
		t.Run("nonces", suite.nonces)
	}
	t.Run("limiter", suite.limiter)
	if caps.records {
		t.Run("records", suite.records)
	}
	if caps.lister {
		t.Run("keys", suite.listed)
	}
	if caps.deleter {
		t.Run("delete", suite.deleted)
	}
}

// facts is what is known of the store under test.
type facts struct {
	weir.Caps
	records   bool
	lister    bool
	deleter   bool
	inProcess bool
	gatherer  bool
	clocked   bool // it uses the clock that it is given
}

type suite struct {
	open Open
	caps facts
	tick time.Duration // by which the clock moves whenever it is read
}

func describe(t *testing.T, open Open) facts {
	t.Helper()
	clock := newClock()
	store := open(t, clock.now)
	defer store.Close()
	f := facts{Caps: store.Caps()}
	_, now, err := store.Apply(context.Background(), weir.NewKey("storetest", rand.Text()), nil, new(weir.Cells))
	if err != nil {
		t.Fatalf("read of an unknown item: %v", err)
	}
	f.clocked = now == clock.now()
	if !f.clocked && !f.OwnClock {
		t.Fatalf("the store has no clock of its own and does not use the one it was given: it said %d, not %d", now, clock.now())
	}
	_, f.records = store.(weir.Records)
	_, f.lister = store.(weir.Lister)
	_, f.deleter = store.(weir.Deleter)
	_, f.inProcess = store.(weir.InProcess)
	_, f.gatherer = store.(weir.Gatherer)
	if f.MaxKeep < 0 {
		t.Fatalf("Caps().MaxKeep is %v; it must be 0 or positive", f.MaxKeep)
	}
	return f
}

// bench is one opened store with a clock, if the store takes one.
type bench struct {
	testing.TB
	store weir.Store
	clock *clock // nil when the store can't be given one
	run   string // makes keys of this test different from all others'
	keys  int
}

func (s suite) start(tb testing.TB) *bench {
	tb.Helper()
	b := &bench{TB: tb, run: rand.Text()}
	var now func() int64
	if s.caps.clocked {
		b.clock = newClock()
		b.clock.tick = int64(s.tick)
		now = b.clock.now
	}
	b.store = s.open(tb, now)
	tb.Cleanup(func() {
		if err := b.store.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return b
}

// key is a key that no other test uses.
func (b *bench) key() weir.Key {
	b.keys++
	return weir.NewKey("storetest", b.run, "n", fmt.Sprint(b.keys))
}

// apply applies and fails the test on an error.
func (b *bench) apply(key weir.Key, tries ...weir.Write) (applied int, now int64, state map[weir.Field]int64) {
	b.Helper()
	var c weir.Cells
	applied, now, err := b.store.Apply(context.Background(), key, tries, &c)
	if err != nil {
		b.Fatalf("Apply: %v", err)
	}
	return applied, now, values(&c)
}

// must applies a write that has to hold.
func (b *bench) must(key weir.Key, w weir.Write) map[weir.Field]int64 {
	b.Helper()
	applied, _, state := b.apply(key, w)
	if applied != 0 {
		b.Fatalf("a write whose guards hold was not applied; the item is %v, the write %s", texts(state), show(w))
	}
	return state
}

// reads reads an item and compares.
func (b *bench) reads(key weir.Key, want map[weir.Field]int64) {
	b.Helper()
	applied, _, state := b.apply(key)
	if applied != -1 {
		b.Fatalf("a read answered %d for the applied write; it must be -1", applied)
	}
	b.same(state, want)
}

func (b *bench) same(got, want map[weir.Field]int64) {
	b.Helper()
	if !maps.Equal(got, want) {
		b.Fatalf("state is %v, want %v", texts(got), texts(want))
	}
}

// values is a state as a map.
func values(c *weir.Cells) map[weir.Field]int64 {
	m := map[weir.Field]int64{}
	for s := range c.All() {
		m[s.Field] = s.Value
	}
	return m
}

func texts(state map[weir.Field]int64) map[string]int64 {
	m := map[string]int64{}
	for f, v := range state {
		m[f.Text()] = v
	}
	return m
}

// show is a write for a message.
func show(w weir.Write) string {
	text := "if"
	for _, g := range w.If {
		name := "clock"
		if g.Field != (weir.Field{Kind: clockKind}) {
			name = g.Field.Text()
		}
		text += fmt.Sprintf(" [%s %s %d orAbsent=%v rel=%v]", name, comparisons[g.Cmp], g.Value, g.OrAbsent, g.Rel)
	}
	text += " do"
	for _, a := range w.Do {
		text += fmt.Sprintf(" [%s %s %d rel=%v]", actions[a.Do], a.Field.Text(), a.Value, a.Rel)
	}
	return fmt.Sprintf("%s nonce=%d", text, w.Nonce)
}

// clock is a clock that stands still until it is moved, unless it ticks.
type clock struct {
	at   atomic.Int64
	tick int64
}

// newClock starts on a day that no test expects, at no round second.
func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC).UnixNano())
	return c
}

func (c *clock) now() int64 { return c.at.Add(c.tick) }

func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// limit is a limit that a test is sure of.
func limit(tb testing.TB, name, text string) weir.Limit {
	tb.Helper()
	l, err := weir.ParseLimit(text)
	if err == nil {
		l, err = l.Named(name)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// field is a field of a limit made by limit.
func field(tb testing.TB, text string) weir.Field {
	tb.Helper()
	f, ok := weir.ParseField(text)
	if !ok {
		tb.Fatalf("field %q is unknown", text)
	}
	return f
}

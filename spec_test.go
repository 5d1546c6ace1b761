package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// Refill is arithmetic: an unknown key is full, fractions are kept, a clock
// that goes back gives nothing, and a bucket never holds more than its capacity.
func TestSpec_A01_RefillIsArithmetic(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "0.5/s burst 10")
		op := weir.Op{Limit: l, Key: someone}
		if left := p.left(l); left != 10 {
			t.Errorf("an unknown key has %d", left)
		}
		if n, _ := p.drain(op); n != 10 {
			t.Errorf("a full bucket gives %d", n)
		}
		for range 3 { // a fraction at a time
			p.advance(500 * time.Millisecond)
			if d := p.take(op); d.Allowed {
				t.Errorf("a fraction of a token is none: %+v", d)
			}
		}
		p.advance(499 * time.Millisecond)
		if p.take(op).Allowed {
			t.Error("a token too early")
		}
		p.advance(time.Millisecond)
		if !p.take(op).Allowed {
			t.Error("four fractions are no token")
		}
		p.advance(-300 * time.Millisecond)
		if d := p.take(op); d.Allowed || d.RetryAfter != 2300*time.Millisecond {
			t.Errorf("a clock that went back: %+v", d)
		}
		p.advance(1000 * time.Hour)
		if left := p.left(l); left != 10 {
			t.Errorf("%d left after a long time", left)
		}
		if n, _ := p.drain(op); n != 10 {
			t.Errorf("a burst of %d after a long time", n)
		}
	})
}

func TestSpec_A02_TwelveCallsAtOneInstant(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		op := weir.Op{Limit: limit(t, "0.5/s burst 10"), Key: someone}
		for n := range int64(12) {
			d := p.take(op)
			if n < 10 && (!d.Allowed || d.Remaining != 9-n || d.RetryAfter != 0) {
				t.Errorf("call %d: %+v", n+1, d)
			}
			if n >= 10 && (d.Allowed || d.Remaining != 0 || d.RetryAfter != 2*time.Second || d.Reason != weir.ReasonLimit) {
				t.Errorf("call %d: %+v", n+1, d)
			}
		}
		op.Cost = 3
		if d := p.take(op); d.Allowed || d.RetryAfter != 6*time.Second {
			t.Errorf("three more: %+v", d)
		}
	})
}

func TestSpec_A03_TimeToFull(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0.5/s burst 10": 20 * time.Second, "10/s burst 25": 2500 * time.Millisecond, "1/h burst 3": 3 * time.Hour, "3/s burst 10": 3333333340 * time.Nanosecond,
	} {
		l := limit(t, text)
		if got := l.Horizon(); got != want {
			t.Errorf("%s is full again after %v, want %v", text, got, want)
		}
		everywhere(t, func(t *testing.T, p *place) {
			if d := p.take(weir.Op{Limit: l, Key: someone, Cost: l.Max()}); d.ResetAfter != want {
				t.Errorf("%s: %+v", text, d)
			}
			p.advance(want - 1)
			if p.left(l) == l.Max() {
				t.Errorf("%s: full too early", text)
			}
			p.advance(1)
			if p.left(l) != l.Max() {
				t.Errorf("%s: not full", text)
			}
		})
	}
}

// Writers who lose a race try again by themselves; nobody below the limit is
// refused for it, and a refusal writes nothing.
func TestSpec_A05_NoFalseDenials(t *testing.T) {
	for _, text := range []string{"1000/s burst 640", "quota 640/h", "quota 640/day calendar", "sliding 640/h"} {
		c := newClock()
		far := newDistant(c)
		l := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now})
		op := weir.Op{Limit: limit(t, text), Key: someone}
		var denied, failed atomic.Int64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for range 10 {
					d, err := l.Take(context.Background(), op)
					if err != nil {
						failed.Add(1)
					} else if !d.Allowed {
						denied.Add(1)
					}
				}
			})
		}
		group.Wait()
		if denied.Load() != 0 || failed.Load() != 0 {
			t.Errorf("%s: 640 calls of 64 callers, %d refused, %d failed", text, denied.Load(), failed.Load())
		}
		_, writes := far.counts()
		if d, err := l.Take(context.Background(), op); err != nil || d.Allowed {
			t.Errorf("%s: one more: %+v, %v", text, d, err)
		}
		if _, after := far.counts(); after != writes || writes > 640 {
			t.Errorf("%s: %d writes for 640 takes and %d for a refusal", text, writes, after-writes)
		}
	}
}

// An item is kept for the longest horizon of any limit that may share it, and
// an hour more, whichever of the limits writes.
func TestSpec_A06_Keep(t *testing.T) {
	c := newClock()
	far := newDistant(c)
	short, long := limit(t, "0.5/s burst 10"), limit(t, "quota 5/month calendar")
	l := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now, Limits: []weir.Limit{short, long}})
	ctx := context.Background()
	r, _, err := l.Reserve(ctx, weir.Op{Limit: short, Key: someone, Cost: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if r, _, err = l.Reserve(ctx, weir.Op{Limit: long, Key: someone}); err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Reset(ctx, someone, short); err != nil {
		t.Fatal(err)
	}
	for i, keep := range far.keeps {
		if want := long.Horizon() + time.Hour; keep != want {
			t.Errorf("write %d keeps the item for %v, want %v", i, keep, want)
		}
	}
	if len(far.keeps) != 5 {
		t.Errorf("%d writes", len(far.keeps))
	}

	alone := newDistant(c)
	l = weir.NewLimiter(alone, weir.Options{Deadline: patient, Now: c.now})
	if _, err := l.Take(ctx, weir.Op{Limit: short, Key: someone}); err != nil {
		t.Fatal(err)
	}
	if alone.keeps[0] != 20*time.Second+time.Hour {
		t.Errorf("kept for %v: time to full is 20s", alone.keeps[0])
	}
}

// Kinds are spaces of their own, and no id reaches another's item.
func TestSpec_A07_KeysOfTheirOwn(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "1/h burst 1")
		keys := []weir.Key{
			weir.NewKey("account", "192.0.2.44"), weir.NewKey("ip", "192.0.2.44"), weir.NewKey("account", "a"), weir.NewKey("account", "a|ip#b"),
			weir.NewKey("account", "a", "ip", "b"), weir.NewKey("a:b", "c"), weir.NewKey("a", "b:c"), weir.NewKey("account", "A"),
			weir.NewKey("account", "a#"), weir.NewKey("account", "a%23"), weir.NewKey("account", "a\x00"), weir.NewKey("account", "ä"), weir.NewKey("account", "a\u0308"),
		}
		for _, key := range keys {
			if d := p.take(weir.Op{Limit: l, Key: key}); !d.Allowed {
				t.Errorf("%q shares its item with another key", key)
			}
		}
		for _, key := range keys {
			if d := p.take(weir.Op{Limit: l, Key: key}); d.Allowed {
				t.Errorf("%q is not one item", key)
			}
		}
	})
}

// A window is checked before it is counted, waits until its end, and old
// windows go. The sliding window has no double burst at an edge.
func TestSpec_A12_Windows(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		fixed, sliding := limit(t, "quota 10/hour calendar"), limit(t, "sliding 10/h")
		p.advance(59*time.Minute + 50*time.Second) // shortly before the hour
		for _, c := range []struct {
			limit  weir.Limit
			across int // allowed within 20 s across the edge
		}{{fixed, 20}, {sliding, 10}} {
			op := weir.Op{Limit: c.limit, Key: weir.NewKey("account", c.limit.Name())}
			n, d := p.drain(op)
			if n != 10 || c.limit == fixed && d.RetryAfter != 10*time.Second {
				t.Errorf("%s: %d before the edge, then %+v", c.limit, n, d)
			}
			p.advance(20 * time.Second)
			more, d := p.drain(op)
			if n+more != c.across {
				t.Errorf("%s: %d within 20 s, want %d", c.limit, n+more, c.across)
			}
			p.advance(d.RetryAfter - 1)
			if p.take(op).Allowed {
				t.Errorf("%s: allowed before the announced wait", c.limit)
			}
			p.advance(1)
			if !p.take(op).Allowed {
				t.Errorf("%s: refused after the announced wait", c.limit)
			}
			p.advance(2*time.Hour - time.Duration(p.now()%int64(time.Hour)) - 10*time.Second)
		}
		op := weir.Op{Limit: fixed, Key: weir.NewKey("account", "cells")}
		for range 50 {
			p.take(op)
			p.advance(time.Hour)
		}
		if p.far != nil {
			var state weir.Cells
			if _, _, err := p.far.Apply(context.Background(), op.Key, nil, &state); err != nil || state.Len() > 6 {
				t.Errorf("%d windows are kept, %v", state.Len(), err)
			}
		}
	})
}

// What the usual mistakes would show does not happen: no unconditional write,
// no time that is not in its unit, and nothing that lives in one instance only
// when several share a store.
func TestSpec_A16_MistakesThatCannotBeMade(t *testing.T) {
	c := newClock()
	far := newDistant(c)
	far.there = func(_ int, _ weir.Key, tries []weir.Write) error {
		for _, w := range tries {
			if len(w.If) == 0 || w.Nonce == 0 || w.Keep < time.Hour {
				t.Errorf("a write without guard, nonce or time to keep: %+v", w)
			}
		}
		return nil
	}
	var instances []*weir.Limiter
	for range 5 {
		instances = append(instances, weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now}))
	}
	r := rand.New(rand.NewPCG(1, 16))
	allowed := 0
	op := weir.Op{Limit: limit(t, "0.5/s burst 10"), Key: someone}
	for range 200 {
		d, err := instances[r.IntN(5)].Take(context.Background(), op)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
	}
	if allowed != 10 {
		t.Errorf("%d allowed by five instances at one instant, want 10", allowed)
	}
}

// Messages of this package begin with its name, name what is wrong and say what
// may stand there instead.
func TestErrorsHelp(t *testing.T) {
	for _, text := range []string{"", "10", "0/s", "1e400/s", "10/fortnight", "quota 5/7m calendar", "10/s burst 0", "2000000/s"} {
		_, err := weir.ParseLimit(text)
		if err == nil || !strings.HasPrefix(err.Error(), "weir: limit ") || len(err.Error()) < 40 {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := limit(t, "1/s").Named("Not A Name"); err == nil || !strings.Contains(err.Error(), "lower-case") {
		t.Errorf("%v", err)
	}
}

// Deleting an item when its time is over changes no decision, for any mix of
// limits (R19): one store deletes at once, the other never.
func TestDeletionIsNeutral(t *testing.T) {
	c := newClock()
	kept, swept := weir.NewLimiter(newDistant(c), weir.Options{Deadline: patient, Now: c.now}), newDistant(c)
	limits := []weir.Limit{limit(t, "1/m burst 5"), limit(t, "quota 5/h"), limit(t, "sliding 5/30m"), limit(t, "quota 5/day calendar America/Havana")}
	sweeping := weir.NewLimiter(swept, weir.Options{Deadline: patient, Now: c.now, Limits: limits})
	r := rand.New(rand.NewPCG(19, 19))
	var expires int64
	deletions := 0
	swept.there = func(_ int, item weir.Key, _ []weir.Write) error {
		if expires > 0 && c.now() >= expires {
			swept.Store = memstore.New(memstore.Options{Now: c.now}) // the one item is gone
			deletions++
			expires = 0
		}
		return nil
	}
	for step := range 12_000 {
		c.advance(time.Duration(r.Int64N(int64(2 * time.Minute))))
		if r.IntN(100) == 0 {
			c.advance(time.Duration(r.Int64N(int64(72 * time.Hour))))
		}
		op := weir.Op{Limit: limits[r.IntN(len(limits))], Key: someone, Cost: 1 + r.Int64N(3)}
		a, err := kept.Take(context.Background(), op)
		if err != nil {
			t.Fatal(err)
		}
		before := len(swept.keeps)
		b, err := sweeping.Take(context.Background(), op)
		if err != nil {
			t.Fatal(err)
		}
		if len(swept.keeps) > before {
			// To be strict: the hour that items live beyond their last meaning
			// is left out.
			expires = c.now() + int64(swept.keeps[len(swept.keeps)-1]-time.Hour)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("step %d: %+v, with deletions %+v", step, a, b)
		}
	}
	if deletions < 10 {
		t.Errorf("%d deletions", deletions)
	}
}

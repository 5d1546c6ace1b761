package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// A write that was lost on its way there or back is sent again, the very same
// one, until its outcome is known or the time is over.
func TestLostWriteIsSentAgain(t *testing.T) {
	for _, text := range everyLimit {
		inBubble(t, Options{Nonces: true}, func(b *bench) {
			s := spec(b.T, "l", text)
			b.store.lost = func(trip int, _ []plan.Write) error {
				if trip == 1 {
					return errUnknown
				}
				return nil
			}
			b.store.back = func(trip, _ int) error {
				if trip == 2 || trip == 3 {
					return errUnknown
				}
				return nil
			}
			v, err := b.ask(key("a"), s, 2)
			if err != nil || !v.OK || v.Used != 2 || b.used(key("a"), s) != 2 {
				b.Errorf("%s: %+v, %v; the store has %d", text, v, err, b.used(key("a"), s))
			}
			log := b.store.log
			if len(log) != 4 {
				b.Fatalf("%d trips", len(log))
			}
			for i, tr := range log {
				if tr.tries[0].Nonce == 0 || tr.tries[0].Nonce != log[0].tries[0].Nonce || fmt.Sprint(tr.tries) != fmt.Sprint(log[0].tries) {
					b.Errorf("attempt %d is another write: %+v", i, tr.tries)
				}
				if i > 0 {
					if pause := tr.at.Sub(log[i-1].at); pause < 2500*time.Microsecond<<(i-1) || pause > 5*time.Millisecond<<(i-1) {
						b.Errorf("attempt %d after %v", i, pause)
					}
				}
			}
			if st := b.Stats(); st.LostReplies != 1 || st.Unknown != 0 || st.Trips != 4 {
				b.Errorf("%+v", st)
			}
			if b.must(key("a"), s, 1); b.store.log[4].tries[0].Nonce == log[0].tries[0].Nonce {
				b.Error("the next write has the same nonce")
			}
		})
	}
}

// A write without a nonce, and a change that is not a take, are not sent again
// when they may have been applied; when nothing was sent, or the item is too
// busy, they are.
func TestWhatIsNotSentAgain(t *testing.T) {
	s := spec(t, "l", "quota 10/h")
	once := func(err error) func(int, []plan.Write) error {
		first := true
		return func(int, []plan.Write) error {
			if first {
				first = false
				return err
			}
			return nil
		}
	}
	take := func(b *bench) error { _, err := b.ask(key("a"), s, 1); return err }
	change := func(b *bench) error {
		return b.Update(b.Context(), key("a"), Change{Next: func(_ *plan.Cells, now int64, w *plan.Write) bool { return s.Plan(new(plan.Cells), now, 1, w).OK }})
	}
	for _, c := range []struct {
		name   string
		nonces bool
		call   func(b *bench) error
		err    error
		trips  int
		fails  bool
	}{
		{"a take with nonces, unknown", true, take, errUnknown, 2, false},
		{"a take without nonces, unknown", false, take, errUnknown, 1, true},
		{"a change, unknown", true, change, errUnknown, 1, true},
		{"a take, unreachable", true, take, errUnreachable, 2, false},
		{"a take without nonces, unreachable", false, take, errUnreachable, 2, false},
		{"a change, unreachable", true, change, errUnreachable, 2, false},
		{"a take, throttled", true, take, errThrottled, 2, false},
		{"a change, throttled", true, change, errThrottled, 2, false},
		{"a take, broken", true, take, errBroken, 1, true},
		{"a change, broken", true, change, errBroken, 1, true},
	} {
		inBubble(t, Options{Nonces: c.nonces}, func(b *bench) {
			b.store.lost = once(fmt.Errorf("wrapped: %w", c.err))
			b.trip(c.trips, c.name, func() {
				if err := c.call(b); c.fails != (err != nil) || c.fails && !errors.Is(err, c.err) {
					b.Errorf("%s: %v", c.name, err)
				}
			})
			want := int64(1)
			if c.fails {
				want = 0
			}
			if n := b.used(key("a"), s); n != want {
				b.Errorf("%s: %d are used", c.name, n)
			}
		})
	}
}

// After a lost reply, a refusal without our nonce is neither: others may have
// pushed it out. An item that is too busy meanwhile does not make it a refusal
// either. What the item looked like is known all the same.
func TestUnknownStaysUnknown(t *testing.T) {
	inBubble(t, Options{Nonces: true}, func(b *bench) {
		s := spec(b.T, "l", "1/h burst 3")
		b.store.lost = func(trip int, tries []plan.Write) error {
			var c plan.Cells
			switch trip {
			case 1:
				b.store.apply(key("a"), tries, &c)
				for range 4 {
					w := plan.Write{Nonce: uint64(100 + len(b.store.ring[key("a")])), Do: []plan.Act{{Do: plan.Put, Value: 3600 * second * 3, Rel: true}}}
					w.Do[0].Field, _ = plan.ParseField("l.t")
					w.Nonce += uint64(b.store.now()) // each its own
					b.store.apply(key("a"), []plan.Write{w}, &c)
					b.step.Add(1)
				}
				return errUnknown
			case 2:
				return errThrottled
			}
			return nil
		}
		if v, err := b.ask(key("a"), s, 1); !errors.Is(err, errUnknown) {
			b.Errorf("%+v, %v", v, err)
		}
		if st := b.Stats(); st.Unknown != 1 || st.LostReplies != 0 || st.Trips != 3 {
			b.Errorf("%+v", st)
		}
		b.trip(0, "the memo has learned", func() {
			if b.must(key("a"), s, 1) {
				b.Error("allowed")
			}
		})
	})
}

// A key that the store finds too busy is asked less and less often, up to once a
// second, and slowly more often again; other keys are not held up, and the store
// is not taken for dead.
func TestThrottlingSlowsOneKeyDown(t *testing.T) {
	inBubble(t, Options{Deadline: 3 * time.Second}, func(b *bench) {
		s := spec(b.T, "q", "quota 100000/h")
		busy := true
		b.store.lost = func(_ int, tries []plan.Write) error {
			if busy && b.store.log[len(b.store.log)-1].item == key("hot") {
				return errThrottled
			}
			return nil
		}
		gap := func() time.Duration {
			synctest.Wait()
			return b.lanes.by[key("hot").Hash()].gap
		}
		for want := 16 * time.Millisecond; want <= 2048*time.Millisecond; want *= 2 {
			before, began := b.store.trips(), time.Now()
			if _, err := b.ask(key("hot"), s, 1); !errors.Is(err, errThrottled) {
				b.Errorf("%v", err)
			}
			if took := time.Since(began); took > 3*time.Second {
				b.Errorf("held on for %v", took)
			}
			log := b.store.log[before:]
			for i := 1; i < len(log); i++ {
				if wait, gap := log[i].at.Sub(log[i-1].at), min(want, time.Second); wait < gap/2 || wait > gap*3/2 {
					b.Errorf("with a gap of %v it was tried again after %v", want, wait)
				}
			}
			<-time.After(5 * time.Second)
			if got := gap(); got != min(want, time.Second) {
				b.Errorf("the gap is %v, want %v", got, want)
			}
		}
		b.trip(1, "another key", func() {
			if !b.must(key("cold"), s, 1) {
				b.Error("refused")
			}
		})
		if b.breaker.open {
			b.Error("the breaker has opened")
		}
		busy = false
		<-time.After(2 * time.Second)
		n := 0
		for before := gap(); before > 0; n++ {
			if !b.must(key("hot"), s, 1) || n > 130 {
				b.Fatal("refused")
			}
			<-time.After(time.Second)
			now := gap()
			if faster := 1/now.Seconds() - 1/before.Seconds(); now > 0 && (faster < 0.99 || faster > 1.01) {
				b.Fatalf("the gap went from %v to %v", before, now)
			}
			before = now
		}
		if n < 110 { // from one a second to one in 8 ms
			b.Errorf("the gap was gone after %d trips", n)
		}
		if st := b.Stats(); st.Throttled < 20 {
			b.Errorf("%+v", st)
		}
	})
}

// Who can't wait for a busy key's turn hears that the key is busy.
func TestWaitingForABusyKey(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "q", "quota 100000/h")
		b.store.lost = func(int, []plan.Write) error { return errThrottled }
		began := time.Now()
		if _, err := b.ask(key("hot"), s, 1); !errors.Is(err, errThrottled) || errors.Is(err, errUnknown) {
			b.Errorf("%v", err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			b.Errorf("after %v", took)
		}
	})
}

// B140: after five failures in a row the store is left alone: calls return at once and
// no trip is made, but for one at a time, 100 ms later and then less often, up
// to once a second. The first one that is answered ends it.
func TestCase_B140_Breaker(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "q", "quota 100000/h")
		dead := true
		b.store.took = time.Millisecond
		b.store.lost = func(int, []plan.Write) error {
			if dead {
				return errBroken
			}
			return nil
		}
		for n := range tolerated {
			if _, err := b.ask(key(fmt.Sprint(n)), s, 1); !errors.Is(err, errBroken) {
				b.Errorf("call %d: %v", n, err)
			}
		}
		opened := time.Now()
		before := b.store.trips()
		var probes []time.Duration
		for time.Since(opened) < 10*time.Second {
			all(8, func(i int) {
				began := time.Now()
				var err error
				switch i {
				case 6:
					_, _, err = b.Read(b.Context(), key("a"))
				case 7:
					err = b.Update(b.Context(), key("a"), Change{Next: func(_ *plan.Cells, now int64, w *plan.Write) bool { return s.Plan(new(plan.Cells), now, 1, w).OK }})
				default:
					_, err = b.ask(key(fmt.Sprint(i%2)), s, 1)
				}
				// One that waits for its item's next write while another one's try
				// fails is told so when its turn comes, a gap later.
				if took := time.Since(began); errors.Is(err, errOpen) && took > 10*time.Millisecond || err == nil {
					b.Errorf("%v after %v", err, took)
				}
			})
			if n := b.store.trips(); n > before+1 {
				b.Fatalf("%d trips at once", n-before)
			} else if n > before {
				probes = append(probes, time.Since(opened).Truncate(10*time.Millisecond))
				before = n
			}
			<-time.After(9 * time.Millisecond)
		}
		if len(probes) < 9 || len(probes) > 13 || probes[0] < 100*time.Millisecond || probes[0] > 120*time.Millisecond {
			b.Errorf("probes at %v", probes)
		}
		if st := b.Stats(); st.Skipped < 5000 {
			b.Errorf("%+v", st)
		}
		dead = false
		healed := time.Now()
		for {
			if _, err := b.ask(key("a"), s, 1); err == nil {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		if took := time.Since(healed); took > 1100*time.Millisecond {
			b.Errorf("recovered after %v", took)
		}
		all(20, func(i int) { b.must(key(fmt.Sprint(i)), s, 1) })
		if b.breaker.open || b.breaker.failures != 0 {
			b.Errorf("%+v", &b.breaker)
		}
	})
}

// Refusals, failed conditions, busy keys and callers who leave say nothing of
// the store's health.
func TestBreakerStaysClosed(t *testing.T) {
	inBubble(t, Options{NoMemo: true}, func(b *bench) {
		b.store.took = 10 * time.Millisecond
		s := spec(b.T, "q", "1/h burst 1")
		b.must(key("a"), s, 1)
		for range 200 {
			if b.must(key("a"), s, 1) {
				b.Error("allowed")
			}
		}
		for range 50 {
			ctx, leave := context.WithTimeout(b.Context(), 3*time.Millisecond)
			if _, _, err := b.Read(ctx, key("a")); !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("%v", err)
			}
			if _, err := b.askAs(ctx, key("b"), s, 1, false); !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("%v", err)
			}
			leave()
		}
		<-time.After(time.Second)
		synctest.Wait()
		b.store.took = 0 // no trip is cut short by its caller's deadline, which would be a failure
		b.store.lost = func(int, []plan.Write) error { return errThrottled }
		for range 20 {
			_, _ = b.ask(key("c"), s, 1)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if b.breaker.failures != 0 || b.breaker.open {
			b.Errorf("%+v", &b.breaker)
		}
	})
}

// While the store is left alone, a call that was on its way is not repeated, and
// those that wait behind it are told at once.
func TestNobodyAsksTwiceOfADeadStore(t *testing.T) {
	inBubble(t, Options{Nonces: true}, func(b *bench) {
		s := spec(b.T, "q", "quota 100000/h")
		b.store.took = 50 * time.Millisecond
		b.store.lost = func(int, []plan.Write) error { return errUnknown }
		b.trip(tolerated, "five at once", func() {
			all(tolerated, func(i int) {
				if _, err := b.ask(key(fmt.Sprint(i)), s, 1); !errors.Is(err, errUnknown) {
					b.Errorf("%v", err)
				}
			})
		})
	})
	inBubble(t, Options{}, func(b *bench) { // a store that never answers
		s := spec(b.T, "q", "quota 100000/h")
		b.store.took = time.Hour
		for i := range tolerated {
			go func() { _, _ = b.askAs(b.Context(), key(fmt.Sprint(i)), s, 1, true) }()
		}
		synctest.Wait()
		for range 10 { // behind the first
			go func() { _, _ = b.askAs(b.Context(), key("0"), s, 1, true) }()
		}
		<-time.After(time.Second)
		// The first one's lane may have gone on before the breaker had counted all.
		if n := b.store.trips(); n > tolerated+1 {
			b.Errorf("%d trips", n)
		}
		synctest.Wait()
		for _, l := range b.lanes.by {
			if l.running || l.users.Load() != 0 || len(l.takes) != 0 {
				b.Errorf("%v: running %v, %d users, %d wait", l.item, l.running, l.users.Load(), len(l.takes))
			}
		}
	})
}

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// all runs n calls at once and waits for them.
func all(n int, call func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { call(i) })
	}
	wg.Wait()
}

// queue lets calls arrive one after the other while a write is under way, and
// gives their verdicts in that order.
func (b *bench) queue(item plan.Key, calls ...[]Ask) [][]plan.Verdict {
	b.Helper()
	var wg sync.WaitGroup
	verdicts := make([][]plan.Verdict, len(calls))
	for i, asks := range calls {
		verdicts[i] = make([]plan.Verdict, len(asks))
		wg.Go(func() {
			if _, err := b.Take(b.Context(), b.clock()+time.Hour, item, asks, false, verdicts[i]); err != nil {
				b.Errorf("call %d: %v", i, err)
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	return verdicts
}

// Calls that arrive while a write is under way share the next one. They are
// judged in the order in which they came, a later smaller one passes where an
// earlier one does not fit, and each hears what was left after it.
func TestBatchIsJudgedInOrderOfArrival(t *testing.T) {
	for _, text := range []string{"1/h burst 10", "quota 10/h", "quota 10/hour calendar", "sliding 10/h"} {
		inBubble(t, Options{}, func(b *bench) {
			b.store.took = 20 * time.Millisecond
			s := spec(b.T, "q", text)
			var calls [][]Ask
			for _, n := range []int64{1, 3, 4, 5, 1, 2, 1} {
				calls = append(calls, []Ask{{Spec: s, Cost: n}})
			}
			var got []string
			b.trip(2, text, func() {
				for _, v := range b.queue(key("a"), calls...) {
					got = append(got, fmt.Sprint(v[0].OK, v[0].Used))
				}
			})
			want := []string{"true 1", "true 4", "true 8", "false 10", "true 9", "false 10", "true 10"}
			if !slices.Equal(got, want) {
				b.Errorf("%s:\ngot  %v\nwant %v", text, got, want)
			}
			if st := b.Stats(); st.Trips != 2 || st.Coalesced != 5 {
				b.Errorf("%+v", st)
			}
		})
	}
}

// B134: a caller who leaves before the write goes out takes nothing; who leaves while
// it is under way is given back what it took, before anything that comes later.
func TestCase_B134_CallerWhoLeaves(t *testing.T) {
	for _, o := range []Options{{}, {NoCoalescing: true}} {
		for _, text := range everyLimit {
			inBubble(t, o, func(b *bench) {
				b.store.took = 20 * time.Millisecond
				s := spec(b.T, "q", text)
				ctx, leave := context.WithCancel(b.Context())
				gone := make(chan error)
				go func() {
					_, err := b.askAs(ctx, key("a"), s, 2, true)
					gone <- err
				}()
				<-time.After(15 * time.Millisecond) // applied, and the reply on its way
				later := make(chan bool)
				go func() { later <- b.must(key("a"), s, 2) }()
				leave()
				if err := <-gone; !errors.Is(err, context.Canceled) {
					b.Errorf("%s: %v", text, err)
				}
				if ok := <-later; ok != !o.NoCoalescing {
					b.Errorf("%s: the next call was allowed: %v", text, ok)
				}
				<-time.After(50 * time.Millisecond)
				want := int64(2)
				if o.NoCoalescing {
					want = 0 // the later one was refused before the first was given back
				}
				if n := b.used(key("a"), s); n != want {
					b.Errorf("%s: %d are used, want %d", text, n, want)
				}
			})
		}
	}
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = 20 * time.Millisecond
		s := spec(b.T, "q", "quota 10/h")
		first := make(chan bool)
		go func() { first <- b.must(key("a"), s, 1) }()
		synctest.Wait()
		ctx, leave := context.WithCancel(b.Context())
		gone := make(chan error)
		go func() {
			_, err := b.askAs(ctx, key("a"), s, 5, false)
			gone <- err
		}()
		synctest.Wait()
		leave()
		<-gone
		b.trip(0, "nothing but the first", func() { <-first; <-time.After(time.Second) })
		if n := b.used(key("a"), s); n != 1 {
			b.Errorf("%d are used", n)
		}
	})
}

// A caller whose time is over hears why; what its call takes later is given
// back, unless the call goes on without an answer.
func TestCallerWhoseTimeIsOver(t *testing.T) {
	for _, keep := range []bool{false, true} {
		inBubble(t, Options{}, func(b *bench) {
			b.store.took = 80 * time.Millisecond
			s := spec(b.T, "q", "quota 10/h")
			first := make(chan bool)
			go func() { first <- b.must(key("a"), s, 1) }()
			synctest.Wait()
			began := time.Now()
			_, err := b.askAs(b.Context(), key("a"), s, 5, keep) // its write goes out after 80 ms
			if took := time.Since(began); !errors.Is(err, errUnknown) || took != 100*time.Millisecond {
				b.Errorf("%v after %v", err, took)
			}
			<-first
			<-time.After(time.Second)
			want := int64(1)
			if keep {
				want = 6
			}
			if n := b.used(key("a"), s); n != want {
				b.Errorf("keep %v: %d are used, want %d", keep, n, want)
			}
		})
	}
}

// The first decision of a process has a second; the values of the call that
// begins a trip travel with it, and its end does not.
func TestTripOfItsOwn(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.asked.Store(false)
		b.store.took = 900 * time.Millisecond
		s := spec(b.T, "q", "quota 10/h")
		if !b.must(key("a"), s, 1) {
			b.Error("refused")
		}
		if _, err := b.ask(key("a"), s, 1); !errors.Is(err, errUnknown) {
			b.Errorf("the second call: %v", err)
		}
		<-time.After(time.Second)
	})
	type name struct{}
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "q", "quota 10/h")
		var seen any
		b.on(func(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (int, int64, error) {
			seen = ctx.Value(name{})
			return b.store.Apply(ctx, item, tries, state)
		})
		if _, err := b.askAs(context.WithValue(b.Context(), name{}, "first"), key("a"), s, 1, false); err != nil || seen != "first" {
			b.Errorf("%v, %v", seen, err)
		}
	})
}

// on puts something in front of the store.
func (b *bench) on(apply applier) {
	b.o.Store = apply
	if b.gatherer != nil {
		b.gatherer = gatherer{apply}
	}
}

type applier func(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (int, int64, error)

func (f applier) Apply(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (int, int64, error) {
	return f(ctx, item, tries, state)
}

// While writes find nothing left for anybody, the lane waits between them: a
// process spends at most some thirty writes a second on a limit that others use
// up. As soon as one takes something, it waits no more.
func TestLaneOfAnEmptyItemWaits(t *testing.T) {
	inBubble(t, Options{NoMemo: true}, func(b *bench) {
		s := spec(b.T, "q", "quota 1/h")
		b.must(key("a"), s, 1)
		var gaps []time.Duration
		for range 7 {
			began := time.Now()
			b.must(key("a"), s, 1)
			gaps = append(gaps, time.Since(began))
		}
		ms := time.Millisecond
		if want := []time.Duration{0, 0, 8 * ms, 16 * ms, 32 * ms, 32 * ms, 32 * ms}; !slices.Equal(gaps, want) {
			b.Errorf("waited %v, want %v", gaps, want)
		}
		<-time.After(time.Hour)
		for range 3 {
			began := time.Now()
			b.must(key("a"), s, 1)
			if took := time.Since(began); took != 0 {
				b.Errorf("waited %v", took)
			}
			synctest.Wait()
			delete(b.store.by, key("a"))
		}
		// It goes by the store's time: when that has passed, there is no wait.
		for range 5 {
			b.must(key("a"), s, 1)
		}
		synctest.Wait() // the lane has read the clock for the last time
		b.step.Store(int64(time.Minute))
		began := time.Now()
		if b.must(key("a"), s, 1); time.Since(began) != 0 {
			b.Errorf("waited %v after a minute of the store's", time.Since(began))
		}
		synctest.Wait()
		b.step.Store(-int64(time.Hour)) // and a clock that is set back holds nobody up for longer
		began = time.Now()
		if b.must(key("a"), s, 1); time.Since(began) > 32*ms {
			b.Errorf("waited %v after a step back", time.Since(began))
		}
	})
}

// The store's now is estimated: without a clock of its own it has read this
// machine's when it was asked, with one it has read it on the way.
func TestEstimateOfTheStoresClock(t *testing.T) {
	for _, own := range []bool{false, true} {
		inBubble(t, Options{OwnClock: own}, func(b *bench) {
			b.store.took = 40 * time.Millisecond
			machine := b.store.now
			asked := int64(0)
			b.on(func(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (int, int64, error) {
				asked = machine()
				applied, now, err := b.store.Apply(ctx, item, tries, state)
				if !own {
					return applied, asked, err
				}
				now += 3 * second // read half way, by a clock that is ahead
				return applied, now, err
			})
			b.must(key("a"), spec(b.T, "q", "quota 9/h"), 1)
			want := int64(0)
			if own {
				want = 3 * second
			}
			if got := b.now() - machine(); got != want {
				b.Errorf("own %v: the estimate is off by %v", own, time.Duration(got-want))
			}
		})
	}
}

// A refusal that carries a balance over to a changed limit has done so when it
// answers: what the next call finds does not depend on who is faster.
func TestTidyBeforeTheAnswer(t *testing.T) {
	for _, o := range []Options{{NoMemo: true}, {NoCoalescing: true}} {
		inBubble(t, o, func(b *bench) {
			b.store.took = time.Millisecond
			was, is := spec(b.T, "l", "2/s burst 4"), spec(b.T, "l", "1/m burst 4")
			b.must(key("a"), was, 3)
			if b.must(key("a"), is, 2) {
				b.Fatal("3 and 2 of 4 are allowed")
			}
			b.store.mu.Lock()
			defer b.store.mu.Unlock()
			fits := false
			for slot := range b.store.by[key("a")].All() {
				fits = fits || slot.Field.Kind == plan.Interval && slot.Value == 60*second
			}
			if !fits {
				b.Errorf("%+v: the item is still that of the former limit", o)
			}
		})
	}
}

// A mark that a call has reached whose time was over is told to the next call,
// whether what was taken is given back or stays.
func TestMarkOfACallWithoutACaller(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, text := range []string{"quota 10/h", "quota 10/hour calendar"} {
			inBubble(t, Options{}, func(b *bench) {
				s, err := spec(b.T, "q", text).Noticed(80)
				if err != nil {
					b.Fatal(err)
				}
				b.store.took = 80 * time.Millisecond
				first := make(chan bool)
				go func() { first <- b.must(key("a"), s, 7) }()
				synctest.Wait()
				if _, err := b.askAs(b.Context(), key("a"), s, 1, keep); !errors.Is(err, errUnknown) { // its write goes out after 80 ms
					b.Errorf("%v", err)
				}
				<-first
				<-time.After(time.Second)
				b.store.took = 0
				want := int64(7)
				if keep {
					want = 8
				}
				if n := b.used(key("a"), s); n != want {
					b.Errorf("keep %v: %s: %d are used, want %d", keep, text, n, want)
				}
				v, err := b.ask(key("a"), s, 1)
				if err != nil || v.Notice != 80 {
					b.Errorf("keep %v: %s: the next call is told of %d, %v", keep, text, v.Notice, err)
				}
				if v, err = b.ask(key("a"), s, 1); err != nil || v.Notice != 0 {
					b.Errorf("keep %v: %s: and the one after it of %d, %v", keep, text, v.Notice, err)
				}
			})
		}
	}
}

package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// An item that others change on every trip is busy after eight, which is no
// refusal.
func TestBusy(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "b", "1/h burst 3")
		f, _ := plan.ParseField("b.i")
		b.store.lost = func(trip int, _ []plan.Write) error { // the limit is changed each time
			var c plan.Cells
			w := plan.Write{Do: []plan.Act{{Field: f, Do: plan.Put, Value: second*3600 + int64(trip)}}}
			arrival, _ := plan.ParseField("b.t")
			depth, _ := plan.ParseField("b.d")
			w.Do = append(w.Do, plan.Act{Field: arrival, Do: plan.Put, Value: second, Rel: true}, plan.Act{Field: depth, Do: plan.Put, Value: second * 3600 * 4})
			b.store.apply(key("a"), []plan.Write{w}, &c)
			return nil
		}
		b.trip(maxTrips, "others are faster", func() {
			if _, err := b.ask(key("a"), s, 1); !errors.Is(err, errBusy) {
				b.Errorf("%v", err)
			}
		})
	})
}

// The table of lanes is bounded; a lane in use is never dropped, and after a
// crowd the table shrinks to its bound again. At rest nothing runs.
func TestLanesAreBounded(t *testing.T) {
	inBubble(t, Options{Items: 10}, func(b *bench) {
		s := spec(b.T, "q", "quota 1/h")
		for n := range 1000 {
			b.must(key(fmt.Sprint(n)), s, 1)
			if len(b.lanes.by) > 10 {
				b.Fatalf("%d lanes", len(b.lanes.by))
			}
		}
		b.trip(0, "the last ones are remembered", func() {
			if b.must(key("999"), s, 1) {
				b.Error("allowed")
			}
		})
		b.store.took = 50 * time.Millisecond
		all(200, func(i int) {
			if i%2 == 0 {
				<-time.After(10 * time.Millisecond)
			}
			b.must(key(fmt.Sprint("crowd", i/2)), s, 1) // two of each: one lane, two writes
		})
		<-time.After(2 * time.Second)
		if n := b.store.trips(); n != 1200 {
			b.Errorf("%d trips", n)
		}
		for n := range 200 {
			b.must(key(fmt.Sprint("after", n)), s, 1)
		}
		if len(b.lanes.by) > 10 {
			b.Errorf("%d lanes after the crowd", len(b.lanes.by))
		}
	})
	// Outside a bubble: the goroutines of 100 lanes end.
	st := &items{now: func() int64 { return time.Now().UnixNano() }, by: map[plan.Key]*plan.Cells{}, ring: map[plan.Key][]uint64{}}
	p := New(Options{Store: st, Clock: st.now, Keep: func(plan.Key) time.Duration { return time.Hour }, Deadline: time.Minute, Errors: Errors{errUnknown, errUnreachable, errThrottled, errBusy, errOpen}})
	before := runtime.NumGoroutine()
	s := spec(t, "q", "quota 1/h")
	all(100, func(i int) {
		if _, err := p.Take(t.Context(), p.Until(1), key(fmt.Sprint(i)), []Ask{{Spec: s, Cost: 1}}, false, make([]plan.Verdict, 1)); err != nil {
			t.Error(err)
		}
	})
	for n := 0; runtime.NumGoroutine() > before; n++ {
		if n > 20_000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		<-time.After(time.Millisecond)
	}
}

// At the limit others take of what is left on every trip. Whoever asks for all
// of it would lose each time; a batch then asks for one call at a time, and comes
// to an end without telling anybody that the item is busy.
func TestContentionAtTheLimit(t *testing.T) {
	for _, text := range []string{"1/d burst 40", "quota 40/d", "quota 40/day calendar", "sliding 40/d"} {
		inBubble(t, Options{NoMemo: true}, func(b *bench) {
			b.store.took = 4 * time.Millisecond
			s := spec(b.T, "q", text)
			b.must(key("a"), s, 1)
			others := int64(0)
			b.store.lost = func(int, []plan.Write) error {
				var c plan.Cells
				b.store.apply(key("a"), nil, &c)
				var w plan.Write
				if s.Plan(&c, b.store.now(), 2, &w).OK && b.store.apply(key("a"), []plan.Write{w}, &c) == 0 {
					others += 2
				}
				return nil
			}
			allowed := int64(0)
			var calls [][]Ask
			for range 30 {
				calls = append(calls, []Ask{{Spec: s, Cost: 2}})
			}
			for _, v := range b.queue(key("a"), calls...) {
				if v[0].OK {
					allowed += 2
				}
			}
			if allowed < 4 || others < 4 || b.used(key("a"), s) != 1+allowed+others {
				b.Errorf("%s: %d taken, and %d by others; %d are used", text, allowed, others, b.used(key("a"), s))
			}
		})
	}
}

// Near full, a bucket is full at one look and not at the next. A write that
// meets the other side three times holds on to the time of its plan.
func TestHoveringBucket(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = 4 * time.Millisecond
		s := spec(b.T, "b", "1000/s burst 1000")
		arrival, _ := plan.ParseField("b.t")
		b.must(key("a"), s, 1)
		<-time.After(time.Second)
		b.store.lost = func(_ int, tries []plan.Write) error {
			for _, g := range tries[0].If {
				if g.Field == arrival && g.Cmp == plan.AtMost && g.Value == 0 && g.Rel { // it was planned as full
					var c plan.Cells
					b.store.apply(key("a"), []plan.Write{{Do: []plan.Act{{Field: arrival, Do: plan.Put, Value: int64(time.Millisecond), Rel: true}}}}, &c)
				}
			}
			return nil
		}
		before := b.store.trips()
		v, err := b.ask(key("a"), s, 1)
		if err != nil || !v.OK {
			b.Errorf("%+v, %v", v, err)
		}
		if n := b.store.trips() - before; n > patience+2 || n < 3 {
			b.Errorf("%d trips", n)
		}
	})
}

// An item that the store finds too busy, that then takes a write, and is too busy again
// within one call.
func TestTooBusyAgain(t *testing.T) {
	inBubble(t, Options{Deadline: 16 * time.Millisecond}, func(b *bench) {
		s := spec(b.T, "q", "quota 100/d")
		b.must(key("a"), s, 1)
		n := 0
		b.store.lost = func(int, []plan.Write) error {
			switch n++; n {
			case 1, 3:
				return errThrottled
			case 2: // somebody resets it, so that the write does not hold
				b.store.mu.Lock()
				delete(b.store.by, key("a"))
				b.store.mu.Unlock()
			}
			return nil
		}
		for range 20 {
			if _, err := b.ask(key("a"), s, 1); err != nil && !errors.Is(err, errThrottled) {
				b.Error(err)
			}
		}
		if n < 3 {
			b.Errorf("%d trips", n)
		}
	})
}

// A call that is at the end of its tries leaves those behind it theirs, and their
// shadows the trips that these may cost.
func TestTriesOfTheirOwn(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = time.Millisecond
		one, two, sh := spec(b.T, "one", "1/h burst 3"), spec(b.T, "two", "1/h burst 3"), spec(b.T, "sh", "quota 9/d").Shadow()
		b.store.lost = func(trip int, _ []plan.Write) error {
			b.turned("one", trip)
			if trip == maxTrips+2 { // that of the second call alone
				b.turned("two", trip)
			}
			return nil
		}
		asks := []Ask{{Spec: two, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}}
		b.trip(maxTrips+3, "both", func() {
			if errs := b.crowdBehind([]Ask{{Spec: one, Cost: 1}}, asks); !errors.Is(errs[0], errBusy) || errs[1] != nil || asks[1].Err != nil {
				b.Errorf("%v, of the shadow %v", errs, asks[1].Err)
			}
		})
	})
}

package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// callers is how many goroutines write to one item at once.
const callers = 64

func (s suite) concurrent(t *testing.T) {
	t.Run("no more than the guard allows, and no less", s.noMore)
	t.Run("no update is lost", s.noneLost)
	t.Run("nobody sees half a write", s.noHalf)
	t.Run("the first write of an item happens once", s.firstOnce)
	t.Run("one write after the other", func(t *testing.T) { s.inTurn(t) })
}

// at runs a func in each of the callers' goroutines, and fails with the first
// error.
func at(tb testing.TB, do func(n int) error) {
	tb.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for n := range callers {
		wg.Go(func() {
			if err := do(n); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		tb.Fatal(err)
	default:
	}
}

func (s suite) noMore(t *testing.T) {
	const max = 100
	b, f := s.start(t), someFields(t)
	key := b.key()
	var allowed atomic.Int64
	at(t, func(int) error {
		for range 4 {
			var c weir.Cells
			w := write([]weir.Cond{{Field: f.count, Cmp: plan.AtMost, Value: max - 1, OrAbsent: true}}, add(f.count, 1))
			applied, _, err := b.store.Apply(context.Background(), key, []weir.Write{w}, &c)
			if err != nil {
				return err
			}
			if applied == 0 {
				allowed.Add(1)
			}
			if v, ok := c.Get(f.count); !ok || v > max {
				t.Errorf("the count is %d (there: %v), and never more than %d is allowed", v, ok, max)
			}
		}
		return nil
	})
	if allowed.Load() != max {
		t.Errorf("%d of %d calls were applied, and exactly %d fit", allowed.Load(), callers*4, max)
	}
	b.reads(key, map[weir.Field]int64{f.count: max})
}

func (s suite) noneLost(t *testing.T) {
	const each = 3
	b, f := s.start(t), someFields(t)
	key := b.key()
	list := f.all()
	want := map[weir.Field]int64{}
	for n := range callers {
		want[list[n%len(list)]] += each
	}
	at(t, func(n int) error {
		for range each {
			var c weir.Cells
			applied, _, err := b.store.Apply(context.Background(), key, []weir.Write{write(nil, add(list[n%len(list)], 1))}, &c)
			if err != nil {
				return err
			}
			if applied != 0 {
				t.Errorf("a write without guards was not applied: %d", applied)
			}
		}
		return nil
	})
	b.reads(key, want)
}

func (s suite) noHalf(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.must(key, write(nil, put(f.t, 0), put(f.cell, 0)))
	at(t, func(n int) error {
		for i := range 3 {
			var tries []weir.Write
			if (n+i)%3 > 0 { // the others read
				tries = []weir.Write{write(nil, add(f.t, 1), add(f.cell, -1))}
			}
			var c weir.Cells
			if _, _, err := b.store.Apply(context.Background(), key, tries, &c); err != nil {
				return err
			}
			up, _ := c.Get(f.t)
			if down, _ := c.Get(f.cell); up+down != 0 {
				t.Errorf("one field is %d and the other %d: a write was seen half done", up, down)
			}
		}
		return nil
	})
}

func (s suite) firstOnce(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	var first atomic.Int64
	at(t, func(n int) error {
		var c weir.Cells
		w := write([]weir.Cond{{Field: f.start, Cmp: plan.Equal, Value: -1, OrAbsent: true}}, put(f.start, int64(n)))
		applied, _, err := b.store.Apply(context.Background(), key, []weir.Write{w}, &c)
		if applied == 0 {
			first.Add(1)
		}
		return err
	})
	if first.Load() != 1 {
		t.Errorf("%d callers believe that they were the first", first.Load())
	}
}

// Of inTurn: what a step that is not atomic does wrong shows only where another
// write comes in between. On one processor that takes a caller that is stopped
// within its step, which the scheduler does every 10 ms: so the callers go on
// for long, until they have made all calls, or have spent the time, in which a slow
// store, whose steps take longer, makes fewer. A store that is right passes with any
// number. One without any lock passed 37 of 100 rounds on one processor and 1 on two,
// one that unlocks between guards and actions 10 and none.
const (
	turnRounds = 20
	turnCalls  = 1 << 20 // of all callers in a round
	turnTime   = 125 * time.Millisecond
	turnItems  = 2
)

// inTurn has callers replace what they have seen last, if it is still there: each
// value can be replaced once, so that a counter and the writes applied are the same.
// Where the items live in this process, every other caller does it under their lock.
func (s suite) inTurn(tb testing.TB) {
	b, f := s.start(tb), someFields(tb)
	direct, _ := b.store.(weir.InProcess)
	var keys [turnItems]weir.Key
	for i := range keys {
		keys[i] = b.key()
		_, now, _ := b.apply(keys[i])
		b.must(keys[i], write(nil, put(f.count, 0), put(f.cell, 0), put(f.t, now+int64(keep)))) // t: it is in use for so long
	}
	var applied [turnItems]atomic.Int64
	for range turnRounds {
		var calls atomic.Int64
		ends := time.Now().Add(turnTime)
		var ready sync.WaitGroup
		ready.Add(callers)
		at(tb, func(n int) error {
			ready.Done()
			ready.Wait()
			mine := n * turnItems / callers // neighbours share an item: they are scheduled one after the other
			key, done := keys[mine], &applied[mine]
			var c weir.Cells
			seen := int64(0)
			w := write(guard(f.count, plan.Equal, seen), put(f.count, seen+1), add(f.cell, 1))
			tries := []weir.Write{w}
			for made := 0; made == 0 || calls.Add(1) < turnCalls && (made%16 > 0 || time.Now().Before(ends)); made++ {
				if direct != nil && n%2 == 1 {
					if state, _ := direct.Lock(key); state != nil {
						v, _ := state.Get(f.count)
						state.Set(f.count, v+1)
						sum, _ := state.Get(f.cell)
						state.Set(f.cell, sum+1)
						direct.Unlock(key)
						done.Add(1)
						continue
					}
				}
				w.If[0].Value, w.Do[0].Value = seen, seen+1
				index, _, err := b.store.Apply(context.Background(), key, tries, &c)
				if err != nil {
					return err
				}
				if index == 0 {
					done.Add(1)
				}
				seen, _ = c.Get(f.count)
			}
			return nil
		})
		for i, key := range keys {
			_, _, state := b.apply(key)
			if want := applied[i].Load(); state[f.count] != want || state[f.cell] != want {
				tb.Fatalf("%d writes were applied, each of which adds one to what it finds: the counters are %d and %d. Two callers have written over the same state: Apply is not one atomic step",
					want, state[f.count], state[f.cell])
			}
		}
	}
}

// nonces tests the ring of a store whose replies can be lost.
func (s suite) nonces(t *testing.T) {
	b, f := s.start(t), someFields(t)
	for others := range 4 { // writes of others between the two sendings
		key := b.key()
		mine := write(guard(f.count, plan.AtMost, 1), add(f.count, 1))
		mine.Nonce = 1<<63 + uint64(others)
		b.must(key, write(nil, put(f.count, 1)))
		b.must(key, mine)
		for n := range others {
			other := write(nil, add(f.cell, 1))
			other.Nonce = uint64(1000 + n)
			b.must(key, other)
		}
		want := map[weir.Field]int64{f.count: 2}
		if others > 0 {
			want[f.cell] = int64(others)
		}
		b.same(b.must(key, mine), want) // applied, and not again, though its guard fails by now
		b.reads(key, want)

		fresh := mine
		fresh.Nonce++
		if applied, _, _ := b.apply(key, fresh); applied != -1 {
			t.Errorf("another write with the same guards is another write: applied %d, want -1", applied)
		}
	}
	// Its guards may hold as well: the nonce alone keeps it from happening twice.
	key := b.key()
	twice := write(nil, add(f.count, 1))
	twice.Nonce = 42
	b.must(key, twice)
	b.same(b.must(key, twice), map[weir.Field]int64{f.count: 1})
}

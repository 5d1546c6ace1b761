package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

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

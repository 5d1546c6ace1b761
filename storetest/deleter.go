package storetest

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/weirlabs/weir"
)

// deleted checks that [weir.Deleter] leaves alone what can be read. What can't be,
// the suite has no way to put there.
func (s suite) deleted(t *testing.T) {
	t.Run("an item that can be read stays", s.readable)
	t.Run("nothing is lost that others count meanwhile", s.countedMeanwhile)
	t.Run("there need be no item", s.noItem)
}

// delete must be no error.
func (b *bench) delete(key weir.Key) {
	b.Helper()
	if err := b.store.(weir.Deleter).Delete(context.Background(), key); err != nil {
		b.Fatalf("Delete: %v", err)
	}
}

func (s suite) readable(t *testing.T) {
	b, f := s.start(t), someFields(t)
	many := write(nil)
	for n := range 24 {
		name := fmt.Sprintf("st-many-%d", n)
		limit(t, name, "10/s burst 20")
		for _, kind := range []string{".t", ".i", ".d", ".r", "~.t", "~.i", "~.d", "~.r"} {
			many.Do = append(many.Do, put(field(t, name+kind), farAhead))
		}
	}
	all := write(nil)
	for n, at := range f.all() {
		all.Do = append(all.Do, put(at, []int64{farAhead, math.MinInt64, math.MaxInt64, 0, -1}[n%5]))
	}
	for _, w := range []weir.Write{write(nil, put(f.t, farAhead)), write(nil, put(f.count, -1)), all, many} {
		key, beside := b.key(), b.key()
		b.must(beside, write(nil, put(f.t, farAhead)))
		if s.caps.LossyReplies {
			w.Nonce = 7
		}
		want := b.must(key, w)
		b.delete(key)
		b.reads(key, want)
		b.reads(beside, map[weir.Field]int64{f.t: farAhead})
		if !s.caps.LossyReplies {
			continue
		}
		again := write(nil, add(w.Do[0].Field, 1))
		again.Nonce = w.Nonce
		b.same(b.must(key, again), want) // a write that is sent again is still known
	}
}

func (s suite) countedMeanwhile(t *testing.T) {
	const each = 5
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.must(key, write(nil, put(f.t, farAhead)))
	at(t, func(n int) error {
		for i := range each {
			if n%2 == 0 {
				if err := b.store.(weir.Deleter).Delete(context.Background(), key); err != nil {
					return err
				}
				continue
			}
			w := write(nil, add(f.count, 1))
			if s.caps.LossyReplies {
				w.Nonce = uint64(1 + n*each + i)
			}
			if applied, _, err := b.store.Apply(context.Background(), key, []weir.Write{w}, new(weir.Cells)); err != nil || applied != 0 {
				return fmt.Errorf("applied %d, %w", applied, err)
			}
		}
		return nil
	})
	b.reads(key, map[weir.Field]int64{f.t: farAhead, f.count: callers / 2 * each})
}

func (s suite) noItem(t *testing.T) {
	b, f := s.start(t), someFields(t)
	never, gone := b.key(), b.key()
	b.must(gone, write(nil, put(f.t, farAhead)))
	b.must(gone, write(nil, drop(f.t)))
	for _, key := range []weir.Key{never, gone, never, gone} {
		b.delete(key)
		b.reads(key, nil)
	}
	if l, ok := b.store.(weir.Lister); ok {
		if got := (listBench{bench: b, Lister: l}).all(never.String(), 10); len(got) > 0 {
			t.Errorf("Delete, of an item that is not there, made %v", got)
		}
	}
}

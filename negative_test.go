package weir_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// A count below zero, which only another program can have written, credits nobody on
// any store: it stands for none, and what is taken or charged next replaces it.
func TestNegativeCounts(t *testing.T) {
	const most = 5
	ctx := context.Background()
	limits := []weir.Limit{limit(t, "quota 5/d", "a"), limit(t, "quota 5/day calendar", "b"), limit(t, "sliding 5/d", "c")}
	for _, open := range []func(*testing.T, *clock) kept{inMemory, inFile, inRedis, inDynamo} {
		c := newClock()
		k := open(t, c)
		o := weir.Options{Deadline: patient, Now: c.now, NoMemo: true}
		for i, l := range limits {
			for j, count := range []int64{-1, -2, -3e9, -1<<53 - 1, math.MinInt64} {
				for before := range 3 { // calls by which this process knows the item
					key := weir.NewKey("account", fmt.Sprint(i, "-", j, "-", before))
					op := weir.Op{Limit: l, Key: key}
					what := fmt.Sprintf("%s: %v at %d after %d", k.name, l, count, before)
					lim, other := weir.NewLimiter(k.store, o), weir.NewLimiter(k.store, o)
					spoil := func() {
						t.Helper()
						var state weir.Cells
						if _, _, err := k.store.Apply(ctx, key, nil, &state); err != nil {
							t.Fatal(err)
						}
						w := weir.Write{Keep: time.Hour}
						for slot := range state.All() {
							if strings.Contains(slot.Field.Text(), ".c") {
								w.Do = append(w.Do, weir.Act{Field: slot.Field, Do: weir.Put, Value: count})
							}
						}
						if applied, _, err := k.store.Apply(ctx, key, []weir.Write{w}, &state); err != nil || applied != 0 || len(w.Do) != 1 {
							t.Fatal(what, applied, err, w)
						}
					}
					take := func(lim *weir.Limiter, allowed bool, used int64) {
						t.Helper()
						if d, err := lim.Take(ctx, op); err != nil || d.Allowed != allowed || d.Used != used {
							t.Errorf("%s: %+v, %v; want %v and %d used", what, d, err, allowed, used)
						}
					}
					for n := range before {
						take(lim, true, int64(n+1))
					}
					if before == 0 {
						take(other, true, 1)
					}
					spoil()
					for n := range int64(most) {
						take(lim, true, n+1)
					}
					take(other, false, most)

					if err := lim.Reset(ctx, key); err != nil {
						t.Fatal(err)
					}
					res, d, err := other.Reserve(ctx, op)
					if err != nil || !d.Allowed {
						t.Fatal(what, d, err)
					}
					spoil()
					if err := res.Settle(ctx, 4); err != nil {
						t.Fatal(err)
					}
					if each, err := lim.Peek(ctx, op); err != nil || each[0].Used != 3 {
						t.Errorf("%s: after 3 more than was reserved: %+v, %v", what, each, err)
					}
				}
			}
		}
	}
}

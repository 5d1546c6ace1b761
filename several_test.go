package weir_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// Several limits of one key, allowed or refused, allocate nothing either, and
// what one call leaves behind is nothing to the next.
func TestSeveralLimitsAllocateNothing(t *testing.T) {
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	ctx := context.Background()
	for _, n := range []int{2, 4, 8} {
		for _, text := range []string{"1000000/s burst 100000000000", "1/h burst 1"} {
			var ops []weir.Op
			for i := range n {
				ops = append(ops, weir.Op{Limit: limit(t, text, fmt.Sprint("several", i)), Key: weir.NewKey("account", fmt.Sprint(n, text)), Cost: 1})
			}
			want, err := lim.Take(ctx, ops...)
			if err != nil || !want.Allowed {
				t.Fatal(want, err)
			}
			if want, err = lim.Take(ctx, ops...); err != nil || want.Cost != 1 {
				t.Fatal(want, err)
			}
			allocs := testing.AllocsPerRun(1000, func() {
				if d, err := lim.Take(ctx, ops...); err != nil || d.Allowed != want.Allowed {
					t.Fatal(d, err)
				}
			})
			if allocs > pooled {
				t.Errorf("%d limits of %s: %v allocations", n, text, allocs)
			}
			wrong := ops[n-1]
			wrong.Cost = -1
			if _, err := lim.Take(ctx, ops[0], wrong); err == nil {
				t.Error("a negative cost is taken")
			}
			if d, err := lim.Take(ctx, ops...); err != nil || d.Allowed != want.Allowed {
				t.Error(d, err)
			}
		}
	}
}

package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weirlabs/weir"
)

// Bench measures a store as a Limiter uses it: one key again and again, and
// many keys, by one caller and by several at once. Half a million units a second
// are allowed, so no call is refused.
func Bench(b *testing.B, open Open) {
	store := open(b, nil)
	defer store.Close()
	rate, err := weir.ParseLimit("500000/s burst 1000000000")
	if err != nil {
		b.Fatal(err)
	}
	limiter := weir.NewLimiter(store, weir.Options{Limits: []weir.Limit{rate}})
	var runs atomic.Int64
	for _, keys := range []int{1, 1000} {
		for _, parallel := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/parallel=%v", keys, parallel), func(b *testing.B) {
				run := fmt.Sprint(b.Name(), runs.Add(1))
				ops := make([]weir.Op, keys)
				for i := range ops {
					ops[i] = weir.Op{Limit: rate, Key: weir.NewKey("bench", run, "n", fmt.Sprint(i))}
				}
				ctx := context.Background()
				take := func(n int) {
					if d, err := limiter.Take(ctx, ops[n%keys]); err != nil || !d.Allowed {
						b.Errorf("%+v, %v", d, err)
					}
				}
				b.ReportAllocs()
				if !parallel {
					n := 0
					for b.Loop() {
						take(n)
						n++
					}
					return
				}
				var starts atomic.Int64
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					for n := int(starts.Add(7919)); pb.Next(); n++ {
						take(n)
					}
				})
			})
		}
	}
}

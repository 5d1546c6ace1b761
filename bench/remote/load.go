package remote

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir/bench/measure"
)

// Result is one round.
type Result struct {
	PerSecond     float64
	P50, P99      float64 // us
	CPU           float64 // us of this process, for one call
	Calls         int64
	Wrong, Errors int64
	Err           error // the first
}

// Run has callers ask in a closed loop for a time, after a fifth of it to warm
// up, for keys of which some are hot (Zipf, s = 1.1).
func Run(ctx context.Context, i *Instance, keys, callers int, d time.Duration, want bool) Result {
	var measuring, over atomic.Bool
	var mu sync.Mutex
	var r Result
	var took []time.Duration
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(c), 1)), 1.1, 1, uint64(keys-1))
			var mine Result
			var all []time.Duration
			for !over.Load() {
				key, on := int(zipf.Uint64()), measuring.Load()
				began := time.Now()
				allowed, err := i.Take(ctx, key)
				if !on {
					continue
				}
				all = append(all, time.Since(began))
				switch {
				case err != nil:
					if mine.Errors++; mine.Err == nil {
						mine.Err = err
					}
				case allowed != want:
					mine.Wrong++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, all...)
			r.Errors += mine.Errors
			r.Wrong += mine.Wrong
			if r.Err == nil {
				r.Err = mine.Err
			}
		})
	}
	<-time.After(d / 5)
	cpu, began := measure.CPU(), time.Now()
	measuring.Store(true)
	<-time.After(d)
	over.Store(true)
	wall, used := time.Since(began), measure.CPU()-cpu
	wg.Wait()
	if r.Calls = int64(len(took)); r.Calls == 0 {
		return r
	}
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	r.PerSecond = float64(r.Calls) / wall.Seconds()
	r.P50, r.P99 = us(took[len(took)/2]), us(took[len(took)*99/100])
	r.CPU = us(used) / float64(r.Calls)
	return r
}

// everyKey makes one call for each key, some at a time.
func everyKey(ctx context.Context, keys int, take func(context.Context, int) (bool, error)) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for key := int(next.Add(1)) - 1; key < keys && failed.Load() == nil; key = int(next.Add(1)) - 1 {
				if _, err := take(ctx, key); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

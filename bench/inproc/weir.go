package inproc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// Ours is weir on its memory store, through the public Take.
func Ours() []Peer {
	return []Peer{
		{Name: Weir, New: func(l Limit, keys []string) (Instance, error) { return ours(l, keys, weir.Options{}) }},
		{Name: "weir with an Observer", New: func(l Limit, keys []string) (Instance, error) {
			var refused atomic.Int64
			return ours(l, keys, weir.Options{Observer: &weir.Observer{
				Decided: func(_ context.Context, _ weir.Op, d weir.Decision) {
					if !d.Allowed {
						refused.Add(1)
					}
				},
			}})
		}},
	}
}

// WeirLimit is a Limit in weir's grammar.
func WeirLimit(l Limit) (weir.Limit, error) {
	unit := map[time.Duration]string{time.Second: "s", time.Hour: "h"}[l.Period]
	return weir.ParseLimit(fmt.Sprintf("%d/%s burst %d", l.Rate, unit, l.Burst))
}

// WeirKeys are keys of weir's with texts of the same length.
func WeirKeys(keys []string) []weir.Key {
	made := make([]weir.Key, len(keys))
	for i, k := range keys {
		kind, id, _ := strings.Cut(k, "-")
		made[i] = weir.NewKey(kind, id)
	}
	return made
}

func ours(l Limit, keys []string, o weir.Options) (Instance, error) {
	limit, err := WeirLimit(l)
	if err != nil {
		return Instance{}, err
	}
	store := memstore.New(memstore.Options{MaxKeys: max(1<<20, len(keys)*5/4), MaxBytes: 1 << 40})
	limiter := weir.NewLimiter(store, o)
	made := WeirKeys(keys)
	ctx := context.Background()
	i := Instance{Take: func(key int) bool {
		d, err := limiter.Take(ctx, weir.Op{Limit: limit, Key: made[key]})
		return d.Allowed && err == nil
	}}
	if l.Burst > 1 {
		// A bucket that is full again is dropped. One call's worth of Never is
		// full within a microsecond: so that every key is present as it is with
		// the others, the first call takes a thousand seconds' worth.
		first := int64(l.Rate) * 1000
		i.Fill = func(key int) { _, _ = limiter.Take(ctx, weir.Op{Limit: limit, Key: made[key], Cost: first}) }
	}
	return i, nil
}

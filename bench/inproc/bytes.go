package inproc

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/bench/measure"
	"github.com/weirlabs/weir/memstore"
)

// BytesPerKey is the heap that an instance keeps for each of n keys, the text
// of the keys and what the caller prepared not counted.
func BytesPerKey(p Peer, n int) (float64, error) {
	keys := Keys(n)
	i, err := p.New(Limit{Rate: 100, Period: time.Hour, Burst: 100}, keys)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer i.Close()
	before := measure.Heap()
	for k := range keys {
		i.Take(k)
	}
	grown := measure.Heap() - before
	runtime.KeepAlive(i.Take)
	runtime.KeepAlive(keys)
	return float64(grown) / float64(n), nil
}

// BytesOfLimits is BytesPerKey of weir for items that hold a bucket and these
// further limits, each used on two days in a row: windows then keep both.
func BytesOfLimits(further []string, n int) (float64, error) {
	ops, err := opsOf(append([]string{"100/h"}, further...))
	if err != nil {
		return 0, err
	}
	keys := WeirKeys(Keys(n))
	now := time.Now().UnixNano()
	limiter := weir.NewLimiter(memstore.New(memstore.Options{MaxKeys: max(1<<20, n*5/4), Now: func() int64 { return now }}), weir.Options{})
	before := measure.Heap()
	for range 2 {
		for _, key := range keys {
			for o := range ops {
				ops[o].Key = key
			}
			if d, err := limiter.Take(context.Background(), ops...); err != nil || !d.Allowed {
				return 0, fmt.Errorf("%v: %+v, %v", further, d, err)
			}
		}
		now += int64(24 * time.Hour)
	}
	grown := measure.Heap() - before
	runtime.KeepAlive(limiter)
	runtime.KeepAlive(keys)
	return float64(grown) / float64(n), nil
}

// opsOf are ops of limits under names of their own, without key.
func opsOf(texts []string) ([]weir.Op, error) {
	ops := make([]weir.Op, len(texts))
	for i, text := range texts {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		if limit, err = limit.Named(fmt.Sprintf("limit-%d", i)); err != nil {
			return nil, err
		}
		ops[i].Limit = limit
	}
	return ops, nil
}

// Several is weir asked for several limits of one key in one call.
func Several(limits int) Peer {
	return Peer{Name: fmt.Sprintf("%s, %d limits", Weir, limits), New: func(l Limit, keys []string) (Instance, error) {
		texts := make([]string, limits)
		for i := range texts {
			texts[i] = fmt.Sprintf("%d/s burst %d", l.Rate, l.Burst)
		}
		ops, err := opsOf(texts)
		if err != nil {
			return Instance{}, err
		}
		limiter := weir.NewLimiter(memstore.New(memstore.Options{MaxKeys: max(1<<20, len(keys)*5/4)}), weir.Options{})
		made := WeirKeys(keys)
		ctx := context.Background()
		take := func(key int, cost int64) bool {
			mine := append(make([]weir.Op, 0, 8), ops...)
			for o := range mine {
				mine[o].Key, mine[o].Cost = made[key], cost
			}
			d, err := limiter.Take(ctx, mine...)
			return d.Allowed && err == nil
		}
		return Instance{
			Take: func(key int) bool { return take(key, 1) },
			Fill: func(key int) { take(key, int64(l.Rate)*1000) },
		}, nil
	}}
}

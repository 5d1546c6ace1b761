package inproc

import (
	"context"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"
)

// Rivals are limiters that others wrote.
func Rivals() []Peer {
	return []Peer{
		{Name: "x/time/rate, map, Mutex", New: xtimeMap},
		{Name: "x/time/rate, sync.Map", New: xtimeSyncMap},
		{Name: "throttled, map", New: throttledMap},
		{Name: Sethvargo, New: sethvargo},
	}
}

func perSecond(l Limit) rate.Limit { return rate.Limit(float64(l.Rate) / l.Period.Seconds()) }

func xtimeMap(l Limit, keys []string) (Instance, error) {
	m := make(map[string]*rate.Limiter)
	var mu sync.Mutex
	return Instance{Take: func(key int) bool {
		k := keys[key]
		mu.Lock()
		v := m[k]
		if v == nil {
			v = rate.NewLimiter(perSecond(l), l.Burst)
			m[k] = v
		}
		mu.Unlock()
		return v.Allow()
	}}, nil
}

func xtimeSyncMap(l Limit, keys []string) (Instance, error) {
	// A key's interface value is made once, not at every call.
	boxed := make([]any, len(keys))
	for i, k := range keys {
		boxed[i] = k
	}
	var m sync.Map
	return Instance{Take: func(key int) bool {
		v, ok := m.Load(boxed[key])
		if !ok {
			v, _ = m.LoadOrStore(boxed[key], rate.NewLimiter(perSecond(l), l.Burst))
		}
		return v.(*rate.Limiter).Allow()
	}}, nil
}

// throttledMap never evicts. Under contention it answers errors ("failed to
// store updated rate limit data after 10 attempts"): they count as wrong.
func throttledMap(l Limit, keys []string) (Instance, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return Instance{}, err
	}
	t, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(l.Rate, l.Period), MaxBurst: l.Burst - 1})
	if err != nil {
		return Instance{}, err
	}
	ctx := context.Background()
	return Instance{Take: func(key int) bool {
		limited, _, err := t.RateLimitCtx(ctx, keys[key], 1)
		return err == nil && !limited
	}}, nil
}

// sethvargo counts windows of Burst. Its refill within them is wrong above some
// 31,623 a second (it adds Interval/Tokens tokens an interval), which a window
// as long as Never's does not get to.
func sethvargo(l Limit, keys []string) (Instance, error) {
	window := l.Period * time.Duration(l.Burst/l.Rate)
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.Burst), Interval: window})
	if err != nil {
		return Instance{}, err
	}
	ctx := context.Background()
	return Instance{
		Take: func(key int) bool {
			_, _, _, ok, err := store.Take(ctx, keys[key])
			return ok && err == nil
		},
		close: func() { store.Close(ctx) }, // it never fails
	}, nil
}

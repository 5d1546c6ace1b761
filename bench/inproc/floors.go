package inproc

import (
	"sync"
	"sync/atomic"
	"time"
)

// The names that bars refer to.
const (
	Weir      = "weir"
	Sethvargo = "sethvargo/go-limiter"
	OneInt    = "floor: GCRA on one integer"
)

// Floors are parts of what a limiter does.
func Floors() []Peer {
	return []Peer{
		{Name: "floor: empty call", Floor: true, Stateless: true, New: func(Limit, []string) (Instance, error) {
			return Instance{Take: func(int) bool { return true }}, nil
		}},
		{Name: "floor: time.Since", Floor: true, Stateless: true, New: func(Limit, []string) (Instance, error) {
			base := time.Now()
			return Instance{Take: func(int) bool { return time.Since(base) >= 0 }}, nil
		}},
		{Name: "floor: CAS of one integer", Floor: true, Stateless: true, New: func(Limit, []string) (Instance, error) {
			var v atomic.Int64
			return Instance{Take: func(int) bool {
				for {
					if old := v.Load(); v.CompareAndSwap(old, old+1) {
						return true
					}
				}
			}}, nil
		}},
		{Name: OneInt, Stateless: true, New: func(l Limit, _ []string) (Instance, error) {
			g := newGCRA(l)
			var v atomic.Int64
			return Instance{Take: func(int) bool { return g.take(&v) }}, nil
		}},
		{Name: "floor: map, RWMutex, GCRA", New: mapRWMutex},
	}
}

// gcra is the least a limiter does: one look at the clock, one swap.
type gcra struct {
	base                time.Time
	emission, tolerance int64 // ns
}

func newGCRA(l Limit) *gcra {
	e := int64(l.Period) / int64(l.Rate)
	return &gcra{time.Now(), e, e * int64(l.Burst-1)}
}

func (g *gcra) take(v *atomic.Int64) bool {
	now := int64(time.Since(g.base)) + 1
	for {
		tat := v.Load()
		n := max(tat, now)
		if n-now > g.tolerance {
			return false
		}
		if v.CompareAndSwap(tat, n+g.emission) {
			return true
		}
	}
}

func mapRWMutex(l Limit, keys []string) (Instance, error) {
	g, m := newGCRA(l), make(map[string]*atomic.Int64)
	var mu sync.RWMutex
	return Instance{Take: func(key int) bool {
		k := keys[key]
		mu.RLock()
		v := m[k]
		mu.RUnlock()
		if v == nil {
			mu.Lock()
			if v = m[k]; v == nil {
				v = new(atomic.Int64)
				m[k] = v
			}
			mu.Unlock()
		}
		return g.take(v)
	}}, nil
}

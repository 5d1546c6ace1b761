package weir_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// In a rollout old and new processes meet at one key. The first new one carries
// the balance over, in the way that it says; from then on all of them go by the
// new limit, and nobody writes the old one back.
func TestRolloutOfAChangedLimit(t *testing.T) {
	for _, far := range []bool{false, true} {
		for _, c := range []struct {
			old, changed string
			change       weir.Change
			used         int64 // of the eight that were used, under the new limit
		}{
			{"1/d burst 20", "5/d burst 100", weir.KeepUsed, 8},
			{"5/d burst 100", "1/d burst 20", weir.KeepUsed, 8},
			{"1/d burst 20", "5/d burst 100", weir.KeepShare, 40},
			{"1/d burst 20", "5/d burst 100", weir.StartFull, 0},
			{"quota 20/d", "quota 100/d", weir.KeepUsed, 8},
			{"sliding 20/d", "sliding 100/d", weir.KeepUsed, 8},
			{"quota 20/day calendar", "quota 100/day calendar", weir.KeepUsed, 8},
		} {
			clock := newClock()
			var store weir.Store = memstore.New(memstore.Options{Now: clock.now})
			remote := newDistant(clock)
			if far {
				store = remote
			}
			name := fmt.Sprintf("far %v, %s to %s", far, c.old, c.changed)
			old, changed := limit(t, c.old, "l"), limit(t, c.changed, "l").Revised(1, c.change)
			process := func(o weir.Options) *place {
				o.Now = clock.now
				return &place{TB: t, clock: clock, Limiter: weir.NewLimiter(store, slowly(o))}
			}
			before, after := process(weir.Options{}), process(weir.Options{})
			for range 8 {
				before.take(weir.Op{Limit: old, Key: someone})
			}
			if d := after.take(weir.Op{Limit: changed, Key: someone}); !d.Allowed || d.Used != c.used+1 {
				t.Errorf("%s: the first new process: %+v", name, d)
			}
			before.take(weir.Op{Limit: old, Key: someone})
			trips, _ := remote.counts()
			most := changed.Max()
			for n := c.used + 3; n <= c.used+10; n++ {
				p, l := before, old
				if n%2 == 0 {
					p, l = after, changed
				}
				if !l.IsBucket() {
					most = l.Max() // windows have no shape that is stored: each goes by its own count
				}
				if d := p.take(weir.Op{Limit: l, Key: someone}); !d.Allowed || d.Used != n || d.Remaining != most-n {
					t.Errorf("%s, call %d: %+v", name, n, d)
				}
			}
			if now, _ := remote.counts(); far && now-trips > 9 {
				t.Errorf("%s: eight calls in %d trips", name, now-trips)
			}
			// What an old process has taken it also gives back, at the new price.
			r, _ := before.reserve(weir.Op{Limit: old, Key: someone, Cost: 2})
			if err := r.Cancel(context.Background()); err != nil {
				t.Error(err)
			}
			if used := after.peek(weir.Op{Limit: changed, Key: someone})[0].Used; used != c.used+10 {
				t.Errorf("%s: %d are used after a cancel", name, used)
			}
		}
	}
}

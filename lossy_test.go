package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// lossy is a store whose replies get lost: a real one in memory, which keeps
// the last four nonces of each item as a remote store must.
type lossy struct {
	weir.Store
	mu     sync.Mutex
	rings  map[weir.Key][4]uint64
	fate   func() fate
	others int // writers that come between an attempt and the next
	faults atomic.Int64
	taken  atomic.Int64 // by others
	met    uint64       // the write that others have come between
	late   []weir.Write // on their way for so long that the next attempt overtakes them
}

type fate uint8

const (
	fine fate = iota
	lostBefore
	lostAfter
	twice
	late // arrives after the caller has sent the write again
)

func newLossy(others int, f func() fate) *lossy {
	return &lossy{Store: memstore.New(memstore.Options{}), rings: map[weir.Key][4]uint64{}, fate: f, others: others}
}

func (l *lossy) Caps() weir.Caps { return weir.Caps{OwnClock: true, LossyReplies: true} }

// once applies a write as a remote store does, nonces and all.
func (l *lossy) once(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ring := l.rings[item]
	if len(tries) > 0 && tries[0].Nonce != 0 {
		for _, n := range ring {
			if n == tries[0].Nonce {
				_, now, err := l.Store.Apply(ctx, item, nil, state)
				return 0, now, err
			}
		}
	}
	applied, now, err := l.Store.Apply(ctx, item, tries, state)
	if applied >= 0 && tries[0].Nonce != 0 {
		copy(ring[1:], ring[:])
		ring[0] = tries[0].Nonce
		l.rings[item] = ring
	}
	return applied, now, err
}

func (l *lossy) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	lost := fmt.Errorf("connection reset: %w", weir.ErrOutcomeUnknown)
	if len(tries) == 0 {
		return l.once(ctx, item, tries, state)
	}
	f := l.fate()
	if f != fine {
		l.faults.Add(1)
	}
	switch f {
	case lostBefore:
		return -1, 0, lost
	case late:
		w := tries[0]
		w.If, w.Do = append([]weir.Cond(nil), w.If...), append([]weir.Act(nil), w.Do...)
		l.late = append(l.late, w)
		return -1, 0, lost
	}
	applied, now, err := l.once(ctx, item, tries, state)
	var ignored weir.Cells
	// At most so many come between the first attempt and the last: four would
	// push the nonce out of the item.
	if nonce := tries[0].Nonce; (f == lostAfter || f == twice || len(l.late) > 0) && l.met != nonce {
		l.met = nonce
		l.interfere(ctx, item)
	}
	if f == twice {
		_, _, _ = l.once(ctx, item, tries, &ignored)
	}
	for _, w := range l.late {
		_, _, _ = l.once(ctx, item, []weir.Write{w}, &ignored)
	}
	l.late = nil
	if f == lostAfter {
		return -1, 0, lost
	}
	return applied, now, err
}

// interfere takes for other processes, each through a limiter of its own.
func (l *lossy) interfere(ctx context.Context, item weir.Key) {
	limit, _ := weir.ParseLimit("quota 1000000000/day")
	other := weir.NewLimiter(&direct{l}, weir.Options{})
	for range l.others {
		if d, err := other.Take(ctx, weir.Op{Limit: limit, Key: item}); err == nil && d.Allowed {
			l.taken.Add(1)
		}
	}
}

// direct is the same store on a good day.
type direct struct{ *lossy }

func (d *direct) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	return d.once(ctx, item, tries, state)
}

func TestLostRepliesChargeOnce(t *testing.T) {
	for _, others := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(others)))
				l := newLossy(others, func() fate {
					if r.IntN(3) > 0 {
						return fine
					}
					return fate(1 + r.IntN(4))
				})
				limit, err := weir.ParseLimit("quota 1000000000/day")
				if err != nil {
					t.Fatal(err)
				}
				lim := weir.NewLimiter(l, weir.Options{Deadline: 300 * time.Millisecond})
				key := weir.NewKey("account", "a")
				allowed, unknown := int64(0), int64(0)
				ctx := t.Context()
				for l.faults.Load() < 3400 {
					d, err := lim.Take(ctx, weir.Op{Limit: limit, Key: key})
					switch {
					case errors.Is(err, weir.ErrOutcomeUnknown):
						unknown++
					case err != nil: // not asked: too many faults in a row
						<-time.After(time.Second)
					case !d.Allowed:
						t.Fatalf("refused with %d of %d used", d.Used, limit.Max())
					default:
						allowed++
					}
				}
				d, err := lim.Peek(ctx, weir.Op{Limit: limit, Key: key})
				if err != nil {
					t.Fatal(err)
				}
				counted := d[0].Used - l.taken.Load()
				t.Logf("%d faults: %d allowed, %d unknown, %d counted", l.faults.Load(), allowed, unknown, counted)
				if counted < allowed || counted > allowed+unknown {
					t.Errorf("counted %d for %d allowed and %d unknown calls", counted, allowed, unknown)
				}
			})
		})
	}
}

package weir_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// patient is a deadline that no busy machine reaches.
const patient = time.Minute

// slowly gives options a deadline that no busy machine reaches.
func slowly(o weir.Options) weir.Options {
	if o.Deadline == 0 {
		o.Deadline = patient
	}
	return o
}

// clock stands still until it is moved.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2027, 3, 14, 15, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() int64              { return c.at.Load() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// distant keeps items in memory, but a Limiter reaches it only by the writes
// of a remote store. What happens on the way there and back can be set.
type distant struct {
	weir.Store // not weir.InProcess: the Limiter must not see it
	caps       weir.Caps

	mu     sync.Mutex
	nonces map[weir.Key][]uint64 // the last four of each item
	trips  int
	writes int
	keeps  []time.Duration // of the writes that were applied

	there func(trip int, item weir.Key, tries []weir.Write) error // on the way there
	back  func(applied int) error                                 // after it was done
}

func (d *distant) Caps() weir.Caps { return d.caps }

func (d *distant) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if err := ctx.Err(); err != nil {
		return -1, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trips++
	if d.there != nil {
		if err := d.there(d.trips, item, tries); err != nil {
			return -1, 0, err
		}
	}
	applied, now, err := d.apply(ctx, item, tries, state)
	if err == nil && d.back != nil {
		err = d.back(applied)
	}
	return applied, now, err
}

func (d *distant) apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if len(tries) > 0 && tries[0].Nonce != 0 && slices.Contains(d.nonces[item], tries[0].Nonce) {
		_, now, err := d.Store.Apply(ctx, item, nil, state)
		return 0, now, err
	}
	applied, now, err := d.Store.Apply(ctx, item, tries, state)
	if applied >= 0 {
		d.writes++
		d.keeps = append(d.keeps, tries[applied].Keep)
		if n := tries[applied].Nonce; n != 0 {
			all := append(d.nonces[item], n)
			d.nonces[item] = all[max(0, len(all)-4):]
		}
	}
	return applied, now, err
}

func (d *distant) counts() (trips, writes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.trips, d.writes
}

func newDistant(c *clock) *distant {
	return &distant{
		Store: memstore.New(memstore.Options{Now: c.now}), caps: weir.Caps{OwnClock: true, LossyReplies: true},
		nonces: map[weir.Key][]uint64{},
	}
}

// place is a limiter with its clock, on one of the ways to a store.
type place struct {
	testing.TB
	*clock
	*weir.Limiter
	far *distant // nil in process
}

// everywhere runs a test in process and on the way of a remote store.
func everywhere(t *testing.T, test func(t *testing.T, p *place), o ...weir.Options) {
	options := func(c *clock) weir.Options {
		var opt weir.Options
		if len(o) > 0 {
			opt = o[0]
		}
		opt.Now = c.now
		return opt
	}
	t.Run("memory", func(t *testing.T) {
		c := newClock()
		test(t, &place{TB: t, clock: c, Limiter: weir.NewLimiter(memstore.New(memstore.Options{Now: c.now}), options(c))})
	})
	t.Run("remote", func(t *testing.T) {
		c := newClock()
		far := newDistant(c)
		test(t, &place{TB: t, clock: c, Limiter: weir.NewLimiter(far, slowly(options(c))), far: far})
	})
}

func limit(t testing.TB, text string, name ...string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	if err == nil && len(name) > 0 {
		l, err = l.Named(name[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var someone = weir.NewKey("account", "customer-42")

// take takes, and fails the test on an error.
func (p *place) take(ops ...weir.Op) weir.Decision {
	p.Helper()
	d, err := p.Take(context.Background(), ops...)
	if err != nil {
		p.Fatal(err)
	}
	return d
}

func (p *place) reserve(ops ...weir.Op) (*weir.Reservation, weir.Decision) {
	p.Helper()
	r, d, err := p.Reserve(context.Background(), ops...)
	if err != nil {
		p.Fatal(err)
	}
	return r, d
}

func (p *place) settle(r *weir.Reservation, actual ...int64) {
	p.Helper()
	if err := r.Settle(context.Background(), actual...); err != nil {
		p.Fatal(err)
	}
}

// peek looks at each op alone.
func (p *place) peek(ops ...weir.Op) []weir.Decision {
	p.Helper()
	each, err := p.Peek(context.Background(), ops...)
	if err != nil {
		p.Fatal(err)
	}
	return each
}

// left is what a limit of someone has left.
func (p *place) left(l weir.Limit) int64 {
	p.Helper()
	return p.peek(weir.Op{Limit: l, Key: someone})[0].Remaining
}

// drain takes one at a time until a refusal, and returns how many were allowed
// and the refusal.
func (p *place) drain(op weir.Op) (n int, refusal weir.Decision) {
	p.Helper()
	for {
		d := p.take(op)
		if !d.Allowed {
			return n, d
		}
		if n++; n > 1_000_000 {
			p.Fatal("no end of allowed calls")
		}
	}
}

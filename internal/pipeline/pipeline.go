// Package pipeline stands between a decision and a store that is not in this
// process. It plans, applies, and plans again from what came back; and it sees
// to it that no call is asked twice and no reply believed twice:
//
//   - memo: the last state of an item that was seen refuses, for a second, what
//     it refuses; it never allows.
//   - coalescing: calls that arrive while a write to their item is under way go
//     out together with the next one.
//   - lost replies: a write carries a nonce, so that a repeated attempt finds
//     out whether the first one was applied.
//   - breaker: a store that does not answer is left alone for a while.
//
// All traffic of this process to one item passes one [lane], in order. A store
// makes one attempt and has no opinion; an algorithm makes one plan and does no
// I/O; this is the only loop.
package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// Errors are those that a store wraps, and those that a pipeline itself returns.
type Errors struct {
	OutcomeUnknown error // a write may or may not have been applied
	Unreachable    error // nothing was sent; it may work in a moment
	Throttled      error // this one item is too busy for the store
	Busy           error // other writers were faster every time
	Open           error // the store failed just now and is not asked
}

// Applier is the part of a store that a pipeline needs.
type Applier interface {
	Apply(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (applied int, now int64, err error)
}

// Options of a Pipeline. Store, Clock, Keep and Errors are required.
type Options struct {
	Store  Applier
	Clock  func() int64                      // this machine's time, Unix nanoseconds
	Keep   func(item plan.Key) time.Duration // for how long an item is kept
	Errors Errors

	OwnClock     bool          // the store judges by its own clock, and not by this machine's
	Nonces       bool          // the store may lose replies
	Deadline     time.Duration // of one decision
	NoBreaker    bool
	NoMemo       bool
	NoCoalescing bool          // every call is a write of its own; the last state is a hint, and no memo
	Items        int           // that are remembered; default 65,536
	Gap          time.Duration // that the store wants between a crowd's writes to one item
}

// Bounds.
const (
	maxTrips  = 8                    // in vain, for one batch, one after the other
	patience  = 3                    // of them, after which a batch asks for less
	memoAge   = time.Second          // for which a memo may refuse
	firstGap  = 8 * time.Millisecond // to an item that the store finds too busy, if it wants none otherwise
	maxGap    = time.Second          // and half a deadline, so that a call can have its turn
	maxIdle   = 4                    // gaps
	maxBatch  = 4096                 // calls in one write
	maxLimits = 16                   // that a write of calls for several names: DynamoDB takes 300 operators in a condition, which is so many of any kind
)

// Pipeline asks one store. It is safe for concurrent use. It has a goroutine
// for each item that is being asked, but of a store that gathers only where
// something has to wait; and none when nothing is asked.
type Pipeline struct {
	o        Options
	lanes    lanes
	breaker  breaker
	stats    counters
	begun    time.Time    // the clock of memos, gaps and the breaker
	lasted   atomic.Int64 // ns that the last trip took which found its item too busy
	ahead    atomic.Int64 // of the store's time over this machine's, as last seen
	asked    atomic.Bool
	gatherer Gatherer  // the store, if it is one
	takes    sync.Pool // of *take
	services sync.Pool // of *service
}

// Stats says what each stage has saved or met, as counts since the start.
type Stats struct {
	Memo        uint64 // calls that a memo refused
	Coalesced   uint64 // calls that shared another's write
	Trips       uint64 // round trips
	LostReplies uint64 // writes whose reply was lost, and whose outcome another attempt found
	Unknown     uint64 // writes of which nobody knows
	Throttled   uint64 // trips that the store refused for an item's sake
	Skipped     uint64 // calls that were not asked because the store had just failed

	Open  bool          // the breaker is open now: the store is left alone
	Ahead time.Duration // of the store's clock over this machine's, as last seen
}

type counters struct {
	memo, coalesced, trips, lost, unknown, throttled, skipped atomic.Uint64
}

// New returns a pipeline to a store.
func New(o Options) *Pipeline {
	if o.Items <= 0 {
		o.Items = 1 << 16
	}
	o.Gap = max(o.Gap, 0)
	p := &Pipeline{o: o, begun: time.Now()}
	p.gatherer, _ = o.Store.(Gatherer)
	p.lanes.max = o.Items
	p.breaker.off = o.NoBreaker
	return p
}

// Stats counts what has been saved so far.
func (p *Pipeline) Stats() Stats {
	c := &p.stats
	return Stats{
		Memo: c.memo.Load(), Coalesced: c.coalesced.Load(), Trips: c.trips.Load(), LostReplies: c.lost.Load(),
		Unknown: c.unknown.Load(), Throttled: c.throttled.Load(), Skipped: c.skipped.Load(),
		Open: p.breaker.isOpen(), Ahead: time.Duration(p.ahead.Load()),
	}
}

// clock is monotonic: memos and gaps are not moved when the time is set.
func (p *Pipeline) clock() time.Duration { return time.Since(p.begun) }

// now is an estimate of the store's now.
func (p *Pipeline) now() int64 { return p.o.Clock() + p.ahead.Load() }

// Ask is what one call wants of one limit of an item.
type Ask struct {
	Spec   *plan.Spec
	Cost   int64
	Shadow bool // refuses nothing

	// Err is why a shadow was not asked, where all else was decided without it: its
	// verdict says nothing then. It is set before Take returns.
	Err error
}

// Until is when a decision that begins now must have been made, on the clock of
// Take, or one that may have a part of its time only.
func (p *Pipeline) Until(parts time.Duration) time.Duration { return p.clock() + p.Deadline()/parts }

// Within is ctx until that time.
func (p *Pipeline) Within(ctx context.Context, until time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, p.begun.Add(until))
}

// Take asks for all of asks from one item, and fills verdicts, one for each. It
// returns once the store has answered, or a memo has; or with an error when
// nobody has by a time. refused says that an ask which is not a shadow was
// refused; then nothing was taken. After an error, asks and verdicts are the
// pipeline's.
//
// A caller whose ctx ends first gets its error, and whatever its call turns out
// to have taken is given back. So it is when only the time is over, unless keep
// says that the call goes on all the same.
func (p *Pipeline) Take(ctx context.Context, until time.Duration, item plan.Key, asks []Ask, keep bool, verdicts []plan.Verdict) (refused bool, err error) {
	if never(asks, verdicts) {
		return true, nil
	}
	t := p.take(ctx, asks, verdicts)
	if err := p.ask(ctx, p.clock(), until, item, t, keep); err != nil {
		return false, err
	}
	refused = t.refused
	p.forget(t)
	return refused, nil
}

// TakeOne is Take for a single ask, within a deadline from now on.
func (p *Pipeline) TakeOne(ctx context.Context, item plan.Key, a Ask, keep bool) (v plan.Verdict, err error) {
	t := p.take(ctx, nil, nil)
	t.ask[0] = a
	t.asks, t.verdicts = t.ask[:], t.verdict[:]
	if never(t.asks, t.verdicts) {
		err = nil
	} else {
		at := p.clock()
		err = p.ask(ctx, at, at+p.Deadline(), item, t, keep)
	}
	if err != nil {
		return v, err
	}
	v = t.verdict[0]
	p.forget(t)
	return v, nil
}

// take is one from the pool, for a call.
func (p *Pipeline) take(ctx context.Context, asks []Ask, verdicts []plan.Verdict) *take {
	t, _ := p.takes.Get().(*take)
	if t == nil {
		t = &take{done: make(chan struct{}, 1)}
	}
	t.ctx, t.asks, t.verdicts = ctx, asks, verdicts
	return t
}

// forget gives a take back that nobody else holds: one that has been answered,
// and whose value of done was received.
func (p *Pipeline) forget(t *take) {
	t.ctx, t.asks, t.verdicts, t.ask = nil, nil, nil, [1]Ask{}
	t.refused, t.sent, t.why, t.shed = false, false, nil, 0
	p.takes.Put(t)
}

// ask has a take decided that begins at a time. After an error others may still
// hold it.
func (p *Pipeline) ask(ctx context.Context, at, until time.Duration, item plan.Key, t *take, keep bool) error {
	l := p.lanes.get(item)
	if p.memo(l, t, at) {
		l.put()
		return nil
	}
	if err := p.admit(ctx, at); err != nil {
		l.put()
		return p.counted(err)
	}
	p.enter(l, t, at)
	l.put() // whoever serves the lane holds it
	if !p.wait(ctx, t, at, until) {
		if answered, err := p.leave(ctx, l, t, keep); !answered {
			return p.counted(err)
		}
	}
	return p.counted(t.err)
}

// Refuses reports whether the memo refuses a call, and then fills verdicts. A
// call for several items asks this of all of them before it takes from one.
func (p *Pipeline) Refuses(item plan.Key, asks []Ask, verdicts []plan.Verdict) bool {
	l := p.lanes.get(item)
	defer l.put()
	return p.memo(l, &take{asks: asks, verdicts: verdicts}, p.clock())
}

func (p *Pipeline) memo(l *lane, t *take, at time.Duration) (refuses bool) {
	if p.o.NoMemo || p.o.NoCoalescing || !l.remembers(p, t, at) {
		return false
	}
	p.stats.memo.Add(1)
	return true
}

// Change is what Update does to an item. Next is required.
type Change struct {
	Next Planner
	Read bool                    // ask the store before the first plan
	Sure bool                    // at least once, as far as nonces tell; otherwise at most once
	Left func(state *plan.Cells) // hears of the item as the write has left it, before Update returns; may be nil
}

// Update runs a planner on one item, in order with the takes. A write whose
// outcome is unknown is not repeated unless it must be sure. When ctx ends first,
// it still happens.
func (p *Pipeline) Update(ctx context.Context, item plan.Key, c Change) error {
	if err := p.admit(ctx, p.clock()); err != nil {
		return p.counted(err)
	}
	return p.await(ctx, item, &update{ctx: ctx, Change: c, done: make(chan struct{})})
}

// Seen is what this process has last seen of an item, or nil when it remembers
// nothing of it. It asks nobody.
func (p *Pipeline) Seen(item plan.Key) *plan.Cells {
	l := p.lanes.find(item)
	if l == nil {
		return nil
	}
	defer l.put()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen {
		return nil
	}
	state := new(plan.Cells)
	state.CopyFrom(&l.state)
	return state
}

// Repay charges a key's limits what Local still shows as used of them. It does
// so once, however long the caller waits; until it is done, the key stays as it
// is and counts on. When nobody knows whether it was done, the next Repay finds
// out; without nonces it is then not done again.
func (p *Pipeline) Repay(ctx context.Context, f *Local, item plan.Key, now func() int64) error {
	if err := p.admit(ctx, p.clock()); err != nil {
		return p.counted(err)
	}
	for again := true; again; {
		d := f.begin(item, now(), p.o.Nonces)
		if d == nil {
			return nil // all is paid, or another call is at it
		}
		err := p.await(ctx, item, &update{ctx: ctx, Change: Change{Next: d.charge, Sure: true}, done: make(chan struct{}), then: func(err error) {
			f.end(item, d, err == nil, errors.Is(err, p.o.Errors.OutcomeUnknown))
		}})
		if err != nil {
			return err
		}
		again = d.again // the rest
	}
	return nil
}

// await puts an update into its item's lane, and waits for it while ctx lasts.
func (p *Pipeline) await(ctx context.Context, item plan.Key, u *update) error {
	l := p.lanes.get(item)
	defer l.put()
	p.change(l, u)
	select {
	case <-u.done:
		return p.counted(u.err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Planner appends a write to w, judging by the known state, and reports whether
// there is one. known is nil until the store has answered.
type Planner func(known *plan.Cells, now int64, w *plan.Write) bool

// Read returns the item as the store has it. A caller who leaves says nothing
// of the store: the trip goes on without it.
func (p *Pipeline) Read(ctx context.Context, item plan.Key) (*plan.Cells, int64, error) {
	type reply struct {
		state plan.Cells
		now   int64
		err   error
	}
	replies := make(chan *reply, 1)
	go func() {
		own, cancel := p.own(ctx)
		defer cancel()
		r := new(reply)
		t := p.send(own, item, nil, &r.state)
		r.now, r.err = t.now, t.err
		replies <- r
	}()
	select {
	case r := <-replies:
		return &r.state, r.now, p.counted(r.err)
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// never answers a call that can't ever be allowed without asking anybody.
func never(asks []Ask, verdicts []plan.Verdict) bool {
	any := false
	for i := range asks {
		if !asks[i].Shadow && asks[i].Cost > asks[i].Spec.Most() {
			any = true
		}
	}
	if any {
		for i := range asks {
			verdicts[i] = unseen(&asks[i])
		}
	}
	return any
}

// unseen is what the cost alone says of an ask.
func unseen(a *Ask) plan.Verdict {
	return plan.Verdict{Never: a.Cost > a.Spec.Most(), Max: a.Spec.Max(), Unseen: true}
}

// Deadline is that of one decision; the first has to set up connections and credentials.
func (p *Pipeline) Deadline() time.Duration {
	if !p.asked.Load() {
		return max(p.o.Deadline, time.Second)
	}
	return p.o.Deadline
}

// admit turns a call away whose caller has gone, or while the store is left
// alone: it need not wait behind others to hear that. It claims nothing.
func (p *Pipeline) admit(ctx context.Context, at time.Duration) error {
	if p.breaker.refuses(at) {
		return p.o.Errors.Open
	}
	return ctx.Err()
}

// counted counts a call that was not asked.
func (p *Pipeline) counted(err error) error {
	if err != nil && errors.Is(err, p.o.Errors.Open) {
		p.stats.skipped.Add(1)
	}
	return err
}

// outcome is what became of one trip to the store.
type outcome struct {
	began   time.Duration // on the pipeline's clock
	until   time.Duration // when its time was over, by that
	sent    int64         // this machine's time
	applied int
	now     int64
	err     error
}

// send is one trip to the store, which the breaker allows and hears of. Only
// what is sent may claim to be the one that tries a store which is left alone:
// a call that turns out to have nothing to send would hold up all others.
func (p *Pipeline) send(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) *outcome {
	t := outcome{began: p.clock()}
	if !p.breaker.allow(t.began) {
		t.applied, t.err = -1, p.o.Errors.Open
		return &t
	}
	p.stats.trips.Add(1)
	if end, ok := ctx.Deadline(); ok {
		t.until = end.Sub(p.begun)
	}
	t.sent = p.o.Clock()
	t.applied, t.now, t.err = p.o.Store.Apply(ctx, item, tries, state)
	p.learn(&t)
	return &t
}

// learn takes from a trip what it says of the store: whether it answers, and
// what time it has.
func (p *Pipeline) learn(t *outcome) {
	if !p.asked.Load() {
		p.asked.Store(true)
	}
	switch {
	case t.err == nil:
		// Without a clock of its own the store has read this machine's when it
		// was asked; otherwise it has read its own somewhere in between.
		if p.o.OwnClock {
			t.sent += (p.o.Clock() - t.sent) / 2
		}
		p.ahead.Store(t.now - t.sent)
		p.breaker.well()
	case errors.Is(t.err, p.o.Errors.Throttled):
		p.stats.throttled.Add(1)
		p.lasted.Store(int64(p.clock() - t.began))
		p.breaker.well() // the store is; the item is busy
	case errors.As(t.err, new(*plan.SpoiledError)):
		p.breaker.well() // or one caller's item would keep all others from the store
	default:
		now := p.clock()
		if now >= t.until && t.until-t.began < p.o.Deadline/2 {
			return // it was sent late, and cut short by that: this says nothing
		}
		p.breaker.failed(now)
	}
}

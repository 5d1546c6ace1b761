package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// lane is the one way of this process to one item. What waits goes out together
// with the next write; one write is under way at a time, so replies come in
// order and the last one is the newest.
type lane struct {
	item   plan.Key
	users  int          // calls that hold the lane; guarded by the table
	seenAt atomic.Int64 // when state was asked for, on the pipeline's clock

	mu      sync.Mutex
	running bool
	takes   []*take
	updates []*update
	state   *plan.Cells   // as last seen, never changed in place; nil when never seen
	then    int64         // the store's time of that
	next    time.Duration // when the next write may go out
	gap     time.Duration // 0 until the store found the item too busy
	vain    bool          // the last write found nothing left for anybody
	idle    time.Duration // 0 until that has happened twice
	until   int64         // the store's time until which it then waits
}

// take is one call that waits for a verdict.
type take struct {
	ctx      context.Context // whose values the trip carries, for observers
	asks     []Ask
	verdicts []plan.Verdict
	refused  bool
	err      error
	done     chan struct{}
	left     bool  // the caller has gone: what is taken is given back
	sent     bool  // it has left the queue
	why      error // what has held it up since
}

// update is a change that is not a take: a give-back, a charge, a reset.
type update struct {
	ctx  context.Context
	next Planner
	read bool        // ask the store before the first plan
	sure bool        // at least once, as far as nonces tell; otherwise at most once
	then func(error) // hears of the outcome, whether or not anybody waits; may be nil
	err  error
	done chan struct{}
}

// remembers fills the verdicts from the memo when that refuses.
func (l *lane) remembers(p *Pipeline, t *take) bool {
	l.mu.Lock()
	state, then := l.state, l.then
	l.mu.Unlock()
	if state == nil || p.clock()-time.Duration(l.seenAt.Load()) > memoAge {
		return false
	}
	now := p.now()
	if off := now - then; off < -int64(memoAge) || off > int64(memoAge) {
		return false // the time was set
	}
	return t.look(state, now)
}

// look fills in what a state says of the take, and reports whether it refuses.
func (t *take) look(state *plan.Cells, now int64) (refused bool) {
	for i := range t.asks {
		a := &t.asks[i]
		t.verdicts[i] = a.Spec.Look(state, now, a.Cost)
		refused = refused || !a.Shadow && !t.verdicts[i].OK
	}
	t.refused = refused
	return refused
}

// enter puts a call into the lane, and sets the lane going if it stands still.
func (p *Pipeline) enter(l *lane, t *take, u *update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t != nil {
		l.takes = append(l.takes, t)
	}
	if u != nil {
		l.updates = append(l.updates, u)
	}
	if !l.running {
		l.running = true
		p.lanes.hold(l)
		go p.run(l)
	}
}

// wait returns when the take is decided, or its caller gives up.
func (p *Pipeline) wait(ctx, asking context.Context, l *lane, t *take, keep bool) error {
	select {
	case <-t.done:
		return t.err
	case <-asking.Done():
	}
	gone := ctx.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	default:
	}
	if gone != nil {
		t.left = true
		return gone
	}
	t.left = !keep
	why := t.why
	switch {
	case why != nil:
	case t.sent || p.o.NoCoalescing:
		why = p.o.Errors.OutcomeUnknown
	case l.gap > 0:
		why = p.o.Errors.Throttled
	default:
		why = p.o.Errors.Unreachable
	}
	return fmt.Errorf("%w: no answer within %v", why, p.o.Deadline)
}

// held notes what holds calls up, for those that can't wait for its end.
func (l *lane) held(pending []*take, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range pending {
		t.why = why
	}
}

// run serves a lane until nothing waits in it.
func (p *Pipeline) run(l *lane) {
	defer p.lanes.put(l)
	for {
		l.mu.Lock()
		if len(l.takes) == 0 && len(l.updates) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if pause := l.pause(p); pause > 0 {
			time.Sleep(pause)
		}
		l.mu.Lock()
		takes, updates := l.takes, l.updates
		l.takes, l.updates = nil, nil
		if len(takes) > maxBatch {
			takes, l.takes = takes[:maxBatch:maxBatch], takes[maxBatch:]
		}
		for _, t := range takes {
			t.sent = true
		}
		l.mu.Unlock()
		began := p.clock()
		for _, u := range updates {
			u.err = p.update(l, u)
			if u.then != nil {
				u.then(u.err)
			}
			close(u.done)
		}
		if len(takes) > 0 {
			p.serve(l, takes)
		}
		l.mu.Lock()
		l.next = began + l.gap
		if len(takes) > 1 {
			l.next = max(l.next, began+p.o.Gap) // a crowd: the next write will be fuller for it
		}
		l.mu.Unlock()
	}
}

// found notes, after a trip, whether the item had anything left for those who
// asked. While it has not, several processes would spend a write each on finding
// that out again as soon as one unit is back: each then asks less often, and for
// more callers at once, where the store wants gaps. It goes by the store's time,
// in which units come back.
func (l *lane) found(p *Pipeline, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if any {
		l.idle, l.vain = 0, false
		return
	}
	if l.vain {
		l.idle = min(max(2*l.idle, p.o.Gap), maxIdle*p.o.Gap)
	}
	l.vain = true
	l.until = p.now() + int64(l.idle)
}

// pause is how long the lane has to wait before the next write.
func (l *lane) pause(p *Pipeline) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause := l.next - p.clock()
	if l.idle > 0 {
		pause = max(pause, min(time.Duration(l.until-p.now()), l.idle))
	}
	return pause
}

// remember publishes what an item looked like to a trip that began at a time of
// the pipeline's clock. The state is not changed after.
func (p *Pipeline) remember(l *lane, state *plan.Cells, now int64, began time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.then = state, now
	l.seenAt.Store(int64(began))
}

// slow sets how long the next write to a busy item has to wait, twice as long
// for every batch that the store finds too much, and returns a wait before the
// same write is tried again. It varies, so that processes don't meet again.
func (l *lane) slow(p *Pipeline, again bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !again {
		first := p.throttled()
		l.gap = min(2*max(l.gap, first), max(first, p.o.Deadline/2), maxGap)
	}
	return l.gap/2 + rand.N(l.gap)
}

// throttled is the least gap to an item that the store finds too busy.
func (p *Pipeline) throttled() time.Duration { return max(p.o.Gap, firstGap) }

// calm lets a lane go slowly faster again: by one write a second for every write
// that gets through. Sums that rise and shares that fall bring the processes that
// meet at an item to about the same pace.
func (l *lane) calm(p *Pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gap -= time.Duration(float64(l.gap) * l.gap.Seconds() / (1 + l.gap.Seconds())); l.gap <= p.throttled() {
		l.gap = 0
	}
}

// own is a context for a trip: it has the values of the call that began it, and
// not its end, because others wait for the same answer.
func (p *Pipeline) own(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), p.Deadline())
}

// update plans and applies until the planner has nothing left to write. Unless
// it must be sure, what may have been applied is not sent again: nothing is
// given back twice.
func (p *Pipeline) update(l *lane, u *update) error {
	ctx, cancel := p.own(u.ctx)
	defer cancel()
	var known *plan.Cells
	now := p.now()
	if u.read {
		known = new(plan.Cells)
		_, at, err := p.send(ctx, l.item, nil, known)
		if err != nil {
			return err
		}
		now = at
	}
	var w plan.Write
	busy := false
	for trips := 0; trips < maxTrips; {
		w.Reset()
		if !u.next(known, now, &w) {
			return nil
		}
		state, at, applied, err := p.write(ctx, l, u.sure, w)
		if errors.Is(err, p.o.Errors.Throttled) && sleep(ctx, l.slow(p, busy)) {
			busy, now = true, p.now()
			continue
		}
		if err != nil || applied {
			return err
		}
		trips++
		known, now = state, at
	}
	return p.o.Errors.Busy
}

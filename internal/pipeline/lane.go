package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	alike  *lane        // another with the same hash
	users  atomic.Int32 // calls that hold the lane
	seenAt atomic.Int64 // when state was asked for, on the pipeline's clock

	mu      sync.Mutex
	running bool
	turn    turn
	takes   []*take
	updates []*update
	seen    bool
	state   plan.Cells    // as last seen
	then    int64         // the store's time of that
	next    time.Duration // when the next write may go out
	gap     time.Duration // 0 until the store found the item too busy
	vain    bool          // the last write found nothing left for anybody
	idle    time.Duration // how long it then waits; 0 until that has happened twice
	behind  int           // takes that waited when the last ones were answered
	crowd   crowd
	until   int64 // the store's time until which it waits for that
}

// take is one call that waits for a verdict.
type take struct {
	ctx      context.Context // whose values the trip carries, for observers
	asks     []Ask
	verdicts []plan.Verdict
	refused  bool
	err      error
	done     chan struct{} // gets a value when there is an answer
	gone     bool          // nobody waits for an answer
	left     bool          // the caller has gone: what is taken is given back
	sent     bool          // it has left the queue
	why      error         // what has held it up since
	shed     uint64        // by place, of which a call has no more than 64, the shadows that stay out of further writes

	alarm *time.Timer   // that has ring called at a time, or had; see wait
	rings time.Duration // when that is; 0 when it was heard
	over  chan struct{} // has a value when it has rung

	ask     [1]Ask // of a call with one
	verdict [1]plan.Verdict
}

// update is a change that is not a take: a give-back, a charge, a reset.
type update struct {
	Change
	ctx  context.Context
	then func(error) // hears of the outcome, whether or not anybody waits; may be nil
	err  error
	done chan struct{}
}

// remembers fills the verdicts from the memo when that refuses.
func (l *lane) remembers(p *Pipeline, t *take, at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen || at-time.Duration(l.seenAt.Load()) > memoAge {
		return false
	}
	now := p.now()
	if off := now - l.then; off < -int64(memoAge) || off > int64(memoAge) {
		return false // the time was set
	}
	return t.look(&l.state, now)
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

// enter puts a take into its lane, or beside it where nothing is coalesced, and
// sees to it that it is served. at is the time now.
func (p *Pipeline) enter(l *lane, t *take, at time.Duration) {
	if p.o.NoCoalescing {
		if l.hold(); !p.gathered(l, t) {
			go func() {
				defer l.put()
				p.serve(l, t)
			}()
		}
		return
	}
	l.mu.Lock()
	l.takes = append(l.takes, t)
	if len(l.takes) == l.crowd.size {
		l.crowd.here <- struct{}{}
	}
	starts := l.starts()
	turn := starts && l.paused(p, at) <= 0
	l.mu.Unlock()
	if starts && !(turn && p.gathered(l, nil)) {
		go p.run(l)
	}
}

// change puts an update into its lane.
func (p *Pipeline) change(l *lane, u *update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updates = append(l.updates, u)
	if l.starts() {
		go p.run(l)
	}
}

// starts reports whether the lane stood still, and sets it going for the caller,
// who holds the lock.
func (l *lane) starts() bool {
	if l.running {
		return false
	}
	l.running = true
	l.hold()
	return true
}

// wait returns when there is an answer, and true; or when the take's caller gives
// up, or its time is over. at is the time now.
//
// A timer that is started and stopped for every call would be a tenth of what
// the pipeline costs. So an alarm that was not needed rings all the same, at the
// latest in the wait of some later call, which sets it anew.
func (p *Pipeline) wait(ctx context.Context, t *take, at, until time.Duration) bool {
	for {
		if t.rings == 0 || t.rings > until {
			t.rings = until
			if t.alarm == nil {
				t.over = make(chan struct{}, 1)
				t.alarm = time.AfterFunc(until-at, t.ring)
			} else {
				t.alarm.Reset(until - at)
			}
		}
		select {
		case <-t.done:
			return true
		case <-ctx.Done():
			return false
		case <-t.over:
			t.rings = 0
			if at = p.clock(); at >= until {
				return false
			}
		}
	}
}

// ring ends a wait, this one or a later one.
func (t *take) ring() {
	select {
	case t.over <- struct{}{}:
	default:
	}
}

// leave is for a take whose caller does not wait any longer, and says why. It is
// too late for one that has been answered.
func (p *Pipeline) leave(ctx context.Context, l *lane, t *take, keep bool) (answered bool, err error) {
	gone := ctx.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.done:
		return true, nil
	default:
	}
	t.gone = true
	if gone != nil {
		t.left = true
		return false, gone
	}
	t.left = !keep
	why := t.why
	switch {
	case why != nil:
	case t.sent:
		why = p.o.Errors.OutcomeUnknown
	case l.gap > 0:
		why = p.o.Errors.Throttled
	default:
		why = p.o.Errors.Unreachable
	}
	err = fmt.Errorf("%w: no answer within %v", why, p.o.Deadline)
	if keep {
		err = &Late{error: err, p: p, l: l, t: t}
	}
	return false, err
}

// Late is the error of a take that goes on though nobody waits for it.
type Late struct {
	error
	p *Pipeline
	l *lane
	t *take
}

// Unwrap says why nobody waits.
func (e *Late) Unwrap() error { return e.error }

// Arrive waits for the take after all, once. It returns its verdicts, or none of
// a take that was refused. When ctx ends first, what the take turns out to have
// taken is given back, if back says so; the outcome is then unknown.
func (e *Late) Arrive(ctx context.Context, back bool) ([]plan.Verdict, error) {
	t := e.t
	select {
	case <-t.done:
	case <-ctx.Done():
		e.l.mu.Lock()
		defer e.l.mu.Unlock()
		select {
		case <-t.done:
		default:
			t.left = back
			return nil, fmt.Errorf("%w: %w", e.p.o.Errors.OutcomeUnknown, ctx.Err())
		}
	}
	if t.err != nil || t.refused {
		return nil, t.err
	}
	return t.verdicts, nil
}

// again puts takes back at the head of the queue. Whoever calls it sees to it
// that the lane goes on.
func (l *lane) again(takes []*take) {
	if len(takes) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range takes {
		t.sent = false
	}
	l.takes = append(slices.Clone(takes), l.takes...)
}

// held notes what holds calls up, for those that can't wait for its end; nil when
// nothing does any more.
func (l *lane) held(pending []*take, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range pending {
		t.why = why
	}
}

// run serves a lane until nothing waits in it, or until the store asks it for
// more. It may wait.
func (p *Pipeline) run(l *lane) {
	for again := true; again; {
		if pause := l.pause(p); pause > 0 {
			time.Sleep(pause)
		}
		l.gather(p)
		l.mu.Lock()
		updates := l.updates
		l.updates = nil
		l.mu.Unlock()
		began := p.clock()
		for _, u := range updates {
			u.err = p.update(l, u)
			if u.then != nil {
				u.then(u.err)
			}
			close(u.done)
		}
		again = p.goOn(l, began, p.serve(l, nil))
	}
}

// serve decides, in a goroutine of the lane's, what waits there, or one take
// alone; and says how many it were.
func (p *Pipeline) serve(l *lane, alone *take) int {
	s := p.service(l, p.clock(), alone)
	defer s.end()
	s.serve(nil)
	return s.takes
}

// found notes that a trip has found nothing left for those who asked. While it has not, several processes would spend a write each on finding
// that out again as soon as one unit is back: each then asks less often, and for
// more callers at once, where the store wants gaps. It goes by the store's time,
// in which units come back.
func (l *lane) found(p *Pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	return l.paused(p, p.clock())
}

// paused is pause for who holds the lock.
func (l *lane) paused(p *Pipeline, at time.Duration) time.Duration {
	pause := l.next - at
	if l.idle > 0 {
		pause = max(pause, min(time.Duration(l.until-p.now()), l.idle))
	}
	return pause
}

// remember publishes what a trip has found the item to be.
func (l *lane) remember(state *plan.Cells, t *outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.then = true, t.now
	l.state.CopyFrom(state)
	l.seenAt.Store(int64(t.began))
}

// slow sets how long the next write to a busy item has to wait, twice as long
// for every batch that the store finds too much, and returns a wait before the
// same write is tried again. It varies, so that processes don't meet again.
func (l *lane) slow(p *Pipeline, again bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !again || l.gap == 0 { // others have got through since
		first := p.throttled()
		l.gap = min(2*max(l.gap, first), max(first, p.o.Deadline/2), maxGap)
	}
	return l.gap/2 + rand.N(l.gap)
}

// throttled is the least gap to an item that the store finds too busy.
func (p *Pipeline) throttled() time.Duration { return max(p.o.Gap, firstGap) }

// calm lets a lane go slowly faster again: by one write a second for every write
// that gets through. Sums that rise and shares that fall bring the processes that
// meet at an item to about the same pace. took says that the item had something
// left for those who asked.
func (l *lane) calm(p *Pipeline, took bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took {
		l.idle, l.vain = 0, false
	}
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
	var state plan.Cells
	now := p.now()
	if u.Read {
		t := p.send(ctx, l.item, nil, &state)
		if t.err != nil {
			return t.err
		}
		l.remember(&state, t)
		known, now = &state, t.now
	}
	var w plan.Write
	busy := false
	for trips := 0; trips < maxTrips; {
		w.Reset()
		if !u.Next(known, now, &w) {
			return nil
		}
		var got plan.Cells
		at, applied, err := p.write(ctx, l, u.Sure, []plan.Write{w}, &got, nil)
		if errors.Is(err, p.o.Errors.Throttled) && p.rest(ctx, l.slow(p, busy)) {
			busy, now = true, p.now()
			continue
		}
		if err != nil {
			return err
		}
		if applied {
			if u.Left != nil {
				u.Left(&got)
			}
			return nil
		}
		trips++
		state = got
		known, now = &state, at
	}
	return p.o.Errors.Busy
}

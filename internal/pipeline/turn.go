package pipeline

import (
	"context"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// Gatherer is implemented by a store that sends together what several calls want
// of it at the same time. It is given questions, and asks what they are when it
// is about to send them: so the first write of a turn holds everything that has
// come until then.
// All that a call costs between coming and being woken is then done in the one
// goroutine that sends and receives, where the memory for it is at hand.
type Gatherer interface {
	// Gather has q asked with others, from a goroutine of the store's and not
	// from within Gather, and after no more than the time that those before it
	// take. It reports false when that is not possible now, as without a
	// connection: q is then never asked, and Apply does it.
	//
	// The methods of q may call Gather.
	Gather(q Question) bool
}

// Question is what one item's calls want of a [Gatherer].
type Question interface {
	// Ask is called once, right before a trip, and says what to send. Without
	// ok there is nothing to send any more, and that is the end of it.
	Ask() (a Attempt, ok bool)
	// Answered is called once after Ask: when there is an answer, or when the
	// trip's time is over. a is there to be read during the call only.
	Answered(a Answer)
}

// Attempt is what Apply is given. Its tries stay as they are until it is answered.
type Attempt struct {
	Context context.Context // whose values observers get; its end means nothing
	Until   time.Time       // when it is to have been answered, if late then by little
	Item    plan.Key
	Tries   []plan.Write
}

// Answer is what has become of an attempt.
type Answer interface {
	// Read returns what Apply would.
	Read(state *plan.Cells) (applied int, now int64, err error)
}

// turn is a lane's turn at a store that gathers, or that of one take by itself
// where nothing is coalesced. It is a [Question].
//
// While a lane is running, exactly one has it: a goroutine in run, or its turn.
// A turn has it from the moment it is gathered, over any number of trips and in
// the goroutine that hand begins, until its service is over; then goOn gives it
// on. So a turn is never gathered twice
// at a time, and what it holds needs no lock.
type turn struct {
	p     *Pipeline
	l     *lane
	alone *take
	s     *service // nil before the first trip, and after the last
}

// gathered has the store ask the lane, and reports whether it will.
func (p *Pipeline) gathered(l *lane, alone *take) bool {
	if p.gatherer == nil {
		return false
	}
	q := &l.turn
	if alone != nil {
		q = new(turn)
	}
	q.p, q.l, q.alone = p, l, alone
	return p.gatherer.Gather(q)
}

// Ask implements [Question].
func (q *turn) Ask() (a Attempt, ok bool) {
	s := q.s
	if s == nil {
		s = q.p.service(q.l, q.p.clock(), q.alone)
		if q.s = s; !s.plan() {
			q.over()
			return a, false
		}
	} else {
		s.trip.began, s.trip.sent = q.p.clock(), q.p.o.Clock()
	}
	if !q.p.breaker.allow(s.trip.began) {
		s.fail(q.p.o.Errors.Open)
		q.over()
		return a, false
	}
	q.p.stats.trips.Add(1)
	q.p.stamp(q.l, s.write[:s.offered])
	return Attempt{s.pending[0].ctx, q.p.begun.Add(s.until), q.l.item, s.write[:s.offered]}, true
}

// Answered implements [Question]. What the outcome asks for that takes time, as
// a failure or housekeeping does, goes on in a goroutine of the lane's.
func (q *turn) Answered(a Answer) {
	s, t := q.s, &q.s.trip
	t.applied, t.now, t.err = a.Read(&s.next)
	q.p.learn(t)
	if t.err != nil || s.untidy(t.now) {
		q.hand(t)
		return
	}
	q.l.remember(&s.next, t)
	s.got(t.now, t.applied >= 0, nil)
	if !s.plan() {
		q.over()
		return
	}
	if !q.p.gatherer.Gather(q) {
		q.hand(nil)
	}
}

// hand leaves the rest of a service to a goroutine, which may wait: what the
// outcome of a trip asks for, or the next trip.
func (q *turn) hand(first *outcome) {
	go func() {
		q.s.serve(first)
		q.over()
	}()
}

// over ends the service of a turn, and the turn.
func (q *turn) over() {
	p, l, began, takes := q.p, q.l, q.s.began, q.s.takes
	q.s.end()
	q.s = nil
	if q.alone != nil {
		l.put()
		return
	}
	if p.goOn(l, began, takes) {
		go p.run(l)
	}
}

// goOn has the lane serve what has come while so many takes were decided, and
// gives it up when nothing has. It reports true when that is left to the caller,
// in a goroutine that may wait.
func (p *Pipeline) goOn(l *lane, began time.Duration, takes int) bool {
	l.mu.Lock()
	l.next = began + l.gap
	if takes > 1 {
		l.next = max(l.next, began+p.o.Gap) // a crowd: the next write will be fuller for it
		if p.gatherer == nil && p.o.Gap == 0 {
			now := p.clock()
			l.crowd.expect(takes+l.behind, now, now-began)
		}
	}
	if len(l.takes) == 0 && len(l.updates) == 0 {
		l.running = false
		l.mu.Unlock()
		l.put()
		return false
	}
	turn := len(l.updates) == 0 && l.paused(p, p.clock()) <= 0
	l.mu.Unlock()
	return !turn || !p.gathered(l, nil)
}

package pipeline

import (
	"context"
	"time"
)

// goes decides how a take is served: it reports true for one that finds its
// lane standing still, and a store that can be asked without waiting for it.
// That take's caller then leads: it asks in its own goroutine, and passes the
// lead on to one of those who have come meanwhile. Every other take waits, for
// that or for a goroutine of the lane's.
func (p *Pipeline) goes(l *lane, t *take, at time.Duration) bool {
	if p.o.NoCoalescing {
		t.sent = true // nothing waits in the lane
		if p.starter != nil {
			return true
		}
		l.hold()
		go func() {
			defer l.put()
			p.serve(l, t)
		}()
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes = append(l.takes, t)
	if l.running {
		return false
	}
	l.running = true
	if p.starter != nil && l.paused(p, at) <= 0 {
		return true
	}
	l.hold()
	go p.run(l)
	return false
}

// lead decides, in the goroutine of a take's caller, what waits in the lane.
// What would keep the caller for longer than it may stay, or for the sake of
// others, goes on in a goroutine of the lane's: then the take may not be
// answered yet. So it is with an error, which is the caller's own.
//
// Why nobody is forgotten, and nobody hears twice: while running is set, exactly
// one goroutine has the lane. It has it from goes or enter on and gives it on in
// goOn, to a goroutine or to the first who waits, whose take is still in the
// queue, so that the next service finds it there; or in run, when nothing waits.
// Who has been told to lead and leaves instead takes the value out of done
// himself, under the lock, and starts the goroutine that goOn did not: see leave.
// A take that nobody waits for any more is never told to lead. So done, which has
// room for one value, is empty whenever a take is answered, and the value that
// [Late] waits for is the answer. A take is used again only by the caller who
// has received the answer; after an error it is left to whoever still holds it.
func (p *Pipeline) lead(ctx context.Context, until time.Duration, l *lane, t *take, at time.Duration, keep bool) (answered bool, err error) {
	alone := t
	if !p.o.NoCoalescing {
		alone = nil
	}
	s := p.service(l, at, alone)
	for s.plan() {
		if answered, err = t.answered(); answered {
			s.hand(ctx, at, nil, nil) // the rest are others
			return true, err
		}
		p.stamp(l, s.write[:s.offered])
		trip := &s.trip
		*trip = outcome{began: at, until: s.until, sent: s.clock}
		if s.fresh { // not the first
			trip.began, trip.sent = p.clock(), p.o.Clock()
		}
		if !p.breaker.allow(trip.began) {
			s.fail(p.o.Errors.Open)
			break
		}
		pending := p.starter.Start(ctx, p.begun.Add(s.until), l.item, s.write[:s.offered])
		if pending == nil {
			p.breaker.unused(trip.began) // by this goroutine: the other claims it anew
			s.hand(ctx, at, nil, nil)
			return false, nil
		}
		p.stats.trips.Add(1)
		if !p.wait(ctx, t, trip.began, until, pending.Done()) {
			_, err = p.leave(ctx, l, t, keep)
			s.hand(ctx, at, trip, pending)
			return false, err
		}
		trip.applied, trip.now, trip.err = pending.Answer(&s.next)
		p.learn(trip)
		if trip.err != nil || s.untidy(trip.now) {
			s.hand(ctx, at, trip, nil)
			return false, nil
		}
		l.remember(&s.next, trip)
		s.got(trip.now, trip.applied >= 0, nil)
	}
	_, err = t.answered()
	takes := s.takes
	s.end()
	p.goOn(l, at, takes)
	return true, err
}

// answered is whether a take has its answer, and the error that this may be.
func (t *take) answered() (bool, error) {
	select {
	case <-t.done:
		return true, t.err
	default:
		return false, nil
	}
}

// hand leaves the rest of a service to a goroutine of the lane's: to wait for a
// trip that is under way, to do what the outcome of one asks for, or to plan the
// next one.
func (s *service) hand(ctx context.Context, at time.Duration, first *outcome, pending Pending) {
	p, l := s.p, s.l
	l.hold()
	go func() {
		defer l.put()
		done := s.own(ctx)
		if pending != nil {
			select {
			case <-pending.Done():
				first.applied, first.now, first.err = pending.Answer(&s.next)
			case <-s.ctx.Done():
				first.err = pending.Abandon(s.ctx.Err())
			}
			p.learn(first)
		}
		s.serve(first)
		done()
		takes := s.takes
		s.end()
		p.goOn(l, at, takes)
	}()
}

// goOn has the lane serve what has come while so many takes were decided.
func (p *Pipeline) goOn(l *lane, began time.Duration, takes int) {
	if p.o.NoCoalescing {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace(p, began, takes)
	switch {
	case len(l.takes) == 0 && len(l.updates) == 0:
		l.running = false
	case len(l.updates) == 0 && !l.takes[0].gone && (l.next <= began && l.idle == 0 || l.paused(p, p.clock()) <= 0):
		l.takes[0].lead = true
		l.takes[0].done <- struct{}{}
	default:
		l.hold()
		go p.run(l)
	}
}

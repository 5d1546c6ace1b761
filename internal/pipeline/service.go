package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// service decides takes of one item: plan, apply, and plan again from what came
// back, until each is answered. It writes what fits, and refuses only what a
// state does not fit that the store has just returned.
type service struct {
	p       *Pipeline
	l       *lane
	ctx     context.Context // of its trips; nil while nobody may be kept waiting
	began   time.Duration   // on the pipeline's clock
	until   time.Duration   // when its time is over, by that
	pending []*take         // those without an answer
	takes   int             // with an answer or without
	batch   batch           // those of them that go out next
	known   plan.Cells      // what they are judged by
	next    plan.Cells      // what the store returns
	now     int64           // the store's time of known, or an estimate
	fresh   bool            // known came from the store in this very service
	took    bool            // a write has taken something
	busy    bool            // the store has found the item too busy
	most    int             // takes in one write
	vain    int             // writes that did not hold, one after the other, and left out no further shadow
	missed  int             // and all that did not
	spoiled bool            // one of the takes is of what can't be read
	write   [2]plan.Write   // what is offered: the first offered of them
	offered int
	trip    outcome // of a turn
	later   []total // scratch of allow
}

// service begins to decide what waits in a lane; or one take alone.
func (p *Pipeline) service(l *lane, began time.Duration, alone *take) *service {
	s, _ := p.services.Get().(*service)
	if s == nil {
		s = &service{p: p}
	}
	s.l, s.began, s.until, s.most = l, began, began+p.Deadline(), maxBatch
	s.trip = outcome{began: began, until: s.until, sent: p.o.Clock()}
	s.now = s.trip.sent + p.ahead.Load()
	l.mu.Lock()
	s.known.CopyFrom(&l.state)
	if alone != nil {
		s.pending = append(s.pending[:0], alone)
	} else {
		n := min(len(l.takes), maxBatch)
		s.pending = append(s.pending[:0], l.takes[:n]...)
		left := copy(l.takes, l.takes[n:])
		clear(l.takes[left:])
		l.takes = l.takes[:left]
	}
	s.pending = here(s.pending)
	for _, t := range s.pending {
		t.sent = true
	}
	l.mu.Unlock()
	if s.takes = len(s.pending); s.takes > 1 {
		p.stats.coalesced.Add(uint64(s.takes - 1))
	}
	return s
}

// end gives back what the service has borrowed. Nothing of it may be used then.
func (s *service) end() {
	s.batch.reset()
	clear(s.pending[:cap(s.pending)])
	clear(s.later[:cap(s.later)])
	s.ctx, s.l = nil, nil
	s.fresh, s.took, s.busy, s.vain, s.missed, s.spoiled = false, false, false, 0, 0, false
	s.p.services.Put(s)
}

// serve decides all takes, waiting for the store as long as it has to. A trip
// may have been made already. Trips have the values of the call that began the
// service, and not its end, because others wait for the same answer.
func (s *service) serve(first *outcome) {
	if len(s.pending) == 0 {
		return
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithDeadline(context.WithoutCancel(s.pending[0].ctx), s.p.begun.Add(s.until))
	defer cancel()
	for first != nil || s.plan() {
		at, applied, err := s.p.write(s.ctx, s.l, true, s.write[:s.offered], &s.next, first)
		first = nil
		if !s.got(at, applied, err) {
			return
		}
	}
}

// plan prepares the next write. When it reports that there is none, all takes
// have been answered.
func (s *service) plan() bool {
	p, l, b := s.p, s.l, &s.batch
	for len(s.pending) > 0 {
		if s.vain >= maxTrips {
			s.failAlike(p.o.Errors.Busy)
			continue
		}
		if s.fresh {
			if s.refuse(); len(s.pending) == 0 {
				if !s.took {
					l.found(p)
				}
				return false
			}
		}
		b.judge(s.pending, &s.known, s.now, s.most, s.fresh)
		doubt := len(b.totals) == 0 && !s.fresh && s.known.Len() > 0
		if doubt {
			// What is only remembered refuses nobody: ask as if nothing were known.
			s.known.Reset()
			b.judge(s.pending, &s.known, s.now, s.most, s.fresh)
		}
		if len(b.totals) == 0 && len(b.fits) > 0 {
			if s.fresh {
				s.tidy(b.fits[0].asks, true)
			}
			s.allow(&s.known) // shadows only, and none of them fits
			continue
		}
		if len(b.fits) == 0 || !b.plan(&s.known, s.now, &s.write[0]) {
			s.fail(p.o.Errors.Busy) // what fits one by one fits together; see the test of that
			return false
		}
		s.offered = 1
		if s.known.Len() == 0 && !s.fresh && b.orElse(&s.write[0], &s.write[1], s.now) {
			// Of an item of which nothing is known both are offered, which saves a
			// trip on a store that looks at more than the first. One that refused
			// when it was last seen is in use.
			if doubt {
				s.write[0], s.write[1] = s.write[1], s.write[0]
			} else {
				s.offered = 2
			}
		}
		if s.vain >= patience {
			s.write[0].Freeze(s.now)
		}
		return true
	}
	return false
}

// got takes in the outcome of a write, and reports whether to go on.
func (s *service) got(at int64, applied bool, err error) bool {
	p, l := s.p, s.l
	if errors.Is(err, p.o.Errors.Throttled) {
		l.held(s.pending, err)
		if p.rest(s.ctx, l.slow(p, s.busy)) {
			l.held(s.pending, nil)
			s.busy, s.now = true, p.now()
			s.pending = l.present(s.pending)
			return true
		}
	}
	if s.readable(err) {
		s.pending = l.present(s.pending)
		return true
	}
	if err != nil {
		// What was not in the write has its turn with the next one.
		l.again(s.batch.rest)
		s.pending = append(s.pending[:0], s.batch.fits...)
		s.fail(err)
		return false
	}
	l.calm(p, applied)
	s.known, s.next = s.next, s.known
	planned := s.now
	s.now, s.fresh = at, true
	switch {
	case applied:
		s.took, s.vain, s.missed = true, 0, 0
		if !s.spoiled {
			s.most = maxBatch
		}
		s.tidy(s.batch.fits[0].asks, true)
		s.allow(&s.known)
	case s.loses(planned) || s.sheds(): // and nothing is said of what else was asked
	default:
		if s.vain++; s.vain >= patience {
			s.most = 1 // others want the rest too: one may get what all together don't
		}
	}
	s.pending = l.present(s.pending)
	return true
}

// readable goes on after a write that failed by what another program has spoiled, and
// of which surely nothing was applied: without the shadows of whose limits it is, or the
// takes. Where the store does not say which field it is, all shadows stay out, and then
// the takes go one by one, until the one is found that fails. It reports false of any
// other error.
func (s *service) readable(err error) bool {
	if err == nil || errors.Is(err, s.p.o.Errors.OutcomeUnknown) {
		return false
	}
	var e *plan.SpoiledError
	if !errors.As(err, &e) {
		return false
	}
	var fields []plan.Field
	for _, text := range append([]string{e.Field}, e.More...) {
		if f, ok := plan.ParseField(text); ok {
			fields = append(fields, f)
		}
	}
	owns := func(a *Ask) bool { return slices.ContainsFunc(fields, a.Spec.Owns) }
	with := func(t *take) bool {
		return slices.ContainsFunc(t.asks, func(a Ask) bool { return !a.Shadow && owns(&a) })
	}
	switch {
	case s.lose(err, func(a *Ask) bool { return len(fields) == 0 || owns(a) }):
	case slices.ContainsFunc(s.batch.fits, with):
		s.failThose(err, with)
	case s.lose(err, func(*Ask) bool { return true }):
	case len(s.batch.fits) > 1:
		s.spoiled, s.most = true, 1
	default:
		s.failAlike(err)
	}
	return true
}

// lose has shadows that rode in the last write stay out of all further ones, those of
// which says so, and reports whether there were any. They are not counted.
func (s *service) lose(why error, which func(*Ask) bool) (any bool) {
	for _, t := range s.batch.fits {
		for i := range t.asks {
			rides := t.verdicts[i].OK || !s.fresh // or has guards in the write, by what was last known, that it has no room
			if a := &t.asks[i]; a.Shadow && len(t.asks) > 1 && rides && t.shed&(1<<i) == 0 && which(a) {
				t.shed |= 1 << i
				t.verdicts[i], a.Err, any = unseen(a), why, true
			}
		}
	}
	return any
}

// loses is lose after a write that did not hold, once there were some: of the shadows
// whose own guards did not, by the state that the write was planned by and the one that
// it has met; after some more, of all. They must keep nobody else from coming through.
func (s *service) loses(planned int64) bool {
	if s.missed++; s.missed < patience {
		return false
	}
	var w plan.Write
	return s.lose(s.p.o.Errors.Busy, func(a *Ask) bool {
		w.Reset()
		return s.missed >= 2*patience || !a.Spec.Plan(&s.next, planned, a.Cost, &w).OK || !w.Holds(&s.known, s.now)
	})
}

// failAlike answers the one take of the last write, and all that ask for the same
// limits. The others have tries of their own, together again.
func (s *service) failAlike(err error) {
	one := s.batch.fits[0]
	s.failThose(err, func(t *take) bool {
		return slices.EqualFunc(t.asks, one.asks, func(a, b Ask) bool { return a.Spec.Alike(b.Spec) })
	})
	s.vain, s.missed, s.spoiled, s.most = 0, 0, false, maxBatch
}

// failThose answers some takes.
func (s *service) failThose(err error, which func(*take) bool) {
	var failed []*take
	rest := s.pending[:0]
	for _, t := range s.pending {
		if which(t) {
			failed = append(failed, t)
		} else {
			rest = append(rest, t)
		}
	}
	s.pending = rest
	s.p.fail(s.l, failed, err)
}

// sheds is that of all takes without an answer.
func (s *service) sheds() (news bool) {
	for _, t := range s.pending {
		news = t.sheds(&s.known, s.now) || news
	}
	return news
}

// fail answers the takes that could not be decided.
func (s *service) fail(err error) {
	s.p.fail(s.l, s.pending, err)
	s.pending = s.pending[:0]
}

// tidy makes the write that a refusal must not put off, or that a take could not
// see to be due, if any. The next call tries again, so that a failure needs no
// answer. While nobody may be kept waiting, none is due: see untidy.
func (s *service) tidy(asks []Ask, taken bool) {
	if s.ctx == nil {
		return
	}
	var w plan.Write
	due := false
	for i := range asks {
		if v := asks[i].Spec.Look(&s.known, s.now, asks[i].Cost); !v.Never && (taken || !v.OK) {
			due = asks[i].Spec.Tidy(&s.known, s.now, &w) || due
		}
	}
	if due {
		var state plan.Cells
		_, _, _ = s.p.write(s.ctx, s.l, false, []plan.Write{w}, &state, nil)
	}
}

// untidy reports whether what the store has just returned may need tidying for
// a take without an answer.
func (s *service) untidy(now int64) bool {
	for _, t := range s.pending {
		for i := range t.asks {
			s.write[1].Reset()
			if t.asks[i].Spec.Tidy(&s.next, now, &s.write[1]) {
				return true
			}
		}
	}
	return false
}

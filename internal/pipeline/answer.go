package pipeline

import (
	"context"
	"slices"

	"github.com/weirlabs/weir/internal/plan"
)

// answer ends a take's wait. Nobody but its caller may look at it then. The
// caller of answer holds the lane's lock.
func (t *take) answer() { t.done <- struct{}{} }

// present drops the takes whose callers have gone before anything was taken.
func (l *lane) present(pending []*take) []*take {
	if len(pending) == 0 {
		return pending
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return here(pending)
}

// here is present for who holds the lock.
func here(pending []*take) []*take {
	left := pending[:0]
	for _, t := range pending {
		if t.left {
			t.answer()
			continue
		}
		left = append(left, t)
	}
	return left
}

// allow answers the takes that a write has taken, each with what was left after
// it and before those that came later, by the state that it left. What was taken
// for callers who have gone is given back. The rest waits on.
func (s *service) allow(state *plan.Cells) {
	s.later = append(s.later[:0], s.batch.totals...)
	back := s.allowed(state)
	s.pending = append(s.pending[:0], s.batch.rest...)
	for _, u := range back {
		s.p.change(s.l, u)
	}
}

func (s *service) allowed(state *plan.Cells) (back []*update) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.behind = len(s.l.takes)
	for i := range s.later {
		if m := &s.later[i]; m.notice != 0 {
			if m.hears = s.hears(m.spec); m.hears == nil {
				back = append(back, unmark(m))
			}
		}
	}
	for _, t := range s.batch.fits {
		for i := range t.asks {
			a := &t.asks[i]
			if !t.verdicts[i].OK {
				if a.Err == nil {
					s.without(state, a, &t.verdicts[i])
				}
				continue
			}
			v := a.Spec.Look(state, s.now, a.Cost)
			notice := int64(0)
			for j := range s.later {
				if later := &s.later[j]; later.spec.Same(a.Spec) {
					later.sum -= a.Cost
					a.Spec.Before(state, &v, later.sum)
					if later.hears == t {
						notice = later.notice
					}
				}
			}
			v.OK, v.Wait, v.Notice = true, 0, notice
			t.verdicts[i] = v
		}
		if t.left {
			back = append(back, giveBack(t))
		}
		t.answer()
	}
	return back
}

// without brings up to date the verdict of a shadow that the write went without:
// to what the write left, but for what was taken later. As it was judged, that was
// by what was last known; where there is room since, it stays.
func (s *service) without(state *plan.Cells, a *Ask, v *plan.Verdict) {
	if !s.fresh { // nobody was asked: the cost alone refuses, or what the call has seen before
		if v.Never {
			*v = unseen(a)
		}
		return
	}
	left := state
	for i := range s.later {
		if m := &s.later[i]; m.sum > 0 && m.spec.Same(a.Spec) {
			var w plan.Write
			left = &s.batch.scratch
			left.CopyFrom(state)
			if m.spec.GiveBack(left, s.now, m.sum, m.spec.Look(left, s.now, 1).Stamp, &w) {
				w.Apply(left, s.now)
			}
		}
	}
	if u := a.Spec.Look(left, s.now, a.Cost); !u.OK {
		*v = u
	}
}

// hears is who is told of the mark that a batch has reached: the last of those that
// took of the limit and still wait.
func (s *service) hears(of *plan.Spec) *take {
	for _, t := range slices.Backward(s.batch.fits) {
		for i := range t.asks {
			if !t.gone && t.verdicts[i].OK && t.asks[i].Spec.Same(of) {
				return t
			}
		}
	}
	return nil
}

// unmark takes back a mark that nobody has heard of: the next take tells of it.
func unmark(m *total) *update {
	spec, mark := m.spec, m.notice
	return &update{ctx: context.Background(), done: make(chan struct{}), Change: Change{Next: func(known *plan.Cells, now int64, w *plan.Write) bool {
		return spec.Unmark(known, now, mark, w)
	}}}
}

// giveBack returns what a take took whose caller has gone.
func giveBack(t *take) *update {
	return &update{ctx: t.ctx, done: make(chan struct{}), Change: Change{Next: func(known *plan.Cells, now int64, w *plan.Write) bool {
		any := false
		for i := range t.asks {
			if t.verdicts[i].OK {
				any = t.asks[i].Spec.GiveBack(known, now, t.asks[i].Cost, t.verdicts[i].Stamp, w) || any
			}
		}
		return any
	}}}
}

// refuse answers the takes for which the store's state has no room, and does the
// housekeeping that no take follows to do.
func (s *service) refuse() {
	rest := s.batch.rest[:0]
	tidied := false
	for _, t := range s.pending {
		if room(t, &s.known, s.now) {
			rest = append(rest, t)
		} else if !tidied {
			s.tidy(t.asks, false)
			tidied = true
		}
	}
	s.batch.rest = rest
	if !tidied {
		return
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.behind = len(s.l.takes)
	for _, t := range s.pending {
		if len(rest) > 0 && rest[0] == t {
			rest = rest[1:]
			continue
		}
		t.look(&s.known, s.now)
		t.answer()
	}
	s.pending = append(s.pending[:0], s.batch.rest...)
}

// fail answers the takes that could not be decided.
func (p *Pipeline) fail(l *lane, pending []*take, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range pending {
		t.err = err
		t.answer()
	}
}

package pipeline

import (
	"context"

	"github.com/weirlabs/weir/internal/plan"
)

// present drops the takes whose callers have gone before anything was taken.
func (p *Pipeline) present(l *lane, pending []*take) []*take {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := pending[:0]
	for _, t := range pending {
		if t.left {
			close(t.done)
			continue
		}
		here = append(here, t)
	}
	return here
}

// allow answers the takes that a write has taken, each with what was left after
// it and before those that came later. What was taken for callers who have gone
// is given back.
func (p *Pipeline) allow(l *lane, b *batch, state *plan.Cells, now int64) {
	later := make([]total, len(b.totals))
	copy(later, b.totals)
	for _, u := range p.answer(l, b, later, state, now) {
		p.enter(l, nil, u)
	}
}

func (p *Pipeline) answer(l *lane, b *batch, later []total, state *plan.Cells, now int64) (back []*update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range b.fits {
		for i := range t.asks {
			a := &t.asks[i]
			v := a.Spec.Look(state, now, a.Cost)
			if b.out[outKey{t, i}] {
				v.OK = false
				t.verdicts[i] = v
				continue
			}
			notice := int64(0)
			for j := range later {
				if later[j].spec.Same(a.Spec) {
					later[j].sum -= a.Cost
					a.Spec.Before(state, &v, later[j].sum)
					if later[j].sum == 0 { // the batch's mark is told to the last of it
						notice = later[j].notice
					}
				}
			}
			v.OK, v.Wait = true, 0
			v.Notice = notice
			t.verdicts[i] = v
		}
		if t.left {
			back = append(back, giveBack(t))
		}
		close(t.done)
	}
	return back
}

// giveBack returns what a take took whose caller has gone.
func giveBack(t *take) *update {
	return &update{ctx: t.ctx, done: make(chan struct{}), next: func(known *plan.Cells, now int64, w *plan.Write) bool {
		any := false
		for i := range t.asks {
			if t.verdicts[i].OK {
				any = t.asks[i].Spec.GiveBack(known, now, t.asks[i].Cost, t.verdicts[i].Stamp, w) || any
			}
		}
		return any
	}}
}

// refuse answers the takes for which the store's state has no room, does the
// housekeeping that no take follows to do, and returns the others.
func (p *Pipeline) refuse(ctx context.Context, l *lane, pending []*take, state *plan.Cells, now int64) []*take {
	rest := pending[:0]
	var refused []*take
	for _, t := range pending {
		if room(t, state, now) {
			rest = append(rest, t)
		} else {
			refused = append(refused, t)
		}
	}
	if len(refused) == 0 {
		return rest
	}
	p.tidy(ctx, l, refused[0].asks, false, state, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range refused {
		t.look(state, now)
		close(t.done)
	}
	return rest
}

// tidy makes the write that a refusal must not put off, or that a take could not
// see to be due, if any. The next call tries again, so that a failure needs no
// answer.
func (p *Pipeline) tidy(ctx context.Context, l *lane, asks []Ask, taken bool, state *plan.Cells, now int64) {
	var w plan.Write
	due := false
	for i := range asks {
		if v := asks[i].Spec.Look(state, now, asks[i].Cost); !v.Never && (taken || !v.OK) {
			due = asks[i].Spec.Tidy(state, now, &w) || due
		}
	}
	if !due {
		return
	}
	_, _, _, _ = p.write(ctx, l, false, w)
}

// fail answers the takes that could not be decided.
func (p *Pipeline) fail(l *lane, pending []*take, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range pending {
		t.err = err
		close(t.done)
	}
}

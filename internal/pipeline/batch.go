package pipeline

import (
	"slices"

	"github.com/weirlabs/weir/internal/plan"
)

// batch is the takes of one item that go out in one write.
type batch struct {
	fits    []*take // taken by the write, in order of arrival
	rest    []*take // what the known state has no room for
	totals  []total
	asNew   []total         // of the write for an item that is as good as new
	out     map[outKey]bool // shadows that do not fit; they stay out of the write
	scratch plan.Cells
}

// total is what all takes of a batch together want of one limit.
type total struct {
	spec   *plan.Spec
	sum    int64
	notice int64 // the mark that the write reaches, if any
	hears  *take // who is told of it
}

type outKey struct {
	t *take
	i int
}

// reset empties a batch and keeps its memory.
func (b *batch) reset() {
	clear(b.fits[:cap(b.fits)])
	clear(b.rest[:cap(b.rest)])
	clear(b.totals[:cap(b.totals)])
	clear(b.asNew[:cap(b.asNew)])
	b.fits, b.rest, b.totals, b.out = b.fits[:0], b.rest[:0], b.totals[:0], nil
}

// judge fills a batch from a known state: in order of arrival, each take that
// still fits, but no more of them than most. A later, smaller one may pass where
// an earlier one did not.
func (b *batch) judge(pending []*take, known *plan.Cells, now int64, most int) {
	b.reset()
	if len(pending) == 1 && pending[0].plain() { // as of most calls: nobody needs the state that it leaves
		if t := pending[0]; room(t, known, now) {
			b.fits = append(b.fits, t)
			b.add(t.asks[0].Spec, t.asks[0].Cost)
		} else {
			b.rest = append(b.rest, t)
		}
		return
	}
	b.scratch.CopyFrom(known)
	for _, t := range pending {
		if len(b.fits) == most || b.differs(t) || !room(t, &b.scratch, now) {
			b.rest = append(b.rest, t)
			continue
		}
		b.fits = append(b.fits, t)
		for i := range t.asks {
			a := &t.asks[i]
			if a.Spec.Step(&b.scratch, now, a.Cost).OK {
				b.add(a.Spec, a.Cost)
				continue
			}
			if b.out == nil {
				b.out = map[outKey]bool{}
			}
			b.out[outKey{t, i}] = true
		}
	}
}

// plain reports whether a take is of one limit, which it must have.
func (t *take) plain() bool { return len(t.asks) == 1 && !t.asks[0].Shadow }

// differs reports whether a take is of another limit with the same counters as
// one of the batch, such as those of two plans of one caller. One write can't
// guard both; the next one is theirs.
func (b *batch) differs(t *take) bool {
	for i := range t.asks {
		for j := range b.totals {
			if s := t.asks[i].Spec; b.totals[j].spec.Same(s) && !b.totals[j].spec.Alike(s) {
				return true
			}
		}
	}
	return false
}

func room(t *take, state *plan.Cells, now int64) bool {
	for i := range t.asks {
		if a := &t.asks[i]; !a.Shadow && !a.Spec.Look(state, now, a.Cost).OK {
			return false
		}
	}
	return true
}

func (b *batch) add(spec *plan.Spec, cost int64) {
	for i := range b.totals {
		if b.totals[i].spec.Same(spec) {
			b.totals[i].sum += cost
			return
		}
	}
	b.totals = append(b.totals, total{spec: spec, sum: cost})
}

// plan makes the one write, and reports whether there is one.
func (b *batch) plan(known *plan.Cells, now int64, w *plan.Write) bool {
	w.Reset()
	for i := range b.totals {
		t := &b.totals[i]
		v := t.spec.Plan(known, now, t.sum, w)
		if !v.OK {
			return false
		}
		t.notice = v.Notice
	}
	return len(w.Do) > 0
}

// orElse makes, beside the write for an item that is as good as new, that for an
// item of which a little has been taken, and reports whether it is another one.
func (b *batch) orElse(asNew, w *plan.Write, now int64) bool {
	b.scratch.Reset()
	for _, t := range b.totals {
		t.spec.Step(&b.scratch, now, 1)
	}
	b.asNew = append(b.asNew[:0], b.totals...)
	if b.plan(&b.scratch, now, w) && slices.Equal(b.totals, b.asNew) && !slices.Equal(w.If, asNew.If) {
		return true
	}
	copy(b.totals, b.asNew) // no second write, or one that reaches another mark
	return false
}

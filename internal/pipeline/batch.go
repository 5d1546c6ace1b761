package pipeline

import (
	"slices"

	"github.com/weirlabs/weir/internal/plan"
)

// batch is the takes of one item that go out in one write.
type batch struct {
	fits    []*take // taken by the write, in order of arrival; a shadow of theirs whose verdict is not OK stays out
	rest    []*take // what the known state has no room for
	totals  []total
	asNew   []total // of the write for an item that is as good as new
	lacks   []total // what the write needs to be refused, for shadows that stay out
	scratch plan.Cells
}

// total is what all takes of a batch together want of one limit.
type total struct {
	spec   *plan.Spec
	sum    int64
	notice int64 // the mark that the write reaches, if any
	hears  *take // who is told of it
}

// reset empties a batch and keeps its memory.
func (b *batch) reset() {
	clear(b.fits[:cap(b.fits)])
	clear(b.rest[:cap(b.rest)])
	clear(b.totals[:cap(b.totals)])
	clear(b.asNew[:cap(b.asNew)])
	clear(b.lacks[:cap(b.lacks)])
	b.fits, b.rest, b.totals, b.lacks = b.fits[:0], b.rest[:0], b.totals[:0], b.lacks[:0]
}

// judge fills a batch from a known state: in order of arrival, each take that
// still fits, but no more of them than most. A later, smaller one may pass where
// an earlier one did not. A shadow that does not fit stays out of the write; that
// it does not is for the write to see, unless the state came from the store just
// now, which is fresh enough for what takes nothing.
func (b *batch) judge(pending []*take, known *plan.Cells, now int64, most int, fresh bool) {
	b.reset()
	if len(pending) == 1 && pending[0].plain() { // as of most calls: nobody needs the state that it leaves
		if t := pending[0]; room(t, known, now) {
			t.verdicts[0].OK = true
			b.fits = append(b.fits, t)
			b.add(t.asks[0].Spec, t.asks[0].Cost)
		} else {
			b.rest = append(b.rest, t)
		}
		return
	}
	b.scratch.CopyFrom(known)
	for _, t := range pending {
		if len(b.fits) == most || b.apart(t, now) || !room(t, &b.scratch, now) {
			b.rest = append(b.rest, t)
			continue
		}
		b.fits = append(b.fits, t)
		for i := range t.asks {
			a := &t.asks[i]
			if a.Shadow {
				if t.shed&(1<<i) != 0 {
					continue // it was refused once in this call, or can't be asked with the rest
				}
				if t.verdicts[i] = a.Spec.Look(&b.scratch, now, a.Cost); !t.verdicts[i].OK {
					b.lack(a, fresh)
					continue
				}
			}
			t.verdicts[i].OK = true
			a.Spec.Step(&b.scratch, now, a.Cost)
			b.add(a.Spec, a.Cost)
		}
	}
}

// sheds leaves out of all further writes for a take the shadows that a state of the
// store has no room for, and reports whether that is news. A call may be judged at any
// instant of its time, and a shadow must not keep others from coming through: where
// several stand at their limits, one or the other would have room whenever a write is
// planned, and none when it arrives.
func (t *take) sheds(state *plan.Cells, now int64) (news bool) {
	for i := range t.asks {
		if a := &t.asks[i]; a.Shadow && t.shed&(1<<i) == 0 {
			if v := a.Spec.Look(state, now, a.Cost); !v.OK {
				t.verdicts[i], news = v, true
				t.shed |= 1 << i
			}
		}
	}
	return news
}

// plain reports whether a take is of one limit, which it must have.
func (t *take) plain() bool { return len(t.asks) == 1 && !t.asks[0].Shadow }

// apart reports whether a take can't go out with the batch. One write can't guard
// two limits with the same counters, such as those of two plans of one caller; nor take
// more than a limit can ever hold, where a newer policy's bucket has room for it; nor
// name any number of limits. The next one is theirs.
func (b *batch) apart(t *take, now int64) bool {
	more := 0
	for i := range t.asks {
		a := &t.asks[i]
		lacks := a.Shadow && !a.Spec.Look(&b.scratch, now, a.Cost).OK
		named := t.shed&(1<<i) != 0 || lacks && slices.ContainsFunc(b.lacks, func(m total) bool { return m.spec.Alike(a.Spec) })
		for j := range b.totals {
			m := &b.totals[j]
			if !m.spec.Same(a.Spec) {
				continue
			}
			if !m.spec.Alike(a.Spec) || m.sum > a.Spec.Most()-a.Cost && a.Spec.Look(&b.scratch, now, a.Cost).OK {
				return true
			}
			named = named || !lacks
			break
		}
		if !named {
			more++
		}
	}
	return more > 0 && len(b.fits) > 0 && len(b.totals)+len(b.lacks)+more > maxLimits
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

// lack notes that a shadow has no room behind what the batch takes, unless that is
// sure. Of several, the least that it has no room for is enough.
func (b *batch) lack(a *Ask, fresh bool) {
	n := a.Cost
	if fresh || n > a.Spec.Most() {
		return
	}
	for i := range b.totals {
		if m := &b.totals[i]; m.spec.Same(a.Spec) {
			n += m.sum
		}
	}
	for i := range b.lacks {
		if m := &b.lacks[i]; m.spec.Alike(a.Spec) {
			m.sum = min(m.sum, n)
			return
		}
	}
	b.lacks = append(b.lacks, total{spec: a.Spec, sum: n})
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
	for i := range b.lacks {
		b.lacks[i].spec.Refuse(known, now, b.lacks[i].sum, w)
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

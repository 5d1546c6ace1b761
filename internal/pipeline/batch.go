package pipeline

import (
	"errors"
	"slices"

	"github.com/weirlabs/weir/internal/plan"
)

// batch is the takes of one item that go out in one write.
type batch struct {
	fits   []*take // taken by the write, in order of arrival
	rest   []*take // what the known state has no room for
	totals []total
	out    map[outKey]bool // shadows that do not fit; they stay out of the write
}

// total is what all takes of a batch together want of one limit.
type total struct {
	spec   *plan.Spec
	sum    int64
	notice int64 // the mark that the write reaches, if any
}

type outKey struct {
	t *take
	i int
}

// judge fills a batch from a known state: in order of arrival, each take that
// still fits, but no more of them than most. A later, smaller one may pass where
// an earlier one did not.
func judge(pending []*take, known *plan.Cells, now int64, most int) *batch {
	b := &batch{}
	var scratch plan.Cells
	scratch.CopyFrom(known)
	for _, t := range pending {
		if len(b.fits) == most || b.differs(t) || !room(t, &scratch, now) {
			b.rest = append(b.rest, t)
			continue
		}
		b.fits = append(b.fits, t)
		for i := range t.asks {
			a := &t.asks[i]
			if a.Spec.Step(&scratch, now, a.Cost).OK {
				b.add(a.Spec, a.Cost)
				continue
			}
			if b.out == nil {
				b.out = map[outKey]bool{}
			}
			b.out[outKey{t, i}] = true
		}
	}
	return b
}

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

// orElse adds, to the write for an item that is as good as new, one for an item
// of which a little has been taken, when that is another write. It saves a trip
// on a store that looks at more than the first.
func (b *batch) orElse(tries []plan.Write, now int64) []plan.Write {
	var used plan.Cells
	for _, t := range b.totals {
		t.spec.Step(&used, now, 1)
	}
	first := slices.Clone(b.totals)
	var w plan.Write
	if b.plan(&used, now, &w) && slices.Equal(b.totals, first) && !slices.Equal(w.If, tries[0].If) {
		return append(tries, w)
	}
	b.totals = first // no second write, or one that reaches another mark
	return tries
}

// serve decides all takes of a batch: it writes what fits, and refuses only what
// a state does not fit that the store has just returned.
func (p *Pipeline) serve(l *lane, pending []*take) {
	ctx, cancel := p.own(pending[0].ctx)
	defer cancel()
	if n := len(pending); n > 1 {
		p.stats.coalesced.Add(uint64(n - 1))
	}
	l.mu.Lock()
	known := l.state
	l.mu.Unlock()
	took, busy := false, false
	fresh := false // known came from the store in this very batch
	now := p.now()
	var w plan.Write
	most := maxBatch
	for vain := 0; vain < maxTrips; {
		if pending = p.present(l, pending); len(pending) == 0 {
			return
		}
		if known == nil {
			known = new(plan.Cells)
		}
		if fresh {
			if pending = p.refuse(ctx, l, pending, known, now); len(pending) == 0 {
				l.found(p, took)
				return
			}
		}
		b := judge(pending, known, now, most)
		if len(b.totals) == 0 && !fresh && known.Len() > 0 {
			// What is only remembered refuses nobody: ask as if nothing were known.
			known = nil
			continue
		}
		if len(b.totals) == 0 && len(b.fits) > 0 {
			if fresh {
				p.tidy(ctx, l, b.fits[0].asks, true, known, now)
			}
			p.allow(l, b, known, now) // shadows only, and none of them fits
			pending = b.rest
			continue
		}
		if len(b.fits) == 0 || !b.plan(known, now, &w) {
			break // what fits one by one fits together; see the test of that
		}
		if vain >= patience {
			w.Freeze(now)
		}
		tries := []plan.Write{w}
		if known.Len() == 0 && !fresh {
			tries = b.orElse(tries, now)
		}
		state, at, applied, err := p.write(ctx, l, true, tries...)
		if errors.Is(err, p.o.Errors.Throttled) {
			l.held(pending, err)
			if sleep(ctx, l.slow(p, busy)) {
				busy, now = true, p.now()
				continue
			}
		}
		if err != nil {
			p.fail(l, pending, err)
			return
		}
		l.calm(p)
		known, now, fresh = state, at, true
		if vain++; vain >= patience {
			most = 1 // others want the rest too: one may get what all together don't
		}
		if applied {
			took, vain, most = true, 0, maxBatch
			l.found(p, true)
			p.tidy(ctx, l, b.fits[0].asks, true, state, at)
			p.allow(l, b, state, at)
			pending = b.rest
		}
	}
	p.fail(l, pending, p.o.Errors.Busy)
}

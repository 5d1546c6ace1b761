package weir

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/weirlabs/weir/internal/pipeline"
	"github.com/weirlabs/weir/internal/plan"
)

// taking is what an op has taken, for what may follow.
type taking struct {
	cost  int64
	stamp int64 // what giving back needs
	where place

	excess int64 // units beyond a metered quota that the call has added so far

	number uint64         // of a take from a share
	late   *pipeline.Late // on the first op of a key: a take that was not waited for
}

// place is who counts what an op has taken.
type place uint8

const (
	nowhere place = iota // not asked, refused, or allowed without counting it
	inStore
	inShare // this process, until the store is charged
)

// hold notes a verdict of the store.
func (t *taking) hold(v *plan.Verdict) {
	if t.stamp = v.Stamp; v.OK {
		t.where = inStore
		t.excess = min(max(v.Used-v.Max, 0), t.cost)
	}
}

// backwards goes through the keys that are taken, the broad ones first.
func (c *call) backwards() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for to := c.taken; to > 0; {
			from := to - 1
			for from > 0 && c.ops[c.order[from-1]].Key == c.ops[c.order[from]].Key {
				from--
			}
			if !yield(c.order[from:to]) {
				return
			}
			to = from
		}
	}
}

// undo gives back what was taken of narrower keys when a broader one refuses.
func (c *call) undo(ctx context.Context) {
	if c.taken == 0 {
		return
	}
	c.lent = true
	ctx, cancel := c.limiter.after(ctx)
	defer cancel()
	for group := range c.backwards() {
		if c.settle(ctx, group, settling{actual: func(int) int64 { return 0 }, undone: true}) != nil {
			continue // this one call stays charged, never the other way
		}
		for _, i := range group {
			if d := &c.each[i]; d.Allowed && !d.Unknown {
				d.Used -= d.Cost
				d.Remaining += d.Cost
				if d.Limit.IsMetered() {
					d.Remaining = max(d.Limit.Max()-d.Used, 0)
				}
			}
		}
	}
	c.taken = 0
}

// errCharged: what a share let through can't be given back to it any more.
var errCharged = errors.New("weir: this process's share of the limit had let the call through, and its cost has been charged to the limit meanwhile: it stays counted")

// keep finds the marks that are reached by what a call has taken which nothing
// comes back of. What it can't find, a later call does.
func (c *call) keep(ctx context.Context) {
	if !slices.ContainsFunc(c.ops, func(o Op) bool { return o.spec().HasMarks() }) {
		return
	}
	ctx, cancel := c.limiter.after(ctx)
	defer cancel()
	for group := range c.backwards() {
		if c.took[group[0]].late == nil {
			_ = c.settle(ctx, group, settling{actual: func(i int) int64 { return c.took[i].cost }})
		}
	}
}

// settle brings the ops of one key to what they really cost, where that is counted,
// and finds the marks that are reached by what stays.
func (c *call) settle(ctx context.Context, group []int, s settling) error {
	if err := c.arrived(ctx, group, s.actual); err != nil {
		return err
	}
	var failed error
	if s.of(c, group, inStore); len(s.ops) > 0 {
		failed = c.settleStore(ctx, s)
	}
	if s.of(c, group, inShare); len(s.ops) > 0 {
		l, key := c.limiter, c.ops[s.ops[0]].Key
		if !l.share.Settle(key, c.took[s.ops[0]].number, l.now(), func(known *Cells, now int64, w *Write) (due bool) {
			for n, i := range s.ops {
				due = c.move(i, c.ops[i].part(), s.more[n], known, now, w) || due
			}
			return due
		}) {
			failed = errCharged
		}
	}
	return failed
}

// settling is what becomes of the ops of one key.
type settling struct {
	actual func(i int) int64 // what an op really cost
	open   func(i int) int64 // units of its limit and key that other calls may yet give back; nil: none
	undone bool              // the call was refused: nothing of it stays

	ops     []int   // those that something may have to be written for
	more    []int64 // units to charge of each, or to give back below 0
	changes bool    // some of more are not 0
	marks   bool    // some of ops may reach one
}

// of finds the ops that are counted at a place.
func (s *settling) of(c *call, group []int, at place) {
	s.ops, s.more, s.changes, s.marks = nil, nil, false, false
	for _, i := range group {
		if c.took[i].where != at {
			continue
		}
		more := s.actual(i) - c.took[i].cost
		marks := at == inStore && !s.undone && c.ops[i].spec().HasMarks()
		if more != 0 || marks {
			s.ops, s.more = append(s.ops, i), append(s.more, more)
			s.changes, s.marks = s.changes || more != 0, s.marks || marks
		}
	}
}

// move plans n units more of an op, or less. It reports whether there is something
// to write.
func (c *call) move(i int, spec *plan.Spec, n int64, known *Cells, now int64, w *Write) bool {
	if n > 0 {
		return spec.Charge(known, now, n, c.took[i].stamp, w)
	}
	return spec.GiveBack(known, now, -n, c.took[i].stamp, w)
}

// reached is what a settlement did to one op.
type reached struct {
	mark, units int64 // see plan.Spec.Mark
	moved       bool  // the count has changed
	excess      int64 // by how much that is more beyond a metered quota
}

// settleStore settles ops of one key in the store. Nothing is written, and nobody
// is asked, when nothing changes and no mark is reached by what was last seen. When
// ctx ends first, what it has handed over goes on: that belongs to this call alone.
func (c *call) settleStore(ctx context.Context, s settling) error {
	l, key := c.limiter, c.ops[s.ops[0]].Key
	var seen *Cells
	if s.marks && l.local == nil {
		seen = l.pipe.Seen(key)
	}
	got := make([]reached, len(s.ops))
	next := func(known *Cells, now int64, w *Write) (due bool) {
		looks := known
		if known == nil {
			looks = seen
		}
		for n, i := range s.ops {
			op, g := &c.ops[i], &got[n]
			*g = reached{}
			change := int64(0)
			if g.moved = s.more[n] != 0 && c.move(i, op.spec(), s.more[n], known, now, w); g.moved {
				change = s.more[n]
			}
			if !s.undone {
				open := int64(0)
				if s.open != nil {
					open = s.open(i)
				}
				g.mark, g.units = op.spec().Mark(looks, now, change, open, w)
			}
			due = due || g.moved || g.mark != 0
		}
		return due
	}
	written := false
	change := pipeline.Change{Next: next, Sure: !s.changes, Read: !s.changes && seen == nil, Left: func(state *Cells) {
		written = true
		for n, i := range s.ops {
			if c.each[i].Reason == ReasonNotAsked { // of Limiter.Mark
				c.each[i] = decide(c.ops[i].Limit, 0, c.ops[i].spec().Look(state, l.now(), 0))
			}
			if g, l := &got[n], c.ops[i].Limit; g.moved && l.IsMetered() {
				count := c.ops[i].spec().Counted(state, c.took[i].stamp)
				g.excess = max(count-l.Max(), 0) - max(count-s.more[n]-l.Max(), 0)
			}
		}
	}}
	if seen != nil && !s.changes && !next(seen, l.now(), new(Write)) {
		return nil
	}
	err := l.update(ctx, key, change)
	if len(s.ops) > 1 && errors.As(err, new(*SpoiledError)) && !errors.Is(err, ErrOutcomeUnknown) {
		return c.settleApart(ctx, s)
	}
	if err != nil || !written {
		return err
	}
	for n, i := range s.ops {
		g := &got[n]
		c.took[i].excess += g.excess
		if g.mark != 0 {
			c.each[i].Notice, c.each[i].Used = uint8(g.mark), g.units
		}
	}
	return nil
}

// settleApart is settleStore, op by op, of ops that could not be settled together since
// a field of one can't be read, and so were not.
func (c *call) settleApart(ctx context.Context, s settling) error {
	var failed []error
	for _, i := range s.ops {
		one := settling{actual: s.actual, open: s.open, undone: s.undone}
		one.of(c, []int{i}, inStore)
		failed = append(failed, c.settleStore(ctx, one))
	}
	return errors.Join(failed...)
}

// arrived waits for a take that was not waited for. When it is still not there,
// all that it will have taken is given back then, or nothing.
func (c *call) arrived(ctx context.Context, group []int, actual func(i int) int64) error {
	late := c.took[group[0]].late
	if late == nil {
		return nil
	}
	c.took[group[0]].late = nil
	all := true
	for _, i := range group {
		all = all && actual(i) == 0
	}
	verdicts, err := late.Arrive(ctx, all)
	if errors.Is(err, ErrOutcomeUnknown) {
		return storeError(err)
	}
	for n := range verdicts { // none of a take that was refused, or failed
		c.took[group[n]].hold(&verdicts[n])
	}
	return nil
}

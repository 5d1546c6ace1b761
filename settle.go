package weir

import (
	"context"
	"errors"
	"iter"

	"github.com/weirlabs/weir/internal/pipeline"
	"github.com/weirlabs/weir/internal/plan"
)

// taking is what an op has taken, for what may follow.
type taking struct {
	cost  int64
	stamp int64 // what giving back needs
	where place

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
		if c.settle(ctx, group, func(int) int64 { return 0 }) != nil {
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

// settle brings the ops of one key to what they really cost, where that is counted.
func (c *call) settle(ctx context.Context, group []int, actual func(i int) int64) error {
	if err := c.arrived(ctx, group, actual); err != nil {
		return err
	}
	l, key := c.limiter, c.ops[group[0]].Key
	var failed error
	for _, at := range []place{inStore, inShare} {
		var of []int
		for _, i := range group {
			if c.took[i].where == at && actual(i) != c.took[i].cost {
				of = append(of, i)
			}
		}
		switch {
		case len(of) == 0:
		case at == inStore:
			failed = l.update(ctx, key, false, c.settling(of, actual, func(op *Op) *plan.Spec { return op.spec() }))
		case !l.share.Settle(key, c.took[of[0]].number, l.now(), c.settling(of, actual, (*Op).part)):
			failed = errCharged
		}
	}
	return failed
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

// settling plans the way of some ops from what they have reserved to what they cost.
func (c *call) settling(of []int, actual func(i int) int64, spec func(*Op) *plan.Spec) pipeline.Planner {
	return func(known *Cells, now int64, w *Write) bool {
		any := false
		for _, i := range of {
			op, d, t := &c.ops[i], &c.each[i], &c.took[i]
			var due bool
			d.Notice = 0
			if more := actual(i) - t.cost; more > 0 {
				if due = spec(op).Charge(known, now, more, t.stamp, w); due {
					d.Notice = uint8(spec(op).Tell(known, more, t.stamp, w))
				}
			} else {
				due = spec(op).GiveBack(known, now, -more, t.stamp, w)
			}
			any = any || due
		}
		return any
	}
}

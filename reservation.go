package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Reservation is what a call has taken, until it is settled. It is safe for
// concurrent use. Leaving it alone keeps what was taken.
type Reservation struct {
	call call
	done atomic.Bool
}

// Each returns the decision of every op, in the order of the ops. After a
// refusal, ops that were not asked any more have [ReasonNotAsked], and those
// that would have allowed show what they had left. A shadow op shows what it
// would have decided.
func (r *Reservation) Each() []Decision { return r.call.each }

// Settle brings the ops to what the call really cost, by op and in their order;
// ops that are not named keep their cost. Less is given back, to the period
// from which it was taken; of a bucket, what has refilled since is not. More is
// taken even where the limit has not enough left: it then goes into debt, by at
// most its capacity (a bucket by at most an hour's refill).
//
// What a share (FailLocal) has let through is settled there, as long as it has
// not been charged to the store; a call that went on while its take was under
// way (FailAllow) is settled as soon as the store has answered.
//
// The first Settle or Cancel counts, any further one does nothing. It works
// also when ctx is done already, within the limiter's deadline. An error means
// that at least one item may have kept the cost that was reserved.
//
// A mark of [Limit.Noticed] is reached by what stays: the settlement that brings
// it about has it in the Notice of [Reservation.Each], with what is then Used.
// What is left alone reaches none; the key's next call finds it.
func (r *Reservation) Settle(ctx context.Context, actual ...int64) error {
	return r.SettleBeside(ctx, nil, actual...)
}

// SettleBeside is Settle beside calls that are not settled yet. Units that those
// have taken, and may give back, reach no mark: open says how many they are of the
// limit and key of an op, by its index. It may be asked more than once, and in
// another goroutine. A nil open is 0 of all.
func (r *Reservation) SettleBeside(ctx context.Context, open func(op int) int64, actual ...int64) error {
	if len(actual) > len(r.call.ops) {
		return fmt.Errorf("weir: %d costs to settle for %d ops", len(actual), len(r.call.ops))
	}
	for _, a := range actual {
		if a < 0 {
			return fmt.Errorf("weir: cost %d to settle is negative; 0 gives everything back", a)
		}
	}
	if r.done.Swap(true) {
		return nil
	}
	c := &r.call
	ctx, cancel := c.limiter.after(ctx)
	defer cancel()
	var failed []error
	for group := range c.backwards() {
		err := c.settle(ctx, group, settling{open: open, actual: func(i int) int64 {
			if i < len(actual) {
				return actual[i]
			}
			return c.took[i].cost
		}})
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Mark finds the mark that is reached by what is counted of op's limit and key
// beside units that may yet be given back, as [Reservation.SettleBeside] does. Whoever
// has told SettleBeside of units calls it once those are open no more, because
// somebody else may have left them out of what reaches a mark. The Notice of the
// Decision is the mark, 0 for none; nothing is taken. It asks the store only when what
// was last seen of the key reaches a mark, or nothing was. ctx and errors are as in
// Settle.
func (l *Limiter) Mark(ctx context.Context, op Op, open func() int64) (Decision, error) {
	c := &call{limiter: l, ops: []Op{op}}
	if err := c.prepare(); err != nil {
		return Decision{}, err
	}
	ctx, cancel := l.after(ctx)
	defer cancel()
	c.took[0].where = inStore
	s := settling{open: func(int) int64 { return open() }, actual: func(int) int64 { return c.took[0].cost }}
	if s.of(c, c.order, inStore); len(s.ops) == 0 {
		return Decision{}, nil // it has no marks
	}
	err := c.settleStore(ctx, s)
	if d := c.each[0]; d.Notice != 0 {
		return d, err
	}
	return Decision{}, err
}

// Cancel gives everything back. See [Reservation.Settle].
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.Settle(ctx, make([]int64, len(r.call.ops))...)
}

// Excess is by how many units an op, given by its index, has changed what is beyond
// its metered quota: by taking them, and by what was settled or given back since.
// Below 0, others have moved up meanwhile. Summed up over all calls it is what is
// beyond the quota. It is 0 of any other limit, and 0 of what nobody knows. It must
// not be asked while the reservation is being settled.
func (r *Reservation) Excess(op int) int64 { return r.call.took[op].excess }

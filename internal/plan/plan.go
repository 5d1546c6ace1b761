// Package plan holds weir's algorithms, once, and the vocabulary in which a
// limiter speaks to a store.
//
// A limit is a few integers of an item; a take is one guarded write. [Spec.Step]
// is the meaning: it judges a state at a time and changes it in place. [Spec.Plan]
// makes, from a state that may be stale, one [Write] which, on whatever state it
// finds its guards true, does exactly what Step would have done there. That is
// why concurrent writers need neither a lock nor a version: a write either
// means the right thing or does not happen.
//
// Times are Unix nanoseconds, balances are integers, and sums saturate. The
// package does no I/O and reads no clock.
package plan

import (
	"math"
	"math/bits"
)

// Verdict is what a limit says of a take.
type Verdict struct {
	OK    bool
	Never bool  // the cost is more than the limit can ever hold
	Max   int64 // capacity of a bucket, count of a window
	Used  int64 // after the take when OK; above Max when in debt
	Wait  int64 // ns until the same take could succeed; 0 when OK or Never
	Reset int64 // ns until the bucket is full or the window over
	End   int64 // Unix ns at which the window is over; 0 of a bucket
	Stamp int64 // what a later GiveBack or Charge of this take needs

	Unseen bool // no state was looked at: Used and Reset are not known

	// Notice is the mark, in percent of Max, that this take is the first of its
	// window to reach; mostly 0.
	Notice int64
}

// Step takes n units from the state at a time, in place. A refusal takes
// nothing; it only does what Tidy does. n is at least 1.
func (s *Spec) Step(c *Cells, now, n int64) Verdict {
	switch s.alg {
	case bucket:
		b, usual := s.StepUsual(c, now, n)
		if !usual {
			return s.stepBucket(c, now, n)
		}
		v := Verdict{OK: b.OK, Max: s.max, Used: b.Used, Wait: b.Wait, Reset: b.Reset}
		if b.OK {
			v.Stamp = now + b.Reset
		}
		return v
	case quota:
		return s.stepQuota(c, now, n)
	}
	return s.stepWindow(c, now, n)
}

// Brief is what a caller is told of a verdict, small enough to stay in registers:
// a Verdict is copied on its way, at the cost of a third of a take.
type Brief struct {
	OK                bool
	Used, Wait, Reset int64
}

// Brief is the verdict without what only the Limiter needs.
func (v *Verdict) Brief() Brief { return Brief{v.OK, v.Used, v.Wait, v.Reset} }

// StepUsual is Step for an item whose bucket is of exactly this limit, which is
// the usual way. It reports false, and does nothing, where Step has to see.
func (s *Spec) StepUsual(c *Cells, now, n int64) (b Brief, ok bool) {
	slot := s.usual(c, now, n)
	if slot == nil {
		return b, false
	}
	level := max(slot.Value-now, 0)
	after := level + n*s.interval
	if after > s.depth {
		return Brief{false, s.units(level), after - s.depth, level}, true
	}
	slot.Value = now + after
	return Brief{true, s.units(after), 0, after}, true
}

// Plan appends to w the guards and actions that take n units, judging by what
// is known of the item. When the known state refuses, it appends nothing.
// Several limits may append to one write: they then are taken together.
func (s *Spec) Plan(known *Cells, now, n int64, w *Write) Verdict {
	switch s.alg {
	case bucket:
		return s.planBucket(known, now, n, w)
	case quota:
		return s.planQuota(known, now, n, w)
	}
	return s.planWindow(known, now, n, w)
}

// Look judges a take of n units without planning one: Used and Reset are those
// of the state as it is, and Stamp is that of a take which left it so.
func (s *Spec) Look(c *Cells, now, n int64) Verdict {
	switch s.alg {
	case bucket:
		return s.lookBucket(c, now, n)
	case quota:
		return s.lookQuota(c, now, n)
	}
	return s.lookWindow(c, now, n)
}

// Before turns the verdict of a take, seen in the state that it and later ones
// left, into what it was before those n units.
func (s *Spec) Before(c *Cells, v *Verdict, n int64) {
	v.Used = max(v.Used-n, 0)
	if s.alg == bucket {
		interval := s.interval
		if i := read(c, s.field(Interval)); i.ok {
			interval = i.v // a newer policy's
		}
		later := mulDiv(n, interval, 1)
		v.Reset = max(v.Reset-later, 0)
		v.Stamp -= later
	}
}

// GiveBack appends what returns n units of a take to the period that they were
// taken from, and reports whether there is anything to return. With known nil
// the item is taken to be as the take left it.
func (s *Spec) GiveBack(known *Cells, now, n, stamp int64, w *Write) bool {
	if n <= 0 {
		return false
	}
	switch s.alg {
	case bucket:
		return s.giveBackBucket(known, now, n, stamp, w)
	case quota:
		return s.giveBackQuota(known, now, n, stamp, w)
	}
	return s.giveBackWindow(known, now, n, stamp, w)
}

// Charge appends what takes n units more for a take that cost more than it had
// reserved, whether or not the limit has them, down to the debt floor, and
// reports whether there is anything to charge.
func (s *Spec) Charge(known *Cells, now, n, stamp int64, w *Write) bool {
	if n <= 0 {
		return false
	}
	switch s.alg {
	case bucket:
		return s.chargeBucket(known, now, n, stamp, w)
	case quota:
		return s.chargeQuota(known, now, n, stamp, w)
	}
	return s.chargeWindow(known, now, n, stamp, w)
}

// Owe is Charge for units that were used without a take, while the store could
// not be asked: in the period that runs now.
func (s *Spec) Owe(known *Cells, now, n int64, w *Write) bool {
	if known == nil {
		known = new(Cells)
	}
	v := s.Look(known, now, 1)
	if s.alg == quota {
		if _, _, running, _ := s.quotaAt(known, now); !running {
			return s.quiet.Plan(known, now, min(n, s.max), w).OK // nobody hears of a mark: the next take tells of it
		}
	}
	return s.Charge(known, now, n, v.Stamp, w)
}

// Tidy appends the housekeeping that a refused take must not put off: it
// repairs a time that only a wrong clock can have written, carries a balance
// over to a changed limit, and removes windows when more than a few of them
// have gathered. It reports whether any is due.
func (s *Spec) Tidy(known *Cells, now int64, w *Write) bool {
	switch s.alg {
	case bucket:
		return s.tidyBucket(known, now, w)
	case quota:
		return s.tidyQuota(known, now, w)
	}
	return s.tidyWindow(known, now, w)
}

// wrongClock is how far ahead of its bound a stored time may be before it is
// taken for the work of a wrong clock.
const wrongClock = 10 * second

const second = int64(1e9)

// addSat is a+b, held at the ends of the range.
func addSat(a, b int64) int64 {
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return math.MinInt64
	default:
		return s
	}
}

// mulDivUp is ceil(a*b/c) for a, b >= 0 and c > 0, held at the largest int64.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	hi += carry
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// mulDiv is floor(a*b/c) under the same terms.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

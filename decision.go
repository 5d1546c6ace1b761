package weir

import (
	"context"
	"time"
)

// Op asks for units of one limit from one item.
type Op struct {
	Limit Limit
	Key   Key

	// Cost is how many units to take; 0 means 1. More than the limit can ever
	// hold is refused as [ReasonNever]; a negative cost is an error.
	Cost int64

	// Shadow takes from a balance of the op's own and never refuses: the
	// decision of the call and every other balance are as if the op were absent.
	Shadow bool

	// OnFail says what an unreachable store means for this op.
	OnFail FailureMode

	// Local is, with FailLocal, what this process allows by itself while the
	// store can't be asked: its share of Limit. The zero Limit is all of it.
	Local Limit
}

// FailureMode is what a store's failure means to an op.
type FailureMode uint8

// The failure modes. When the ops of a failed item differ, FailError wins over
// FailDeny, that over FailLocal, and that over FailAllow. What FailLocal has let
// through, and has not refilled since, is charged by the key's next take that
// reaches the store.
const (
	FailError FailureMode = iota // Take returns the error
	FailAllow                    // allowed, marked as degraded
	FailDeny                     // refused with ReasonUnavailable, marked as degraded
	FailLocal                    // decided by Op.Local in this process, marked as degraded
)

// Reason says why a Decision is as it is.
type Reason uint8

// The reasons.
const (
	ReasonOK          Reason = iota
	ReasonLimit              // the limit has not enough left: see RetryAfter
	ReasonNever              // the cost is more than the limit can ever hold
	ReasonUnavailable        // the store could not be asked, and the op's mode is FailDeny, or no share could hold the cost
	ReasonNotAsked           // another op had refused the call already
	ReasonInFlight           // as ReasonLimit, but calls under way hold what may come back: set by package engine
)

var reasonNames = [...]string{"ok", "limit", "never", "unavailable", "not asked", "in flight"}

// String is the reason in a word or two.
func (r Reason) String() string { return reasonNames[r] }

// Decision is the answer to a call, or to one op of it. A denial is a Decision,
// not an error. With a capacity of 10 at 0.5/s, the eleventh call at one instant
// has Allowed false, Remaining 0, RetryAfter 2s and ResetAfter 20s.
type Decision struct {
	Limit   Limit // the limit that speaks: of a refusal the one with the longest wait, else the one with the smallest share left
	Allowed bool

	// Degraded: the store could not be asked, and the op's FailureMode decided.
	Degraded bool
	// Unknown: Remaining, Used and ResetAfter are not known.
	Unknown bool
	Reason  Reason
	Op      uint16 // the index of the op that speaks

	// Notice is the mark, in percent of Limit.Max, that this call is the first of
	// its window to reach; 0 without one. That of a reservation is known when it is
	// settled. See [Limit.Noticed].
	Notice uint8

	Remaining int64 // whole units left, after this call when it was allowed
	Used      int64 // of Limit.Max; more than that when a call was settled above its reservation
	Cost      int64 // units asked for

	// RetryAfter is the wait after which the same call would be allowed if
	// nobody else called: exact; 0 when allowed and with ReasonNever.
	RetryAfter time.Duration
	// ResetAfter is the time until the bucket is full or the window is over.
	ResetAfter time.Duration

	end int64 // Unix ns at which the window is over; 0 of a bucket
}

// ResetAt is the instant that ResetAfter leads to, of a decision that was made at
// the instant judged. The end of a window is exact, and the same from call to call;
// it is by the store's clock where that has one. It is judged itself where nothing
// is to be waited for, or nothing is known.
func (d *Decision) ResetAt(judged time.Time) time.Time {
	if d.end == 0 || d.ResetAfter == 0 || d.Unknown {
		return judged.Add(d.ResetAfter)
	}
	return time.Unix(0, d.end)
}

type contextKey struct{}

// NewContext returns a context that carries the decision to a handler.
func NewContext(ctx context.Context, d Decision) context.Context {
	return context.WithValue(ctx, contextKey{}, d)
}

// FromContext returns the decision under which a handler runs. It is false
// where no limit applied.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(Decision)
	return d, ok
}

package weir

import (
	"context"
	"time"
)

// Observer is told what a Limiter and its store do. Every func may be nil. It
// is called in the goroutine that decides, and must return quickly.
type Observer struct {
	// Decided hears of every op of a call once, after the call is decided.
	// Shadow ops are among them. An op that was not asked, because another had
	// already refused the call, is not.
	Decided func(ctx context.Context, op Op, d Decision)

	// Failed hears of every op whose item could not be asked and which its
	// FailureMode decided: the same op's Decided follows, marked as degraded.
	Failed func(ctx context.Context, op Op, err error)

	// Trip hears of every round trip to a store that is not in this process, in
	// the goroutine where it ends. Calls that went together wait there for it: it
	// must not ask a Limiter of that store. A panic there is nobody's to recover: it
	// ends the process, as one in any other goroutine does.
	Trip func(ctx context.Context, t Trip)
}

// Trip is one round trip to a store.
type Trip struct {
	Took       time.Duration
	ReadUnits  float64 // what the store says that it charged, in its own units
	WriteUnits float64
	Applied    bool  // a write was applied
	Err        error // the trip failed; nil when merely no guard held
}

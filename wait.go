package weir

import (
	"context"
	"fmt"
	"time"
)

// Wait takes all ops as [Limiter.Take] does, and waits for as long as they are
// refused: for calls that this process makes to somebody else's limit. It
// returns nil once they are taken. It fails at once, without waiting, when the
// wait would outlast ctx's deadline or can never end, and otherwise when ctx ends.
func (l *Limiter) Wait(ctx context.Context, ops ...Op) error {
	for {
		d, err := l.Take(ctx, ops...)
		if err != nil || d.Allowed {
			return err
		}
		if d.Reason == ReasonNever {
			return fmt.Errorf("weir: limit %q can never hold a cost of %d: its most is %d", d.Limit.Name(), d.Cost, d.Limit.Max())
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < d.RetryAfter {
			return fmt.Errorf("weir: limit %q needs a wait of %v: %w", d.Limit.Name(), d.RetryAfter, context.DeadlineExceeded)
		}
		timer := time.NewTimer(d.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
)

// R21: keys that the store finds too busy, however many and however long a trip
// to it is, never have it taken for dead.
func TestR21_BusyKeysDoNotOpenTheBreaker(t *testing.T) {
	for _, trip := range []time.Duration{3, 15, 30, 45} {
		synctest.Test(t, func(t *testing.T) {
			store := newLossy(nil, 0).undisturbed()
			lim := weir.NewLimiter(trips(func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
				select {
				case <-time.After(trip * time.Millisecond):
				case <-ctx.Done():
					return -1, 0, fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, ctx.Err())
				}
				if item != someone {
					return -1, 0, fmt.Errorf("one key: %w", weir.ErrThrottled)
				}
				return store.Apply(ctx, item, tries, state)
			}), weir.Options{})
			calm := weir.Op{Limit: limit(t, "1000000/s burst 1000000"), Key: someone}
			if _, err := lim.Take(t.Context(), calm); err != nil {
				t.Fatal(err)
			}
			end := time.Now().Add(10 * time.Second)
			crowd(12, func(i int) {
				op := weir.Op{Limit: limit(t, "1000/s burst 1000"), Key: weir.NewKey("account", fmt.Sprint("busy", i))}
				for time.Now().Before(end) {
					// Unknown is one whose first trip was under way when its time was over.
					if _, err := lim.Take(t.Context(), op); !errors.Is(err, weir.ErrThrottled) && !errors.Is(err, weir.ErrOutcomeUnknown) {
						t.Errorf("trips of %v: %v", trip*time.Millisecond, err)
						return
					}
					<-time.After(time.Millisecond)
				}
			})
			<-time.After(time.Second)
			if st := lim.Stats(); st.Skipped > 0 || st.Unknown > 0 || st.Throttled < 500 {
				t.Errorf("trips of %v: %+v", trip*time.Millisecond, st)
			}
			if d, err := lim.Take(t.Context(), calm); err != nil || !d.Allowed {
				t.Error(d, err)
			}
		})
	}
}

// R09: a write of which nobody knows whether it was applied is called that, also
// when it had to wait for its turn before.
func TestR09_UnknownIsSaidAlsoAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLossy(nil, 0).undisturbed()
		var trip atomic.Int64
		lim := weir.NewLimiter(trips(func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
			switch trip.Add(1) {
			case 2:
				return -1, 0, fmt.Errorf("one key: %w", weir.ErrThrottled)
			case 3:
				_, _, _ = store.Apply(ctx, item, tries, state)
				<-ctx.Done()
				return -1, 0, fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, ctx.Err())
			}
			return store.Apply(ctx, item, tries, state)
		}), weir.Options{})
		op := weir.Op{Limit: limit(t, "quota 100/d"), Key: someone}
		if _, err := lim.Take(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if _, err := lim.Take(t.Context(), op); !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
	})
}

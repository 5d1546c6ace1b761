package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/storetest"
)

// partition is a store that takes at most so many writes of one item in a
// second, as DynamoDB does, and refuses the others for the item's sake. A trip
// takes 5 ms.
type partition struct {
	*lossy
	perSecond int

	mu       sync.Mutex
	until    time.Time // for which the writes so far are enough
	writes   int
	throttle int
}

func (p *partition) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	<-time.After(3 * time.Millisecond)
	p.mu.Lock()
	if now := time.Now(); p.until.Before(now) {
		p.until = now
	}
	busy := time.Until(p.until) > 20*time.Millisecond
	if busy {
		p.throttle++
	} else {
		p.until = p.until.Add(time.Second / time.Duration(p.perSecond))
		p.writes++
	}
	p.mu.Unlock()
	defer func() { <-time.After(2 * time.Millisecond) }()
	if busy {
		return -1, 0, fmt.Errorf("one key: %w", weir.ErrThrottled)
	}
	return p.lossy.Apply(ctx, item, tries, state)
}

// Sixty-four callers in eight processes ask 1,500 times a second for one key.
// Whether its partition takes 1,000 writes a second or 300, none of them is
// refused or told of a failure, none waits for long, and all are served alike.
func TestHotKeyOfABusyPartition(t *testing.T) {
	for _, perSecond := range []int{1000, 300} {
		synctest.Test(t, func(t *testing.T) {
			const processes, callers, seconds, asked = 8, 8, 10, 1500
			store := &partition{lossy: newLossy(nil, 0).undisturbed(), perSecond: perSecond}
			op := weir.Op{Limit: limit(t, "1000000/s burst 1000000"), Key: someone}
			began := time.Now()
			served := make([]float64, processes*callers)
			var longest time.Duration
			var mu sync.Mutex
			crowd(processes, func(p int) {
				lim := weir.NewLimiter(store, weir.Options{Deadline: time.Second})
				crowd(callers, func(c int) {
					me := p*callers + c
					for n := 0; ; n++ {
						due := began.Add(time.Duration(n*processes*callers+me) * time.Second / asked)
						<-time.After(time.Until(due))
						if time.Since(began) > seconds*time.Second {
							return
						}
						from := time.Now()
						d, err := lim.Take(t.Context(), op)
						if err != nil || !d.Allowed || d.Degraded {
							t.Errorf("%+v, %v", d, err)
							return
						}
						mu.Lock()
						served[me]++
						longest = max(longest, time.Since(from))
						mu.Unlock()
					}
				})
			})
			var sum, squares float64
			for _, n := range served {
				sum += n
				squares += n * n
			}
			fairness := sum * sum / (float64(len(served)) * squares)
			if sum < asked*seconds*0.9 || fairness < 0.8 || longest > time.Second {
				t.Errorf("%d writes a second: %.0f calls served, fairness %.2f, the longest wait %v", perSecond, sum, fairness, longest)
			}
			t.Logf("a partition of %d writes a second: %.0f calls in %d writes and %d refusals of it; fairness %.3f, longest wait %v", perSecond, sum, store.writes, store.throttle, fairness, longest)
		})
	}
}

// At ten times a limit that eight processes share, with a partition of 500 writes
// a second, the limit is granted and never passed, and the busy key is no failure.
func TestHotKeyAtItsLimitOnABusyPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds = 10
		store := &partition{lossy: newLossy(nil, 0).undisturbed(), perSecond: 500}
		op := weir.Op{Limit: limit(t, "200/s burst 200"), Key: someone}
		began := time.Now()
		var mu sync.Mutex
		var log []storetest.Admission
		crowd(8, func(p int) {
			lim := weir.NewLimiter(store, weir.Options{Deadline: time.Second})
			crowd(8, func(c int) {
				for n := 0; time.Since(began) < seconds*time.Second; n++ {
					from := time.Now()
					d, err := lim.Take(t.Context(), op)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						mu.Lock()
						log = append(log, storetest.Admission{From: from.UnixNano(), To: time.Now().UnixNano(), Cost: 1})
						mu.Unlock()
					}
					<-time.After(32 * time.Millisecond)
				}
			})
		})
		if err := (storetest.Bound{Burst: 200, Tokens: 200, Per: time.Second}).Check(log); err != nil {
			t.Error(err)
		}
		if least := 200 * (seconds + 1) * 98 / 100; len(log) < least {
			t.Errorf("%d granted of %d", len(log), 200*(seconds+1))
		}
		t.Logf("%d granted of %d, in %d writes and %d refusals of the partition", len(log), 200*(seconds+1), store.writes, store.throttle)
	})
}

// A call that has no time for its turn at a busy key ends as a failure of the
// op's mode, never as a refusal.
func TestNoTimeForABusyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &partition{lossy: newLossy(nil, 0).undisturbed(), perSecond: 1}
		lim := weir.NewLimiter(store, weir.Options{Deadline: 100 * time.Millisecond})
		op := weir.Op{Limit: limit(t, "quota 1000/h"), Key: someone}
		failed, busy := 0, 0
		for range 50 {
			began := time.Now()
			_, err := lim.Take(t.Context(), op)
			if err != nil {
				failed++
				if errors.Is(err, weir.ErrThrottled) {
					busy++
				}
				// Unknown is one whose first trip was under way when its time was over.
				if !errors.Is(err, weir.ErrThrottled) && !errors.Is(err, weir.ErrOutcomeUnknown) || time.Since(began) > time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			}
		}
		if busy < 40 {
			t.Errorf("%d of 50 calls failed, %d because the key is busy", failed, busy)
		}
		other := op
		other.Key = weir.NewKey("account", "b")
		<-time.After(5 * time.Second) // what is on its way comes to an end
		if d, err := lim.Take(t.Context(), other); err != nil || !d.Allowed {
			t.Errorf("another key: %+v, %v", d, err)
		}
		<-time.After(2 * time.Second)
	})
}

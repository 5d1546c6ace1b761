package weir_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/storetest"
)

// bothWays runs a test in a bubble of time, in process and on the way of a remote
// store.
func bothWays(t *testing.T, test func(t *testing.T, lim *weir.Limiter)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})) })
	})
	t.Run("remote", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, weir.NewLimiter(newLossy(nil, 0).undisturbed(), weir.Options{})) })
	})
}

// Wait returns as soon as there is room, and no sooner.
func TestWait(t *testing.T) {
	bothWays(t, func(t *testing.T, lim *weir.Limiter) {
		op := weir.Op{Limit: limit(t, "2/s burst 3"), Key: someone, Cost: 2}
		for n, want := range []time.Duration{0, 500 * time.Millisecond, time.Second, time.Second} {
			began := time.Now()
			if err := lim.Wait(t.Context(), op); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < want || took > want+10*time.Millisecond {
				t.Errorf("call %d waited %v, want %v", n, took, want)
			}
		}
	})
}

// Many who wait are served at the limit's pace, together and in every interval,
// and nothing is lost.
func TestWaitOfMany(t *testing.T) {
	bothWays(t, func(t *testing.T, lim *weir.Limiter) {
		op := weir.Op{Limit: limit(t, "20/s burst 5"), Key: someone}
		var mu sync.Mutex
		var log []storetest.Admission
		began := time.Now()
		crowd(40, func(int) {
			from := time.Now().UnixNano()
			if err := lim.Wait(t.Context(), op); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			log = append(log, storetest.Admission{From: from, To: time.Now().UnixNano(), Cost: 1})
		})
		if took, least := time.Since(began), 35*50*time.Millisecond; took < least || took > least+100*time.Millisecond {
			t.Errorf("40 calls took %v, want %v", took, least)
		}
		for i := range log { // when it returned is when it was taken
			log[i].From = log[i].To
		}
		if err := (storetest.Bound{Burst: 5, Tokens: 20, Per: time.Second}).Check(log); err != nil {
			t.Error(err)
		}
	})
}

// B134: who gives up has taken nothing: before it begins, in between, or because
// the deadline makes it impossible, which is known at once.
func TestCase_B134_WaitThatEnds(t *testing.T) {
	bothWays(t, func(t *testing.T, lim *weir.Limiter) {
		op := weir.Op{Limit: limit(t, "1/m burst 2"), Key: someone}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lim.Wait(over, op); err == nil {
			// A store in this process needs no context to allow.
			if err := lim.Reset(t.Context(), op.Key, op.Limit); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		used := func() int64 {
			each, err := lim.Peek(t.Context(), op)
			if err != nil {
				t.Fatal(err)
			}
			return each[0].Used
		}
		if n := used(); n != 0 {
			t.Errorf("%d are used by a call that was over before it began", n)
		}
		for range 2 {
			if err := lim.Wait(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		if err := lim.Wait(short, op); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second || !strings.Contains(err.Error(), `"rate"`) || !strings.Contains(err.Error(), "needs a wait of") {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		leaves, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		if err := lim.Wait(leaves, op); !errors.Is(err, context.Canceled) || time.Since(began) != 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := used(); n != 2 {
			t.Errorf("%d are used", n)
		}
		op.Cost = 3
		if err := lim.Wait(t.Context(), op); err == nil || !strings.Contains(err.Error(), "can never hold") {
			t.Errorf("a cost beyond the limit: %v", err)
		}
	})
}

// A store that is away: Wait returns the error, or goes by the op's mode.
func TestWaitWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAway()
		lim := weir.NewLimiter(store, weir.Options{})
		store.broken.Store(true)
		op := weir.Op{Limit: limit(t, "1/s burst 1"), Key: someone}
		if err := lim.Wait(t.Context(), op); !errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
		op.OnFail = weir.FailAllow
		if err := lim.Wait(t.Context(), op); err != nil {
			t.Errorf("%v", err)
		}
		op.OnFail = weir.FailDeny // as if it were a refusal: until the store is back
		time.AfterFunc(5*time.Second, func() { store.broken.Store(false) })
		began := time.Now()
		if err := lim.Wait(t.Context(), op); err != nil || time.Since(began) < 5*time.Second || time.Since(began) > 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

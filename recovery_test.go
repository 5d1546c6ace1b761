package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
)

// R07: whatever the calls are that come after an outage, all is as before within
// two seconds of the store's return. None of these has anything to send, so that
// none of them may be the one that tries the store.
func TestR07_CallsThatSendNothingDoNotHoldUpRecovery(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	for _, c := range []struct {
		name, limit, share string
		mode               weir.FailureMode
		every              time.Duration // a call
		also               func(lim *weir.Limiter, op weir.Op, before []*weir.Reservation)
	}{
		{name: "a share that has refilled", limit: "40/s burst 40", share: "10/s burst 10", mode: weir.FailLocal, every: 200 * time.Millisecond},
		{name: "a share that refills slowly", limit: "60/m burst 60", share: "30/m burst 30", mode: weir.FailLocal, every: 1900 * time.Millisecond},
		{name: "callers who have gone", limit: "1000000/s burst 1000000", mode: weir.FailAllow, every: 20 * time.Millisecond,
			also: func(lim *weir.Limiter, op weir.Op, _ []*weir.Reservation) {
				op.Key = weir.NewKey("account", "b")
				_, _ = lim.Take(gone, op)
			}},
		{name: "callers who leave at once", limit: "1000000/s burst 1000000", mode: weir.FailAllow, every: 20 * time.Millisecond,
			also: func(lim *weir.Limiter, op weir.Op, _ []*weir.Reservation) {
				ctx, leave := context.WithCancel(context.Background())
				go leave()
				_, _ = lim.Take(ctx, op)
			}},
		{name: "give-backs of what has refilled", limit: "100/s burst 100", mode: weir.FailAllow, every: 400 * time.Millisecond,
			also: func(_ *weir.Limiter, _ weir.Op, before []*weir.Reservation) {
				for _, r := range before {
					_ = r.Cancel(context.Background()) // the first time
				}
			}},
		{name: "resets of what is not there", limit: "100/s burst 100", mode: weir.FailAllow, every: 400 * time.Millisecond,
			also: func(lim *weir.Limiter, op weir.Op, _ []*weir.Reservation) {
				_ = lim.Reset(gone, op.Key)
				_, _ = lim.Peek(gone, op)
			}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newAway()
			lim := weir.NewLimiter(store, weir.Options{})
			op := weir.Op{Limit: limit(t, c.limit), OnFail: c.mode, Key: someone}
			if c.share != "" {
				op.Local = limit(t, c.share)
			}
			var before []*weir.Reservation
			for range 20 {
				r, d, err := lim.Reserve(t.Context(), op)
				if err != nil || d.Degraded {
					t.Fatal(d, err)
				}
				before = append(before, r)
			}
			store.broken.Store(true)
			for began := time.Now(); time.Since(began) < 20*time.Second; {
				_, _ = lim.Take(t.Context(), op)
				<-time.After(c.every)
			}
			if !lim.Stats().Open {
				t.Errorf("%s: the store is not said to be left alone", c.name)
			}
			store.broken.Store(false)
			healed := time.Now()
			for degraded := true; degraded; {
				if time.Since(healed) > 2*time.Second {
					t.Fatalf("%s: still degraded %v after the store's return", c.name, time.Since(healed))
				}
				<-time.After(c.every)
				if c.also != nil {
					c.also(lim, op, before)
				}
				d, err := lim.Take(t.Context(), op)
				if err != nil {
					t.Fatal(err)
				}
				degraded = d.Degraded
			}
			synctest.Wait()
			if lim.Stats().Open {
				t.Errorf("%s: the store is still said to be left alone", c.name)
			}
		})
	}
}

// Each stage can be switched off. NoMemo and NoCoalescing are part of the tests
// of what they save.
func TestStagesAreSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAway()
		lim := weir.NewLimiter(store, weir.Options{NoBreaker: true})
		op := weir.Op{Limit: limit(t, "quota 100/d"), OnFail: weir.FailAllow, Key: someone}
		store.broken.Store(true)
		for n := range int64(50) {
			if d, err := lim.Take(t.Context(), op); err != nil || !d.Degraded || store.trips.Load() != n+1 {
				t.Fatalf("call %d: %+v, %v, after %d trips", n, d, err, store.trips.Load())
			}
		}
		if st := lim.Stats(); st.Skipped != 0 || st.Open {
			t.Errorf("%+v", st)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		lim := weir.NewLimiter(trips(func(_ context.Context, _ weir.Key, tries []weir.Write, _ *weir.Cells) (int, int64, error) {
			if attempts++; tries[0].Nonce != 0 {
				t.Error("a nonce")
			}
			return -1, 0, weir.ErrOutcomeUnknown
		}), weir.Options{NoNonces: true})
		_, err := lim.Take(t.Context(), weir.Op{Limit: limit(t, "quota 100/d"), Key: someone})
		if st := lim.Stats(); !errors.Is(err, weir.ErrOutcomeUnknown) || attempts != 1 || st.Unknown != 1 {
			t.Errorf("%v after %d attempts, %+v", err, attempts, st)
		}
	})
}

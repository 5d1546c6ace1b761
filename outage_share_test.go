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

// shared is a limit of 40 with a share of 10, for every algorithm.
var shared = []struct{ limit, share string }{
	{"1/d burst 40", "1/d burst 10"},
	{"quota 40/d", "quota 10/d"},
	{"quota 40/day calendar", "quota 10/day calendar"},
	{"sliding 40/d", "sliding 10/d"},
}

// used is what the store has counted, once it has answered again.
func used(t *testing.T, lim *weir.Limiter, ops ...weir.Op) (n []int64) {
	t.Helper()
	each, err := lim.Peek(t.Context(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range each {
		n = append(n, d.Used)
	}
	return n
}

// R15, in an outage: a call that a broader key refuses takes nothing from a
// narrower key's share, whatever decides the broader one.
func TestR15_RefusedCallsTakeFromNoShare(t *testing.T) {
	for _, c := range shared {
		for _, mode := range []weir.FailureMode{weir.FailLocal, weir.FailDeny, weir.FailError} {
			synctest.Test(t, func(t *testing.T) {
				store := newAway()
				lim := weir.NewLimiter(store, weir.Options{})
				tenant := weir.Op{Limit: limit(t, "1/d burst 40", "tenant"), Local: limit(t, "1/d burst 1", "tenant"), OnFail: mode, Key: weir.NewKey("tenant", "x")}
				user := weir.Op{Limit: limit(t, c.limit, "user"), Local: limit(t, c.share, "user"), OnFail: weir.FailLocal, Key: weir.NewKey("tenant", "x", "user", "y")}
				other := weir.Op{Limit: limit(t, c.limit, "other"), Local: limit(t, c.share, "other"), OnFail: weir.FailLocal, Key: user.Key}
				store.broken.Store(true)
				allowed := int64(0)
				for range 20 {
					d, err := lim.Take(t.Context(), other, user, tenant)
					if err == nil && d.Allowed {
						allowed++
					}
				}
				if want := int64(1); mode == weir.FailLocal && allowed != want || mode != weir.FailLocal && allowed != 0 {
					t.Errorf("%s, mode %d: %d allowed", c.share, mode, allowed)
				}
				for range 10 - allowed {
					if d, err := lim.Take(t.Context(), user); err != nil || !d.Allowed || !d.Degraded {
						t.Errorf("%s, mode %d: %+v, %v", c.share, mode, d, err)
					}
				}
				if d, err := lim.Take(t.Context(), user); err != nil || d.Allowed {
					t.Errorf("%s, mode %d: more than the share: %+v, %v", c.share, mode, d, err)
				}
				store.broken.Store(false)
				<-time.After(2 * time.Second)
				if d, err := lim.Take(t.Context(), user, other); err != nil || d.Degraded {
					t.Fatal(d, err)
				}
				if n := used(t, lim, user, other); n[0] != 10+1 || n[1] != allowed+1 {
					t.Errorf("%s, mode %d: %d and %d are charged", c.share, mode, n[0]-1, n[1]-1)
				}
			})
		}
	}
}

// R14, in an outage: what a share has let through can be given back to it, or
// settled at another cost, and only what is left of it is charged. Once that has
// happened, the error says so.
func TestR14_SharesAreSettled(t *testing.T) {
	for _, c := range shared {
		synctest.Test(t, func(t *testing.T) {
			store := newAway()
			lim := weir.NewLimiter(store, weir.Options{})
			op := weir.Op{Limit: limit(t, c.limit), Local: limit(t, c.share), OnFail: weir.FailLocal, Key: someone, Cost: 4}
			reserve := func() *weir.Reservation {
				t.Helper()
				r, d, err := lim.Reserve(t.Context(), op)
				if err != nil || !d.Allowed || !d.Degraded {
					t.Fatalf("%s: %+v, %v", c.share, d, err)
				}
				return r
			}
			store.broken.Store(true)
			for range 15 {
				r := reserve()
				if err := errors.Join(r.Cancel(t.Context()), r.Cancel(t.Context())); err != nil {
					t.Errorf("%s: %v", c.share, err)
				}
			}
			if err := reserve().Settle(t.Context(), 1); err != nil {
				t.Errorf("%s: %v", c.share, err)
			}
			if err := reserve().Settle(t.Context(), 5); err != nil {
				t.Errorf("%s: %v", c.share, err)
			}
			late := reserve() // four
			if d, err := lim.Take(t.Context(), op); err != nil || d.Allowed {
				t.Errorf("%s: ten are used: %+v, %v", c.share, d, err)
			}
			store.broken.Store(false)
			<-time.After(2 * time.Second)
			if d, err := lim.Take(t.Context(), op); err != nil || d.Degraded {
				t.Fatal(d, err)
			}
			if n := used(t, lim, op); n[0] != 10+4 {
				t.Errorf("%s: %d are charged, want 10", c.share, n[0]-4)
			}
			if err := late.Cancel(t.Context()); err == nil {
				t.Errorf("%s: what is charged was said to be given back", c.share)
			}
			if n := used(t, lim, op); n[0] != 10+4 {
				t.Errorf("%s: %d are charged after a cancel that failed", c.share, n[0]-4)
			}
		})
	}
}

// What is cancelled while it is being charged is one or the other, never both,
// and never neither without an error.
func TestR14_SharesAreSettledOrCharged(t *testing.T) {
	for _, c := range shared {
		for at := range 8 { // of a repayment that takes 2 ms
			synctest.Test(t, func(t *testing.T) {
				store := newAway()
				lim := weir.NewLimiter(store, weir.Options{})
				op := weir.Op{Limit: limit(t, c.limit), Local: limit(t, c.share), OnFail: weir.FailLocal, Key: someone}
				store.broken.Store(true)
				var held []*weir.Reservation
				for range 10 {
					r, d, err := lim.Reserve(t.Context(), op)
					if err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
					held = append(held, r)
				}
				store.broken.Store(false)
				<-time.After(2 * time.Second)
				kept := int64(10)
				go func() { _, _ = lim.Take(t.Context(), op) }()
				<-time.After(time.Duration(at) * 300 * time.Microsecond)
				for _, r := range held {
					if r.Cancel(t.Context()) == nil {
						kept--
					}
				}
				<-time.After(2 * time.Second)
				if d, err := lim.Take(t.Context(), op); err != nil || d.Degraded {
					t.Fatal(d, err)
				}
				if n := used(t, lim, op); n[0] != kept+2 {
					t.Errorf("%s: %d are charged, want %d", c.share, n[0]-2, kept)
				}
			})
		}
	}
}

// R14: a call that FailAllow lets go on, while its take is under way or waits
// behind another, is given back when it is cancelled, whenever that take arrives.
func TestR14_CancelOfACallThatWasNotWaitedFor(t *testing.T) {
	for _, c := range shared {
		for _, trip := range []time.Duration{90, 105, 160, 250} {
			for _, shadow := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					store := newLossy(nil, 0).undisturbed()
					var slow atomic.Bool
					lim := weir.NewLimiter(trips(func(_ context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
						if slow.Load() {
							<-time.After(trip * time.Millisecond)
						}
						return store.Apply(context.Background(), item, tries, state)
					}), weir.Options{})
					op := weir.Op{Limit: limit(t, c.limit), OnFail: weir.FailAllow, Key: someone, Shadow: shadow}
					if _, err := lim.Take(t.Context(), op); err != nil {
						t.Fatal(err)
					}
					slow.Store(true)
					go func() { _, _ = lim.Take(t.Context(), op) }()
					<-time.After(20 * time.Millisecond)
					r, _, err := lim.Reserve(t.Context(), op)
					if err != nil || !r.Each()[0].Degraded {
						t.Fatal(r.Each(), err)
					}
					err = r.Cancel(t.Context())
					<-time.After(3 * time.Second)
					slow.Store(false)
					if n := used(t, lim, op); n[0] != 2 {
						t.Errorf("%s, trips of %v: %d are used, want 2; the cancel said %v", c.limit, trip*time.Millisecond, n[0], err)
					}
				})
			}
		}
	}
}

// A cost that the share can't hold, and a key for which there is no room among
// the shares, are refused for now: the limit itself might allow them.
func TestCase_B145_WhatNoShareCanHoldIsUnavailable(t *testing.T) {
	const room = 1 << 16
	store := newAway()
	store.broken.Store(true)
	lim := weir.NewLimiter(store, weir.Options{})
	op := weir.Op{Limit: limit(t, "quota 40/month"), Local: limit(t, "quota 10/month"), OnFail: weir.FailLocal, Key: someone, Cost: 20}
	unavailable := func(op weir.Op) {
		t.Helper()
		d, err := lim.Take(t.Context(), op)
		if err != nil || d.Allowed || d.Reason != weir.ReasonUnavailable || d.RetryAfter != time.Second || !d.Degraded {
			t.Errorf("%+v, %v", d, err)
		}
	}
	unavailable(op)
	op.Cost = 41
	if d, err := lim.Take(t.Context(), op); err != nil || d.Reason != weir.ReasonNever {
		t.Errorf("%+v, %v", d, err)
	}
	op.Cost = 1
	for n := range room {
		op.Key = weir.NewKey("ip", fmt.Sprint(n))
		if d, err := lim.Take(t.Context(), op); err != nil || !d.Allowed {
			t.Fatalf("key %d: %+v, %v", n, d, err)
		}
	}
	op.Key = someone
	unavailable(op)
}

// An op without a share of its own has all of its limit.
func TestShareIsTheWholeLimitByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAway()
		store.broken.Store(true)
		lim := weir.NewLimiter(store, weir.Options{})
		op := weir.Op{Limit: limit(t, "quota 4/d"), OnFail: weir.FailLocal, Key: someone}
		for n := range 6 {
			if d, err := lim.Take(t.Context(), op); err != nil || d.Allowed != (n < 4) || !d.Degraded {
				t.Errorf("call %d: %+v, %v", n, d, err)
			}
		}
	})
}

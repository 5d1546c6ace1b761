package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

func (s suite) limiter(t *testing.T) {
	s.rules(t)
	if !s.caps.clocked {
		return
	}
	t.Run("while the clock moves", func(t *testing.T) {
		moving := s
		moving.tick = 50 * time.Microsecond
		moving.rules(t)
	})
	t.Run("a bucket refills to the nanosecond", s.bucketBoundary)
	t.Run("a quota ends to the nanosecond", s.quotaBoundary)
	t.Run("a calendar quota ends at midnight in its zone", s.calendarBoundary)
	t.Run("a sliding window fades", s.sliding)
	t.Run("a give-back returns to its own period", s.giveBackLater)
	t.Run("64 callers while time passes", s.intervals)
	t.Run("64 callers as fast as the bucket refills", s.hovering)
}

// rules are what holds whether or not the clock stands still: the limits are so
// slow that nothing refills meanwhile.
func (s suite) rules(t *testing.T) {
	t.Run("a bucket refuses when it is empty", s.bucketEmpty)
	t.Run("several limits are taken together or not at all", s.together)
	t.Run("a shadow limit changes nothing else", s.shadow)
	t.Run("a cost that never fits leaves no state", s.never)
	t.Run("what was taken can be given back once", s.giveBack)
	t.Run("settling brings a call to its real cost", s.settle)
	t.Run("one caller hears of a quota's mark", s.notices)
	t.Run("a metered quota counts on beyond itself", s.metered)
	t.Run("a broader item that refuses costs the narrower nothing", s.narrowFirst)
	t.Run("looking takes nothing", s.peek)
	t.Run("reset forgets", s.reset)
	t.Run("a limit that changes keeps what was used", s.changed)
	t.Run("64 callers at one instant", s.crowd)
}

// limited is a Limiter on the store under test.
type limited struct {
	*bench
	*weir.Limiter
}

func (s suite) limited(tb testing.TB, limits ...weir.Limit) limited {
	tb.Helper()
	b := s.start(tb)
	o := weir.Options{Limits: limits, Deadline: 30 * time.Second} // a loaded machine is not what is tested
	if b.clock != nil {
		o.Now = b.clock.now
	}
	return limited{b, weir.NewLimiter(b.store, o)}
}

func (l limited) take(ops ...weir.Op) weir.Decision {
	l.Helper()
	d, err := l.Take(context.Background(), ops...)
	if err != nil {
		l.Fatalf("Take: %v", err)
	}
	return d
}

// allows takes one unit n times, each of which must be allowed.
func (l limited) allows(n int, ops ...weir.Op) {
	l.Helper()
	for i := range n {
		if d := l.take(ops...); !d.Allowed {
			l.Fatalf("call %d of %d was refused by %q: %+v", i+1, n, d.Limit.Name(), d)
		}
	}
}

func (l limited) refuses(by weir.Limit, ops ...weir.Op) weir.Decision {
	l.Helper()
	d := l.take(ops...)
	if d.Allowed || d.Reason != weir.ReasonLimit || d.Limit != by || d.Degraded {
		l.Fatalf("want a refusal by %q, have %+v", by.Name(), d)
	}
	return d
}

// used is what Peek says of one op.
func (l limited) used(op weir.Op) int64 {
	l.Helper()
	ds, err := l.Peek(context.Background(), op)
	if err != nil {
		l.Fatalf("Peek: %v", err)
	}
	return ds[0].Used
}

func (l limited) wantUsed(op weir.Op, want int64) {
	l.Helper()
	if got := l.used(op); got != want {
		l.Fatalf("%d of %q are used, want %d", got, op.Limit.Name(), want)
	}
}

func (s suite) bucketEmpty(t *testing.T) {
	rate := limit(t, "st-seats", "0.5/d burst 10")
	l := s.limited(t, rate)
	op := weir.Op{Limit: rate, Key: l.key()}
	for i := range 10 {
		d := l.take(op)
		if !d.Allowed || d.Remaining != int64(9-i) || d.RetryAfter != 0 || d.Cost != 1 || d.Limit != rate || d.Used != int64(i+1) {
			t.Fatalf("call %d: %+v", i+1, d)
		}
	}
	for range 2 {
		d := l.refuses(rate, op)
		if d.Remaining != 0 || d.RetryAfter <= 0 || d.RetryAfter > 48*time.Hour || d.ResetAfter <= 19*24*time.Hour || d.ResetAfter > 20*24*time.Hour {
			t.Fatalf("refusal: %+v", d)
		}
	}
	other := weir.Op{Limit: rate, Key: l.key(), Cost: 10}
	l.allows(1, other)
	l.refuses(rate, other)
}

func (s suite) together(t *testing.T) {
	limits := []weir.Limit{
		limit(t, "st-a", "1/d burst 4"), limit(t, "st-b", "quota 4/d"),
		limit(t, "st-c", "quota 4/year calendar Europe/Berlin"), limit(t, "st-d", "sliding 4/90d"),
	}
	l := s.limited(t, limits...)
	for full := range limits {
		key := l.key()
		var ops []weir.Op
		for _, lim := range limits {
			ops = append(ops, weir.Op{Limit: lim, Key: key})
		}
		l.allows(2, ops...)
		l.allows(2, ops[full]) // now one of them is used up
		l.refuses(limits[full], ops...)
		for i, op := range ops {
			want := int64(2)
			if i == full {
				want = 4
			}
			l.wantUsed(op, want)
		}
	}
}

func (s suite) shadow(t *testing.T) {
	real, tried := limit(t, "st-real", "1/d burst 5"), limit(t, "st-tried", "quota 2/d")
	l := s.limited(t, real, tried)
	key := l.key()
	ops := []weir.Op{{Limit: real, Key: key}, {Limit: tried, Key: key, Shadow: true}}
	l.allows(5, ops...) // the shadow is used up after two
	l.refuses(real, ops...)
	l.wantUsed(ops[1], 2)
	l.wantUsed(weir.Op{Limit: tried, Key: key}, 0) // its balance is its own
	l.allows(2, weir.Op{Limit: tried, Key: key})
}

func (s suite) never(t *testing.T) {
	rate := limit(t, "st-never", "1/d burst 5")
	l := s.limited(t, rate)
	key := l.key()
	d := l.take(weir.Op{Limit: rate, Key: key, Cost: 6})
	if d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != 0 {
		t.Fatalf("6 of at most 5: %+v", d)
	}
	l.reads(key, nil)
	l.allows(1, weir.Op{Limit: rate, Key: key, Cost: 5})
}

// wantBack checks what is used after a give-back. Of a bucket, only what has not
// refilled is given back, and a limiter knows a server's clock by its last reply:
// it may keep the time by which it is wrong, which shows as a part of a unit.
func (l limited) wantBack(op weir.Op, want int64) {
	l.Helper()
	each, err := l.Peek(context.Background(), op)
	if err != nil {
		l.Fatal(err)
	}
	d := each[0]
	most := time.Duration(want)*d.Limit.Period().Duration() + time.Minute
	if d.Used != want && !(d.Limit.IsBucket() && d.Used == want+1 && d.ResetAfter < most) {
		l.Errorf("%d of %q are used, with %v until it is full, want %d", d.Used, d.Limit.Name(), d.ResetAfter, want)
	}
}

func (s suite) giveBack(t *testing.T) {
	ctx := context.Background()
	for _, text := range []string{"1/d burst 5", "quota 5/d", "quota 5/year calendar", "sliding 5/90d"} {
		lim := limit(t, "st-back", text)
		l := s.limited(t, lim)
		op := weir.Op{Limit: lim, Key: l.key(), Cost: 3}
		alone, d, err := l.Reserve(ctx, op) // nobody else has taken
		if err == nil && d.Allowed {
			err = alone.Cancel(ctx)
		}
		if err != nil {
			t.Fatalf("%s: reserve and cancel: %v", text, err)
		}
		l.wantBack(op, 0)
		r, d, err := l.Reserve(ctx, op)
		if err != nil || !d.Allowed {
			t.Fatalf("%s: reserve 3 of 5: %+v, %v", text, d, err)
		}
		l.refuses(lim, op)
		one := weir.Op{Limit: lim, Key: op.Key}
		l.allows(1, one)
		for range 2 { // the second does nothing
			if err := r.Cancel(ctx); err != nil {
				t.Fatalf("%s: cancel: %v", text, err)
			}
		}
		l.wantBack(op, 1)
		two := weir.Op{Limit: lim, Key: op.Key, Cost: 2}
		l.allows(1, op)
		l.refuses(lim, two)

		refused, d, err := l.Reserve(ctx, op)
		if err != nil || d.Allowed {
			t.Fatalf("%s: reserve of a used up limit: %+v, %v", text, d, err)
		}
		if err := refused.Cancel(ctx); err != nil {
			t.Fatalf("%s: cancel of a refusal: %v", text, err)
		}
		l.refuses(lim, two)
	}
}

func (s suite) settle(t *testing.T) {
	ctx := context.Background()
	for _, text := range []string{"1/d burst 10", "quota 10/d", "quota 10/year calendar", "sliding 10/90d"} {
		lim := limit(t, "st-settle", text)
		l := s.limited(t, lim)
		op := weir.Op{Limit: lim, Key: l.key(), Cost: 4}
		for actual, want := range map[int64]int64{1: 1, 4: 4, 6: 6} {
			op.Key = l.key()
			r, d, err := l.Reserve(ctx, op)
			if err != nil || !d.Allowed {
				t.Fatalf("%s: reserve: %+v, %v", text, d, err)
			}
			if err := r.Settle(ctx, actual); err != nil {
				t.Fatalf("%s: settle at %d: %v", text, actual, err)
			}
			l.wantUsed(op, want)
			l.allows(1, weir.Op{Limit: lim, Key: op.Key, Cost: 10 - want})
			l.refuses(lim, weir.Op{Limit: lim, Key: op.Key})
		}
	}
}

func (s suite) narrowFirst(t *testing.T) {
	user, tenant := limit(t, "st-user", "1/d burst 5"), limit(t, "st-tenant", "quota 3/d")
	l := s.limited(t, user, tenant)
	broad := l.key()
	ops := []weir.Op{{Limit: tenant, Key: broad}, {Limit: user, Key: weir.NewKey("storetest", l.run, "n", "narrow", "user", "u")}}
	l.allows(3, ops...)
	l.refuses(tenant, ops...)
	l.wantUsed(ops[1], 3) // what the narrow item gave was returned
	l.allows(2, ops[1])
	l.refuses(user, ops...)
	l.wantUsed(ops[0], 3)
}

func (s suite) peek(t *testing.T) {
	rate, quota := limit(t, "st-peek", "1/d burst 5"), limit(t, "st-peek-quota", "quota 3/d")
	l := s.limited(t, rate, quota)
	key := l.key()
	ops := []weir.Op{{Limit: rate, Key: key}, {Limit: quota, Key: key}}
	for range 2 {
		ds, err := l.Peek(context.Background(), ops...)
		if err != nil || len(ds) != 2 || !ds[0].Allowed || ds[0].Remaining != 5 || ds[1].Remaining != 3 || ds[0].Limit != rate || ds[1].Limit != quota {
			t.Fatalf("%+v, %v", ds, err)
		}
	}
	l.reads(key, nil)
	l.allows(3, ops...)
	ds, err := l.Peek(context.Background(), ops...)
	if err != nil || !ds[0].Allowed || ds[0].Remaining != 2 || ds[1].Allowed || ds[1].Remaining != 0 || ds[1].RetryAfter <= 0 {
		t.Fatalf("%+v, %v", ds, err)
	}
}

func (s suite) reset(t *testing.T) {
	rate, quota := limit(t, "st-reset", "1/d burst 5"), limit(t, "st-reset-quota", "quota 5/d")
	l := s.limited(t, rate, quota)
	key := l.key()
	ops := []weir.Op{{Limit: rate, Key: key}, {Limit: quota, Key: key}}
	l.allows(5, ops...)
	if err := l.Reset(context.Background(), key, rate); err != nil {
		t.Fatal(err)
	}
	l.wantUsed(ops[0], 0)
	l.wantUsed(ops[1], 5)
	for range 2 { // the second finds nothing
		if err := l.Reset(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	l.reads(key, nil)
	l.allows(5, ops...)
}

func (s suite) changed(t *testing.T) {
	small := limit(t, "st-change", "1/d burst 10")
	large := limit(t, "st-change", "10/d burst 100").Revised(1, weir.KeepUsed)
	l := s.limited(t, small, large)
	key := l.key()
	l.allows(10, weir.Op{Limit: small, Key: key})
	l.refuses(small, weir.Op{Limit: small, Key: key})
	l.allows(1, weir.Op{Limit: large, Key: key, Cost: 90})
	l.refuses(large, weir.Op{Limit: large, Key: key})
	// A process with the older policy goes on with the item's values.
	if d := l.take(weir.Op{Limit: small, Key: key}); d.Allowed {
		t.Errorf("the older policy minted units: %+v", d)
	}
}

// crowd lets 64 callers ask more than there is, at one instant.
func (s suite) crowd(t *testing.T) {
	limits := []weir.Limit{limit(t, "st-crowd", "1/d burst 100"), limit(t, "st-crowd-quota", "quota 100/d"), limit(t, "st-crowd-day", "quota 100/year calendar"), limit(t, "st-crowd-sliding", "sliding 100/90d")}
	l := s.limited(t, limits...)
	for _, lim := range limits {
		allowed, refused := l.rush(weir.Op{Limit: lim, Key: l.key()}, 3)
		if allowed != 100 || allowed+refused != callers*3 {
			t.Errorf("%s: %d of 100 allowed, %d refused, %d calls", lim, allowed, refused, callers*3)
		}
	}
}

// rush makes callers x each calls at once. A store that is too busy to decide
// says so, and is asked again: that is neither an allowed nor a refused call.
func (l limited) rush(op weir.Op, each int) (allowed, refused int) {
	l.Helper()
	var mu sync.Mutex
	at(l, func(int) error {
		for range each {
			d, err := l.Take(context.Background(), op)
			if err != nil {
				return err
			}
			mu.Lock()
			if d.Allowed {
				allowed++
			} else if d.Reason == weir.ReasonLimit {
				refused++
			}
			mu.Unlock()
		}
		return nil
	})
	return allowed, refused
}

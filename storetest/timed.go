package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// What follows needs a store that takes the test's clock.

func (s suite) bucketBoundary(t *testing.T) {
	rate := limit(t, "st-exact", "0.5/s burst 10")
	l := s.limited(t, rate)
	op := weir.Op{Limit: rate, Key: l.key()}
	for i := range 12 { // the running example: capacity 10, refill 0.5/s
		d := l.take(op)
		if d.Allowed != (i < 10) {
			t.Fatalf("call %d: %+v", i+1, d)
		}
		if i >= 10 && (d.RetryAfter != 2*time.Second || d.ResetAfter != 20*time.Second || d.Remaining != 0) {
			t.Fatalf("call %d: %+v", i+1, d)
		}
	}
	l.clock.advance(2*time.Second - 1)
	if d := l.refuses(rate, op); d.RetryAfter != 1 {
		t.Fatalf("1 ns too early: %+v", d)
	}
	l.clock.advance(1)
	l.allows(1, op)
	l.refuses(rate, op)
	// It fills to its capacity and not beyond.
	l.clock.advance(time.Hour)
	l.allows(10, op)
	l.refuses(rate, op)
	// A clock that goes back mints nothing.
	l.clock.advance(-time.Second)
	if d := l.refuses(rate, op); d.RetryAfter != 3*time.Second {
		t.Fatalf("a second back: %+v", d)
	}
	// Waiting exactly the wait is enough, for any cost.
	for cost := int64(1); cost <= 10; cost++ {
		op.Cost = cost
		if d := l.take(op); !d.Allowed {
			l.clock.advance(d.RetryAfter)
		}
		l.allows(1, op)
	}
}

func (s suite) quotaBoundary(t *testing.T) {
	quota := limit(t, "st-quota-exact", "quota 3/m")
	l := s.limited(t, quota)
	op := weir.Op{Limit: quota, Key: l.key()}
	l.allows(1, op)
	l.clock.advance(40 * time.Second) // later counts don't move the window's end
	l.allows(2, op)
	if d := l.refuses(quota, op); d.RetryAfter != 20*time.Second {
		t.Fatalf("%+v", d)
	}
	l.clock.advance(20*time.Second - 1)
	if d := l.refuses(quota, op); d.RetryAfter != 1 {
		t.Fatalf("1 ns too early: %+v", d)
	}
	l.clock.advance(1)
	l.allows(3, op)
	if d := l.refuses(quota, op); d.RetryAfter != time.Minute {
		t.Fatalf("the new window: %+v", d)
	}
}

func (s suite) calendarBoundary(t *testing.T) {
	quota := limit(t, "st-midnight", "quota 3/d calendar Europe/Berlin")
	l := s.limited(t, quota)
	// The day on which Berlin's clocks go forward has 23 hours.
	midnight := time.Date(2027, 3, 28, 22, 0, 0, 0, time.UTC)
	l.clock.at.Store(midnight.Add(-23 * time.Hour).UnixNano())
	op := weir.Op{Limit: quota, Key: l.key()}
	l.allows(3, op)
	if d := l.refuses(quota, op); d.RetryAfter != 23*time.Hour {
		t.Fatalf("at the start of the day: %+v", d)
	}
	l.clock.advance(23*time.Hour - 1)
	if d := l.refuses(quota, op); d.RetryAfter != 1 {
		t.Fatalf("1 ns before midnight: %+v", d)
	}
	l.clock.advance(1)
	l.allows(3, op)
	l.refuses(quota, op)
}

func (s suite) sliding(t *testing.T) {
	sliding := limit(t, "st-slide", "sliding 10/10s")
	l := s.limited(t, sliding)
	l.clock.at.Store(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	op := weir.Op{Limit: sliding, Key: l.key()}
	l.allows(10, op)
	l.refuses(sliding, op)
	l.clock.advance(15 * time.Second) // half of the ten still weigh
	l.allows(5, op)
	d := l.refuses(sliding, op)
	l.clock.advance(d.RetryAfter - 1)
	l.refuses(sliding, op)
	l.clock.advance(1)
	l.allows(1, op)
}

func (s suite) giveBackLater(t *testing.T) {
	ctx := context.Background()
	rate, quota := limit(t, "st-later", "1/s burst 10"), limit(t, "st-later-quota", "quota 10/m calendar")
	l := s.limited(t, rate, quota)
	l.clock.at.Store(time.Date(2027, 1, 1, 0, 0, 30, 0, time.UTC).UnixNano())

	bucket := weir.Op{Limit: rate, Key: l.key(), Cost: 8}
	r, _, err := l.Reserve(ctx, bucket)
	if err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5 * time.Second) // five of the eight have refilled
	l.wantUsed(bucket, 3)
	if err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	l.wantUsed(bucket, 0)

	window := weir.Op{Limit: quota, Key: l.key(), Cost: 8}
	if r, _, err = l.Reserve(ctx, window); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(30 * time.Second) // the next minute
	l.allows(1, window)
	if err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	l.wantUsed(window, 8) // the old window's units don't come back in the new one
}

// intervals lets time pass between rushes in which callers take and give back,
// and has the log checked: never above the limit in any interval, and never a
// call refused while there was enough.
func (s suite) intervals(t *testing.T) {
	const burst, perSecond = 40, 4
	rate := limit(t, "st-interval", fmt.Sprintf("%d/s burst %d", perSecond, burst))
	l := s.limited(t, rate)
	op := weir.Op{Limit: rate, Key: l.key()}
	ctx := context.Background()
	var log []Admission
	level, last := time.Duration(0), l.clock.now() // of the model: time until full
	for phase, pause := range []time.Duration{0, time.Second, 250*time.Millisecond - 1, 1, 7 * time.Second, 100 * time.Millisecond, 30 * time.Second, 3 * time.Second} {
		l.clock.advance(pause)
		now := l.clock.now()
		level = max(0, level-time.Duration(now-last))
		last = now
		fits := int((burst*time.Second/perSecond - level) / (time.Second / perSecond))

		var mu sync.Mutex
		var kept, back int
		at(t, func(n int) error {
			r, d, err := l.Reserve(ctx, op)
			if err != nil || !d.Allowed {
				return err
			}
			if n%4 == 0 {
				if err := r.Cancel(ctx); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				back++
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			kept++
			return nil
		})
		log = append(log, Admission{now, now, int64(kept + back)}, Admission{now, now, -int64(back)})
		level += time.Duration(kept) * time.Second / perSecond
		if kept > fits || kept+back < min(fits, callers) {
			t.Errorf("phase %d: %d fit; %d were taken and kept, %d taken and given back", phase, fits, kept, back)
		}
		if want, got := (int64(level)*perSecond+int64(time.Second)-1)/int64(time.Second), l.used(op); got != want {
			t.Errorf("phase %d: %d are used, want %d", phase, got, want)
		}
	}
	if err := (Bound{Burst: burst, Tokens: perSecond, Per: time.Second}).Check(log); err != nil {
		t.Error(err)
	}
}

// hovering lets 64 callers take from a bucket that refills about as fast as they
// take, so that it is full at one look and not at the next. Whoever plans for
// the one and meets the other must come to an end all the same: there is always
// enough, so that nobody is refused, and nobody told that the store is busy.
func (s suite) hovering(t *testing.T) {
	s.tick = 20 * time.Microsecond
	for _, perSecond := range []int{2_000, 12_500, 100_000} {
		rate := limit(t, "st-hover", fmt.Sprintf("%d/s burst 1000000", perSecond))
		l := s.limited(t, rate)
		allowed, refused := l.rush(weir.Op{Limit: rate, Key: l.key()}, 6)
		if allowed != callers*6 || refused != 0 {
			t.Errorf("%s: %d of %d allowed, %d refused", rate, allowed, callers*6, refused)
		}
	}
}

package weir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// someRates are limits whose intervals are whole, endless fractions, tiny and
// huge.
var someRates = []string{
	"10/13s burst 1", "1/h burst 1", "1/3s burst 2", "7/11m burst 3", "0.3/s burst 4", "333.3/s burst 5", "999999.9/s burst 7", "1000000/s burst 1",
	"213001/s burst 213001", "1/year burst 1", "1/100year burst 1", "3/d burst 3", "0.000001/s burst 2",
}

func op(l weir.Limit, id string, cost int64) weir.Op {
	return weir.Op{Limit: l, Key: weir.NewKey("account", id), Cost: cost}
}

func TestCase_B001_ANewBucketIsFull(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, text := range someRates {
			l := limit(t, text)
			p.advance(time.Duration(i) * 77777777 * time.Nanosecond)
			if d := p.take(op(l, text, 1)); !d.Allowed || d.Remaining != l.Max()-1 {
				t.Errorf("%s: the first call of a new key: %+v", text, d)
			}
			if d := p.take(op(l, text+"all", l.Max())); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%s: all at once of a new key: %+v", text, d)
			}
		}
	})
}

func TestCase_B002_WaitingAsToldIsEnough(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range append(someRates[:9:9], "quota 3/7s", "quota 3/minute calendar", "sliding 7/11s", "sliding 3/h") {
			l := limit(t, text, "b002")
			r := rand.New(rand.NewPCG(2, 2))
			refused := 0
			for range 400 {
				n := 1 + r.Int64N(l.Max())
				d := p.take(op(l, text, n))
				if d.Allowed {
					p.advance(time.Duration(r.Int64N(int64(l.Horizon())/10 + 2)))
					continue
				}
				refused++
				p.advance(d.RetryAfter - 1)
				if p.take(op(l, text, n)).Allowed {
					t.Fatalf("%s: allowed before the announced wait of %v", text, d.RetryAfter)
				}
				p.advance(1)
				if d := p.take(op(l, text, n)); !d.Allowed {
					t.Fatalf("%s: refused after the announced wait: %+v", text, d)
				}
			}
			if refused < 20 {
				t.Errorf("%s: refused %d times", text, refused)
			}
		}
	})
}

// A rate of zero can't be built; the slowest that can gives its burst and then
// a wait that is neither negative nor absurd.
func TestCase_B004_TheSlowestRate(t *testing.T) {
	for _, text := range []string{"0/s", "0/s burst 1", "0.000/h", "quota 0/d", "sliding 0/h"} {
		if _, err := weir.ParseLimit(text); err == nil {
			t.Errorf("%s is a limit", text)
		}
	}
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1/100year", "1/year burst 100", "0.00000001/s burst 1"} {
			l := limit(t, text)
			n, d := p.drain(op(l, text, 1))
			if int64(n) != l.Max() || d.RetryAfter <= 0 || d.RetryAfter > 100*366*24*time.Hour {
				t.Errorf("%s: %d allowed, then %+v", text, n, d)
			}
		}
	})
}

func TestCase_B005_LongIdleIsExactlyFull(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range someRates[:9] {
			l := limit(t, text)
			for _, idle := range []time.Duration{12 * time.Hour, 10 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
				if d := p.take(op(l, text, l.Max())); !d.Allowed {
					t.Errorf("%s: not full: %+v", text, d)
				}
				if p.now() > 1<<62 {
					break
				}
				p.advance(idle)
				if d := p.peek(op(l, text, 1))[0]; d.Remaining != l.Max() || d.ResetAfter != 0 {
					t.Errorf("%s: after %v idle: %+v", text, idle, d)
				}
			}
			p.clock.at.Store(newClock().now())
			if err := p.Reset(t.Context(), weir.NewKey("account", text)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestCase_B007_B016_WhatIsShownCanBeTaken(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		r := rand.New(rand.NewPCG(7, 7))
		for _, text := range append(someRates[:9:9], "6/m burst 6", "quota 10/30s", "sliding 10/30s", "quota 10/minute calendar") {
			l := limit(t, text, "b007")
			for range 300 {
				p.advance(time.Duration(r.Int64N(int64(l.Horizon())/5 + 2)))
				d := p.peek(op(l, text, 1))[0]
				if d.Remaining > l.Max() || d.Remaining < 0 || d.Allowed != (d.Remaining >= 1) {
					t.Fatalf("%s: %+v of %d", text, d, l.Max())
				}
				if d.Remaining < l.Max() {
					if more := p.take(op(l, text, d.Remaining+1)); more.Allowed {
						t.Fatalf("%s: %d were left, and %d could be taken", text, d.Remaining, d.Remaining+1)
					}
				}
				if d.Remaining > 0 && r.IntN(2) == 0 {
					if all := p.take(op(l, text, d.Remaining)); !all.Allowed || all.Remaining != 0 {
						t.Fatalf("%s: %d were left, but: %+v", text, d.Remaining, all)
					}
				}
			}
		}
	})
}

// How often somebody calls or looks has no part in what refills: traffic does
// not restart the clock, remainders are kept, and no step is rounded away.
func TestCase_B008_B010_B011_AnyPatternRefillsTheSame(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for row, c := range []struct {
			text  string
			every time.Duration
			calls int
			cost  int64
			want  int64 // taken in all
		}{
			{"10/30s", time.Second, 10, 1, 10},                          // B008, where all fit and three have leaked
			{"10/30s", time.Second, 300, 1, 10 + 99},                    // 299 s are 99 tokens and a part
			{"1/10s burst 100", 25 * time.Second, 41, 1, 41},            // B010: none is refused at all
			{"1/10s burst 1", 7 * time.Second, 101, 1, 1 + 70 - 20},     // every second or third call
			{"5/s burst 1", 100 * time.Millisecond, 101, 1, 1 + 50},     // B011
			{"5/s burst 5", 100 * time.Millisecond, 101, 1, 5 + 50},     //
			{"0.3/s burst 3", 10 * time.Millisecond, 2_002, 1, 3 + 6},   // 20 s at 0.3/s
			{"1000000/s burst 1", 333 * time.Nanosecond, 3_001, 1, 751}, // every fourth: 1332 ns
		} {
			l, id := limit(t, c.text), fmt.Sprint("row", row)
			taken := int64(0)
			for i := range c.calls {
				if i > 0 {
					p.advance(c.every)
				}
				p.peek(op(l, id, 1))
				if p.take(op(l, id, c.cost)).Allowed {
					taken += c.cost
				}
			}
			if taken != c.want {
				t.Errorf("%s, a call every %v: %d taken, want %d", c.text, c.every, taken, c.want)
			}
		}
		// The accrual of B010 in one step and in forty: 97 tokens and more.
		l := limit(t, "1/10s burst 100")
		p.take(op(l, "b010", 100))
		for range 39 {
			p.advance(25 * time.Second)
			p.peek(op(l, "b010", 1))
		}
		if left := p.peek(op(l, "b010", 1))[0].Remaining; left != 97 {
			t.Errorf("%d accrued in 975 s, want 97", left)
		}
		l = limit(t, "10/30s")
		for range 9 {
			p.take(op(l, "b008", 1))
			p.advance(time.Second)
		}
		if left := p.peek(op(l, "b008", 1))[0].Remaining; left != 4 {
			t.Errorf("%d left of 10 after 9 in 9 s, want the 3 that leaked and the one not taken", left)
		}
	})
}

func TestCase_B013_IdleTimeIsNotSaved(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1/s burst 10", "quota 10/h", "sliding 10/h", "quota 10/minute calendar"} {
			l := limit(t, text, "b013")
			p.take(op(l, text, 1))
			p.advance(3 * time.Hour)
			if d := p.take(op(l, text, 10)); !d.Allowed {
				t.Errorf("%s: %+v", text, d)
			}
			if d := p.take(op(l, text, 1)); d.Allowed {
				t.Errorf("%s: the idle hours were credited after the take: %+v", text, d)
			}
		}
	})
}

// A bucket allows burst + rate x time, in any interval and no more. Who needs a
// strict number in a window takes a sliding window.
func TestCase_B014_TheBoundOfABucket(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		bucket, sliding := limit(t, "17/30s burst 17"), limit(t, "sliding 17/30s")
		n, m := 0, 0
		p.advance(time.Duration(int64(30*time.Second) - p.now()%int64(30*time.Second)))
		for range 60 {
			if p.take(op(bucket, "a", 1)).Allowed {
				n++
			}
			if p.take(op(sliding, "a", 1)).Allowed {
				m++
			}
			p.advance(500 * time.Millisecond)
		}
		if n != 17+16 || m != 17 {
			t.Errorf("two calls a second for 30 s: %d by the bucket, %d by the sliding window", n, m)
		}
	})
}

func TestCase_B017_ExactlyTheCapacity(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, max := range []int{1, 2, 3, 100} {
			for _, form := range []string{"1/h burst %d", "quota %d/h", "sliding %d/h", "quota %d/day calendar"} {
				text := fmt.Sprintf(form, max)
				if n, _ := p.drain(op(limit(t, text, "b017"), text, 1)); n != max {
					t.Errorf("%s: %d at one instant", text, n)
				}
			}
		}
	})
}

func TestCase_B019_RefusalsDoNotCount(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, c := range []struct {
			text string
			low  int
			high int
		}{{"sliding 5/10s", 8, 10}, {"quota 5/10s", 10, 10}, {"0.5/s burst 5", 14, 15}, {"quota 5/10s calendar", 10, 15}} {
			l := limit(t, c.text, "b019")
			n := 0
			for range 20 {
				for range 20 { // and who tries harder gets no less
					if p.take(op(l, c.text, 1)).Allowed {
						n++
					}
				}
				p.advance(time.Second)
			}
			if n < c.low || n > c.high {
				t.Errorf("%s: %d in 20 s, want %d to %d", c.text, n, c.low, c.high)
			}
		}
	})
}

// The wait is until what blocks is over, and not counted from the newest call.
func TestCase_B020_TheWaitIsOfWhatBlocks(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "quota 2/m")
		p.take(op(l, "a", 1))
		p.advance(10 * time.Second)
		p.take(op(l, "a", 1))
		p.advance(10 * time.Second)
		if d := p.take(op(l, "a", 1)); d.Allowed || d.RetryAfter != 40*time.Second {
			t.Errorf("%+v, want a wait of 40s", d)
		}
		b := limit(t, "2/m burst 2")
		p.take(op(b, "a", 2))
		p.advance(10 * time.Second)
		p.take(op(b, "a", 1))
		if d := p.take(op(b, "a", 1)); d.Allowed || d.RetryAfter != 20*time.Second {
			t.Errorf("%+v, want a wait of 20s", d)
		}
	})
}

func TestCase_B022_APeriodBringsTheWholeNumber(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"10/m", "10/m burst 10", "quota 10/m", "quota 10/minute calendar", "sliding 10/30s"} {
			l := limit(t, text, "b022")
			for round := range 3 {
				if n, _ := p.drain(op(l, text, 1)); n != 10 {
					t.Errorf("%s: %d in minute %d", text, n, round)
				}
				p.advance(time.Minute)
			}
		}
	})
}

func TestCase_B023_B116_B118_B119_ARefusedCostChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1/h burst 10", "quota 10/h", "sliding 10/h", "quota 10/day calendar"} {
			l := limit(t, text, "b023")
			p.take(op(l, text, 8))
			before := p.peek(op(l, text, 1))[0]
			for _, cost := range []int64{3, 5, 10, 11, 1000, 1_000_000, 1<<63 - 1} {
				d := p.take(op(l, text, cost))
				never := cost > 10
				if d.Allowed || (d.Reason == weir.ReasonNever) != never || (d.RetryAfter == 0) != never {
					t.Errorf("%s: a cost of %d: %+v", text, cost, d)
				}
				if !d.Unknown && (d.Remaining != 2 || d.Used != 8) {
					t.Errorf("%s: a cost of %d shows %+v", text, cost, d)
				}
				if after := p.peek(op(l, text, 1))[0]; after != before {
					t.Errorf("%s: a cost of %d changed %+v to %+v", text, cost, before, after)
				}
			}
			if n, _ := p.drain(op(l, text, 1)); n != 2 {
				t.Errorf("%s: %d after the refusals", text, n)
			}
		}
	})
}

func TestCase_B025_EachKeyHasItsOwnWindow(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "quota 5/m")
		p.take(op(l, "A", 1))
		p.advance(50 * time.Second)
		p.drain(op(l, "B", 1))
		p.advance(11 * time.Second)
		if d := p.take(op(l, "B", 1)); d.Allowed || d.RetryAfter != 49*time.Second {
			t.Errorf("B, 11 s after it spent all: %+v", d)
		}
		if n, _ := p.drain(op(l, "A", 1)); n != 5 {
			t.Errorf("A has %d in its second window", n)
		}
	})
}

// A cell that an earlier lap left is not this lap's.
func TestCase_B026_OldCellsReadAsZero(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"sliding 3/10s", "quota 3/10s", "quota 3/10s calendar", "quota 3/hour calendar"} {
			l := limit(t, text, "b026")
			for _, gap := range []time.Duration{l.Horizon(), 2 * l.Horizon(), 3 * l.Horizon(), 10 * l.Horizon(), 100 * l.Horizon()} {
				for range 5 {
					if d := p.take(op(l, text, 3)); !d.Allowed {
						t.Fatalf("%s: %v later: %+v", text, gap, d)
					}
					p.advance(gap)
				}
			}
		}
	})
}

func TestCase_B121_LookingTakesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range everyKind {
			l := limit(t, text, "b121")
			p.take(op(l, text, 4))
			for _, cost := range []int64{0, 1, 6, 7, 100} {
				if d := p.peek(op(l, text, cost))[0]; d.Remaining != 6 || d.Allowed != (cost <= 6) {
					t.Errorf("%s: looking for %d: %+v", text, cost, d)
				}
			}
			if d := p.take(op(l, text, 6)); !d.Allowed {
				t.Errorf("%s: %+v", text, d)
			}
		}
	})
}

func TestCase_B122_B125_NoCostMintsOrWraps(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1000000/s burst 1000000000000000", "quota 1000000000000000/year", "sliding 1000000000000000/d", "1/s burst 10"} {
			l := limit(t, text, "b122")
			p.take(op(l, text, l.Max()))
			for _, cost := range []int64{-1, -5, -1 << 62, -1 << 63} {
				if _, err := p.Take(t.Context(), op(l, text, cost)); err == nil {
					t.Errorf("%s: a cost of %d is no error", text, cost)
				}
				if _, err := p.Peek(t.Context(), op(l, text, cost)); err == nil {
					t.Errorf("%s: looking for %d is no error", text, cost)
				}
			}
			for _, cost := range []int64{1, l.Max(), l.Max() + 1, 1 << 62, 1<<63 - 1} {
				if d := p.take(op(l, text, cost)); d.Allowed || d.RetryAfter < 0 || d.Remaining != 0 {
					t.Errorf("%s: %d of an empty limit: %+v", text, cost, d)
				}
			}
		}
		for _, text := range []string{"200000000000/s", "2000000000000/s burst 5", "quota 9223372036854775808/d", "1/s burst 9223372036854775807"} {
			if _, err := weir.ParseLimit(text); err == nil {
				t.Errorf("%s is a limit", text)
			}
		}
	})
}

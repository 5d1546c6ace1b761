package plan

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Readings of the clock that come out of order mint nothing: in every interval
// of readings a bucket keeps its bound exactly.
func TestShuffledReadings(t *testing.T) {
	s := parsed(t, "", "2/s burst 5")
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 28))
		var c Cells
		var log []entry
		for i := range int64(10_000) {
			now := base + i*second/20 - r.Int64N(3*second)
			n := 1 + r.Int64N(2)
			if s.Step(&c, now, n).OK {
				log = append(log, entry{at: now, cost: n * s.interval})
			}
		}
		slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
		if ok, e := withinBound(log, s.depth, 1); !ok || len(log) < 500 {
			t.Fatalf("seed %d: over at %d, of %d takes", seed, e.at, len(log))
		}
	}
}

var clockLimits = []string{
	"2/s burst 5", "1/h burst 3", "1/year burst 2", "1000000/s burst 50", "quota 3/10s", "quota 5/day", "quota 5/100year",
	"sliding 4/5m", "sliding 4/30d", "quota 5/minute calendar", "quota 5/day calendar America/New_York", "quota 5/year calendar",
}

// A clock that is set back never mints, and locks nobody out for longer than
// the limit takes to be full again, and the little for which a time in the
// future is believed.
func TestClockStepsBack(t *testing.T) {
	for _, text := range clockLimits {
		s := parsed(t, "", text)
		for _, back := range []int64{1, second, 9 * second, 11 * second, 3600 * second, 86400 * second, 20 * 365 * 86400 * second} {
			var c Cells
			now := base + 12345*second
			for s.Step(&c, now, 1).OK {
			}
			now -= back
			v := s.Step(&c, now, 1)
			if v.OK && !s.OnCalendar() && s.alg != sliding {
				t.Errorf("%s: a clock set back by %d ns let one more through", text, back)
			}
			if v.OK {
				continue // an earlier window of the calendar, with a count of its own
			}
			// What is repaired counts from now.
			v = s.Step(&c, now, 1)
			debt := int64(0)
			if s.alg == bucket {
				debt = s.debt
			}
			if v.Wait <= 0 || v.Wait > s.Horizon()+debt+wrongClock {
				t.Errorf("%s: set back by %d ns, a wait of %d ns", text, back, v.Wait)
			}
			if v := s.Step(&c, addSat(now, v.Wait), 1); !v.OK {
				t.Errorf("%s: set back by %d ns, refused after the wait: %+v", text, back, v)
			}
		}
	}
}

// Forward steps, sleep, and a clock that jumps to and fro give a bucket at most
// what the time that the clock claims to have passed is worth, and at most one
// full bucket for each jump.
func TestClockJumps(t *testing.T) {
	s := parsed(t, "", "2/s burst 5")
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 31))
		var c Cells
		now, allowance, total := base, s.depth, int64(0)
		for range 500 {
			switch r.IntN(12) {
			case 0:
				jump := []int64{11 * second, 3600 * second, 8 * 3600 * second, second}[r.IntN(4)]
				now += jump
				allowance += min(jump, s.depth)
			case 1:
				now -= []int64{11 * second, 3600 * second, 8 * 3600 * second, second}[r.IntN(4)]
			default:
				d := r.Int64N(second)
				now += d
				allowance += d
			}
			if s.Step(&c, now, 1).OK {
				total += s.interval
			}
			if total > allowance {
				t.Fatalf("seed %d: %d ns taken of %d", seed, total, allowance)
			}
		}
	}
}

// From 1970 to the end of the times that 64 bits hold, no sum overflows: no
// negative wait, and never more used than there is.
func TestEndsOfTime(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 2262))
	ends := []int64{0, 1, second, base, 6_000_000_000 * second, math.MaxInt64 - maxPeriod, math.MaxInt64 - 86400*second, math.MaxInt64 - second, math.MaxInt64 - 1, math.MaxInt64}
	for _, text := range clockLimits {
		s := parsed(t, "", text)
		for range 300 {
			var c Cells
			for range 20 {
				now := ends[r.IntN(len(ends))]
				if now < math.MaxInt64-3*second {
					now += r.Int64N(2 * second)
				}
				n := 1 + r.Int64N(s.max)
				look := s.Look(&c, now, n)
				var w Write
				planned := s.Plan(&c, now, n, &w)
				s.Tidy(&c, now, new(Write))
				s.GiveBack(&c, now, n, look.Stamp, new(Write))
				s.Charge(&c, now, n, look.Stamp, new(Write))
				v := s.Step(&c, now, n)
				if planned.OK != v.OK || v.Wait < 0 || v.Reset < 0 || v.Used < 0 || v.OK && v.Used > v.Max {
					t.Fatalf("%s at %d: %+v, planned %+v, state %v", text, now, v, planned, show(&c))
				}
				c.IdleAt(now)
			}
		}
	}
}

// A time that only a wrong clock can have written is repaired, in process by
// the refusal itself and in a store by the write that follows it.
func TestWrongClockIsRepaired(t *testing.T) {
	for _, text := range []string{"2/s burst 5", "quota 3/10s"} {
		s := parsed(t, "", text)
		var stepped, tidied Cells
		future := base + 365*86400*second
		for s.Step(&stepped, future, 1).OK {
		}
		tidied.CopyFrom(&stepped)
		if v := s.Step(&stepped, base, 1); v.OK || v.Wait > s.Horizon() {
			t.Fatalf("%s: %+v", text, v)
		}
		var w Write
		if !s.Tidy(&tidied, base, &w) || !w.Holds(&tidied, base) {
			t.Fatalf("%s: nothing is tidied", text)
		}
		w.Apply(&tidied, base)
		if !same(&stepped, &tidied) {
			t.Errorf("%s: step leaves %v, tidy %v", text, show(&stepped), show(&tidied))
		}
		w.Reset()
		if s.Tidy(&tidied, base, &w) {
			t.Errorf("%s: tidied twice: %+v", text, w)
		}
		if v := s.Step(&stepped, base+s.Horizon(), s.max); !v.OK {
			t.Errorf("%s: not full after the repair and its time: %+v", text, v)
		}
	}
	// Whatever stands beside it in the item.
	s := parsed(t, "", "2/s burst 5")
	for _, depth := range []int64{-1, 0, math.MaxInt64, math.MinInt64} {
		var c Cells
		c.Set(s.field(Arrival), base+365*86400*second)
		c.Set(s.field(Depth), depth)
		s.Step(&c, base, 1)
		if v := s.Step(&c, base+s.depth, s.max); !v.OK {
			t.Errorf("depth %d in the item: still refused after the repair: %+v", depth, v)
		}
	}
}

// Windows that are over are removed, with a take or, when there are many, by a
// write of their own; never one that still means something.
func TestOldWindowsGo(t *testing.T) {
	for _, text := range []string{"quota 3/minute calendar", "sliding 3/minute"} {
		s := parsed(t, "", text)
		var c Cells
		for n := range int64(20) {
			f := in(s.field(Cell), base-n*60*second)
			c.Set(f, 1)
		}
		c.Set(in(s.field(Cell), base+60*second), 1)
		for trips := 0; ; trips++ {
			var w Write
			if !s.Tidy(&c, base, &w) {
				break
			}
			if trips > 5 || len(w.Do) > removals {
				t.Fatalf("%s: %d trips, %d removals in one write", text, trips, len(w.Do))
			}
			w.Apply(&c, base)
		}
		if c.Len() > 3+staleWindows {
			t.Errorf("%s: %d cells after tidying", text, c.Len())
		}
		s.Step(&c, base, 1)
		want := fmt.Sprint(map[string]int64{
			in(s.field(Cell), base-60*second).Text(): 1, in(s.field(Cell), base).Text(): 2, in(s.field(Cell), base+60*second).Text(): 1,
		})
		if got := fmt.Sprint(show(&c)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// Readings older than those that others used already mint nothing.
func TestCase_B028_OldReadingsMintNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "1/s burst 10")
		p.drain(op(l, "a", 1))
		admitted := 0
		for range 5 {
			p.advance(10 * time.Second)
			for range 10 {
				if p.take(op(l, "a", 1)).Allowed {
					admitted++
				}
			}
			p.advance(-10 * time.Second)
			p.peek(op(l, "a", 1))
			p.take(op(l, "a", 1))
		}
		if admitted != 10 {
			t.Errorf("%d in five rounds of the same ten seconds, want 10", admitted)
		}
	})
}

// After a step back nobody is locked out until the clock has caught up.
func TestCase_B029_NoLockOutAfterAStepBack(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, c := range []struct {
			text string
			most time.Duration
		}{
			{"1/s burst 10", 21 * time.Second}, {"0.5/s burst 10", 41 * time.Second}, {"quota 10/m", time.Minute}, {"sliding 10/m", 2 * time.Minute}, {"quota 10/minute calendar", time.Minute},
		} {
			l := limit(t, c.text, "b029")
			for _, beside := range []weir.Limit{{}, limit(t, "quota 1000/day", "beside")} {
				id := fmt.Sprint(c.text, beside.IsZero())
				ops := []weir.Op{op(l, id, 1)}
				if !beside.IsZero() { // and the same where limits share the item
					ops = append(ops, op(beside, id, 1))
				}
				for p.take(ops...).Allowed {
				}
				p.advance(-time.Hour)
				waited := time.Duration(0)
				for waited <= c.most && !p.take(ops...).Allowed {
					waited += time.Second
					p.advance(time.Second)
				}
				if waited > c.most {
					t.Errorf("%s: locked out for more than %v after the clock was set back an hour", id, c.most)
				}
				p.advance(3 * time.Hour)
			}
		}
	})
}

// A clock that jumps to and fro gives no free refills and no absurd waits.
func TestCase_B031_B032_AJumpyClock(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "1/m burst 3")
		n := 0
		for i := range 200 {
			p.advance([]time.Duration{-11 * time.Second, 11 * time.Second}[i%2])
			d := p.take(op(l, "a", 1))
			if d.Allowed {
				n++
			}
			if d.RetryAfter < 0 || d.RetryAfter > 75*time.Second || d.Remaining < 0 || d.Remaining > 2 {
				t.Fatalf("%+v", d)
			}
		}
		if n != 3 {
			t.Errorf("%d allowed while no time passed", n)
		}
	})
	// Readings out of order from many goroutines: the real clock.
	l := limit(t, "1/h burst 100")
	lim := weir.NewLimiter(memstore.New(memstore.Options{Now: func() int64 { return time.Now().UnixNano() - rand.Int64N(int64(time.Second)) }}), weir.Options{})
	var allowed atomic.Int64
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			for range 200 {
				d, err := lim.Take(context.Background(), op(l, "a", 1))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if allowed.Load() != 100 {
		t.Errorf("%d allowed of a burst of 100", allowed.Load())
	}
}

// Callers whose clocks differ share a store without a clock of its own: the
// faster one gains what its lead is worth, once.
func TestCase_B035_CallersWithDifferentClocks(t *testing.T) {
	l := limit(t, "1/s burst 10")
	for _, lasts := range []int{60, 600} { // the gain does not grow
		base := newClock()
		fast, slow := newClock(), base
		shared := newDistant(base)
		// Each caller brings its own clock along.
		current := base
		shared.Store = memstore.New(memstore.Options{Now: func() int64 { return current.now() }})
		shared.caps.OwnClock = false
		a, b := weir.NewLimiter(shared, weir.Options{Deadline: patient, Now: slow.now}), weir.NewLimiter(shared, weir.Options{Deadline: patient, Now: fast.now})
		fast.advance(5 * time.Second)
		n := 0
		for range lasts * 4 {
			for _, caller := range []struct {
				l *weir.Limiter
				c *clock
			}{{a, slow}, {b, fast}} {
				current = caller.c
				d, err := caller.l.Take(context.Background(), op(l, "a", 1))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					n++
				}
			}
			slow.advance(250 * time.Millisecond)
			fast.advance(250 * time.Millisecond)
		}
		if want := 10 + lasts; n < want-1 || n > want+5 {
			t.Errorf("%d allowed in %d s, want %d and at most 5 more", n, lasts, want)
		}
	}
}

// At the edge of a window nobody below the limit is refused, and every call is
// counted once, in one window.
func TestCase_B040_B077_WindowEdges(t *testing.T) {
	for _, text := range []string{"quota 30/s", "quota 30/s calendar", "sliding 60/s"} {
		everywhere(t, func(t *testing.T, p *place) {
			l := limit(t, text, "b040")
			for i := range 3000 { // 25 a second, never over
				if d := p.take(op(l, "a", 1)); !d.Allowed {
					t.Fatalf("%s: call %d of 25 a second: %+v", text, i, d)
				}
				p.advance(40 * time.Millisecond)
			}
			p.advance(time.Minute)
			p.take(op(l, "edge", 1))
			p.advance(time.Second - time.Duration(p.now()%int64(time.Second)))
			var allowed atomic.Int64
			var group sync.WaitGroup
			for range 100 { // a crowd at the very edge
				group.Go(func() {
					if d, err := p.Take(context.Background(), op(l, "edge", 1)); err == nil && d.Allowed {
						allowed.Add(1)
					}
				})
			}
			group.Wait()
			if n := allowed.Load(); n != l.Max() && n != l.Max()-1 {
				t.Errorf("%s: %d at the edge of a window", text, n)
			}
		})
	}
}

func TestCase_B047_ObserverCallsEveryVerb(t *testing.T) {
	everyWay := map[string]func(*clock) weir.Store{
		"memory": func(c *clock) weir.Store { return memstore.New(memstore.Options{Now: c.now}) },
		"remote": func(c *clock) weir.Store { return newDistant(c) },
	}
	for name, open := range everyWay {
		c := newClock()
		l, inner := limit(t, "1/h burst 3"), limit(t, "1/h burst 3", "inner")
		var lim *weir.Limiter
		depth := 0
		lim = weir.NewLimiter(open(c), weir.Options{Deadline: patient, Now: c.now, Observer: &weir.Observer{Decided: func(ctx context.Context, o weir.Op, _ weir.Decision) {
			if depth++; depth > 1 {
				return
			}
			o.Limit = inner
			if _, err := lim.Take(ctx, o); err != nil {
				t.Error(err)
			}
			if r, _, err := lim.Reserve(ctx, o); err != nil || r.Cancel(ctx) != nil {
				t.Error(err)
			}
			if _, err := lim.Peek(ctx, o); err != nil {
				t.Error(err)
			}
			if err := lim.Reset(ctx, o.Key); err != nil {
				t.Error(err)
			}
		}}})
		if d, err := lim.Take(context.Background(), op(l, "a", 1)); err != nil || !d.Allowed || depth != 3 {
			t.Errorf("%s: %+v, %v, %d decisions heard", name, d, err, depth)
		}
	}
}

// Sum of what was allowed = capacity - what is left + what refilled, exactly.
func TestCase_B049_NoUpdateIsLost(t *testing.T) {
	for _, text := range []string{"1/h burst 5000", "quota 5000/h", "quota 5000/day calendar", "sliding 5000/h"} {
		everywhere(t, func(t *testing.T, p *place) {
			l := limit(t, text, "b049")
			var total, failed atomic.Int64
			var group sync.WaitGroup
			for g := range 16 {
				group.Go(func() {
					r := rand.New(rand.NewPCG(uint64(g), 49))
					for range 40 {
						cost := 1 + r.Int64N(5)
						held, d, err := p.Reserve(context.Background(), op(l, "a", cost))
						if err != nil || !d.Allowed {
							failed.Add(1)
							continue
						}
						total.Add(cost)
						if r.IntN(3) == 0 {
							actual := r.Int64N(8)
							if err := held.Settle(context.Background(), actual); err != nil {
								failed.Add(1)
							}
							total.Add(actual - cost)
						}
					}
				})
			}
			group.Wait()
			if d := p.peek(op(l, "a", 1))[0]; d.Used != total.Load() || failed.Load() != 0 {
				t.Errorf("%s: %d used, %d were taken; %d failed", text, d.Used, total.Load(), failed.Load())
			}
		})
	}
}

// Traffic never moves the end of a window, and a budget is one of every period.
func TestCase_B058_B059_TrafficMovesNoEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"quota 5/m", "quota 5/minute calendar"} {
			l := limit(t, text, "b058")
			first := p.take(op(l, text, 1)).ResetAfter
			if first > time.Minute {
				t.Fatalf("%s: a window of %v", text, first)
			}
			for passed := time.Duration(0); passed+7*time.Second < first; passed += 7 * time.Second {
				if d := p.take(op(l, text, 1)); d.ResetAfter != first-passed {
					t.Errorf("%s: after %v the window ends in %v, want %v", text, passed, d.ResetAfter, first-passed)
				}
				p.advance(7 * time.Second)
			}
			n := 0
			for range 24 * 60 * 2 { // a call each 30 s for a day
				if p.take(op(l, text+"day", 1)).Allowed {
					n++
				}
				p.advance(30 * time.Second)
			}
			if n != 24*60*2 {
				t.Errorf("%s: %d of 2,880 calls in a day of two a minute", text, n)
			}
		}
	})
}

// Every write says how long the item must be kept, in sound figures, for every
// limit that can be built.
func TestCase_B061_B062_B064_B065_B067_B073_B074_EveryWriteKeepsTheItem(t *testing.T) {
	r := rand.New(rand.NewPCG(67, 67))
	for range 300 {
		var text string
		switch n := 1 + r.Int64N(1_000_000); r.IntN(4) {
		case 0:
			text = fmt.Sprintf("%d/%s burst %d", 1+n%1000, []string{"s", "30m", "day"}[r.IntN(3)], 1+n%3)
		case 1:
			text = fmt.Sprintf("quota %d/%s", n, []string{"s", "m", "50year"}[r.IntN(3)])
		case 2:
			text = fmt.Sprintf("sliding %d/%s", n, []string{"s", "30m", "50year"}[r.IntN(3)])
		case 3:
			text = fmt.Sprintf("quota %d/%s calendar", n, []string{"s", "minute", "year"}[r.IntN(3)])
		}
		c := newClock()
		far := newDistant(c)
		l := limit(t, text)
		lim := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now})
		held, _, err := lim.Reserve(context.Background(), op(l, "a", 1))
		if err != nil {
			t.Fatal(err)
		}
		c.advance(time.Millisecond / 2)
		if err := held.Settle(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		d, err := lim.Take(context.Background(), op(l, "a", 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, keep := range far.keeps {
			if keep < d.ResetAfter || keep < l.Horizon()+time.Hour || keep > 101*366*24*time.Hour {
				t.Errorf("%s: kept for %v; full again in %v", text, keep, d.ResetAfter)
			}
		}
	}
}

// An item is dropped only when it would be full anyway, and one that is over
// but still there counts as missing.
func TestCase_B068_B070_B071_OverIsAsGoodAsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1/30m burst 1", "quota 1/30m", "quota 1/hour calendar", "sliding 1/30m"} {
			l := limit(t, text, "b068")
			p.advance(time.Hour - time.Duration(p.now()%int64(time.Hour)))
			p.drain(op(l, text, 1))
			for range 10 { // in use, and never early
				p.advance(2 * time.Minute)
				if p.take(op(l, text, 1)).Allowed {
					t.Errorf("%s: full again in mid-period", text)
				}
			}
			p.advance(2 * l.Horizon()) // over, and not deleted
			if d := p.peek(op(l, text, 1))[0]; d.Used != 0 || !d.Allowed {
				t.Errorf("%s: an item that is over is read as alive: %+v", text, d)
			}
			if n, _ := p.drain(op(l, text, 1)); n != 1 {
				t.Errorf("%s: %d in the next period", text, n)
			}
		}
	})
}

// Limits of one store, and of one item, keep their own time.
func TestCase_B076_LimitsKeepTheirOwnTime(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, pair := range [][2]string{{"quota 1/s", "quota 30/h"}, {"1/s burst 1", "1/h burst 30"}, {"quota 1/s calendar", "quota 30/day calendar"}} {
			a, b := limit(t, pair[0], "b076a"), limit(t, pair[1], "b076b")
			for n := range int64(10) {
				p.take(op(a, pair[0], 1))
				p.take(op(a, "own"+pair[0], 1))
				p.take(op(b, "own"+pair[0], 1))
				if d := p.take(op(b, pair[0], 1)); d.Remaining != 29-n {
					t.Errorf("%v: %d left after %d calls", pair, d.Remaining, n+1)
				}
				p.advance(1100 * time.Millisecond)
			}
		}
	})
}

// Windows of the calendar are those of a zone, the same for every process.
func TestCase_B196_B197_B199_B202_B203_TheCalendarOfAZone(t *testing.T) {
	at := func(text string) *clock {
		c := newClock()
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		c.at.Store(when.UnixNano())
		return c
	}
	for _, c := range []struct{ text, now, end string }{
		{"quota 1/month calendar", "2026-08-31T10:00:00Z", "2026-09-01T00:00:00Z"},
		{"quota 1/month calendar", "2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z"},
		{"quota 1/month calendar Europe/Berlin", "2026-08-31T22:30:00Z", "2026-09-30T22:00:00Z"},
		{"quota 1/year calendar", "2026-03-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"quota 1/year calendar", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"},
		{"quota 1/day calendar America/Los_Angeles", "2026-07-02T01:00:00Z", "2026-07-02T07:00:00Z"},
		{"quota 1/day calendar Asia/Kathmandu", "2026-07-02T01:00:00Z", "2026-07-02T18:15:00Z"},
		{"quota 1/hour calendar Asia/Kolkata", "2026-07-02T01:00:00Z", "2026-07-02T01:30:00Z"},
		{"quota 1/hour calendar Australia/Eucla", "2026-07-02T01:00:00Z", "2026-07-02T01:15:00Z"},
		{"quota 1/week calendar Pacific/Chatham", "2026-07-05T12:00:00Z", "2026-07-12T11:15:00Z"},
	} {
		clock := at(c.now)
		far := newDistant(clock)
		l := limit(t, c.text)
		end := at(c.end).now()
		// Two processes, of one store.
		for i := range 2 {
			lim := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: clock.now})
			d, err := lim.Take(context.Background(), op(l, "a", 1))
			if err != nil || d.Allowed != (i == 0) || int64(d.ResetAfter) != end-clock.now() || i == 1 && d.RetryAfter != d.ResetAfter {
				t.Errorf("%s at %s: %+v, %v; the window ends at %s", c.text, c.now, d, err, c.end)
			}
		}
		for _, before := range []bool{true, false} {
			clock.at.Store(end)
			if before {
				clock.advance(-1)
			}
			if d, err := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: clock.now}).Take(context.Background(), op(l, "a", 1)); err != nil || d.Allowed == before {
				t.Errorf("%s at the end of its window, less 1 ns %v: %+v, %v", c.text, before, d, err)
			}
		}
	}
	for year := 2024; year <= 2032; year++ {
		clock := at(fmt.Sprintf("%d-07-01T00:00:00Z", year))
		lim := weir.NewLimiter(newDistant(clock), weir.Options{Deadline: patient, Now: clock.now})
		d, err := lim.Take(context.Background(), op(limit(t, "quota 5/year calendar"), "a", 1))
		if want := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() - clock.now(); err != nil || int64(d.ResetAfter) != want {
			t.Errorf("the year %d: %+v, %v", year, d, err)
		}
	}
}

// On days of 23, 24.5 and 25 hours, and where midnight does not exist, a wait
// ends at the first instant of the next day.
func TestCase_B200_DaysOfOddLength(t *testing.T) {
	for _, c := range []struct{ zone, now, end string }{
		{"America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"America/New_York", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		{"Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"},
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"},
		{"America/Havana", "2026-11-01T05:30:00Z", "2026-11-02T05:00:00Z"},
	} {
		everywhere(t, func(t *testing.T, p *place) {
			now, _ := time.Parse(time.RFC3339, c.now)
			end, err := time.Parse(time.RFC3339, c.end)
			if err != nil {
				t.Fatal(err)
			}
			p.clock.at.Store(now.UnixNano())
			l := limit(t, "quota 2/day calendar "+c.zone)
			p.drain(op(l, "a", 1))
			d := p.take(op(l, "a", 1))
			if d.RetryAfter != end.Sub(now) {
				t.Errorf("%s at %s: a wait of %v, want %v", c.zone, c.now, d.RetryAfter, end.Sub(now))
			}
			p.advance(d.RetryAfter - 1)
			if p.take(op(l, "a", 1)).Allowed {
				t.Errorf("%s: allowed before the day is over", c.zone)
			}
			p.advance(1)
			if !p.take(op(l, "a", 1)).Allowed {
				t.Errorf("%s: refused on the next day", c.zone)
			}
		})
	}
}

package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// script makes random calls, the same ones for the same seed, and writes down
// what came of each.
type script struct {
	*place
	others []*weir.Limiter // of other processes, which take turns with it
	random *rand.Rand
	limits []weir.Limit
	back   bool // the clock is set back at times
	held   []*weir.Reservation
	lines  []line
	grain  time.Duration // what the clock counts in; 0 is nanoseconds
}

// pass moves the clock on, by one of its grains at least.
func (s *script) pass(d time.Duration) {
	if s.grain > 0 {
		d = max(d.Truncate(s.grain), s.grain)
	}
	s.advance(d)
}

func scriptLimits(t testing.TB, back bool) []weir.Limit {
	var all []weir.Limit
	for i, text := range []string{
		"2/s burst 4", "10/13s burst 3", "quota 5/7s", "quota 6/minute calendar", "sliding 6/4s", "quota 20/day calendar America/New_York", "sliding 20/m", "1/h burst 30",
	} {
		all = append(all, limit(t, text, fmt.Sprint("l", i)))
	}
	// One name with another revision, or without one: what a rollout and a
	// changed plan look like.
	if back {
		// When a window of the clock is entered again, it matters whether its
		// count was removed already, and the removal may be put off.
		all = slices.DeleteFunc(all, func(l weir.Limit) bool { return l.OnCalendar() || !l.IsBucket() && !l.IsQuota() })
	}
	all = append(all, limit(t, "3/s burst 9", "l0").Revised(1, weir.KeepUsed), limit(t, "1/m burst 2", "l0"))
	return all
}

// line is what became of a call, or of one op of it.
type line struct {
	verb string
	d    weir.Decision
	err  bool
}

// note writes down a decision, without what a remote store can't know: one that
// was not asked has not told what is left.
func (s *script) note(verb string, d weir.Decision, err error) {
	if d.Reason == weir.ReasonNever || d.Reason == weir.ReasonNotAsked {
		d = weir.Decision{Limit: d.Limit, Allowed: d.Allowed, Degraded: d.Degraded, Unknown: true, Reason: d.Reason,
			Op: d.Op, Notice: d.Notice, Cost: d.Cost, RetryAfter: d.RetryAfter} // as of an item that was not looked at
	}
	s.lines = append(s.lines, line{verb, d, err != nil})
}

func (s *script) ops() []weir.Op {
	var ops []weir.Op
	if s.random.IntN(3) == 0 { // one limit, and others that watch
		for _, i := range s.random.Perm(len(s.limits))[:5] {
			ops = append(ops, weir.Op{Limit: s.limits[i], Key: someone, Cost: 1 + s.random.Int64N(3), Shadow: len(ops) > 0})
		}
		return ops
	}
	for range 1 + s.random.IntN(4) {
		key := [...]weir.Key{someone, weir.NewKey("account", "b"), weir.NewKey("account", "b", "event", "1")}[s.random.IntN(3)]
		ops = append(ops, weir.Op{
			Limit: s.limits[s.random.IntN(len(s.limits))], Key: key,
			Cost: s.random.Int64N(4), Shadow: s.random.IntN(4) == 0,
		})
		if s.random.IntN(100) == 0 {
			ops[len(ops)-1].Cost = 1000
		}
	}
	return ops
}

func (s *script) step() {
	ctx := context.Background()
	if n := len(s.others); n > 0 {
		i := s.random.IntN(n)
		s.Limiter, s.others[i] = s.others[i], s.Limiter
	}
	switch x := s.random.IntN(20); {
	case x < 4:
		s.pass([...]time.Duration{1, 300 * time.Millisecond, time.Second, 2*time.Second + 1, 20 * time.Second, time.Minute}[s.random.IntN(6)])
		if s.random.IntN(400) == 0 {
			s.pass([...]time.Duration{time.Hour, 25 * time.Hour}[s.random.IntN(2)])
		}
		if s.back && s.random.IntN(200) == 0 {
			s.advance([...]time.Duration{-time.Hour, -30 * time.Second}[s.random.IntN(2)])
		}
	case x < 10:
		d, err := s.Take(ctx, s.ops()...)
		s.note("take", d, err)
	case x < 15:
		r, d, err := s.Reserve(ctx, s.ops()...)
		s.note("reserve", d, err)
		if err == nil {
			for _, e := range r.Each() {
				s.note("op", e, nil)
			}
			s.held = append(s.held, r)
		}
	case x < 18:
		if len(s.held) > 0 {
			i := s.random.IntN(len(s.held))
			r := s.held[i]
			s.held[i] = s.held[len(s.held)-1]
			s.held = s.held[:len(s.held)-1]
			actual := make([]int64, s.random.IntN(len(r.Each())+1))
			for i := range actual {
				actual[i] = s.random.Int64N(6)
			}
			s.note("settle", weir.Decision{}, r.Settle(ctx, actual...))
		}
	case x < 19:
		each, err := s.Peek(ctx, s.ops()...)
		s.note("peek", weir.Decision{}, err)
		for _, e := range each {
			s.note("op", e, nil)
		}
	default:
		if s.random.IntN(20) == 0 {
			s.note("reset", weir.Decision{}, s.Reset(ctx, someone, s.limits[s.random.IntN(len(s.limits))]))
		}
	}
}

// One script gives the same decisions in process and on the way of a remote store,
// also where another process has changed the item since this one has seen it.
func TestParity(t *testing.T) {
	steps := 0
	for seed := range uint64(40) {
		back, processes := seed%3 == 0, 1+int(seed/20)
		limits := scriptLimits(t, back)
		run := func(name string) *script {
			c := newClock()
			p := &place{TB: t, clock: c}
			o := weir.Options{Deadline: patient, Now: c.now}
			var store weir.Store = memstore.New(memstore.Options{Now: c.now})
			if name == "remote" {
				p.far = newDistant(c)
				o.NoCoalescing = true // every decision then is the store's, at its time
				store = p.far
			}
			p.Limiter = weir.NewLimiter(store, o)
			s := &script{place: p, random: rand.New(rand.NewPCG(seed, 37)), limits: limits, back: back}
			for range processes - 1 {
				s.others = append(s.others, weir.NewLimiter(store, o))
			}
			for range 2500 {
				s.step()
				steps++
			}
			return s
		}
		here, far := run("memory"), run("remote")
		for i := range here.lines {
			// Where one op can never be allowed, a remote store is not asked at all.
			if i >= len(far.lines) || here.lines[i] != far.lines[i] && far.lines[i].d.Reason != weir.ReasonNotAsked {
				t.Fatalf("seed %d, line %d:\nin process %+v\nremote     %+v\nbefore     %+v", seed, i, here.lines[i], far.lines[min(i, len(far.lines)-1)], far.lines[max(0, i-1)])
			}
		}
		trips, writes := far.far.counts()
		if seed%20 == 0 {
			t.Logf("%d processes: %d lines, %d trips, %d writes", processes, len(here.lines), trips, writes)
		}
	}
	if steps < 200_000 {
		t.Errorf("%d steps", steps)
	}
}

package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirlabs/weir"
)

var noticedKinds = []string{"quota 10/h", "quota 10/hour calendar"}

// What is given back within the decision reaches no mark: the call that then really
// gets there tells of it, once.
func TestNoticeIsNotLostToABroaderRefusal(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range noticedKinds {
			op := weir.Op{Limit: noticed(t, text, "narrow"), Key: weir.NewKey("account", text), Cost: 7}
			broad := weir.Op{Limit: limit(t, "1/h burst 2", "broad"), Key: weir.NewKey("tenant", text), Cost: 2}
			if d := p.take(op, broad); !d.Allowed || d.Notice != 0 {
				t.Fatalf("%s: %+v", text, d)
			}
			op.Cost, broad.Cost = 1, 1
			for range 3 {
				if d := p.take(op, broad); d.Allowed || d.Notice != 0 {
					t.Errorf("%s: %+v", text, d)
				}
			}
			if d := p.take(op); d.Notice != 80 || d.Used != 8 {
				t.Errorf("%s: the call that is the eighth: %+v", text, d)
			}
			if d := p.take(op); d.Notice != 0 {
				t.Errorf("%s: told again: %+v", text, d)
			}
		}
	})
}

// A reset of several limits with the same counters, as those of two plans, forgets
// the marks of any of them.
func TestResetForgetsMarksOfLimitsThatShareCounters(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range noticedKinds {
			op := weir.Op{Limit: noticed(t, text, "narrow"), Key: weir.NewKey("account", text), Cost: 8}
			for range 2 {
				if d := p.take(op); !d.Allowed || d.Notice != 80 {
					t.Errorf("%s: %+v", text, d)
				}
				if err := p.Reset(t.Context(), op.Key, limit(t, text, "narrow"), op.Limit); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A call for several keys is told of the mark that it reaches once all are taken.
func TestNoticeOfACallForSeveralKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range noticedKinds {
			op := weir.Op{Limit: noticed(t, text, "narrow"), Key: weir.NewKey("account", text, "event", "1"), Cost: 8}
			broad := weir.Op{Limit: limit(t, "quota 1000/h", "broad"), Key: weir.NewKey("tenant", text)}
			if d := p.take(op, broad); !d.Allowed || d.Notice != 80 || d.Used != 8 {
				t.Errorf("%s: %+v", text, d)
			}
			op.Cost = 1
			if d := p.take(op, broad); d.Notice != 0 {
				t.Errorf("%s: told again: %+v", text, d)
			}
		}
	})
}

// Schedules of calls that overlap, in one process and in two: whatever is reserved,
// settled, cancelled, or refused by a broader limit, the excess of all calls sums up
// at every step to what is beyond the quota. The marks told are those that the
// settled units have reached, each once. Only what another process still holds may
// tell of one too early, and never is one missing when nothing is held.
func TestNoticesAndExcessOfOverlappingCalls(t *testing.T) {
	const worlds, steps = 60, 80
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	everywhere(t, func(t *testing.T, p *place) {
		ctx := context.Background()
		lims := []*weir.Limiter{p.Limiter, p.Limiter}
		other := p.Limiter
		if p.far != nil {
			other = weir.NewLimiter(p.far, slowly(weir.Options{Now: p.now}))
		}
		full := weir.Op{Limit: limit(t, "1/year", "full"), Key: weir.NewKey("tenant", "full")}
		p.take(full)
		for world := range worlds {
			r := rand.New(rand.NewPCG(seed, uint64(world)))
			lims[1] = []*weir.Limiter{p.Limiter, other}[world/4%2]
			text := noticedKinds[world%2]
			l := noticed(t, text, "both")
			if world%4 > 1 {
				l = terms(t, l, weir.Limit.Metered)
			}
			key := weir.NewKey("account", fmt.Sprint("w", world))
			type open struct {
				r    *weir.Reservation
				cost int64
				in   *weir.Limiter
			}
			var calls []open
			var settled, excess, held int64
			here := map[*weir.Limiter]int64{} // held by a process
			var most int64                    // that was ever settled, or held by one process beside the other's
			var told []uint8
			note := func(d weir.Decision) {
				if d.Notice != 0 {
					told = append(told, d.Notice)
				}
			}
			for step := range steps {
				lim, cost := lims[r.IntN(2)], 1+r.Int64N(4)
				op := weir.Op{Limit: l, Key: key, Cost: cost}
				switch x := r.IntN(10); {
				case x < 4:
					res, d, err := lim.Reserve(ctx, op)
					if err != nil {
						t.Fatal(err)
					}
					note(d)
					excess += res.Excess(0)
					if d.Allowed {
						calls, held = append(calls, open{res, cost, lim}), held+cost
						here[lim] += cost
					}
				case x == 4:
					res, d, err := lim.Reserve(ctx, op, full)
					if err != nil || d.Allowed {
						t.Fatalf("%+v, %v", d, err)
					}
					note(res.Each()[0])
					excess += res.Excess(0)
				case len(calls) > 0:
					i := r.IntN(len(calls))
					c := calls[i]
					calls, held = slices.Delete(calls, i, i+1), held-c.cost
					here[c.in] -= c.cost
					actual := max(0, c.cost-r.Int64N(4))
					if x == 9 {
						actual = c.cost + r.Int64N(3)
					}
					before := c.r.Excess(0)
					if err := c.r.SettleBeside(ctx, func(int) int64 { return here[c.in] }, actual); err != nil {
						t.Fatal(err)
					}
					note(c.r.Each()[0])
					excess += c.r.Excess(0) - before
					settled += actual
				}
				d, err := lim.Peek(ctx, weir.Op{Limit: l, Key: key})
				if err != nil {
					t.Fatal(err)
				}
				if used := d[0].Used; used != settled+held || excess != max(used-10, 0) && l.IsMetered() {
					t.Fatalf("seed %d, world %d, step %d: %s: used %d, want %d settled and %d held; excess %d", seed, world, step, text, used, settled, held, excess)
				}
				one := lims[0] == lims[1]
				most = max(most, settled)
				for _, lim := range lims {
					if !one {
						most = max(most, settled+held-here[lim])
					}
				}
				var reached, early uint8
				for _, mark := range []uint8{80, 100} {
					if settled >= int64(mark)/10 {
						reached = mark
					}
					if most >= int64(mark)/10 {
						early = mark
					}
				}
				last := uint8(0)
				if len(told) > 0 {
					last = told[len(told)-1]
				}
				if last < reached && (one || held == 0) || last > reached && (one || last > early) || !slices.IsSorted(told) || len(slices.Compact(slices.Clone(told))) != len(told) {
					t.Fatalf("seed %d, world %d, step %d: %s: told %v with %d settled and %d held", seed, world, step, text, told, settled, held)
				}
			}
		}
	})
}

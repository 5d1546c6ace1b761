package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// The case of the smallest overlap: a call that is under way fails after others have
// gone beyond the quota on top of it. What is charged for is what is beyond at the end.
func TestExcessOfACallThatFailsLate(t *testing.T) {
	r := newRig(t, `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {c: quota 2/day}}
  operations: {c: {match: GET /c, over: charge, count: on_success}}
`, func(o *Options) { o.AllowedShare = 0 })
	ctx := context.Background()
	late, second, third := r.ask("/c", "a"), r.ask("/c", "a"), r.ask("/c", "a")
	for o, status := range map[*Outcome]int{second: 200, third: 200} {
		if err := o.Settle(ctx, status); err != nil {
			t.Fatal(err)
		}
	}
	if err := late.Settle(ctx, 500); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, rec := range r.records {
		sum += rec.Excess
		if rec.Excess < 0 && rec.Event != "settled" {
			t.Errorf("%+v", rec)
		}
	}
	if sum != 0 || len(r.records) != 2 {
		t.Errorf("the log sums up to %d in %d lines, want 0: 2 of 2 are used", sum, len(r.records))
	}
}

// Schedules of overlapping calls of two processes: at every step the excess of the
// decision log, and that of what is told beside it, sums up to what is beyond the
// quota, whatever calls cost in the end, and whichever fail, are given back, are
// refused by a broader limit, or were charged before. When no call is under way,
// the marks that the rest has reached have been told of, each once.
func TestExcessIsWhatIsBeyondTheQuota(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {fails: quota 12/day, costs: quota 12/day calendar, watched: quota 12/day, once: quota 12/day}}
  operations:
    fails: {match: GET /fails, over: charge, count: on_success, notify_at: [80%, 100%]}
    costs: {match: GET /costs, over: charge, cost: header.Estimate, settle: header.Used, notify_at: [80%, 100%]}
    watched: {match: GET /watched, over: charge, count: on_success, mode: shadow, notify_at: [80%, 100%]}
    once: {match: GET /once, over: charge, count: on_success, once: header.Id}
  limits:
    - {name: all, match: "GET full.example/", by: everyone, limit: 1/year}
`
	const worlds, steps = 24, 100
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, far := range []bool{false, true} {
		for world := range worlds {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(world)))
				store := memstore.New(memstore.Options{})
				var used weir.Store = store
				if far {
					used = &remote{s: store}
				}
				var marks []int
				var told int64
				var rigs [2]*rig
				for i := range rigs {
					rigs[i] = newRig(t, text, func(o *Options) {
						o.Store, o.CanGiveBack, o.AllowedShare = used, true, float64(world%2)
						o.Noticed = func(_ context.Context, n Notice) {
							told += n.Excess
							if n.Percent != 0 {
								marks = append(marks, n.Percent)
							}
						}
					})
				}
				ctx := context.Background()
				path := []string{"/fails", "/costs", "/watched", "/once"}[world%4]
				full := request("GET", "/", "z")
				full.Host = "full.example"
				rigs[0].Decide(ctx, full, new(Outcome))
				var open []*Outcome
				end := func(o *Outcome) {
					header := func(string) string { return strconv.Itoa(r.IntN(9)) }
					var err error
					switch x := r.IntN(8); x {
					case 0:
						err = o.GiveBack(ctx)
					case 1:
						o.Release()
					default:
						err = o.SettleBy(ctx, []int{200, 500}[x%2], header)
						o.Release()
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				var limit weir.Limit
				for _, l := range rigs[0].Policy().Limits() {
					if "/"+l.Name() == path {
						limit = l
					}
				}
				check := func(step int) int64 {
					d, err := rigs[0].rest.Peek(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "a"), Shadow: path == "/watched"})
					if err != nil {
						t.Fatal(err)
					}
					var logged int64
					for _, rig := range rigs {
						for _, rec := range rig.records {
							logged += rec.Excess
						}
					}
					if want := max(d[0].Used-12, 0); logged != want || told != want {
						t.Fatalf("seed %d, world %d, step %d, far %v: %s: %d logged and %d told, want %d", seed, world, step, far, path, logged, told, want)
					}
					return d[0].Used
				}
				for step := range steps {
					if len(open) > 0 && r.IntN(2) == 0 {
						i := r.IntN(len(open))
						o := open[i]
						open[i] = open[len(open)-1]
						open = open[:len(open)-1]
						end(o)
					} else {
						a := request("GET", path, "a")
						if r.IntN(4) == 0 {
							a.Host = "full.example"
						}
						a.Header["Estimate"] = []string{strconv.Itoa(1 + r.IntN(4))}
						a.Header["Id"] = []string{fmt.Sprint(r.IntN(20))}
						o := new(Outcome)
						rigs[r.IntN(2)].Decide(ctx, a, o)
						if o.Err != nil {
							t.Fatal(errors.New(o.Err.Reason))
						}
						if o.Served() {
							open = append(open, o)
						} else if o.Status != http.StatusTooManyRequests {
							t.Fatal(o.Status)
						}
					}
					check(step)
				}
				for _, o := range open {
					end(o)
				}
				n := check(steps)
				if path == "/once" {
					return
				}
				last := 0
				for _, m := range marks {
					if m <= last {
						t.Fatalf("seed %d, world %d, far %v: %s: marks %v", seed, world, far, path, marks)
					}
					last = m
				}
				if n >= 12 && last != 100 || n >= 10 && last < 80 {
					t.Fatalf("seed %d, world %d, far %v: %s: marks %v at %d of 12", seed, world, far, path, marks, n)
				}
			})
		}
	}
}

// overtaken is a store in which something else happens before an item is asked.
type overtaken struct {
	*remote
	item   weir.Key
	before func()
}

func (s *overtaken) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if f := s.before; item == s.item && f != nil {
		s.before = nil
		f()
	}
	return s.remote.Apply(ctx, item, tries, state)
}

// A call takes of its own quota, another one goes beyond it on top of that, and only
// then a broader limit refuses the first: what the other one is charged for is taken
// off again, although the call that gives back was refused.
func TestExcessOfARefusalThatWasOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &overtaken{remote: &remote{s: memstore.New(memstore.Options{})}}
		var rigs [2]*rig
		for i := range rigs {
			rigs[i] = newRig(t, `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {c: quota 2/day}}
  operations: {c: {match: GET /c, over: charge}}
  limits: [{name: all, match: "GET full.example/", by: everyone, limit: quota 1/day}]
`, func(o *Options) { o.Store, o.AllowedShare = store, 0 })
		}
		full := request("GET", "/c", "a")
		full.Host = "full.example"
		var first Outcome
		rigs[1].Decide(context.Background(), full, &first)
		for i := range first.Verdicts {
			if v := &first.Verdicts[i]; v.Rule.Name == "all" {
				store.item = v.Key
			}
		}
		store.before = func() { rigs[1].ask("/c", "a") }
		var o Outcome
		rigs[0].Decide(context.Background(), full, &o)
		if !o.Limited() {
			t.Fatalf("%+v", o)
		}
		var lines []string
		sum := int64(0)
		for _, r := range rigs {
			for _, rec := range r.records {
				if sum += rec.Excess; rec.Excess != 0 {
					lines = append(lines, fmt.Sprintf("%d %q", rec.Excess, rec.Event))
				}
			}
		}
		if len(lines) != 2 || sum != 0 {
			t.Errorf("lines %v sum up to %d, want 0: 2 of 2 are used", lines, sum)
		}
	})
}

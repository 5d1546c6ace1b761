package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

const holdPolicy = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {c: quota 10/day}}
  operations: {c: {match: GET /c, count: on_success, notify_at: [40%]}}
  limits: [{name: all, match: "GET full.example/", by: everyone, limit: quota 1/day}]
`

// telling is a rig that keeps the marks it tells of.
func telling(t *testing.T, store weir.Store, change ...func(*Options)) (r *rig, marks *[]Notice) {
	marks = new([]Notice)
	return newRig(t, holdPolicy, append(change, func(o *Options) {
		if store != nil {
			o.Store = store
		}
		o.AllowedShare = 0
		o.Noticed = func(_ context.Context, n Notice) { *marks = append(*marks, n) }
	})...), marks
}

func (r *rig) settle(t *testing.T, o *Outcome, status int) {
	t.Helper()
	if err := o.Settle(context.Background(), status); err != nil {
		t.Error(err)
	}
}

// gated is a remote store whose next write waits, when it is told to.
type gated struct {
	*remote
	gate chan struct{}
}

func (s *gated) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if s.gate != nil {
		<-s.gate
	}
	return s.remote.Apply(ctx, item, tries, state)
}

// Units that are about to be given back are still counted: the settlement of a call
// that stays must not take them for units that stay.
func TestMarkBesideGiveBacksUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{remote: &remote{s: memstore.New(memstore.Options{})}}
		r, marks := telling(t, store)
		for range 2 {
			r.settle(t, r.ask("/c", "a"), 200)
		}
		stays, fails, late := r.ask("/c", "a"), r.ask("/c", "a"), r.ask("/c", "a")
		store.gate = make(chan struct{})
		for _, end := range []struct {
			o      *Outcome
			status int
		}{{fails, 500}, {stays, 200}, {late, 500}} {
			go r.settle(t, end.o, end.status)
			synctest.Wait()
		}
		close(store.gate)
		synctest.Wait()
		if len(*marks) != 0 {
			t.Errorf("3 of 10 stay, and somebody was told: %+v", *marks)
		}
		*marks = nil
		r.settle(t, r.ask("/c", "a"), 200)
		r.settle(t, r.ask("/c", "a"), 200)
		if len(*marks) != 1 || (*marks)[0].Used != 4 {
			t.Errorf("4 and 5 of 10 stay: %+v", *marks)
		}
	})
}

// What a call has just taken is held before anybody can count it as what stays.
func TestMarkBesideATakeThatNobodyHasHeardOf(t *testing.T) {
	var taken func()
	r, marks := telling(t, nil, func(o *Options) {
		o.Observer = &weir.Observer{Decided: func(context.Context, weir.Op, weir.Decision) {
			if f := taken; f != nil {
				taken = nil
				f()
			}
		}}
	})
	for range 2 {
		r.settle(t, r.ask("/c", "a"), 200)
	}
	stays := r.ask("/c", "a")
	taken = func() { r.settle(t, stays, 200) }
	r.settle(t, r.ask("/c", "a"), 500)
	if taken != nil || len(*marks) != 0 {
		t.Errorf("3 of 10 stay, and somebody was told: %+v", *marks)
	}
	r.settle(t, r.ask("/c", "a"), 200)
	if len(*marks) != 1 || (*marks)[0].Used != 4 {
		t.Errorf("4 of 10 stay: %+v", *marks)
	}
}

// A settlement leaves out what a call holds that is refused a moment later: the
// refusal finds the mark, which nobody else would.
func TestMarkIsFoundByWhoHeldUnits(t *testing.T) {
	for _, left := range []string{"refused", "gone"} {
		synctest.Test(t, func(t *testing.T) {
			store := &overtaken{remote: &remote{s: memstore.New(memstore.Options{})}}
			var lines []Record
			r, marks := telling(t, store, func(o *Options) { o.Decisions = func(rec Record) { lines = append(lines, rec) } })
			full := request("GET", "/c", "a")
			full.Host = "full.example"
			var first Outcome
			r.Decide(context.Background(), full, &first)
			for i := range first.Verdicts {
				if v := &first.Verdicts[i]; v.Rule.Name == "all" {
					store.item = v.Key
				}
			}
			r.settle(t, &first, 200)
			for range 2 {
				r.settle(t, r.ask("/c", "a"), 200)
			}
			stays := r.ask("/c", "a")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			store.before = func() {
				r.settle(t, stays, 200)
				if len(*marks) != 0 {
					t.Errorf("%s: told beside a call that may stay: %+v", left, *marks)
				}
				if left == "gone" {
					cancel()
				}
			}
			// Of a memory of the broader limit's refusal nothing is taken, so another
			// process has to be the one that is refused.
			r.rest = weir.NewLimiter(store, weir.Options{})
			var o Outcome
			r.Decide(ctx, full, &o)
			synctest.Wait()
			if o.Served() || store.before != nil {
				t.Fatalf("%s: %+v", left, o)
			}
			if len(*marks) != 1 || (*marks)[0].Used != 4 || (*marks)[0].Percent != 40 || !(*marks)[0].ResetAt.After(o.Time()) {
				t.Errorf("%s: 4 of 10 stay: %+v", left, *marks)
			}
			n := slices.IndexFunc(lines, func(rec Record) bool { return rec.Notice != 0 })
			if n < 0 || lines[n].Event != "settled" || !lines[n].Allowed || lines[n].Limit != "c" {
				t.Errorf("%s: the decision log: %+v", left, lines)
			}
		})
	}
}

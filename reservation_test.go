package weir_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

var everyKind = []string{"1/m burst 10", "quota 10/h", "sliding 10/h", "quota 10/day calendar"}

// The first Settle or Cancel counts. Any other does nothing, also at once.
func TestSettleOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := context.Background()
		for i, text := range everyKind {
			l := limit(t, text, "once")
			op := weir.Op{Limit: l, Key: weir.NewKey("account", fmt.Sprint(i)), Cost: 6}
			left := func() int64 { return p.peek(op)[0].Remaining }
			r, d := p.reserve(op)
			if d.Remaining != 4 || left() != 4 {
				t.Fatalf("%s: %+v", text, d)
			}
			p.settle(r, 2)
			p.settle(r, 0)
			p.settle(r)
			if err := r.Cancel(ctx); err != nil || left() != 8 {
				t.Errorf("%s: %d left after a settlement at 2 and more of them, %v", text, left(), err)
			}
			r, _ = p.reserve(op)
			p.settle(r) // at what was reserved
			if left() != 2 {
				t.Errorf("%s: %d left, want 2", text, left())
			}
			if err := r.Cancel(ctx); err != nil || left() != 2 {
				t.Errorf("%s: a cancel after the settlement counts", text)
			}
			op.Cost = 2
			r, _ = p.reserve(op)
			for range 3 {
				if err := r.Cancel(ctx); err != nil || left() != 2 {
					t.Errorf("%s: %d left after a cancel, %v", text, left(), err)
				}
			}

			// Many at once.
			r, _ = p.reserve(op)
			var group sync.WaitGroup
			for n := range 50 {
				group.Go(func() {
					var err error
					if n%2 == 0 {
						err = r.Cancel(ctx)
					} else {
						err = r.Settle(ctx, 1)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if n := left(); n != 1 && n != 2 {
				t.Errorf("%s: %d left after 50 settlements of one reservation", text, n)
			}
			if d := r.Each()[0]; !d.Allowed || d.Cost != 2 {
				t.Errorf("%s: %+v", text, d)
			}
		}
		op := weir.Op{Limit: limit(t, "1/s"), Key: someone}
		r, _ := p.reserve(op)
		if err := r.Settle(ctx, -1); err == nil {
			t.Error("a negative cost is settled")
		}
		if err := r.Settle(ctx, 1, 1); err == nil {
			t.Error("two costs for one op are settled")
		}
		if err := r.Settle(ctx, 0); err != nil || p.left(op.Limit) != 1 {
			t.Errorf("a mistake used up the settlement: %v", err)
		}
	})
}

// There is nothing to settle of a refused call, and nothing that a settlement
// of it could give.
func TestSettleRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, text := range everyKind {
			l, other := limit(t, text, "full"), limit(t, text, "other")
			ops := []weir.Op{{Limit: other, Key: weir.NewKey("account", fmt.Sprint(i))}, {Limit: l, Key: weir.NewKey("tenant", fmt.Sprint(i)), Cost: 10}}
			p.take(ops...)
			r, d := p.reserve(ops...)
			if d.Allowed {
				t.Fatal("allowed")
			}
			p.settle(r, 0, 0)
			if each := p.peek(ops...); each[0].Remaining != 9 || each[1].Remaining != 0 {
				t.Errorf("%s: %d and %d left", text, each[0].Remaining, each[1].Remaining)
			}
			r, _ = p.reserve(ops...)
			p.settle(r, 7, 20)
			if each := p.peek(ops...); each[0].Remaining != 9 || each[1].Remaining != 0 || each[1].Used != 10 {
				t.Errorf("%s: a refused call was charged: %+v", text, each)
			}
		}
	})
}

// A call that cost more than it reserved is charged, into debt, but never
// deeper than the floor; the debt is paid before anything is allowed again.
func TestSettleMore(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, text := range everyKind {
			l := limit(t, text, "more")
			op := weir.Op{Limit: l, Key: weir.NewKey("account", fmt.Sprint(i)), Cost: 2}
			r, _ := p.reserve(op)
			p.settle(r, 5)
			if d := p.peek(op)[0]; d.Used != 5 || d.Remaining != 5 {
				t.Errorf("%s: settled at 5: %+v", text, d)
			}
			r, _ = p.reserve(op)
			p.settle(r, 9)
			if d := p.peek(op)[0]; d.Used != 14 || d.Remaining != 0 || d.Allowed {
				t.Errorf("%s: settled above its capacity: %+v", text, d)
			}
			op.Cost = 1
			if d := p.take(op); d.Allowed || d.RetryAfter <= 0 || d.Remaining != 0 {
				t.Errorf("%s: in debt: %+v", text, d)
			} else {
				p.advance(d.RetryAfter)
				if d := p.take(op); !d.Allowed {
					t.Errorf("%s: refused after the wait: %+v", text, d)
				}
			}
			if err := p.Reset(context.Background(), op.Key); err != nil {
				t.Fatal(err)
			}
			r, _ = p.reserve(op)
			p.settle(r, 1<<63-1)
			if d := p.peek(op)[0]; d.Used != 20 {
				t.Errorf("%s: settled at the largest number: %+v", text, d)
			}
			if err := p.Reset(context.Background(), op.Key); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Of a bucket only what has not refilled is given back: a burst beyond the
// capacity never results, whenever the call is cancelled.
func TestCancelLate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "1/m burst 10")
		op := weir.Op{Limit: l, Key: someone, Cost: 6}
		r, _ := p.reserve(op)
		p.advance(4*time.Minute + 30*time.Second)
		if left := p.left(l); left != 8 {
			t.Fatalf("%d left", left)
		}
		if err := r.Cancel(context.Background()); err != nil || p.left(l) != 10 {
			t.Errorf("%d left after the cancel, %v", p.left(l), err)
		}
		n, _ := p.drain(weir.Op{Limit: l, Key: someone})
		if n != 10 {
			t.Errorf("a burst of %d", n)
		}

		// Others took in between: theirs stay taken.
		p.advance(time.Hour)
		r, _ = p.reserve(op)
		p.take(weir.Op{Limit: l, Key: someone, Cost: 4})
		p.advance(5 * time.Minute) // five of the six have refilled
		if err := r.Cancel(context.Background()); err != nil || p.left(l) != 6 {
			t.Errorf("%d left, want 5 that refilled and the one that had not (%v)", p.left(l), err)
		}
		p.advance(10 * time.Minute)
		r, _ = p.reserve(op)
		p.advance(24 * time.Hour)
		p.take(op)
		if err := r.Cancel(context.Background()); err != nil || p.left(l) != 4 {
			t.Errorf("a cancel a day later changed what is left to %d (%v)", p.left(l), err)
		}
	})
}

// Windows get back what they gave, and no other window does.
func TestCase_B128_GivingBackAcrossAWindow(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, c := range []struct {
			text   string
			window time.Duration
			before int64 // left of 10 in the next window, with 5 used there
			after  int64 // once the 6 of the window before are given back
		}{
			{"quota 10/h", time.Hour, 5, 5},
			{"quota 10/hour calendar", time.Hour, 5, 5},
			{"quota 10/day calendar America/New_York", 24 * time.Hour, 5, 5},
			{"sliding 10/h", time.Hour, 2, 5}, // the window before weighs a half
		} {
			l := limit(t, c.text, "across")
			key := weir.NewKey("account", fmt.Sprint(i))
			r, _ := p.reserve(weir.Op{Limit: l, Key: key, Cost: 6})
			p.advance(c.window)
			if l.String()[:7] == "sliding" {
				p.advance(c.window / 2)
			}
			op := weir.Op{Limit: l, Key: key, Cost: 5}
			if d := p.take(op); !d.Allowed || d.Remaining != c.before {
				t.Errorf("%s: %+v, want %d left", c.text, d, c.before)
			}
			if err := r.Cancel(context.Background()); err != nil {
				t.Error(err)
			}
			if left := p.peek(op)[0].Remaining; left != c.after {
				t.Errorf("%s: %d left after the cancel, want %d", c.text, left, c.after)
			}
			p.advance(48*time.Hour - time.Duration(p.now()%int64(24*time.Hour)))
			late, _ := p.reserve(op)
			p.advance(5 * c.window)
			p.take(op)
			if err := late.Cancel(context.Background()); err != nil {
				t.Error(err)
			}
			if left := p.peek(op)[0].Remaining; left != 5 {
				t.Errorf("%s: %d left after a cancel windows later, want 5", c.text, left)
			}
			p.settle(late, 9)
			p.advance(48*time.Hour - time.Duration(p.now()%int64(24*time.Hour)))
		}
	})
}

// Giving back works at zero, and in debt, and never fills above the limit.
func TestCase_B127_GivingBackAtZero(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, text := range everyKind {
			l := limit(t, text, "zero")
			op := weir.Op{Limit: l, Key: weir.NewKey("account", fmt.Sprint(i))}
			var all []*weir.Reservation
			for range 10 {
				r, _ := p.reserve(op)
				all = append(all, r)
			}
			if d := p.take(op); d.Allowed {
				t.Fatalf("%s: %+v", text, d)
			}
			for n, r := range all {
				if err := r.Cancel(context.Background()); err != nil {
					t.Error(err)
				}
				if left := p.peek(op)[0].Remaining; left != int64(n+1) {
					t.Errorf("%s: %d left after %d were given back", text, left, n+1)
				}
			}
		}
	})
}

// A cancel gives back exactly what its own call took, whatever was taken since.
func TestCase_B130_GivingBackTheMiddleOne(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := limit(t, "10/s burst 40")
		op := func(n int64) weir.Op { return weir.Op{Limit: l, Key: someone, Cost: n} }
		p.reserve(op(15))
		p.advance(100 * time.Millisecond)
		middle, _ := p.reserve(op(10))
		p.advance(100 * time.Millisecond)
		p.reserve(op(2))
		before := p.left(l)
		if err := middle.Cancel(context.Background()); err != nil {
			t.Fatal(err)
		}
		if after := p.left(l); after != before+10 {
			t.Errorf("%d left before, %d after 10 were given back", before, after)
		}
	})
}

// A broader limit that refuses, or fails, leaves the narrower one as it was.
func TestCase_B131_TheBroaderOneFails(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, text := range everyKind {
			tenant, user := limit(t, text, "tenant"), limit(t, text, "user")
			id := fmt.Sprint(i)
			ops := []weir.Op{{Limit: tenant, Key: weir.NewKey("tenant", id)}, {Limit: user, Key: weir.NewKey("tenant", id, "user", "7")}}
			p.take(weir.Op{Limit: tenant, Key: ops[0].Key, Cost: 10})
			for range 30 {
				if d := p.take(ops...); d.Allowed || d.Op != 0 {
					t.Fatalf("%s: %+v", text, d)
				}
			}
			if left := p.peek(ops[1])[0].Remaining; left != 10 {
				t.Errorf("%s: the user has %d left of 10", text, left)
			}
			if p.far == nil {
				continue
			}
			broken := fmt.Errorf("no route")
			for _, mode := range []weir.FailureMode{weir.FailError, weir.FailDeny} {
				p.far.there = func(_ int, item weir.Key, tries []weir.Write) error {
					if item == ops[0].Key && len(tries) > 0 {
						return broken
					}
					return nil
				}
				for range 10 {
					ops[0].OnFail = mode
					if d, _ := p.Take(context.Background(), ops...); d.Allowed {
						t.Fatalf("%s: %+v", text, d)
					}
				}
				p.far.there = nil
				if left := p.peek(ops[1])[0].Remaining; left != 10 {
					t.Errorf("%s: the user has %d left of 10 after failures of the tenant's item", text, left)
				}
			}
		}
	})
}

// Settling each of several ops at its own cost, with and without naming all.
func TestSettleSeveral(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		var ops []weir.Op
		for i, text := range everyKind {
			ops = append(ops, weir.Op{Limit: limit(t, text, fmt.Sprint("k", i)), Key: someone, Cost: 5})
		}
		ops = append(ops, weir.Op{Limit: limit(t, "quota 10/h", "far"), Key: weir.NewKey("tenant", "acme"), Cost: 5},
			weir.Op{Limit: limit(t, "quota 10/h", "shadow"), Key: someone, Cost: 5, Shadow: true})
		r, d := p.reserve(ops...)
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		p.settle(r, 0, 3, 5, 8, 1)
		for i, want := range []int64{10, 7, 5, 2, 9, 5} {
			if left := p.peek(ops[i])[0].Remaining; left != want {
				t.Errorf("op %d has %d left, want %d", i, left, want)
			}
		}
	})
}

// A reservation whose outcome never comes, because its process died or forgot
// it, is a take like any other: it refills, or ends with its window.
func TestCase_B136_B137_ALeftOverChargeEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range append(everyKind, "quota 10/month calendar", "1/d burst 10") {
			l := limit(t, text, "left")
			op := weir.Op{Limit: l, Key: someone, Cost: 10}
			for range 3 {
				if _, d := p.reserve(op); !d.Allowed {
					t.Fatalf("%s: %+v", text, d)
				}
				d := p.take(op)
				if d.Allowed || d.RetryAfter > l.Horizon() {
					t.Errorf("%s: %+v", text, d)
				}
				p.advance(l.Horizon())
			}
			if err := p.Reset(context.Background(), someone); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A cancel that comes after the item was reset finds another window, and gives
// it nothing.
func TestCancelAfterReset(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		op := weir.Op{Limit: limit(t, "quota 10/h"), Key: someone, Cost: 4}
		r, _ := p.reserve(op)
		p.advance(time.Second)
		if err := p.Reset(context.Background(), someone); err != nil {
			t.Fatal(err)
		}
		p.take(op)
		if err := r.Cancel(context.Background()); err != nil || p.left(op.Limit) != 6 {
			t.Errorf("%d left of 6, %v", p.left(op.Limit), err)
		}
	})
}

package weir_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// Calls that one limit refuses cost no other limit anything, on one item or on
// several, in any order.
func TestCase_B187_B190_B191_B193_OneLimitRefuses(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		texts := []string{"quota 10/m", "1/m burst 4", "sliding 7/m"}
		for n, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, together := range []bool{true, false} {
				var ops []weir.Op
				for _, i := range order {
					id := fmt.Sprint("b187", n, together)
					if !together {
						id += fmt.Sprint(i)
					}
					ops = append(ops, op(limit(t, texts[i], fmt.Sprint("l", i)), id, 1))
				}
				allowed := 0
				for range 30 {
					if p.take(ops...).Allowed {
						allowed++
					}
				}
				if allowed != 4 {
					t.Errorf("order %v, one item %v: %d allowed, want 4 as of the smallest alone", order, together, allowed)
				}
				for j, d := range p.peek(ops...) {
					if want := ops[j].Limit.Max() - 4; d.Remaining != want {
						t.Errorf("order %v, one item %v: %s has %d left, want %d", order, together, ops[j].Limit, d.Remaining, want)
					}
				}
			}
		}
	})
}

// The limit that is named is the one that keeps the caller waiting.
func TestCase_B188_TheLongestWaitSpeaks(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		hourly, daily := limit(t, "quota 100/h", "hourly"), limit(t, "quota 500/day", "daily")
		p.take(op(daily, "a", 500))
		for range 100 {
			d := p.take(op(hourly, "a", 1), op(daily, "a", 1))
			if d.Allowed || d.Limit != daily || d.RetryAfter != 24*time.Hour {
				t.Fatalf("%+v", d)
			}
		}
		if left := p.peek(op(hourly, "a", 1))[0].Remaining; left != 100 {
			t.Errorf("the hourly limit has %d left", left)
		}
		p.take(op(hourly, "a", 100))
		if d := p.take(op(hourly, "a", 1), op(daily, "a", 1)); d.Limit != daily || d.RetryAfter != 24*time.Hour {
			t.Errorf("both are over: %+v", d)
		}
	})
}

// With none, some or all of the limits over, the call's answer is right.
func TestCase_B194_AnyNumberOver(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		texts := []string{"quota 5/m", "quota 5/h", "quota 5/day", "1/h burst 5"}
		wait := []time.Duration{time.Minute, time.Hour, 24 * time.Hour, time.Hour}
		for over := range 16 {
			var ops []weir.Op
			longest := time.Duration(0)
			for i, text := range texts {
				o := op(limit(t, text, fmt.Sprint("l", i)), fmt.Sprint("b194", over), 5)
				if over&(1<<i) != 0 {
					p.take(o)
					longest = max(longest, wait[i])
				}
				o.Cost = 1
				ops = append(ops, o)
			}
			d := p.take(ops...)
			if d.Allowed != (over == 0) || d.RetryAfter != longest {
				t.Errorf("over %04b: %+v, want a wait of %v", over, d, longest)
			}
			if over != 0 && d.Limit.Max() != 5 {
				t.Errorf("over %04b: %+v", over, d)
			}
		}
	})
}

// A changed limit acts at the next call: lowered, raised, with other windows,
// and also where the balance of the old one is still in the store.
func TestCase_B181_B182_B185_AChangeActsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for n, c := range []struct {
			from string
			used int64
			to   string
			left int64
		}{
			{"1000/h burst 1000", 1, "10/h burst 10", 9}, {"quota 1000/h", 1, "quota 10/h", 9}, {"sliding 1000/h", 1, "sliding 10/h", 9}, {"quota 1000/day calendar", 1, "quota 10/day calendar", 9},
			{"10/h burst 10", 10, "1000/h burst 1000", 990}, {"quota 10/h", 10, "quota 1000/h", 990}, {"sliding 10/h", 10, "sliding 1000/h", 990},
			{"1000/h burst 1000", 999, "10/h burst 10", 0}, {"quota 1000/h", 999, "quota 10/h", 0}, {"sliding 1000/h", 999, "sliding 10/h", 0},
			{"quota 10/h", 10, "quota 10/day", 0},                                                                // the count goes with the call that began it
			{"sliding 10/h", 10, "sliding 10/day", 10}, {"quota 10/h calendar", 10, "quota 10/day calendar", 10}, // another window is another count
		} {
			for revision := range uint32(2) { // also of a policy that forgot to raise it
				id := fmt.Sprint("b181", n, revision)
				from, to := limit(t, c.from), limit(t, c.to).Revised(revision, weir.KeepUsed)
				p.take(op(from, id, c.used))
				d := p.peek(op(to, id, 1))[0]
				if d.Remaining != c.left || d.Allowed != (c.left > 0) {
					t.Errorf("%s -> %s: %+v, want %d left", c.from, c.to, d, c.left)
				}
				if got, _ := p.drain(op(to, id, 1)); int64(got) != c.left {
					t.Errorf("%s -> %s: %d more", c.from, c.to, got)
				}
				if _, refusal := p.drain(op(to, id, 1)); refusal.RetryAfter <= 0 || refusal.RetryAfter > 48*time.Hour {
					t.Errorf("%s -> %s: %+v", c.from, c.to, refusal)
				}
			}
		}
	})
}

// Time that has passed under the old rate is not priced at the new one.
func TestCase_B184_ThePastKeepsItsPrice(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		slow, fast := limit(t, "1/h burst 100"), limit(t, "100/s burst 100").Revised(1, weir.KeepUsed)
		p.take(op(slow, "a", 100))
		p.advance(2 * time.Hour)
		if left := p.peek(op(fast, "a", 1))[0].Remaining; left != 2 {
			t.Errorf("%d left after two hours at 1/h, want 2", left)
		}
		if n, _ := p.drain(op(fast, "a", 1)); n != 2 {
			t.Errorf("%d of two hours at 1/h", n)
		}
		p.advance(100 * time.Millisecond)
		if n, _ := p.drain(op(fast, "a", 1)); n != 10 {
			t.Errorf("%d in 100 ms at 100/s", n)
		}
	})
}

// A shadow changes nothing: the same calls with shadows beside them, on the
// same items and on others, give the same decisions.
func TestShadowsChangeNothing(t *testing.T) {
	run := func(t *testing.T, p *place, shadows bool) (lines []string) {
		a, b, s := limit(t, "1/s burst 5", "a"), limit(t, "quota 9/10s", "b"), limit(t, "quota 1/h", "s")
		for i := range 400 {
			narrow := weir.NewKey("account", fmt.Sprint(i%3), "event", "1")
			ops := []weir.Op{{Limit: a, Key: narrow}, {Limit: b, Key: weir.NewKey("account", fmt.Sprint(i%3)), Cost: int64(1 + i%2)}}
			if shadows {
				ops = append(ops,
					weir.Op{Limit: a, Key: narrow, Shadow: true, Cost: 3}, weir.Op{Limit: s, Key: narrow, Shadow: true}, weir.Op{Limit: s, Key: someone, Shadow: true, OnFail: weir.FailError},
					weir.Op{Limit: s, Key: weir.NewKey("account", "w", "x", "y", "z", "1"), Shadow: true, Cost: 1000})
			}
			d := p.take(ops...)
			lines = append(lines, fmt.Sprint(d))
			for _, d := range p.peek(ops[:2]...) {
				lines = append(lines, fmt.Sprint(d))
			}
			p.advance(300 * time.Millisecond)
		}
		return lines
	}
	everywhere(t, func(t *testing.T, p *place) {
		with := run(t, p, true)
		c := newClock()
		far := newDistant(c)
		without := run(t, &place{TB: t, clock: c, Limiter: weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now}), far: far}, false)
		for i := range without {
			if with[i] != without[i] {
				t.Fatalf("line %d: %s\nwithout shadows %s", i, with[i], without[i])
			}
		}
	})
}

// What a refusal tidies up is tidied up for a shadow too, though the call that
// it is part of is allowed.
func TestShadowsAreTidied(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		shadow := func(text string) weir.Op {
			o := op(limit(t, text, "shadow"), "a", 1)
			o.Shadow = true
			return o
		}
		p.take(shadow("1/h burst 1"))
		changed, quota := shadow("100/s burst 1"), op(limit(t, "quota 9/h"), "a", 1)
		for i, allowed := range []bool{false, true} {
			r, d := p.reserve(quota, changed)
			if !d.Allowed || r.Each()[1].Allowed != allowed {
				t.Errorf("call %d: %+v and %+v", i, d, r.Each()[1])
			}
			p.advance(10 * time.Millisecond) // one token at the new rate
		}
	})
}

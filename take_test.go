package weir_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// Whatever mix of limits is empty or full, enforced or shadow, on one item or on
// several: a call takes from all or from none, a shadow never refuses, and
// nothing is what it would not be without the shadows.
func TestAllOrNothing(t *testing.T) {
	texts := []string{"1/s burst 3", "quota 3/h", "sliding 3/h", "quota 3/day calendar"}
	everywhere(t, func(t *testing.T, p *place) {
		n := 0
		for k := 1; k <= 4; k++ {
			for empty := range 1 << k {
				for shadow := range 1 << k {
					for _, together := range []bool{true, false} {
						n++
						ops := make([]weir.Op, k)
						for i := range ops {
							id := fmt.Sprint("mix", n)
							key := weir.NewKey("account", id)
							if !together { // of different width, in no order
								key = weir.NewKey("account", id, []string{"a", "x", "b", "x", "c", "x"}[:2*((i+1)%4)]...)
							}
							ops[i] = weir.Op{Limit: limit(t, texts[i]), Key: key, Shadow: shadow&(1<<i) != 0}
							used := int64(1)
							if empty&(1<<i) != 0 {
								used = 3
							}
							fill := ops[i]
							fill.Cost = used
							p.take(fill)
						}
						before := p.peek(ops...)
						r, d := p.reserve(ops...)
						want := empty&^shadow == 0
						if d.Allowed != want {
							t.Fatalf("%d limits, empty %b, shadow %b: allowed %v", k, empty, shadow, d.Allowed)
						}
						after := p.peek(ops...)
						for i := range ops {
							took := before[i].Remaining - after[i].Remaining
							if should := want && empty&(1<<i) == 0; took != 0 && !should || took != 1 && should {
								t.Fatalf("%d limits, empty %b, shadow %b, one item %v: op %d took %d", k, empty, shadow, together, i, took)
							}
							e := r.Each()[i]
							if e.Reason != weir.ReasonNotAsked && e.Allowed != (empty&(1<<i) == 0) || e.Reason == weir.ReasonNotAsked && (want || together) {
								t.Fatalf("%d limits, empty %b, shadow %b, one item %v: op %d says %+v", k, empty, shadow, together, i, e)
							}
							if e.Reason != weir.ReasonNotAsked && e.Remaining != after[i].Remaining {
								t.Fatalf("%d limits, empty %b, shadow %b, one item %v: op %d says %d left, there are %d", k, empty, shadow, together, i, e.Remaining, after[i].Remaining)
							}
						}
						if want {
							if err := r.Cancel(context.Background()); err != nil {
								t.Fatal(err)
							}
							for i, d := range p.peek(ops...) {
								if d.Remaining != before[i].Remaining {
									t.Fatalf("%d limits, empty %b, shadow %b: op %d has %d left after a cancel, before %d", k, empty, shadow, i, d.Remaining, before[i].Remaining)
								}
							}
						}
					}
				}
			}
		}
	})
}

// Narrow keys are asked first: who is over a limit of his own costs those that
// he shares a broader limit with nothing, not even a write.
func TestNarrowKeysFirst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		tenant, user := limit(t, "quota 100/h", "tenant"), limit(t, "quota 2/h", "user")
		ops := []weir.Op{
			{Limit: tenant, Key: weir.NewKey("tenant", "acme")},
			{Limit: user, Key: weir.NewKey("tenant", "acme", "user", "7")},
		}
		p.take(ops...)
		p.take(ops...)
		_, writes := 0, 0
		if p.far != nil {
			_, writes = p.far.counts()
		}
		for range 50 {
			r, d := p.reserve(ops...)
			if d.Allowed || d.Op != 1 || d.Limit != user {
				t.Fatalf("%+v", d)
			}
			if e := r.Each()[0]; e.Reason != weir.ReasonNotAsked || e.Allowed || !e.Unknown {
				t.Fatalf("the tenant's op: %+v", e)
			}
		}
		if left := p.peek(ops[0])[0].Remaining; left != 98 {
			t.Errorf("the tenant has %d left of 98", left)
		}
		if p.far != nil {
			if _, now := p.far.counts(); now != writes {
				t.Errorf("%d writes for refusals", now-writes)
			}
		}
	})
}

// Of a refusal the longest wait speaks, of an allowed call the smallest share
// that is left; a shadow is never heard.
func TestWhoSpeaks(t *testing.T) {
	type state struct {
		text   string
		used   int64
		shadow bool
		cost   int64
	}
	everywhere(t, func(t *testing.T, p *place) {
		for n, c := range []struct {
			ops    []state
			op     uint16
			reason weir.Reason
		}{
			{[]state{{"quota 10/m", 0, false, 1}, {"quota 100/h", 95, false, 1}}, 1, weir.ReasonOK},
			{[]state{{"quota 10/m", 9, false, 1}, {"quota 100/h", 95, false, 1}}, 0, weir.ReasonOK},
			{[]state{{"quota 10/m", 10, false, 1}, {"quota 100/h", 95, false, 1}}, 0, weir.ReasonLimit},
			{[]state{{"quota 10/m", 10, false, 1}, {"quota 100/h", 100, false, 1}}, 1, weir.ReasonLimit},
			{[]state{{"quota 100/h", 100, false, 1}, {"quota 10/m", 10, false, 1}}, 0, weir.ReasonLimit},
			{[]state{{"quota 100/h", 100, false, 1}, {"1/s burst 3", 3, false, 4}}, 1, weir.ReasonNever},
			{[]state{{"quota 10/m", 10, true, 1}, {"quota 100/h", 5, false, 1}}, 1, weir.ReasonOK},
			{[]state{{"quota 1000000000000000/year", 999999999999998, false, 1}, {"quota 999999999999999/month", 999999999999998, false, 1}}, 1, weir.ReasonOK},
		} {
			for _, together := range []bool{true, false} {
				var ops []weir.Op
				for i, s := range c.ops {
					key := weir.NewKey("account", fmt.Sprint(n, together))
					if !together {
						key = weir.NewKey("account", fmt.Sprint(n, together, i))
					}
					op := weir.Op{Limit: limit(t, s.text, fmt.Sprint("l", i)), Key: key, Shadow: s.shadow, Cost: s.used}
					if s.used > 0 {
						p.take(op)
					}
					op.Cost = s.cost
					ops = append(ops, op)
				}
				d := p.take(ops...)
				if !together && !d.Allowed && c.reason == weir.ReasonLimit && d.Op == 0 {
					continue // the first key that refuses ends the call
				}
				if !together && c.reason == weir.ReasonNever {
					continue
				}
				if d.Op != c.op || d.Reason != c.reason || d.Allowed != (c.reason == weir.ReasonOK) {
					t.Errorf("case %d, one item %v: %+v, want op %d with %v", n, together, d, c.op, c.reason)
				}
				if c.reason == weir.ReasonNever && d.RetryAfter != 0 {
					t.Errorf("case %d: never, but try again after %v", n, d.RetryAfter)
				}
			}
		}
		if d := p.take(); !d.Allowed || d.Degraded || !d.Limit.IsZero() {
			t.Errorf("no ops: %+v", d)
		}
		shadow := weir.Op{Limit: limit(t, "1/h", "alone"), Key: someone, Shadow: true}
		for range 3 {
			if d := p.take(shadow); d != (weir.Decision{Allowed: true}) {
				t.Errorf("a shadow alone: %+v", d)
			}
		}
	})
}

func TestWrongOps(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		bucket := limit(t, "1/s burst 3")
		billing := limit(t, "quota 3/month billing")
		many := make([]weir.Op, 65)
		for i := range many {
			many[i] = weir.Op{Limit: bucket, Key: weir.NewKey("account", fmt.Sprint(i))}
		}
		good := weir.Op{Limit: bucket, Key: someone}
		for name, c := range map[string]struct {
			ops  []weir.Op
			says string
		}{
			"zero limit":      {[]weir.Op{{Key: someone}}, "ParseLimit"},
			"zero key":        {[]weir.Op{{Limit: bucket}}, "key"},
			"empty part":      {[]weir.Op{{Limit: bucket, Key: weir.NewKey("account", "")}}, "key"},
			"long key":        {[]weir.Op{{Limit: bucket, Key: weir.NewKey("account", strings.Repeat("a", 1017))}}, "1,024"},
			"negative cost":   {[]weir.Op{{Limit: bucket, Key: someone, Cost: -1}}, "negative"},
			"lowest cost":     {[]weir.Op{{Limit: bucket, Key: someone, Cost: -1 << 63}}, "negative"},
			"twice":           {[]weir.Op{good, good}, "twice"},
			"twice otherwise": {[]weir.Op{good, {Limit: limit(t, "9/h"), Key: someone, Cost: 2}}, "Named"},
			"no anchor":       {[]weir.Op{{Limit: billing, Key: someone}}, "anchor"},
			"too many":        {many, "64"},
			"good and bad":    {[]weir.Op{good, {Limit: bucket, Key: weir.NewKey("x", "y"), Cost: -5}}, "negative"},
		} {
			if d, err := p.Take(context.Background(), c.ops...); err == nil || d != (weir.Decision{}) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "weir: ") {
				t.Errorf("%s: Take gives %+v, %v", name, d, err)
			}
			if r, _, err := p.Reserve(context.Background(), c.ops...); err == nil || r != nil {
				t.Errorf("%s: Reserve gives %v, %v", name, r, err)
			}
		}
		if left := p.left(bucket); left != 3 {
			t.Errorf("%d left of 3 after mistakes only", left)
		}
		// A shadow has a balance of its own, so it is no repetition.
		if d := p.take(good, weir.Op{Limit: bucket, Key: someone, Shadow: true}); !d.Allowed {
			t.Errorf("%+v", d)
		}
		if _, err := p.Peek(context.Background(), weir.Op{Limit: bucket}); err == nil {
			t.Error("Peek accepts the zero key")
		}
		if err := p.Reset(context.Background(), weir.Key{}); err == nil {
			t.Error("Reset accepts the zero key")
		}
		if err := p.Reset(context.Background(), someone, weir.Limit{}); err == nil {
			t.Error("Reset accepts the zero limit")
		}
	})
}

func TestCosts(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"1/h burst 5", "quota 5/h", "sliding 5/h", "quota 5/day calendar"} {
			l := limit(t, text, "costs")
			key := weir.NewKey("account", strings.ReplaceAll(text, "/", "-"))
			op := func(cost int64) weir.Op { return weir.Op{Limit: l, Key: key, Cost: cost} }
			if d := p.take(op(6)); d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != 0 || d.Cost != 6 {
				t.Errorf("%s: more than it can hold: %+v", text, d)
			}
			if d := p.take(op(1<<63 - 1)); d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != 0 {
				t.Errorf("%s: the largest number: %+v", text, d)
			}
			if d := p.take(op(5)); !d.Allowed || d.Remaining != 0 || d.Used != 5 || d.Cost != 5 {
				t.Errorf("%s: all that it can hold: %+v", text, d)
			}
			if err := p.Reset(context.Background(), key); err != nil {
				t.Fatal(err)
			}
			if d := p.take(op(0)); d.Remaining != 4 || d.Cost != 1 {
				t.Errorf("%s: a cost of 0 means 1: %+v", text, d)
			}
			if d := p.take(op(5)); d.Allowed || d.Remaining != 4 || d.Reason != weir.ReasonLimit || d.RetryAfter <= 0 {
				t.Errorf("%s: more than is left: %+v", text, d)
			}
			if d := p.take(op(4)); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%s: what is left: %+v", text, d)
			}
		}
	})
}

func TestPeekAndReset(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		bucket, quota := limit(t, "1/h burst 5"), limit(t, "quota 5/h")
		ops := []weir.Op{{Limit: bucket, Key: someone, Cost: 2}, {Limit: quota, Key: someone, Cost: 2}, {Limit: bucket, Key: someone, Cost: 6}, {Limit: bucket, Key: someone, Shadow: true}}
		for range 3 { // looking takes nothing
			each := p.peek(ops...)
			if !each[0].Allowed || !each[1].Allowed || each[0].Remaining != 5 || each[1].Remaining != 5 || each[1].ResetAfter != 0 ||
				each[2].Allowed || each[2].Reason != weir.ReasonNever || each[3].Op != 3 || each[3].Remaining != 5 {
				t.Fatalf("%+v", each)
			}
		}
		p.take(ops[0], ops[1])
		p.take(ops[0], ops[1])
		p.take(ops[3])
		each := p.peek(ops...)
		if each[0].Allowed || each[0].Remaining != 1 || each[0].RetryAfter != time.Hour || each[0].ResetAfter != 4*time.Hour ||
			each[1].Allowed || each[1].RetryAfter != time.Hour || each[1].ResetAfter != time.Hour || each[3].Remaining != 4 {
			t.Fatalf("%+v", each)
		}
		if err := p.Reset(context.Background(), someone, quota); err != nil {
			t.Fatal(err)
		}
		if each := p.peek(ops...); each[0].Remaining != 1 || each[1].Remaining != 5 || each[3].Remaining != 4 {
			t.Errorf("the quota was reset: %+v", each)
		}
		if err := p.Reset(context.Background(), someone, bucket); err != nil {
			t.Fatal(err)
		}
		if each := p.peek(ops...); each[0].Remaining != 5 || each[3].Remaining != 5 {
			t.Errorf("the bucket was reset, with its shadow: %+v", each)
		}
		p.take(ops[0], ops[1], ops[3])
		if err := p.Reset(context.Background(), someone); err != nil {
			t.Fatal(err)
		}
		if each := p.peek(ops...); each[0].Remaining != 5 || each[1].Remaining != 5 || each[3].Remaining != 5 {
			t.Errorf("all was reset: %+v", each)
		}
	})
}

// A store that keeps items for a day at most can't have a quota a week.
func TestMaxKeep(t *testing.T) {
	c := newClock()
	far := newDistant(c)
	far.caps.MaxKeep = 24 * time.Hour
	day, week := limit(t, "quota 5/day"), limit(t, "quota 5/week")
	l := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now, Limits: []weir.Limit{day}})
	if err := l.Check(day, limit(t, "sliding 5/12h"), limit(t, "1/h burst 24")); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"quota 5/week", "sliding 5/13h", "1/h burst 25", "quota 5/day calendar"} {
		if err := l.Check(limit(t, text)); err == nil || !strings.Contains(err.Error(), "24h") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := l.Take(context.Background(), weir.Op{Limit: week, Key: someone}); err == nil {
		t.Error("a take of a limit that the store can't keep")
	}
	if d, err := l.Take(context.Background(), weir.Op{Limit: day, Key: someone}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	broken := weir.NewLimiter(far, weir.Options{Deadline: patient, Now: c.now, Limits: []weir.Limit{day, week}})
	if _, err := broken.Take(context.Background(), weir.Op{Limit: day, Key: someone}); err == nil {
		t.Error("options that no call can satisfy are discovered by the first call")
	}
}

// The observer hears of every op once, and may call the limiter.
func TestObserver(t *testing.T) {
	type heard struct {
		limit  weir.Limit
		reason weir.Reason
		shadow bool
	}
	for _, way := range []string{"memory", "remote"} {
		t.Run(way, func(t *testing.T) {
			c := newClock()
			var got []heard
			var l *weir.Limiter
			var store weir.Store = newDistant(c)
			if way == "memory" {
				store = memstore.New(memstore.Options{Now: c.now})
			}
			l = weir.NewLimiter(store, weir.Options{Deadline: patient, Now: c.now, Observer: &weir.Observer{Decided: func(ctx context.Context, op weir.Op, d weir.Decision) {
				got = append(got, heard{op.Limit, d.Reason, op.Shadow})
				if _, err := l.Peek(ctx, op); err != nil {
					t.Error(err)
				}
				if d.Limit != op.Limit || d.Cost != max(op.Cost, 1) {
					t.Errorf("%+v of %+v", d, op)
				}
			}}})
			a, b, s := limit(t, "quota 2/h", "a"), limit(t, "quota 1/h", "b"), limit(t, "quota 1/h", "s")
			broad := weir.NewKey("tenant", "acme")
			narrow := weir.NewKey("tenant", "acme", "user", "7")
			ops := []weir.Op{{Limit: a, Key: broad}, {Limit: b, Key: narrow}, {Limit: s, Key: narrow, Shadow: true}}
			ctx := context.Background()
			for _, want := range [][]heard{
				{{a, weir.ReasonOK, false}, {b, weir.ReasonOK, false}, {s, weir.ReasonOK, true}},
				{{b, weir.ReasonLimit, false}, {s, weir.ReasonLimit, true}}, // a was not asked
			} {
				got = nil
				if _, err := l.Take(ctx, ops...); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("heard %v, want %v", got, want)
				}
			}
			got = nil
			if _, err := l.Take(ctx, ops[2]); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Take(ctx, weir.Op{Limit: a, Key: someone}); err != nil {
				t.Fatal(err)
			}
			if want := []heard{{s, weir.ReasonLimit, true}, {a, weir.ReasonOK, false}}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("heard %v, want %v", got, want)
			}
		})
	}
}

// The zero Limit is invalid, and says so without a panic.
func TestZeroLimit(t *testing.T) {
	var l weir.Limit
	n, scale := l.Rate()
	if !l.IsZero() || l.Max() != 0 || l.Name() != "" || l.String() != "" || l.Horizon() != 0 || l.IsBucket() || l.IsQuota() || l.OnCalendar() || n != 0 || scale != 1 || l.Period() != (weir.Period{}) {
		t.Error("the zero Limit is something")
	}
	if _, err := l.Named("a"); err == nil {
		t.Error("the zero Limit takes a name")
	}
	if _, err := l.Anchored(time.Now()); err == nil {
		t.Error("the zero Limit takes an anchor")
	}
	if !l.Revised(1, weir.KeepUsed).IsZero() {
		t.Error("the zero Limit has a revision")
	}
	if _, err := limit(t, "1/s").Anchored(time.Now()); err == nil {
		t.Error("a bucket takes an anchor")
	}
}

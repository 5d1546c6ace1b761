package plan

import (
	"math/rand/v2"
	"testing"
	"time"
)

// taken is the state after n takes of 1 at base.
func taken(t *testing.T, s *Spec, n int64) *Cells {
	t.Helper()
	c := new(Cells)
	for range n {
		if !s.Step(c, base, 1).OK {
			t.Fatalf("%s refuses one of %d", s, n)
		}
	}
	return c
}

// A changed limit carries the balance over in the way that was chosen, at once,
// and the same by a step and by a write.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		from, to string
		used     int64
		change   Change
		left     int64
	}{
		{"10/s burst 1000", "10/s burst 10", 1, Keep, 9},         // lowered: at most what is new, at once
		{"10/s burst 1000", "10/s burst 10", 500, Keep, 0},       // deep in debt
		{"1/s burst 10", "1/s burst 100", 10, Keep, 90},          // raised: an upgrade is felt at once
		{"1/s burst 10", "100/s burst 10", 7, Keep, 3},           // the past is not priced anew
		{"100/s burst 10", "1/s burst 10", 7, Keep, 3},           //
		{"1/s burst 10", "1/s burst 100", 5, Scale, 50},          // half is half
		{"1/s burst 100", "1/s burst 10", 50, Scale, 5},          //
		{"1/s burst 10", "7/m burst 10", 5, Scale, 5},            //
		{"1/s burst 10", "1/s burst 100", 10, Fresh, 100},        //
		{"1/s burst 10", "1/s burst 10", 6, Fresh, 4},            // not changed at all
		{"10/s burst 10", "20/2s burst 10", 6, Fresh, 4},         // nor here, but for the words
		{"1/year burst 3", "1000000/s burst 1000", 3, Keep, 997}, //
		{"1000000/s burst 1000", "1/year burst 3", 1, Keep, 2},   //
		{"quota 10/h", "quota 100/h", 10, Keep, 90},
		{"quota 100/h", "quota 10/h", 50, Keep, 0},
		{"quota 100/day calendar", "quota 10/day calendar", 4, Keep, 6},
		{"sliding 100/h", "sliding 10/h", 4, Keep, 6},
	} {
		from, to := parsed(t, "", c.from), parsed(t, "", c.to).Revised(1, c.change)
		state := taken(t, from, c.used)
		v := to.Look(state, base, 1)
		if left := max(0, v.Max-v.Used); left != c.left {
			t.Errorf("%s -> %s with %d used: %d left, want %d", c.from, c.to, c.used, left, c.left)
		}
		if (c.left > 0) != v.OK || !v.OK && (v.Wait <= 0 || v.Wait > 2*max(from.Horizon(), to.Horizon())) {
			t.Errorf("%s -> %s with %d used: %+v", c.from, c.to, c.used, v)
		}
		if c.left == 0 {
			to.Step(state, base, 1)
			if v := to.Step(state, base+v.Wait, 1); !v.OK {
				t.Errorf("%s -> %s: refused after the wait", c.from, c.to)
			}
			continue
		}
		var w Write
		written := new(Cells)
		written.CopyFrom(state)
		to.Plan(state, base, c.left, &w)
		if !w.Holds(written, base) {
			t.Errorf("%s -> %s: the planned write does not hold", c.from, c.to)
		}
		w.Apply(written, base)
		if v := to.Step(state, base, c.left); !v.OK || !same(state, written) {
			t.Errorf("%s -> %s: %+v, %v by step and %v by the write", c.from, c.to, v, show(state), show(written))
		}
		if to.Step(state, base, 1).OK {
			t.Errorf("%s -> %s: more than %d are left", c.from, c.to, c.left)
		}
	}
}

// While a policy is rolled out, processes of both revisions share a bucket. It
// is the newer one's as soon as that has taken, does not flip back, and the
// total keeps within the larger burst and the larger rate.
func TestRollout(t *testing.T) {
	const interval = second / 2
	older := parsed(t, "", "1/s burst 10").Revised(4, Keep)
	newer := parsed(t, "", "2/s burst 6").Revised(5, Keep)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 23))
		var c Cells
		now := base
		var log []entry
		switched := false
		for range 2000 {
			now += r.Int64N(second)
			s := older
			if r.IntN(2) == 0 {
				s = newer
			}
			n := 1 + r.Int64N(3)
			var v Verdict
			if r.IntN(2) == 0 {
				v = s.Step(&c, now, n)
			} else {
				var w Write
				if v = s.Plan(&c, now, n, &w); v.OK {
					w.Apply(&c, now)
				}
			}
			if v.OK {
				log = append(log, entry{at: now, cost: n * interval})
				switched = switched || s == newer
			}
			if revision, _ := c.Get(s.field(Revision)); switched && revision != 5 {
				t.Fatalf("seed %d: revision %d in the item", seed, revision)
			}
			if switched && v.Max != 6 {
				t.Fatalf("seed %d: %s judges by a capacity of %d", seed, s, v.Max)
			}
		}
		if ok, e := withinBound(log, 10*interval, 1); !ok {
			t.Fatalf("seed %d: over at %d", seed, e.at)
		}
	}
}

// A caller whose plan changes to and fro, at one revision, is neither forgiven
// anything nor locked out for longer than either plan's bucket takes to fill.
func TestPlansAlternate(t *testing.T) {
	const interval = second / 10
	for _, change := range []Change{Keep, Scale} {
		big, small := parsed(t, "", "10/s burst 100").Revised(0, change), parsed(t, "", "1/s burst 3").Revised(0, change)
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 12))
			var c Cells
			now := base
			var log []entry
			for range 2000 {
				now += r.Int64N(second / 4)
				s := []*Spec{big, small}[r.IntN(2)]
				n := 1 + r.Int64N(min(s.max, 30))
				if s.Step(&c, now, n).OK {
					log = append(log, entry{at: now, cost: n * interval})
				}
			}
			if ok, e := withinBound(log, big.depth, 1); !ok && change == Keep {
				t.Fatalf("seed %d: over at %d", seed, e.at)
			}
			now += big.depth + small.depth
			for range 100 {
				now += small.interval
				small.Step(&c, now, small.max)
			}
			if v := small.Look(&c, now, 1); v.Used > v.Max {
				t.Fatalf("seed %d: locked out: %+v", seed, v)
			}
		}
	}
}

// An upgrade is felt from the first call on, also from one that is refused.
func TestRefusalsRefillAtTheNewRate(t *testing.T) {
	from, to := parsed(t, "", "1/h burst 1"), parsed(t, "", "100/s burst 1")
	c := taken(t, from, 1)
	v := to.Step(c, base, 1)
	if v.OK || v.Wait != second/100 {
		t.Errorf("one used of one stays used, for 10 ms at the new rate: %+v", v)
	}
	if v := to.Step(c, base+v.Wait, 1); !v.OK {
		t.Errorf("refused after the wait: %+v", v)
	}
}

// What a process with an older policy writes keeps the item for as long as the
// newer policy's bucket needs.
func TestOlderPolicyKeepsTheItem(t *testing.T) {
	older := parsed(t, "", "10/s")
	newer := parsed(t, "", "1/d burst 30").Revised(1, Keep)
	state := taken(t, newer, 20)
	w := Write{Keep: time.Hour}
	if v := older.Plan(state, base, 1, &w); !v.OK || v.Max != 30 {
		t.Fatalf("%+v", v)
	}
	if need := time.Duration(newer.Horizon()); w.Keep < need {
		t.Errorf("kept for %v, but the bucket fills in %v", w.Keep, need)
	}
}

// What is given back of a limit that was changed in between is at most what was
// taken, and never fills a bucket above its capacity.
func TestGiveBackAfterChange(t *testing.T) {
	for _, change := range []Change{Keep, Scale, Fresh} {
		for _, texts := range [][2]string{{"1/s burst 10", "1/s burst 4"}, {"1/s burst 10", "3/s burst 100"}, {"9/s burst 10", "1/m burst 2"}} {
			from, to := parsed(t, "", texts[0]), parsed(t, "", texts[1]).Revised(1, change)
			var c Cells
			stamp := from.Step(&c, base, 8).Stamp
			now := base + second/3
			for to.Step(&c, now, 1).OK {
			}
			before := to.Look(&c, now, 1).Used
			var w Write
			if from.GiveBack(&c, now, 8, stamp, &w) {
				if !w.Holds(&c, now) {
					t.Errorf("%v %v: does not hold", texts, change)
				}
				w.Apply(&c, now)
			}
			if after := to.Look(&c, now, 1).Used; after < max(0, before-8) {
				t.Errorf("%v %v: %d used, and %d after 8 were given back", texts, change, before, after)
			}
		}
	}
}

// One limit owns what it keeps, its shadow's balance or its own, and nothing else:
// without that it is full, and the others are as they were.
func TestOwns(t *testing.T) {
	all := someLimits(t)
	for _, forgotten := range all {
		var c, rest Cells
		for _, k := range all {
			k.spec.Step(&c, base, 2)
		}
		for slot := range c.All() {
			owned := forgotten.spec.Owns(slot.Field)
			if want := slot.Field.Limit == forgotten.spec.id && slot.Field.Kind&shadowBit == forgotten.spec.shadow; owned != want {
				t.Errorf("%s owns %s: %v, want %v", forgotten.spec, slot.Field.Text(), owned, want)
			}
			if !owned {
				rest.Set(slot.Field, slot.Value)
			}
		}
		if rest.Len() == c.Len() {
			t.Errorf("%s owns nothing", forgotten.spec)
		}
		for _, k := range all {
			before, after := k.spec.Look(&c, base, 1), k.spec.Look(&rest, base, 1)
			if k.spec.Same(forgotten.spec) {
				if after.Used != 0 || after.Max != k.spec.max {
					t.Errorf("%s: %+v after %s was forgotten", k.spec, after, forgotten.spec)
				}
			} else if before != after {
				t.Errorf("%s: %+v, and %+v after %s was forgotten", k.spec, before, after, forgotten.spec)
			}
		}
	}
}

// An item is idle only when dropping it changes no decision, whatever order
// the limits were built in.
func TestIdleItemsMatterToNobody(t *testing.T) {
	parsed(t, "idle", "quota 4/5s") // shares name and unit with the sliding one
	specs := []*Spec{
		parsed(t, "idle", "sliding 4/5s"), parsed(t, "idle", "quota 4/5s"), parsed(t, "idle", "2/s burst 4"), parsed(t, "idle", "quota 4/5s calendar"),
	}
	r := rand.New(rand.NewPCG(1, 19))
	checked := 0
	for range 3000 {
		var c Cells
		now := base + r.Int64N(20*second)
		l := several{specs[r.IntN(4)], specs[r.IntN(4)].Shadow()}
		for range 1 + r.IntN(6) {
			for _, s := range l {
				s.Step(&c, now, 1+r.Int64N(4))
			}
			now += r.Int64N(4 * second)
		}
		now += r.Int64N(12 * second)
		if c.IdleAt(now) > now {
			continue
		}
		checked++
		for _, s := range l {
			if v := s.Look(&c, now, s.max); v.Used != 0 || !v.OK {
				t.Fatalf("%s is idle with %d used: %v at %d", s, v.Used, show(&c), now)
			}
		}
	}
	if checked < 200 {
		t.Fatalf("only %d idle items", checked)
	}
}

// A lowered limit cuts what is owed when the policy's revision rose, and lets it
// refill at the old rate when it did not; neither a refusal nor a charge then
// forgives anything.
func TestLoweredLimit(t *testing.T) {
	const day = 24 * 3600 * second
	from := parsed(t, "", "1/d burst 100")
	for _, c := range []struct {
		revision uint32
		wait     int64
	}{{1, day + 3600*second}, {0, 98 * day}} {
		to := parsed(t, "", "1/d burst 3").Revised(c.revision, Keep)
		state := taken(t, from, 100)
		if v := to.Step(state, base, 1); v.OK || v.Wait != c.wait || v.Max != 3 {
			t.Errorf("revision %d: %+v, want a wait of %d", c.revision, v, c.wait)
		}
		var w Write
		if to.Charge(state, base, 2, 0, &w) {
			w.Apply(state, base)
		}
		if owed := from.Look(state, base, 1).Used; c.revision == 0 && owed != 100 {
			t.Errorf("%d are owed of 100", owed)
		}
	}
}

// What is settled after its window has ended writes nothing.
func TestSettlingAfterTheWindow(t *testing.T) {
	for _, text := range []string{"quota 3/10s", "quota 3/10s calendar", "sliding 3/10s"} {
		s := parsed(t, "", text)
		var c Cells
		stamp := s.Step(&c, base, 2).Stamp
		for _, known := range []*Cells{nil, &c} {
			var w Write
			if s.GiveBack(known, base+21*second, 1, stamp, &w) || s.Charge(known, base+21*second, 1, stamp, &w) || len(w.Do) != 0 {
				t.Errorf("%s: settled in a window that is over: %+v", text, w)
			}
		}
	}
}

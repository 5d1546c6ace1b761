package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

const clockKind = plan.Clock

var (
	comparisons = map[plan.Cmp]string{plan.AtMost: "<=", plan.Above: ">", plan.AtLeast: ">=", plan.Equal: "="}
	actions     = map[plan.Do]string{plan.Put: "put", plan.Add: "add", plan.Remove: "remove"}
)

// keep is how long test items must be kept.
const keep = time.Hour

// farAhead is a time at which a bucket is full again that no test reaches. A
// store may forget an item that means nothing any more while it makes room for
// another, so tests that come back to an item put this on it.
const farAhead = math.MaxInt64 / 2

// fields are some fields of different kinds on one item.
type fields struct{ t, i, d, r, start, count, cell, cell2, shadow weir.Field }

func someFields(tb testing.TB) fields {
	tb.Helper()
	limit(tb, "st-rate", "10/s burst 20")
	limit(tb, "st-quota", "quota 100/h")
	limit(tb, "st-day", "quota 100/day calendar Europe/Berlin")
	return fields{
		t: field(tb, "st-rate.t"), i: field(tb, "st-rate.i"), d: field(tb, "st-rate.d"), r: field(tb, "st-rate.r"),
		start: field(tb, "st-quota.s"), count: field(tb, "st-quota.c"),
		cell: field(tb, "st-day.c@day/Europe/Berlin:1796000400"), cell2: field(tb, "st-day.c@day/Europe/Berlin:1796086800"),
		shadow: field(tb, "st-rate~.t"),
	}
}

func (f fields) all() []weir.Field {
	return []weir.Field{f.t, f.i, f.d, f.r, f.start, f.count, f.cell, f.cell2, f.shadow}
}

func put(f weir.Field, v int64) weir.Act { return weir.Act{Field: f, Do: plan.Put, Value: v} }
func add(f weir.Field, v int64) weir.Act { return weir.Act{Field: f, Do: plan.Add, Value: v} }
func drop(f weir.Field) weir.Act         { return weir.Act{Field: f, Do: plan.Remove} }

func write(guards []weir.Cond, acts ...weir.Act) weir.Write {
	return weir.Write{If: guards, Do: acts, Keep: keep}
}

func guard(f weir.Field, c plan.Cmp, v int64) []weir.Cond {
	return []weir.Cond{{Field: f, Cmp: c, Value: v}}
}

func (s suite) vocabulary(t *testing.T) {
	t.Run("an unknown item is empty", func(t *testing.T) {
		b := s.start(t)
		b.reads(b.key(), nil)
	})
	t.Run("each comparison on each side of its constant", s.comparisons)
	t.Run("absence is per field", s.absence)
	t.Run("guards see the item as it was before", s.before)
	t.Run("relative constants", s.relative)
	t.Run("guards on the clock", s.onClock)
	t.Run("actions", s.actions)
	t.Run("integers are exact", s.exact)
	t.Run("sums stay at the ends", s.sums)
	t.Run("one write changes all or nothing", s.allOrNothing)
	t.Run("the first of several writes", s.several)
	t.Run("removing leaves nothing", s.removing)
	t.Run("many limits on one item", s.manyLimits)
	t.Run("keys are independent", s.keys)
	t.Run("a cancelled call changes nothing", s.cancelled)
}

// comparisons holds the truth table by hand, so that it does not depend on the
// code that the model check uses.
func (s suite) comparisons(t *testing.T) {
	b, f := s.start(t), someFields(t)
	truth := map[plan.Cmp][3]bool{ // value below, at and above the constant
		plan.AtMost:  {true, true, false},
		plan.Above:   {false, false, true},
		plan.AtLeast: {false, true, true},
		plan.Equal:   {false, true, false},
	}
	const at = int64(1_796_000_000_123_456_789)
	for cmp, want := range truth {
		for i, holds := range want {
			for _, orAbsent := range []bool{false, true} {
				key := b.key()
				value := at + int64(i) - 1
				b.must(key, write(nil, put(f.t, value)))
				w := write([]weir.Cond{{Field: f.t, Cmp: cmp, Value: at, OrAbsent: orAbsent}}, put(f.r, 1))
				after := map[weir.Field]int64{f.t: value}
				wantApplied := -1
				if holds {
					wantApplied, after[f.r] = 0, 1
				}
				applied, _, state := b.apply(key, w)
				if applied != wantApplied {
					t.Errorf("%d %s %d: applied %d, want %d", value, comparisons[cmp], at, applied, wantApplied)
				}
				b.same(state, after)
				b.reads(key, after)
			}
		}
	}
}

func (s suite) absence(t *testing.T) {
	b, f := s.start(t), someFields(t)
	for cmp := range comparisons {
		for _, other := range []bool{false, true} { // an item that exists without the field, and none
			for _, orAbsent := range []bool{false, true} {
				key := b.key()
				after := map[weir.Field]int64{}
				if other {
					b.must(key, write(nil, put(f.count, 7)))
					after[f.count] = 7
				}
				wantApplied := -1
				if orAbsent {
					wantApplied, after[f.i] = 0, 5
				}
				applied, _, state := b.apply(key, write([]weir.Cond{{Field: f.t, Cmp: cmp, OrAbsent: orAbsent}}, put(f.i, 5)))
				if applied != wantApplied {
					t.Errorf("absent %s 0, OrAbsent %v, item exists %v: applied %d, want %d", comparisons[cmp], orAbsent, other, applied, wantApplied)
				}
				b.same(state, after)
				b.reads(key, after)
			}
		}
	}
	// A shadow limit and another window of the same limit are other fields.
	key := b.key()
	b.must(key, write(nil, put(f.t, 1), put(f.cell, 2)))
	after := b.must(key, write([]weir.Cond{
		{Field: f.shadow, Cmp: plan.Equal, Value: -1, OrAbsent: true},
		{Field: f.cell2, Cmp: plan.Equal, Value: -1, OrAbsent: true},
	}, put(f.shadow, 3), put(f.cell2, 4)))
	b.same(after, map[weir.Field]int64{f.t: 1, f.cell: 2, f.shadow: 3, f.cell2: 4})
}

func (s suite) before(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.must(key, write(nil, put(f.count, 10)))
	// The guard holds before the action and would not after it.
	state := b.must(key, write(guard(f.count, plan.AtMost, 10), add(f.count, 5)))
	b.same(state, map[weir.Field]int64{f.count: 15})
	if applied, _, state := b.apply(key, write(guard(f.count, plan.AtMost, 10), add(f.count, -5))); applied != -1 || state[f.count] != 15 {
		t.Errorf("applied %d with %v: the guard does not hold on 15", applied, texts(state))
	}
}

// relative tests constants that are relative to the store's now: exactly where
// the clock stands still, to the hour where it does not.
func (s suite) relative(t *testing.T) {
	b, f := s.start(t), someFields(t)
	step := int64(1)
	if b.clock == nil {
		step = int64(time.Hour)
	}
	for _, off := range []int64{-step, 0, step} {
		key := b.key()
		applied, now, state := b.apply(key, write(nil, weir.Act{Field: f.t, Do: plan.Put, Value: off, Rel: true}))
		if applied != 0 || state[f.t] != now+off {
			t.Fatalf("put now%+d at %d: applied %d, the field is %d", off, now, applied, state[f.t])
		}
		if b.clock != nil && now != b.clock.now() {
			t.Fatalf("the store's now is %d, but its clock says %d", now, b.clock.now())
		}
		for cmp, want := range map[plan.Cmp]bool{plan.AtMost: off <= 0, plan.Above: off > 0} {
			if b.clock == nil && off == 0 {
				continue // the clock has moved on
			}
			got, _, _ := b.apply(key, write([]weir.Cond{{Field: f.t, Cmp: cmp, Rel: true}}, put(f.r, 1)))
			if (got == 0) != want {
				t.Errorf("now%+d %s now: applied %d", off, comparisons[cmp], got)
			}
		}
	}
	// A sum beyond the range stays at its end: that of a little as well as that of a
	// lot, which a store may know without its clock.
	key := b.key()
	state := b.must(key, write(nil, weir.Act{Field: f.t, Do: plan.Put, Value: math.MaxInt64, Rel: true}))
	b.same(state, map[weir.Field]int64{f.t: math.MaxInt64})
	_, now, _ := b.apply(key)
	for _, v := range []int64{math.MaxInt64, math.MaxInt64 - now + int64(time.Hour)} {
		for cmp, want := range map[plan.Cmp]int{plan.AtMost: 0, plan.Above: -1, plan.AtLeast: 0, plan.Equal: 0} {
			if applied, _, _ := b.apply(key, write([]weir.Cond{{Field: f.t, Cmp: cmp, Value: v, Rel: true}}, put(f.r, 1))); applied != want {
				t.Errorf("the largest integer %s now+%d: applied %d, want %d", comparisons[cmp], v, applied, want)
			}
		}
	}
	// A sum that is just within the range is what it is.
	for cmp, want := range map[plan.Cmp]int{plan.AtMost: -1, plan.Above: 0, plan.AtLeast: 0, plan.Equal: -1} {
		if applied, _, _ := b.apply(key, write([]weir.Cond{{Field: f.t, Cmp: cmp, Value: math.MaxInt64 - now - int64(time.Hour), Rel: true}}, put(f.r, 1))); applied != want {
			t.Errorf("the largest integer %s an hour less: applied %d, want %d", comparisons[cmp], applied, want)
		}
	}
}

func (s suite) onClock(t *testing.T) {
	b, f := s.start(t), someFields(t)
	_, now, _ := b.apply(b.key())
	past, future := now-int64(time.Hour), now+int64(time.Hour)
	for _, c := range []struct {
		cmp  plan.Cmp
		v    int64
		want int
	}{
		{plan.AtLeast, past, 0}, {plan.AtLeast, future, -1}, {plan.AtMost, past, -1}, {plan.AtMost, future, 0},
	} {
		key := b.key()
		b.must(key, write(nil, put(f.t, 1)))
		applied, _, state := b.apply(key, write([]weir.Cond{{Field: weir.Field{Kind: clockKind}, Cmp: c.cmp, Value: c.v}}, put(f.t, 2)))
		want := map[weir.Field]int64{f.t: 1}
		if c.want == 0 {
			want[f.t] = 2
		}
		if applied != c.want {
			t.Errorf("clock %s now%+d ns: applied %d, want %d", comparisons[c.cmp], c.v-now, applied, c.want)
		}
		b.same(state, want)
		b.reads(key, want)
	}
	if b.clock == nil {
		return
	}
	for off, want := range map[int64]int{0: 0, 1: -1} { // now >= now, and not >= now+1
		applied, _, _ := b.apply(b.key(), write([]weir.Cond{{Field: weir.Field{Kind: clockKind}, Cmp: plan.AtLeast, Value: b.clock.now() + off}}, put(f.t, 2)))
		if applied != want {
			t.Errorf("clock >= now%+d: applied %d, want %d", off, applied, want)
		}
	}
}

func (s suite) actions(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	want := map[weir.Field]int64{}
	for _, step := range []struct {
		act weir.Act
		do  func()
	}{
		{put(f.t, 5), func() { want[f.t] = 5 }},
		{put(f.t, -5), func() { want[f.t] = -5 }},
		{add(f.t, 7), func() { want[f.t] = 2 }},
		{add(f.count, 3), func() { want[f.count] = 3 }}, // absent starts from zero
		{add(f.cell, -3), func() { want[f.cell] = -3 }},
		{add(f.start, 0), func() { want[f.start] = 0 }},
		{drop(f.t), func() { delete(want, f.t) }},
		{drop(f.t), func() {}}, // once more
		{put(f.t, 0), func() { want[f.t] = 0 }},
	} {
		step.do()
		b.same(b.must(key, write(nil, step.act)), want)
		b.reads(key, want)
	}
}

// sums tests that they stay at the ends of int64.
func (s suite) sums(t *testing.T) {
	b, f := s.start(t), someFields(t)
	for _, c := range []struct{ from, add, want int64 }{
		{math.MaxInt64 - 5, 5, math.MaxInt64},
		{math.MaxInt64 - 5, 6, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64 + 5, -5, math.MinInt64},
		{math.MinInt64 + 5, -6, math.MinInt64},
		{math.MinInt64, math.MinInt64, math.MinInt64},
		{math.MaxInt64, math.MinInt64, -1},
		{math.MinInt64, math.MaxInt64, -1},
	} {
		key := b.key()
		b.must(key, write(nil, put(f.count, c.from), put(f.t, farAhead)))
		want := map[weir.Field]int64{f.count: c.want, f.t: farAhead}
		b.same(b.must(key, write(nil, add(f.count, c.add))), want)
		b.reads(key, want)
		// Beside another action a store may add in another way.
		b.must(key, write(nil, put(f.count, c.from)))
		b.same(b.must(key, write(nil, add(f.count, c.add), put(f.r, 1))), map[weir.Field]int64{f.count: c.want, f.t: farAhead, f.r: 1})
	}
}

func (s suite) exact(t *testing.T) {
	b, f := s.start(t), someFields(t)
	for _, v := range []int64{0, 1, -1, 1 << 53, 1<<53 + 1, -(1<<53 + 1), 1_796_000_000_123_456_789, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1} {
		key := b.key()
		b.must(key, write(nil, put(f.t, v)))
		b.reads(key, map[weir.Field]int64{f.t: v})
		b.must(key, write(guard(f.t, plan.Equal, v), put(f.r, 1)))
		if v > math.MinInt64 {
			if applied, _, _ := b.apply(key, write(guard(f.t, plan.AtMost, v-1), put(f.r, 2))); applied != -1 {
				t.Errorf("%d <= %d was taken to hold", v, v-1)
			}
			b.same(b.must(key, write(guard(f.t, plan.Above, v-1), add(f.t, -1))), map[weir.Field]int64{f.t: v - 1, f.r: 1})
		}
	}
}

func (s suite) allOrNothing(t *testing.T) {
	b, f := s.start(t), someFields(t)
	list := f.all()
	for failing := range list { // one guard of many fails
		key := b.key()
		var acts []weir.Act
		var guards []weir.Cond
		want := map[weir.Field]int64{}
		for i, fld := range list {
			acts = append(acts, put(fld, int64(i)))
			want[fld] = int64(i)
			limit := int64(i)
			if i == failing {
				limit--
			}
			guards = append(guards, weir.Cond{Field: fld, Cmp: plan.AtMost, Value: limit})
		}
		b.must(key, write(nil, acts...))
		for i := range acts {
			acts[i] = add(list[i], 100)
		}
		applied, _, state := b.apply(key, write(guards, acts...))
		if applied != -1 {
			t.Errorf("guard %d of %d fails, and the write was applied", failing, len(list))
		}
		b.same(state, want)
		b.reads(key, want)
	}
}

// several offers more than one write. A store may look at the first only.
func (s suite) several(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.must(key, write(nil, put(f.count, 5)))
	no := func(v int64) weir.Write { return write(guard(f.count, plan.Above, 5), put(f.t, v)) }
	yes := func(v int64) weir.Write { return write(guard(f.count, plan.AtMost, 5), put(f.t, v)) }
	want := map[weir.Field]int64{f.count: 5, f.t: 1}
	if applied, _, state := b.apply(key, yes(1), yes(2)); applied != 0 {
		t.Errorf("both hold: applied %d, want the first", applied)
	} else {
		b.same(state, want)
	}
	switch applied, _, state := b.apply(key, no(3), yes(4), yes(5)); applied {
	case -1:
		b.same(state, want)
	case 1:
		want[f.t] = 4
		b.same(state, want)
	default:
		t.Errorf("the second is the first that holds: applied %d", applied)
	}
	if applied, _, state := b.apply(key, no(6), no(7)); applied != -1 {
		t.Errorf("none holds: applied %d", applied)
	} else {
		b.same(state, want)
	}
	b.reads(key, want)
}

func (s suite) removing(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	// From an item that is not there, as a reset of an unknown caller.
	b.same(b.must(key, write(nil, drop(f.t), drop(f.i))), map[weir.Field]int64{})
	b.reads(key, nil)
	if applied, _, _ := b.apply(key, write(guard(f.t, plan.AtLeast, 0), drop(f.t))); applied != -1 {
		t.Errorf("a guard on a field that is not there held: applied %d", applied)
	}
	b.must(key, write(nil, put(f.t, 1), put(f.i, 2), put(f.count, 3)))
	b.same(b.must(key, write(nil, drop(f.t), drop(f.i))), map[weir.Field]int64{f.count: 3})
	b.same(b.must(key, write(nil, drop(f.count))), map[weir.Field]int64{})
	b.reads(key, nil)
	// What was removed is absent to guards.
	b.must(key, write([]weir.Cond{{Field: f.count, Cmp: plan.Equal, Value: -1, OrAbsent: true}}, add(f.count, 1)))
	b.reads(key, map[weir.Field]int64{f.count: 1})
}

// manyLimits puts more limits on an item than anybody has, in one write.
func (s suite) manyLimits(t *testing.T) {
	const limits = 24
	b := s.start(t)
	key := b.key()
	want := map[weir.Field]int64{}
	var first, second weir.Write
	first.Keep, second.Keep = keep, keep
	for n := range limits {
		name := fmt.Sprintf("st-many-%d", n)
		limit(t, name, "10/s burst 20")
		f := field(t, name+".t")
		i, d, r := field(t, name+".i"), field(t, name+".d"), field(t, name+".r")
		first.If = append(first.If, weir.Cond{Field: f, Cmp: plan.AtMost, OrAbsent: true, Rel: true}, weir.Cond{Field: r, Cmp: plan.AtMost, OrAbsent: true})
		first.Do = append(first.Do, put(f, farAhead+int64(n)), put(i, 100_000_000), put(d, 2_000_000_000), put(r, 0))
		second.If = append(second.If, weir.Cond{Field: f, Cmp: plan.Above, Rel: true}, weir.Cond{Field: f, Cmp: plan.AtMost, Value: math.MaxInt64 - 1},
			weir.Cond{Field: i, Cmp: plan.Equal, Value: 100_000_000}, weir.Cond{Field: d, Cmp: plan.Equal, Value: 2_000_000_000})
		second.Do = append(second.Do, add(f, 1000))
		want[f], want[i], want[d], want[r] = farAhead+int64(n)+1000, 100_000_000, 2_000_000_000, 0
	}
	b.must(key, first)
	if applied, _, _ := b.apply(key, first); applied != -1 {
		t.Errorf("the same write held twice: applied %d", applied)
	}
	b.same(b.must(key, second), want)
	b.reads(key, want)
}

func (s suite) keys(t *testing.T) {
	b, f := s.start(t), someFields(t)
	long := b.run + strings.Repeat("k", weir.MaxKey-len("storetest#")-len(b.run)-1)
	ids := []string{
		b.run, b.run + "#", b.run + "|n#1", b.run + ":", b.run + "%", b.run + "%23", b.run + " ", b.run + "\x00", b.run + "é", b.run + "É",
		b.run + "*", b.run + "?", b.run + "[a]", b.run + "{a}", b.run + "/", b.run + "\n", b.run + "'", b.run + "\"", strings.ToLower(b.run),
		// As long as a key may be, and different at one end only: whoever cuts keys
		// takes two callers for one.
		long, long + "a", long + "b", "x" + long[1:] + "a",
	}
	for i, id := range ids {
		key := weir.NewKey("storetest", id)
		if !key.Valid() {
			t.Fatalf("key %q is not valid", id)
		}
		b.reads(key, nil)
		b.must(key, write(nil, put(f.t, farAhead+int64(i))))
	}
	for i, id := range ids {
		b.reads(weir.NewKey("storetest", id), map[weir.Field]int64{f.t: farAhead + int64(i)})
	}
}

func (s suite) cancelled(t *testing.T) {
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.must(key, write(nil, put(f.t, 1)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var c weir.Cells
	_, _, err := b.store.Apply(ctx, key, []weir.Write{write(nil, put(f.t, 2))}, &c)
	if err == nil {
		b.reads(key, map[weir.Field]int64{f.t: 2}) // a store that never waits may do it
		return
	}
	if !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("the error is %v; it must wrap context.Canceled, and the outcome is known", err)
	}
	b.reads(key, map[weir.Field]int64{f.t: 1})
}

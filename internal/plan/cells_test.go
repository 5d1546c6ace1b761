package plan

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"
)

// Cells are a map from fields to values, whatever the slots look like.
func TestCellsAreAMap(t *testing.T) {
	a, b := parsed(t, "cells-a", "2/s burst 5"), parsed(t, "cells-b", "1/m burst 2")
	var fields []Field
	for _, s := range []*Spec{a, a.Shadow(), b} {
		for _, k := range []Kind{Arrival, Interval, Depth, Revision} {
			fields = append(fields, s.field(k))
		}
	}
	w := parsed(t, "cells-c", "sliding 3/5s")
	fields = append(fields, in(w.field(Cell), base), in(w.field(Cell), base+5*second), in(w.Shadow().field(Cell), base))
	r := rand.New(rand.NewPCG(5, 5))
	var c, copied Cells
	want := map[Field]int64{}
	for step := range 30_000 {
		f := fields[r.IntN(len(fields))]
		switch r.IntN(8) {
		case 0, 1, 2:
			v := r.Int64N(100)
			c.Set(f, v)
			want[f] = v
		case 3, 4:
			c.Drop(f)
			delete(want, f)
		case 5:
			// A whole bucket in one slot, as Step stores it.
			s := []*Spec{a, a.Shadow(), b}[r.IntN(3)]
			s.store(&c, bucketState{interval: s.interval, depth: s.depth, revision: s.revision}, int64(step))
			for _, k := range []Kind{Interval, Depth, Revision} {
				want[s.field(k)] = shape{s.interval, s.depth, s.revision}.get(k)
			}
			want[s.field(Arrival)] = int64(step)
		case 6:
			// A copy is a copy: what happens to it does not happen to the original.
			copied.CopyFrom(&c)
			for _, f := range fields {
				copied.Set(f, -1)
				copied.Drop(f)
			}
			if copied.Len() != 0 {
				t.Fatalf("%d slots after every field was dropped", copied.Len())
			}
		case 7:
			if r.IntN(200) == 0 {
				c.Reset()
				clear(want)
			}
		}
		got := map[Field]int64{}
		for slot := range c.All() {
			if _, ok := got[slot.Field]; ok {
				t.Fatalf("step %d: %s comes twice", step, slot.Field.Text())
			}
			got[slot.Field] = slot.Value
		}
		if !maps.Equal(got, want) {
			t.Fatalf("step %d: %v, want %v", step, texts(got), texts(want))
		}
		if v, ok := c.Get(f); v != want[f] || ok != contains(want, f) {
			t.Fatalf("step %d: Get gives %d, %v", step, v, ok)
		}
	}
}

func contains(m map[Field]int64, f Field) bool {
	_, ok := m[f]
	return ok
}

func TestSumsSaturate(t *testing.T) {
	for _, c := range []struct{ a, b, sum int64 }{
		{1, 2, 3}, {-1, 1, 0}, {0, 0, 0},
		{math.MaxInt64, 1, math.MaxInt64}, {1, math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64}, {math.MinInt64, math.MinInt64, math.MinInt64}, {math.MinInt64, math.MaxInt64, -1}, {math.MaxInt64, 0, math.MaxInt64},
	} {
		if got := addSat(c.a, c.b); got != c.sum {
			t.Errorf("%d + %d = %d, want %d", c.a, c.b, got, c.sum)
		}
	}
	for _, c := range []struct{ a, b, c, down, up int64 }{
		{7, 3, 2, 10, 11}, {0, 5, 3, 0, 0}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 2, 1, math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, 3, math.MaxInt64, math.MaxInt64}, {1, 1, math.MaxInt64, 0, 1},
	} {
		if down, up := mulDiv(c.a, c.b, c.c), mulDivUp(c.a, c.b, c.c); down != c.down || up != c.up {
			t.Errorf("%d x %d / %d = %d and %d, want %d and %d", c.a, c.b, c.c, down, up, c.down, c.up)
		}
	}
}

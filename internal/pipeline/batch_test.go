package pipeline

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/weirlabs/weir/internal/plan"
)

const second = int64(1e9)

func spec(t *testing.T, name, text string) *plan.Spec {
	t.Helper()
	s, err := plan.Parse(text)
	if err == nil {
		s, err = s.Named(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fields(c *plan.Cells) map[plan.Field]int64 {
	m := map[plan.Field]int64{}
	for s := range c.All() {
		m[s.Field] = s.Value
	}
	return m
}

// A batch is its takes one after the other: wherever its one write holds, each
// of them would have been allowed, but for the shadows that it goes without, which
// would have been refused; and together they leave what it leaves. Also where
// limits share counters and differ.
func TestBatchIsItsTakes(t *testing.T) {
	const base = 1_800_000_000 * second
	bucket := spec(t, "b", "1/s burst 9")
	specs := []*plan.Spec{
		bucket, spec(t, "b", "2/s burst 30"), bucket.Revised(1, plan.Keep), spec(t, "b", "1/s burst 9"),
		spec(t, "q", "quota 9/h"), spec(t, "q", "quota 90/h"), spec(t, "s", "sliding 9/h"), spec(t, "s", "sliding 90/h"),
		spec(t, "c", "quota 9/hour calendar"), spec(t, "c", "quota 90/hour calendar"), spec(t, "b", "1/s burst 60").Revised(2, plan.Keep),
	}
	real := len(specs)
	for _, s := range specs {
		specs = append(specs, s.Shadow())
	}
	r := rand.New(rand.NewPCG(1, 1))
	state := func(now int64) *plan.Cells {
		c := new(plan.Cells)
		for range r.IntN(20) {
			specs[r.IntN(len(specs))].Step(c, now-r.Int64N(6*second), 1+r.Int64N(8))
		}
		return c
	}
	held, several, without := 0, 0, 0
	for range 60_000 {
		known, actual := state(base), state(base)
		if r.IntN(2) == 0 { // known, and a little later
			actual.CopyFrom(known)
			s, n := specs[r.IntN(len(specs))], 1+r.Int64N(8)
			v := s.Step(actual, base, n)
			var w plan.Write
			if v.OK && r.IntN(2) == 0 && s.GiveBack(known, base, n, v.Stamp, &w) { // somebody has given back
				actual.CopyFrom(known)
				w.Apply(actual, base)
			}
		}
		few, fresh := r.Perm(len(specs))[:4], r.IntN(4) == 0
		var pending []*take
		for range 1 + r.IntN(5) {
			tk := &take{}
			for _, i := range r.Perm(len(few))[:1+r.IntN(2)] {
				if i = few[i]; len(tk.asks) == 0 || !tk.asks[0].Spec.Same(specs[i]) {
					tk.asks = append(tk.asks, Ask{Spec: specs[i], Cost: 1 + r.Int64N(10), Shadow: i >= real})
				}
			}
			tk.verdicts = make([]plan.Verdict, len(tk.asks))
			pending = append(pending, tk)
		}
		var b batch
		b.judge(pending, known, base, 1+r.IntN(len(pending)), fresh)
		if len(b.fits)+len(b.rest) != len(pending) {
			t.Fatal("a take is lost")
		}
		var w plan.Write
		if len(b.totals) == 0 {
			continue
		}
		if !b.plan(known, base, &w) {
			t.Fatalf("what fits one by one does not fit together: %+v", b.totals)
		}
		if !w.Holds(known, base) {
			t.Fatalf("a write does not hold on the state that it was made from: %+v", w)
		}
		if fresh { // what is known is what is there, but for what others did on the way
			actual.CopyFrom(known)
		}
		if !w.Holds(actual, base) {
			continue
		}
		held++
		stepped, written := new(plan.Cells), new(plan.Cells)
		stepped.CopyFrom(actual)
		written.CopyFrom(actual)
		w.Apply(written, base)
		for _, tk := range b.fits {
			for i, a := range tk.asks {
				if !tk.verdicts[i].OK {
					if without++; a.Spec.Look(stepped, base, a.Cost).OK {
						t.Fatalf("left out: shadow %s with %d, one of %d takes in a write of %+v on %v", a.Spec, a.Cost, len(b.fits), b.totals, fields(actual))
					}
					continue
				}
				if !a.Spec.Step(stepped, base, a.Cost).OK {
					t.Fatalf("over: %s with %d, one of %d takes in a write of %+v on %v", a.Spec, a.Cost, len(b.fits), b.totals, fields(actual))
				}
			}
		}
		if len(b.fits) > 1 {
			several++
		}
		if !maps.Equal(fields(stepped), fields(written)) {
			t.Fatalf("one after the other %v\nin one write %v", fields(stepped), fields(written))
		}
	}
	t.Logf("%d writes held, %d of several takes, and %d shadows stayed out of them", held, several, without)
	if held < 2000 || several < 1000 || without < 1000 {
		t.Error("too few")
	}
}

// Of an item of which nothing is known two writes are offered: for one that is
// as good as new, and for one of which a little was taken. At most one of them
// holds, and it means what the takes mean one after the other.
func TestTwoGuesses(t *testing.T) {
	const base = 1_800_000_000 * second
	specs := []*plan.Spec{spec(t, "b", "1/s burst 9"), spec(t, "q", "quota 9/h"), spec(t, "s", "sliding 9/h"), spec(t, "c", "quota 9/hour calendar"), spec(t, "o", "1/h burst 9")}
	r := rand.New(rand.NewPCG(2, 2))
	var held [2]int
	for range 20_000 {
		actual := new(plan.Cells)
		for range r.IntN(6) {
			specs[r.IntN(len(specs))].Step(actual, base-r.Int64N(6*second), 1+r.Int64N(4))
		}
		var pending []*take
		for range 1 + r.IntN(3) {
			tk := &take{}
			for _, i := range r.Perm(len(specs))[:1+r.IntN(2)] {
				tk.asks = append(tk.asks, Ask{Spec: specs[i], Cost: 1 + r.Int64N(3)})
			}
			tk.verdicts = make([]plan.Verdict, len(tk.asks))
			pending = append(pending, tk)
		}
		var b batch
		b.judge(pending, new(plan.Cells), base, maxBatch, false)
		var w plan.Write
		if !b.plan(new(plan.Cells), base, &w) {
			t.Fatal("nothing fits a new item")
		}
		tries := make([]plan.Write, 1, 2)
		tries[0] = w
		if b.orElse(&w, &tries[:2][1], base) {
			tries = tries[:2]
		}
		found := -1
		for i := range tries {
			if !tries[i].Holds(actual, base) {
				continue
			}
			if found >= 0 {
				t.Fatalf("both hold on %v: %+v", fields(actual), tries)
			}
			found = i
		}
		if found < 0 {
			continue
		}
		held[found]++
		stepped, written := new(plan.Cells), new(plan.Cells)
		stepped.CopyFrom(actual)
		written.CopyFrom(actual)
		tries[found].Apply(written, base)
		for _, tk := range b.fits {
			for _, a := range tk.asks {
				if !a.Spec.Step(stepped, base, a.Cost).OK {
					t.Fatalf("over: %s with %d on %v", a.Spec, a.Cost, fields(actual))
				}
			}
		}
		if !maps.Equal(fields(stepped), fields(written)) {
			t.Fatalf("one after the other %v\nin one write %v", fields(stepped), fields(written))
		}
	}
	if held[0] < 1000 || held[1] < 1000 {
		t.Errorf("held %v times", held)
	}
}

// A write names so many limits, and those of shadows without room are among them: once
// each, however many calls ask for them, and not where they stay out altogether.
func TestShadowsOfAWriteAreBounded(t *testing.T) {
	const base, calls = 1_800_000_000 * second, 2 * maxLimits
	var specs, full []*plan.Spec
	known := new(plan.Cells)
	for i := range calls {
		specs = append(specs, spec(t, fmt.Sprint("limit-", i), "quota 100/h"))
		full = append(full, spec(t, fmt.Sprint("shadow-", i), "quota 1/h").Shadow())
		full[i].Step(known, base, 1)
	}
	for _, c := range []struct {
		name  string
		asks  func(i int) (limit int, shadows []*plan.Spec)
		shed  uint64
		fits  int
		lacks int
	}{
		{"a limit and a shadow of each", func(i int) (int, []*plan.Spec) { return i, full[i : i+1] }, 0, maxLimits / 2, maxLimits / 2},
		{"the same limit and shadows", func(int) (int, []*plan.Spec) { return 0, full[1:maxLimits] }, 0, calls, maxLimits - 1},
		{"a limit of each, and shadows that stay out", func(i int) (int, []*plan.Spec) { return i, full[1:maxLimits] }, ^uint64(1), maxLimits, 0},
	} {
		var pending []*take
		for i := range calls {
			limit, shadows := c.asks(i)
			tk := &take{asks: []Ask{{Spec: specs[limit], Cost: 1}}, shed: c.shed}
			for _, s := range shadows {
				tk.asks = append(tk.asks, Ask{Spec: s, Cost: 1, Shadow: true})
			}
			tk.verdicts = make([]plan.Verdict, len(tk.asks))
			pending = append(pending, tk)
		}
		var b batch
		if b.judge(pending, known, base, maxBatch, false); len(b.fits) != c.fits || len(b.lacks) != c.lacks {
			t.Errorf("%s: %d of %d calls in a write that needs %d shadows to be without room", c.name, len(b.fits), calls, len(b.lacks))
		}
	}
}

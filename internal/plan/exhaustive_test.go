package plan

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"
)

// base is the instant around which the grids lie: the start of a window of
// every length that the tests use.
const base = int64(1_800_000_000) * second

// several are the limits of one item, which are taken together or not at all.
type several []*Spec

// step is what taking n from all of them means.
func (l several) step(c *Cells, now, n int64) bool {
	for _, s := range l {
		if !s.Look(c, now, n).OK {
			return false
		}
	}
	for _, s := range l {
		s.Step(c, now, n)
	}
	return true
}

// plan is one write for all of them, or false.
func (l several) plan(known *Cells, now, n int64, w *Write) bool {
	w.Reset()
	for _, s := range l {
		if !s.Plan(known, now, n, w).OK {
			return false
		}
	}
	return true
}

// meaning is what a state means to the limits at a time: every field, however
// it is kept, without the cells of windows that are long over.
func (l several) meaning(c *Cells, now int64) map[Field]int64 {
	m := map[Field]int64{}
	for slot := range c.All() {
		m[slot.Field] = slot.Value
	}
	for f := range m {
		for _, s := range l {
			if f.Kind == Cell|s.shadow && s.Owns(f) && windowStart(f.Window, now) < s.spanAt(now).prev {
				delete(m, f)
			}
		}
	}
	return m
}

// column is a field with the values that it takes in a grid; nil is absent.
type column struct {
	field  Field
	values []any
}

// grid is every combination of the columns' values.
func grid(columns ...column) []*Cells {
	states := []*Cells{{}}
	for _, col := range columns {
		var next []*Cells
		for _, s := range states {
			for _, v := range col.values {
				c := new(Cells)
				c.CopyFrom(s)
				if v != nil {
					c.Set(col.field, v.(int64))
				}
				next = append(next, c)
			}
		}
		states = next
	}
	return states
}

func values(v ...int64) []any {
	out := []any{nil}
	for _, x := range v {
		out = append(out, x)
	}
	return out
}

func in(f Field, window int64) Field {
	f.Window = windowOf(window)
	return f
}

// counts is what a check has looked at, so that a grid that tests nothing is seen.
type counts struct{ states, writes, pairs, held, denied, refused int }

// check is the definition of a sound and complete plan. For every known state,
// the planned write, wherever it holds, does what step does there (sound), and
// it holds on the known state itself unless step denies there (complete). Two
// plans of one take that hold on one state therefore agree on it.
func (l several) check(t *testing.T, states []*Cells, nows, stores, costs []int64) {
	t.Helper()
	var n counts
	n.states = len(states)
	for _, now := range nows {
		for _, cost := range costs {
			writes, refusals := map[string]*Write{}, map[string]*Write{}
			for _, known := range states {
				w := new(Write)
				planned := l.plan(known, now, cost, w)
				after := new(Cells)
				after.CopyFrom(known)
				before := l.meaning(known, now)
				allowed := l.step(after, now, cost)
				if planned != allowed {
					t.Fatalf("plan says %v and step %v: now %d, cost %d, state %v", planned, allowed, now, cost, show(known))
				}
				if !planned {
					n.denied++
					l.tidied(t, known, now, cost)
					if len(l) == 1 && cost <= l[0].most {
						w.Reset()
						l[0].Refuse(known, now, cost, w)
						if !w.Holds(known, now) {
							t.Fatalf("the guards of a refusal do not hold on the state that they were made from: now %d, cost %d, state %v, guards %+v", now, cost, show(known), w.If)
						}
						refusals[fmt.Sprint(w.If)] = w
					}
					if len(l) > 1 && !maps.Equal(before, l.meaning(after, now)) {
						t.Fatalf("a refusal changed the state %v", show(known))
					}
					continue
				}
				if !w.Holds(known, now) {
					t.Fatalf("a plan does not hold on the state that it was made from: now %d, cost %d, state %v, write %+v", now, cost, show(known), w)
				}
				writes[fmt.Sprint(w.If, w.Do)] = w
			}
			n.writes += len(writes)
			for _, w := range refusals {
				for _, skew := range stores {
					for _, actual := range states {
						if !w.Holds(actual, now+skew) {
							continue
						}
						n.refused++
						if l[0].Look(actual, now+skew, cost).OK {
							t.Fatalf("the guards of a refusal hold where step allows: now %d, cost %d, state %v, guards %+v", now+skew, cost, show(actual), w.If)
						}
					}
				}
			}
			for _, w := range writes {
				for _, skew := range stores {
					at := now + skew
					if skew != 0 && absolute(w) {
						continue // a migration is worked out at the known time
					}
					for _, actual := range states {
						n.pairs++
						if w.Holds(actual, at) {
							n.held++
							l.sound(t, actual, at, cost, w)
						}
					}
				}
			}
		}
	}
	t.Logf("%+v", n)
	if n.held == 0 || n.denied == 0 || len(l) == 1 && n.refused < n.denied {
		t.Fatalf("the grid tests nothing: %+v", n)
	}
}

func (l several) sound(t *testing.T, actual *Cells, now, cost int64, w *Write) {
	t.Helper()
	written, stepped := new(Cells), new(Cells)
	written.CopyFrom(actual)
	stepped.CopyFrom(actual)
	w.Apply(written, now)
	if !l.step(stepped, now, cost) {
		t.Fatalf("a write holds where step denies: now %d, cost %d, state %v, write %+v", now, cost, show(actual), w)
	}
	if got, want := l.meaning(written, now), l.meaning(stepped, now); !maps.Equal(got, want) {
		t.Fatalf("a write does not do what step does: now %d, cost %d, state %v\nwrite %+v\ngives %v\nstep  %v", now, cost, show(actual), w, texts(got), texts(want))
	}
}

// tidied checks that what a refusal does under a lock is what the write that
// follows it does in a store.
func (l several) tidied(t *testing.T, known *Cells, now, cost int64) {
	t.Helper()
	for _, s := range l {
		stepped, tidied := new(Cells), new(Cells)
		stepped.CopyFrom(known)
		tidied.CopyFrom(known)
		v := s.Step(stepped, now, cost)
		if v.OK || v.Never {
			continue
		}
		if s.alg == bucket || s.alg == quota {
			early, late := new(Cells), new(Cells)
			early.CopyFrom(stepped)
			late.CopyFrom(stepped)
			if v.Wait <= 0 || s.Step(early, now+v.Wait-1, cost).OK || !s.Step(late, now+v.Wait, cost).OK {
				t.Fatalf("a wait of %d for %d on %v at %d is not the shortest that is enough", v.Wait, cost, show(known), now)
			}
		}
		var w Write
		if s.Tidy(known, now, &w) {
			if !w.Holds(tidied, now) {
				t.Fatalf("a tidying write does not hold on the state that it was made from: %v", show(known))
			}
			w.Apply(tidied, now)
		}
		if a, b := l.meaning(stepped, now), l.meaning(tidied, now); !maps.Equal(a, b) {
			t.Fatalf("a refusal of %d on %v\nleaves %v\nbut a tidying write leaves %v", cost, show(known), texts(a), texts(b))
		}
		if s.alg == bucket || s.alg == quota { // once is enough
			w.Reset()
			if s.Tidy(tidied, now, &w) {
				t.Fatalf("tidied twice: %v", show(tidied))
			}
		}
	}
}

// absolute reports whether a write puts a time that was worked out beforehand.
func absolute(w *Write) bool {
	for _, a := range w.Do {
		if a.Do == Put && !a.Rel && a.Field.Kind&^shadowBit == Arrival {
			return true
		}
	}
	return false
}

func show(c *Cells) map[string]int64 {
	m := map[Field]int64{}
	for slot := range c.All() {
		m[slot.Field] = slot.Value
	}
	return texts(m)
}

func texts(m map[Field]int64) map[string]int64 {
	out := map[string]int64{}
	for f, v := range m {
		out[f.Text()] = v
	}
	return out
}

func parsed(t testing.TB, name, text string) *Spec {
	t.Helper()
	s, err := Parse(text)
	if err == nil && name != "" {
		s, err = s.Named(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bucketGrid has arrivals on and beside every bound, with each of the fields
// that say what they mean absent, of this limit, of another, or no good.
func bucketGrid(s *Spec, now int64, small bool) []*Cells {
	i, d := s.interval, s.depth
	debt := min(d, maxDebt)
	at := []int64{now - d - 1, now - 1, now, now + 1, now + i - 1, now + i, now + i + 1, now + d - i, now + d - i + 1, now + d, now + d + debt + wrongClock, now + d + debt + wrongClock + 1, now + 365*24*3600*second}
	if small {
		at = []int64{now - 1, now, now + 1, now + d - i, now + d - i + 1}
		return grid(
			column{s.field(Arrival), values(at...)},
			column{s.field(Interval), values(i)},
			column{s.field(Depth), values(d)})
	}
	return grid(
		column{s.field(Arrival), values(at...)},
		column{s.field(Interval), values(0, i, 3*i)},
		column{s.field(Depth), values(d, 2*d, math.MaxInt64)},
		column{s.field(Revision), values(s.revision-1, s.revision, s.revision+1)})
}

func TestExhaustiveBucket(t *testing.T) {
	for _, change := range []Change{Keep, Scale, Fresh} {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			s := parsed(t, "", "1/s burst 3").Revised(1, change)
			if change == Scale { // and once as a shadow
				s = s.Shadow()
			}
			several{s}.check(t, bucketGrid(s, base, false), []int64{base}, []int64{0, -second, 1, second}, []int64{1, 2, 3, 4})
		})
	}
}

// A state in one slot and the same state in four slots are one state.
func TestExhaustiveBucketSharedShape(t *testing.T) {
	s := parsed(t, "", "1/s burst 3").Revised(1, Keep)
	other := parsed(t, "", "2/s burst 9").Revised(2, Keep)
	older := parsed(t, "", "2/s burst 9")
	var states []*Cells
	for _, of := range []*Spec{s, other, older} {
		for _, at := range []int64{-1, 0, 1, second, 2*second - 1, 2 * second, 3 * second, 4*second + 1, 1000 * second} {
			shared := new(Cells)
			shared.add(Slot{of.arrival, base + at})
			apart := new(Cells)
			apart.CopyFrom(shared)
			apart.unshare(s.arrival)
			if apart.Len() != 4 || shared.Len() != 1 || fmt.Sprint(show(apart)) != fmt.Sprint(show(shared)) {
				t.Fatalf("%v and %v are not the same state", show(apart), show(shared))
			}
			states = append(states, shared, apart)
		}
	}
	several{s}.check(t, states, []int64{base}, []int64{0, -1, 1}, []int64{1, 2, 3})

	// Step does the same to both, whatever it is.
	for i := 0; i < len(states); i += 2 {
		for cost := int64(1); cost < 5; cost++ {
			a, b := new(Cells), new(Cells)
			a.CopyFrom(states[i])
			b.CopyFrom(states[i+1])
			va, vb := s.Step(a, base, cost), s.Step(b, base, cost)
			if va != vb || !maps.Equal(several{s}.meaning(a, base), several{s}.meaning(b, base)) {
				t.Fatalf("cost %d on %v: %+v and %v, in four slots %+v and %v", cost, show(states[i]), va, show(a), vb, show(b))
			}
		}
	}
}

func TestExhaustiveQuota(t *testing.T) {
	s := parsed(t, "", "quota 3/10s")
	p := 10 * second
	for _, s := range []*Spec{s, s.Shadow()} {
		states := grid(
			column{s.field(Start), values(base-p-1, base-p, base-p+1, base-1, base, base+wrongClock, base+wrongClock+1, base+100*p)},
			column{s.field(Count), values(-1, 0, 1, 2, 3, 4, 6)})
		several{s}.check(t, states, []int64{base - 1, base, base + 1}, []int64{0, -second, 1, p}, []int64{1, 2, 3, 4})
	}
}

func TestExhaustiveCalendar(t *testing.T) {
	s := parsed(t, "", "quota 3/minute calendar Europe/Berlin")
	p := 60 * second
	for _, s := range []*Spec{s, s.Shadow()} {
		states := grid(
			column{in(s.field(Cell), base-2*p), values(3)},
			column{in(s.field(Cell), base-p), values(-1, 0, 3)},
			column{in(s.field(Cell), base), values(math.MinInt64, -1, 0, 1, 2, 3, 6)},
			column{in(s.field(Cell), base+p), values(-2, 1, 3)})
		several{s}.check(t, states, []int64{base, base + 1, base + p - 1, base + p}, []int64{0, -1, 1, p}, []int64{1, 2, 3, 4})
	}
}

func TestExhaustiveBilling(t *testing.T) {
	s, err := parsed(t, "", "quota 3/month billing").Anchored(time.Unix(0, base))
	if err != nil {
		t.Fatal(err)
	}
	sp := s.spanAt(base)
	states := grid(
		column{in(s.field(Cell), sp.prev), values(0, 3)},
		column{in(s.field(Cell), base), values(math.MinInt64, -1, 0, 1, 2, 3, 6)},
		column{in(s.field(Cell), sp.end), values(-2, 1, 3)})
	several{s}.check(t, states, []int64{base, base + 1, sp.end - 1, sp.end}, []int64{0, -1, 1}, []int64{1, 2, 3, 4})
}

func TestExhaustiveSliding(t *testing.T) {
	s := parsed(t, "", "sliding 4/10s")
	p := 10 * second
	for _, s := range []*Spec{s, s.Shadow()} {
		states := grid(
			column{in(s.field(Cell), base-2*p), values(4)},
			column{in(s.field(Cell), base-p), values(-3, 0, 1, 2, 3, 4, 8)},
			column{in(s.field(Cell), base), values(math.MinInt64, -1, 0, 1, 2, 3, 4, 8)},
			column{in(s.field(Cell), base+p), values(-2, 2)})
		nows := []int64{base, base + 1, base + p/4 - 1, base + p/4, base + p/4 + 1, base + p/2, base + p - 1, base + p}
		several{s}.check(t, states, nows, []int64{0, -1, 1, p / 4, p}, []int64{1, 2, 4, 5})
	}
}

// Limits that share an item are one write: joined guards, joined actions.
func TestExhaustiveProducts(t *testing.T) {
	bucket := parsed(t, "b", "1/s burst 3")
	quota := parsed(t, "q", "quota 2/10s")
	calendar := parsed(t, "c", "quota 2/minute calendar")
	sliding := parsed(t, "s", "sliding 2/10s")
	fields := func(l several) (states []*Cells) {
		states = []*Cells{{}}
		for _, s := range l {
			var part []*Cells
			switch {
			case s.alg == bucketAlg:
				part = bucketGrid(s, base, true)
			case s.name == "q":
				part = grid(column{s.field(Start), values(base-10*second, base-1)}, column{s.field(Count), values(0, 1, 2)})
			case s.name == "c":
				part = grid(column{in(s.field(Cell), base-60*second), values(2)}, column{in(s.field(Cell), base), values(1, 2)})
			default:
				part = grid(column{in(s.field(Cell), base-10*second), values(1, 2)}, column{in(s.field(Cell), base), values(1, 2)})
			}
			var next []*Cells
			for _, a := range states {
				for _, b := range part {
					c := new(Cells)
					c.CopyFrom(a)
					for slot := range b.All() {
						c.Set(slot.Field, slot.Value)
					}
					next = append(next, c)
				}
			}
			states = next
		}
		return states
	}
	for _, l := range []several{
		{bucket, quota}, {bucket, calendar}, {bucket, sliding}, {quota, calendar}, {quota, sliding}, {calendar, sliding},
		{quota, quota.Shadow()}, {calendar, calendar.Shadow()}, {sliding, sliding.Shadow()}, {quota, calendar, sliding},
	} {
		t.Run(fmt.Sprint(len(l), l[0].name, l[1].name), func(t *testing.T) {
			l.check(t, fields(l), []int64{base, base + 5*second}, []int64{0, 1}, []int64{1, 2})
		})
	}
}

const bucketAlg = bucket

// A shadow has a balance of its own: neither touches the other's fields.
func TestShadowKeepsApart(t *testing.T) {
	for _, text := range []string{"1/s burst 3", "quota 3/10s", "quota 3/minute calendar", "sliding 3/10s"} {
		s := parsed(t, "", text)
		var alone, both Cells
		for n := range int64(6) {
			now := base + n*second
			s.Step(&alone, now, 1)
			s.Step(&both, now, 1)
			s.Shadow().Step(&both, now, 2)
		}
		own := map[Field]int64{}
		for slot := range both.All() {
			if slot.Field.Kind&shadowBit == 0 {
				own[slot.Field] = slot.Value
			}
		}
		want := map[Field]int64{}
		for slot := range alone.All() {
			want[slot.Field] = slot.Value
		}
		if !maps.Equal(own, want) || both.Len() <= alone.Len() {
			t.Errorf("%s: %v with a shadow beside it, %v alone", text, texts(own), texts(want))
		}
	}
}

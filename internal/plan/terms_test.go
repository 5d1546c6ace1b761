package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func noticed(t testing.TB, s *Spec, percent ...int) *Spec {
	t.Helper()
	s, err := s.Noticed(percent...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func metered(t testing.TB, s *Spec) *Spec {
	t.Helper()
	s, err := s.Metered()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A write that sets a mark, or that must not pass one unseen, does what step
// does on every state on which it holds.
func TestExhaustiveMarks(t *testing.T) {
	p := 10 * second
	plain := parsed(t, "m", "quota 4/10s")
	for _, s := range []*Spec{noticed(t, plain, 50, 100), noticed(t, plain, 75, 100).Shadow(), noticed(t, metered(t, plain), 50, 100), noticed(t, plain, 50, 100).Quiet()} {
		states := grid(
			column{s.field(Start), values(base-p-1, base-p, base-1, base+wrongClock+1)},
			column{s.field(Count), values(0, 1, 2, 3, 4, 5, 8)},
			column{s.toldField(0), values(50, 75, 100)})
		check := several{s}.check
		if s.most > s.max { // it denies nothing but what is beyond all bounds
			check = func(t *testing.T, states []*Cells, nows, stores, costs []int64) {
				several{s}.check(t, states, nows, stores, append(costs, maxCount))
			}
		}
		check(t, states, []int64{base - 1, base, base + 1}, []int64{0, -second, 1, p}, []int64{1, 2, 3, 5})
	}
	p = 60 * second
	aligned := parsed(t, "m", "quota 4/minute calendar Europe/Berlin")
	for _, s := range []*Spec{noticed(t, aligned, 50, 75, 100), noticed(t, aligned, 80, 100).Shadow(), noticed(t, metered(t, aligned), 50, 100), noticed(t, aligned, 80, 100).Shadow().Quiet()} {
		told := s.toldField(0)
		states := grid(
			column{in(s.field(Cell), base-2*p), values(3)},
			column{in(told, base-2*p), values(100)},
			column{in(told, base-p), values(50)},
			column{in(s.field(Cell), base), values(0, 1, 2, 3, 4, 6)},
			column{in(told, base), values(50, 75, 80, 100)})
		several{s}.check(t, states, []int64{base, base + p - 1}, []int64{0, -1, 1, p}, []int64{1, 2, 4, maxCount})
	}
}

// However takes, give-backs and settlements of several processes with stale
// knowledge meet, every window tells of each mark at most once, and of the
// highest one that was ever reached at the end of a write.
func TestMarksAreToldOnce(t *testing.T) {
	const worlds, steps = 400, 300
	for _, text := range []string{"quota 10/7s", "quota 10/5s calendar"} {
		for seed := range uint64(worlds) {
			r := rand.New(rand.NewPCG(seed, 17))
			s := noticed(t, parsed(t, "told", text), 80, 100)
			var c Cells
			now := base
			knowledge := []Cells{{}, {}, {}}
			told := map[int64][]int64{} // by the stamp of the window
			highest := map[int64]int64{}
			var stamps []int64
			for range steps {
				k := &knowledge[r.IntN(len(knowledge))]
				if r.IntN(4) == 0 {
					k.CopyFrom(&c)
				}
				switch x := r.IntN(10); {
				case x == 0:
					now += r.Int64N(2 * second)
				case x == 1 && len(stamps) > 0:
					var w Write
					stamp := stamps[r.IntN(len(stamps))]
					if s.GiveBack(&c, now, 1+r.Int64N(3), stamp, &w) && w.Holds(&c, now) {
						w.Apply(&c, now)
						if s.Look(&c, now, 1).Used == 0 && s.alg == quota {
							delete(told, stamp) // that window begins anew
							delete(highest, stamp)
						}
					}
				case x == 2 && len(stamps) > 0:
					var w Write
					stamp, n := stamps[r.IntN(len(stamps))], 1+r.Int64N(4)
					if s.Charge(k, now, n, stamp, &w) {
						mark, _ := s.Mark(k, now, n, 0, &w)
						if w.Holds(&c, now) {
							w.Apply(&c, now)
							note(told, highest, s, &c, now, stamp, mark)
						}
					}
				default:
					var w Write
					if v := s.Plan(k, now, 1+r.Int64N(3), &w); v.OK && w.Holds(&c, now) {
						w.Apply(&c, now)
						stamp := s.Look(&c, now, 1).Stamp
						stamps = append(stamps, stamp)
						note(told, highest, s, &c, now, stamp, v.Notice)
					}
				}
			}
			for stamp, marks := range told {
				if !slices.IsSorted(marks) || len(slices.Compact(slices.Clone(marks))) != len(marks) {
					t.Fatalf("seed %d: %s told of %v in one window", seed, text, marks)
				}
				if want := highest[stamp]; want > 0 && marks[len(marks)-1] != want {
					t.Fatalf("seed %d: %s told of %v and reached %d%%", seed, text, marks, want)
				}
			}
			for stamp, mark := range highest {
				if mark > 0 && len(told[stamp]) == 0 {
					t.Fatalf("seed %d: %s reached %d%% and told nobody", seed, text, mark)
				}
			}
		}
	}
}

func note(told map[int64][]int64, highest map[int64]int64, s *Spec, c *Cells, now, stamp, mark int64) {
	if mark > 0 {
		told[stamp] = append(told[stamp], mark)
	}
	v := s.Look(c, now, 1)
	if v.Stamp != stamp {
		return // an older window
	}
	if reached, _ := s.marks.reached(v.Used, 0); reached > highest[stamp] {
		highest[stamp] = reached
	}
}

func TestTermsRefuse(t *testing.T) {
	bucket, quota, sliding := parsed(t, "", "2/s burst 10"), parsed(t, "", "quota 10/day"), parsed(t, "", "sliding 10/m")
	for name, c := range map[string]struct {
		err  func() error
		says string
	}{
		"metered bucket":  {func() error { _, err := bucket.Metered(); return err }, "only a quota"},
		"metered sliding": {func() error { _, err := sliding.Metered(); return err }, "only a quota"},
		"marked bucket":   {func() error { _, err := bucket.Noticed(80); return err }, "only a quota"},
		"mark at 0":       {func() error { _, err := quota.Noticed(0); return err }, "from 1 to 100"},
		"mark at 101":     {func() error { _, err := quota.Noticed(80, 101); return err }, "from 1 to 100"},
		"bucket's debt":   {func() error { _, err := bucket.WithDebt(11); return err }, "from 0 to 10"},
		"window's debt":   {func() error { _, err := quota.WithDebt(-1); return err }, "from 0 to 10"},
	} {
		if err := c.err(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// A settled cost goes into debt down to the floor that was declared.
func TestDebtEndsAtItsFloor(t *testing.T) {
	for _, text := range []string{"2/s burst 10", "quota 10/day", "quota 10/day calendar", "sliding 10/minute"} {
		for _, debt := range []int64{-1, 0, 3, 10} {
			t.Run(fmt.Sprint(text, debt), func(t *testing.T) {
				s, want := parsed(t, "", text), int64(20)
				if debt >= 0 {
					var err error
					if s, err = s.WithDebt(debt); err != nil {
						t.Fatal(err)
					}
					want = 10 + debt
				}
				var c Cells
				now := base
				v := s.Step(&c, now, 4)
				for _, more := range []int64{3, 100, 1} { // step by step, beyond the floor, and then nothing
					var w Write
					if s.Charge(&c, now, more, v.Stamp, &w) {
						if !w.Holds(&c, now) {
							t.Fatal("a charge does not hold on the state that it was made from")
						}
						w.Apply(&c, now)
					}
				}
				if got := s.Look(&c, now, 1).Used; got != want {
					t.Errorf("used %d, want %d", got, want)
				}
			})
		}
	}
}

// The field of a mark is read back by its text, and dies with its window.
func TestMarksHaveFields(t *testing.T) {
	for _, text := range []string{"quota 2/day", "quota 2/day calendar Asia/Tokyo"} {
		s := noticed(t, parsed(t, "orders.quota-day", text), 50, 100)
		for _, s := range []*Spec{s, s.Shadow()} {
			var c Cells
			if v := s.Step(&c, base, 1); v.Notice != 50 {
				t.Fatalf("%s: notice %d", text, v.Notice)
			}
			fields := 0
			for slot := range c.All() {
				fields++
				if f, ok := ParseField(slot.Field.Text()); !ok || f != slot.Field {
					t.Errorf("%s is read back as %v, %v", slot.Field.Text(), f, ok)
				}
			}
			if want := 2 + btoi(s.alg == quota); fields != want {
				t.Errorf("%s: %d fields, want %d: %v", text, fields, want, show(&c))
			}
			later := base + int64(10*24*time.Hour)
			s.Step(&c, later, 1)
			if got := c.Len(); got != fields {
				t.Errorf("%s: %d fields in a later window: %v", text, got, show(&c))
			}
			for slot := range c.All() {
				if !s.Owns(slot.Field) {
					t.Errorf("%s does not own %s", text, slot.Field.Text())
				}
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

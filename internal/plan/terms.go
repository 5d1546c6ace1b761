package plan

import (
	"fmt"
	"slices"
	"time"
)

// Terms that a limit may have beside its grammar: a quota that refuses nothing
// and counts on, how deep a settled cost may go into debt, and the marks at
// which somebody is told.

// Metered is the same quota that refuses nothing: what is used beyond its count
// is counted on, so that it can be charged for.
func (s *Spec) Metered() (*Spec, error) {
	if !s.IsQuota() {
		return nil, fmt.Errorf("limit %q cannot count beyond itself: only a quota can, since a rate has no period to charge for", s.text)
	}
	t := s.copy()
	t.most = maxCount
	t.pair()
	return t, nil
}

// Most is the largest cost that can ever be taken at once: Max, but of a
// metered quota.
func (s *Spec) Most() int64 { return s.most }

// WithDebt is the same limit that a settled cost may take below zero by at most
// units, instead of by the capacity or an hour's refill of a bucket, whichever
// is less, and by the count of a window.
func (s *Spec) WithDebt(units int64) (*Spec, error) {
	most := s.max
	if s.alg == bucket {
		most = min(s.depth, maxDebt) / s.interval
	}
	if units < 0 || units > most {
		return nil, fmt.Errorf("limit %q cannot owe %d units: from 0 to %d are possible", s.text, units, most)
	}
	t := s.copy()
	t.owes, t.bounded = units, true
	t.pair()
	return t, nil
}

// Debt is how many units a settled cost may take the limit below zero.
func (s *Spec) Debt() int64 {
	if s.alg == bucket {
		return (s.floorOf(s.depth, s.interval) - s.depth) / s.interval
	}
	return s.floor() - s.max
}

// floorOf is the level down to which a bucket of this depth and interval may owe.
func (s *Spec) floorOf(depth, interval int64) int64 {
	debt := min(depth, maxDebt)
	if s.bounded {
		debt = min(debt, mulDiv(s.owes, interval, 1))
	}
	return depth + debt
}

// floor is the count up to which a settled cost may take a window.
func (s *Spec) floor() int64 {
	switch {
	case s.most > s.max:
		return s.most
	case s.bounded:
		return s.max + s.owes
	}
	return 2 * s.max
}

// marks are the parts of a quota at which somebody is told, once a window. The
// highest that was told of stands in a field of its own, which is set by the very
// write that reaches it:
//
//	below   [ c <= next-1-n, told >= v ]                ->  c += n
//	reaches [ mark-n <= c <= next-1-n, told < mark ]    ->  c += n, told := mark
//
// where v is what is known to be told and next the mark above. However many
// processes take, one write of a window reaches a mark.
type marks struct {
	percent []int64 // rising, from 1 to 100
	units   []int64 // the counts at which they are reached
	id      ID      // of the field
}

// toldMark ends the name of the field of marks. No limit's name can hold it.
const toldMark = "%"

// Noticed is the same quota with marks at these percentages of its count.
func (s *Spec) Noticed(percent ...int) (*Spec, error) {
	if !s.IsQuota() {
		return nil, fmt.Errorf("limit %q has no marks: only a quota has, since a rate has no period to tell of once", s.text)
	}
	m := &marks{}
	slices.Sort(percent)
	for _, p := range percent {
		if p < 1 || p > 100 {
			return nil, fmt.Errorf("limit %q: a mark at %d%% is none: they are from 1 to 100", s.text, p)
		}
		units := mulDivUp(s.max, int64(p), 100)
		if n := len(m.units); n > 0 && m.units[n-1] == units {
			m.percent[n-1] = int64(p) // of a small quota: one call reaches both
			continue
		}
		m.percent, m.units = append(m.percent, int64(p)), append(m.units, units)
	}
	t := s.copy()
	if t.marks = m; len(m.percent) == 0 {
		t.marks = nil
	}
	if err := t.fields(); err != nil {
		return nil, err
	}
	t.pair()
	return t, nil
}

// alike reports whether two limits have the same marks.
func (m *marks) alike(o *marks) bool {
	if m == nil || o == nil {
		return m == o
	}
	return slices.Equal(m.percent, o.percent) && slices.Equal(m.units, o.units)
}

// reached is the highest mark at a count, and the count of the next one above
// what is told; 0 stands for none.
func (m *marks) reached(count, told int64) (mark, next int64) {
	for i, at := range m.units {
		if count >= at {
			mark = m.percent[i]
		}
		if next == 0 && m.percent[i] > max(mark, told) {
			next = at
		}
	}
	return mark, next
}

// toldField is the field of the window's mark: named by the window as the count
// is, or beside a window's start.
func (s *Spec) toldField(window uint32) Field {
	f := Field{Limit: s.marks.id, Kind: Count | s.shadow}
	if s.alg != quota {
		f.Kind, f.Window = Cell|s.shadow, window
	}
	return f
}

// tell sets the mark in place, and returns it when this take is the one that
// reached it. fresh says that a window has just begun.
func (s *Spec) tell(c *Cells, window uint32, after int64, fresh bool) int64 {
	if s.marks == nil {
		return 0
	}
	f := s.toldField(window)
	if fresh {
		c.Drop(f)
	}
	told, _ := c.Get(f)
	mark, _ := s.marks.reached(after, told)
	if mark <= told {
		return 0
	}
	c.Set(f, mark)
	return mark
}

// planTell appends what tell does, for a take of n units that brings counter
// from what is known to after. A window that the write begins has no counter to
// guard: its own guards say that there was none.
func (s *Spec) planTell(known *Cells, counter Field, after, n int64, fresh bool, w *Write) int64 {
	if s.marks == nil {
		return 0
	}
	f := s.toldField(counter.Window)
	if fresh && s.alg == quota {
		mark, _ := s.marks.reached(after, 0)
		if mark == 0 {
			w.Do = append(w.Do, Act{Field: f, Do: Remove})
			return 0
		}
		w.Do = append(w.Do, Act{Field: f, Do: Put, Value: mark})
		return mark
	}
	told := int64(0)
	if known != nil {
		told, _ = known.Get(f)
	}
	mark, next := s.marks.reached(after, told)
	if next > 0 {
		w.If = append(w.If, Cond{Field: counter, Cmp: AtMost, Value: next - 1 - n, OrAbsent: true})
	}
	if mark <= told {
		if told > 0 {
			w.If = append(w.If, Cond{Field: f, Cmp: AtLeast, Value: told})
		}
		return 0
	}
	at := s.marks.units[slices.Index(s.marks.percent, mark)]
	if at > n {
		w.If = append(w.If, Cond{Field: counter, Cmp: AtLeast, Value: at - n})
	}
	w.If = append(w.If, Cond{Field: f, Cmp: AtMost, Value: mark - 1, OrAbsent: true})
	w.Do = append(w.Do, Act{Field: f, Do: Put, Value: mark})
	return mark
}

// Tell appends, to a Charge that has something to charge, the mark that it
// reaches, and returns it; 0 for none.
func (s *Spec) Tell(known *Cells, n, stamp int64, w *Write) int64 {
	if s.marks == nil {
		return 0
	}
	counter := s.field(Count)
	if s.alg != quota {
		counter = s.field(Cell)
		counter.Window = windowOf(stamp)
	}
	count := int64(0)
	if known != nil {
		count = max(read(known, counter).v, 0)
	}
	floor := s.floor()
	n = min(n, floor)
	return s.planTell(known, counter, min(count+n, floor), n, false, w)
}

// keeps reports whether a field is this limit's: a counter, or a mark told of.
func (s *Spec) keeps(f Field) bool {
	return f.Kind&shadowBit == s.shadow && (f.Limit == s.id || s.marks != nil && f.Limit == s.marks.id)
}

// Location is the zone by whose calendar the windows go, or nil.
func (s *Spec) Location() *time.Location {
	if s.alg != calendar {
		return nil
	}
	return s.loc
}

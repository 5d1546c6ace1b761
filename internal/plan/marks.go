package plan

import (
	"fmt"
	"slices"
)

// marks are the parts of a quota at which somebody is told, once a window. The
// highest that was told of stands in a field of its own, which is set by the very
// write that reaches it:
//
//	below   [ c <= next-1-n, told >= v ]                ->  c += n
//	reaches [ mark-n <= c <= next-1-n, told < mark ]    ->  c += n, told := mark
//
// where v is what is known to be told and next the mark above. However many
// processes take, one write of a window reaches a mark.
//
// That is for takes that stay. What a call takes that may yet give it back is
// taken by a quiet limit, which sets no mark; the write that settles the call sets
// it, for what is counted then beside the units o of calls that are still open:
//
//	settles [ mark+o-n <= c <= next-1+o-n, told < mark ]   ->  c += n, told := mark
//
// No mark is missed. Of all calls that stay, let one be the last that was taken:
// when it was, all others were counted, so its process has seen a count that
// reaches the mark, and each settlement there looks at the last count seen.
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
	if s.silent {
		return 0
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
		if mark == 0 || s.silent {
			w.Do = append(w.Do, Act{Field: f, Do: Remove})
			return 0
		}
		w.Do = append(w.Do, Act{Field: f, Do: Put, Value: mark})
		return mark
	}
	if s.silent {
		return 0
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

// hush makes the limit's quiet one.
func (s *Spec) hush() {
	s.quiet = s
	if s.marks == nil {
		return
	}
	q := s.copy()
	q.silent = true
	q.shape()
	q.quiet, q.twin = q, s.twin
	s.quiet = q
}

// Quiet is the same limit, with the same counters, whose takes reach no mark: that
// of calls which may yet give back what they take. [Spec.Mark] looks for it when
// they are settled.
func (s *Spec) Quiet() *Spec { return s.quiet }

// HasMarks reports whether somebody is told of marks.
func (s *Spec) HasMarks() bool { return s.marks != nil }

// Mark appends the mark that is reached by what stays counted in the window that
// runs now: when a write changes the count by change units (which Charge or
// GiveBack have appended; 0 when it stays), and open units of what is counted are
// those of calls that may yet give them back. It returns the mark, 0 for none, and
// the units by which it is reached. With known nil, nothing is known of the item.
func (s *Spec) Mark(known *Cells, now, change, open int64, w *Write) (mark, units int64) {
	if s.marks == nil {
		return 0, 0
	}
	counter, start, count := s.field(Count), Stored{}, int64(0)
	switch {
	case s.alg != quota:
		counter = s.field(Cell)
		counter.Window = windowOf(s.spanAt(now).start)
		if known != nil {
			count = max(read(known, counter).v, 0)
		}
	case known != nil:
		var c Stored
		var running bool
		if start, c, running, _ = s.quotaAt(known, now); !running && change <= 0 {
			return 0, 0
		}
		count = max(c.v, 0)
	}
	change = min(change, s.floor())
	units = min(count+change, s.floor()) - open
	if change <= 0 {
		told := int64(0)
		if known != nil {
			told, _ = known.Get(s.toldField(counter.Window))
		}
		if mark, _ = s.marks.reached(units, told); mark <= told {
			return 0, 0
		}
		if s.alg == quota && change == 0 {
			w.If = append(w.If, Cond{Field: s.field(Start), Cmp: Equal, Value: start.v})
		}
	}
	return s.planTell(known, counter, units, change-open, false, w), units
}

// Unmark appends what takes back a mark that was reached by a take of which
// nobody hears, so that the next one tells of it. It reports whether it is there.
func (s *Spec) Unmark(known *Cells, now, mark int64, w *Write) bool {
	f := s.toldField(0)
	if s.alg != quota {
		f = s.toldField(windowOf(s.spanAt(now).start))
	}
	if known != nil {
		if told, _ := known.Get(f); told != mark {
			return false
		}
	}
	w.If = append(w.If, Cond{Field: f, Cmp: Equal, Value: mark})
	below := slices.Index(s.marks.percent, mark) - 1
	if below < 0 {
		w.Do = append(w.Do, Act{Field: f, Do: Remove})
	} else {
		w.Do = append(w.Do, Act{Field: f, Do: Put, Value: s.marks.percent[below]})
	}
	return true
}

// Counted is what a state holds of the window that a take's stamp names, in units.
// It is that of a quota; 0 when that window means nothing any more.
func (s *Spec) Counted(c *Cells, stamp int64) int64 {
	if s.alg != quota {
		f := s.field(Cell)
		f.Window = windowOf(stamp)
		return max(read(c, f).v, 0)
	}
	if start := read(c, s.field(Start)); !start.ok || start.v != stamp {
		return 0
	}
	return max(read(c, s.field(Count)).v, 0)
}

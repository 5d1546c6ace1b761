package plan

import "time"

// Cmp is how a guard compares a field with a constant.
type Cmp uint8

// The comparisons that a guard may use.
const (
	AtMost  Cmp = iota + 1 // field <= constant
	Above                  // field > constant
	AtLeast                // field >= constant
	Equal                  // field = constant
)

// Cond is one guard: a field compared with a constant.
type Cond struct {
	Field    Field
	Value    int64
	Cmp      Cmp
	OrAbsent bool // an absent field satisfies the guard; without it, it never does
	Rel      bool // Value is relative to the store's now
}

// Do is what an action does with its field.
type Do uint8

// The actions. Add to an absent field starts from zero.
const (
	Put Do = iota + 1
	Add
	Remove
)

// Act changes one field.
type Act struct {
	Field Field
	Value int64
	Do    Do
	Rel   bool // Value is relative to the store's now; Put only
}

// Write is one guarded update of one item: if every guard holds, all actions
// happen, in one atomic step. Different actions touch different fields, and
// guards see the item as it was before.
type Write struct {
	If []Cond
	Do []Act

	// Nonce, when not 0, names this very write among all writes of all
	// processes. A store with lossy replies keeps the last four nonces of an
	// item and reports a write as applied when its nonce is among them.
	Nonce uint64

	// Keep is how long the item may still matter: a store may delete it when
	// nothing was written for that long. Rounded up to whole seconds where a
	// store counts in seconds.
	Keep time.Duration
}

// Reset empties the write and keeps its memory.
func (w *Write) Reset() { *w = Write{If: w.If[:0], Do: w.Do[:0]} }

// keepFor raises Keep for a newer policy's bucket, of which this process's
// limits know nothing: the item must outlive it here too.
func (w *Write) keepFor(depth int64) {
	w.Keep = max(w.Keep, time.Duration(depth+maxDebt))
}

// Freeze lets the write judge by the time of its plan whether a bucket was full.
// A bucket that other writers keep near full crosses now in one direction, then
// the other, and a write that is judged by a later now than it was planned at may
// fail each time; one that holds on to that time does not. It counts as made
// then: the limit may let through as much more as refills in between, once. How
// much is left is still judged by the store's now.
func (w *Write) Freeze(now int64) {
	for i := range w.If {
		if g := &w.If[i]; g.Rel && g.Cmp == Above && g.Value == 0 {
			g.Value, g.Rel = now, false
		}
	}
}

// Holds reports whether every guard holds on a state at the store's time.
func (w *Write) Holds(c *Cells, now int64) bool {
	for i := range w.If {
		g := &w.If[i]
		want := g.Value
		if g.Rel {
			want = addSat(now, want)
		}
		v, ok := now, true
		if g.Field.Kind != Clock {
			v, ok = c.Get(g.Field)
		}
		if !ok {
			if g.OrAbsent {
				continue
			}
			return false
		}
		switch g.Cmp {
		case AtMost:
			ok = v <= want
		case Above:
			ok = v > want
		case AtLeast:
			ok = v >= want
		case Equal:
			ok = v == want
		}
		if !ok {
			return false
		}
	}
	return true
}

// Apply performs the actions on a state, without looking at the guards.
func (w *Write) Apply(c *Cells, now int64) {
	for i := range w.Do {
		a := &w.Do[i]
		v := a.Value
		switch a.Do {
		case Put:
			if a.Rel {
				v = addSat(now, v)
			}
			c.Set(a.Field, v)
		case Add:
			old, _ := c.Get(a.Field)
			c.Set(a.Field, addSat(old, v))
		case Remove:
			c.Drop(a.Field)
		}
	}
}

// Caps says what a store can and cannot do.
type Caps struct {
	// OwnClock: the store's now is one clock for all its clients. Without it
	// the now is the calling machine's.
	OwnClock bool
	// LossyReplies: a write may be applied although its reply was lost, so
	// writes need a nonce.
	LossyReplies bool
	// MaxKeep is the longest time for which the store keeps an item that is
	// not written; 0 is for ever. Limits with a longer horizon are refused.
	MaxKeep time.Duration
	// Gap is the time that the store wants between two writes of a crowd to one
	// item, so that the second is fuller for it: where writes cost money, or an
	// item takes only so many a second. 0 is none; calls that arrive while a
	// write is under way share the next one all the same, which may then wait for
	// the rest of its crowd, 2 ms at most, unless the store is a Gatherer.
	Gap time.Duration
}

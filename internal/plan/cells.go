package plan

import "iter"

// Cells is the state of one item: the balances of every limit that shares it.
// The first slot is inline, so that the common item, one bucket, is one object.
// The zero value is an item without state. Not safe for concurrent use.
//
// A store in this process keeps a bucket as a single slot: Field.Window of an
// Arrival then points to the interval, depth and revision, which many items
// share. Get and Set hide that.
type Cells struct {
	first Slot
	more  []Slot
}

// Get returns the value of a field, and whether the item has it.
func (c *Cells) Get(f Field) (int64, bool) {
	switch f.Kind &^ shadowBit {
	case Arrival:
		if s := c.bucket(f.Limit, f.Kind); s != nil {
			return s.Value, true
		}
		return 0, false
	case Interval, Depth, Revision:
		if s := c.bucket(f.Limit, Arrival|f.Kind&shadowBit); s != nil && s.Field.Window != 0 {
			return shapeAt(s.Field.Window).get(f.Kind), true
		}
	}
	if s := c.slot(f); s != nil {
		return s.Value, true
	}
	return 0, false
}

// Set gives a field a value.
func (c *Cells) Set(f Field, v int64) {
	switch f.Kind &^ shadowBit {
	case Arrival:
		if s := c.bucket(f.Limit, f.Kind); s != nil {
			s.Value = v
			return
		}
	case Interval, Depth, Revision:
		c.unshare(f)
	}
	if s := c.slot(f); s != nil {
		s.Value = v
		return
	}
	c.add(Slot{f, v})
}

// Drop removes a field.
func (c *Cells) Drop(f Field) {
	switch f.Kind &^ shadowBit {
	case Arrival:
		c.unshare(f)
		f.Window = 0
	case Interval, Depth, Revision:
		c.unshare(f)
	}
	if s := c.slot(f); s != nil {
		c.remove(s)
	}
}

// Empty reports whether no slot is in use.
func (c *Cells) Empty() bool { return c.first.Field.Kind == 0 }

// Len is the number of slots in use.
func (c *Cells) Len() int {
	if c.Empty() {
		return 0
	}
	return 1 + len(c.more)
}

// Reset empties the item and keeps its memory.
func (c *Cells) Reset() {
	c.first = Slot{}
	c.more = c.more[:0]
}

// CopyFrom makes c an independent copy of o.
func (c *Cells) CopyFrom(o *Cells) {
	c.first = o.first
	c.more = append(c.more[:0], o.more...)
}

// All yields every field, those of a shared shape too, in no particular order.
func (c *Cells) All() iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for i := range c.Len() {
			s := *c.at(i)
			if s.Field.Kind&^shadowBit == Arrival && s.Field.Window != 0 {
				sh := shapeAt(s.Field.Window)
				s.Field.Window = 0
				for _, k := range [...]Kind{Interval, Depth, Revision} {
					if !yield(Slot{Field{Limit: s.Field.Limit, Kind: k | s.Field.Kind&shadowBit}, sh.get(k)}) {
						return
					}
				}
			}
			if !yield(s) {
				return
			}
		}
	}
}

// IdleAt is the time from which no limit of the item remembers anything:
// dropping the item then changes no decision. It is 0 for an empty item.
func (c *Cells) IdleAt(now int64) int64 {
	at := int64(0)
	for i := range c.Len() {
		s := c.at(i)
		switch s.Field.Kind &^ shadowBit {
		case Arrival:
			at = max(at, s.Value)
		case Start:
			at = max(at, addSat(s.Value, identityOf(s.Field.Limit).horizon))
		case Cell:
			at = max(at, addSat(windowStart(s.Field.Window, now), identityOf(s.Field.Limit).horizon))
		}
	}
	return at
}

// Extra is the memory that the item holds beside the Cells themselves, in bytes.
func (c *Cells) Extra() int { return cap(c.more) * 16 }

func (s shape) get(k Kind) int64 {
	switch k &^ shadowBit {
	case Interval:
		return s.interval
	case Depth:
		return s.depth
	}
	return s.revision
}

func (c *Cells) at(i int) *Slot {
	if i == 0 {
		return &c.first
	}
	return &c.more[i-1]
}

// slot finds the slot of exactly this field, or nil.
func (c *Cells) slot(f Field) *Slot {
	if c.first.Field == f {
		return &c.first
	}
	for i := range c.more {
		if c.more[i].Field == f {
			return &c.more[i]
		}
	}
	return nil
}

// bucket finds an Arrival whatever its shape.
func (c *Cells) bucket(id ID, arrival Kind) *Slot {
	for i := range c.Len() {
		if s := c.at(i); s.Field.Limit == id && s.Field.Kind == arrival {
			return s
		}
	}
	return nil
}

// unshare replaces the shared shape of f's bucket by fields of its own.
func (c *Cells) unshare(f Field) {
	shadow := f.Kind & shadowBit
	s := c.bucket(f.Limit, Arrival|shadow)
	if s == nil || s.Field.Window == 0 {
		return
	}
	sh := shapeAt(s.Field.Window)
	s.Field.Window = 0
	for _, k := range [...]Kind{Interval, Depth, Revision} {
		c.add(Slot{Field{Limit: f.Limit, Kind: k | shadow}, sh.get(k)})
	}
}

// add appends a field that the item does not have.
func (c *Cells) add(s Slot) {
	if c.first.Field.Kind == 0 {
		c.first = s
		return
	}
	if n := len(c.more); n == cap(c.more) {
		// A store holds many items, each of which grows once: no room to spare.
		c.more = append(make([]Slot, 0, n+1+n/4), c.more...)
	}
	c.more = append(c.more, s)
}

func (c *Cells) remove(s *Slot) {
	last := c.at(c.Len() - 1)
	*s = *last
	if len(c.more) > 0 {
		c.more = c.more[:len(c.more)-1]
		return
	}
	c.first = Slot{}
}

// Package table is the hash table in which stores of this process keep their
// items: exact keys, bounded memory, and a number for each item that stays the
// same for as long as the item is there.
//
// When a table is full it first drops items that remember nothing any more, and
// only then one that does: of some that were not used of late, the one that is
// idle soonest. A table has no lock of its own.
package table

import "github.com/weirlabs/weir/internal/plan"

// Table maps keys to items: linear probing over eight-byte references to
// entries, which stand in blocks that never move. The zero Table holds nothing
// and has no room: set the bounds.
type Table struct {
	MaxKeys  int
	MaxBytes int64

	// IdleAt, if set, stands in for Cells.IdleAt: the time from which dropping
	// the entry changes nothing.
	IdleAt func(n uint32, e *Entry, now int64) int64
	// Dropped, if set, is told of an entry that Insert or Sweep removes, while
	// it is still whole.
	Dropped func(n uint32, e *Entry)

	index  []ref // a power of two long
	blocks []*block
	free   []uint32 // numbers of removed entries
	used   uint32   // numbers that were ever given out
	keys   int
	bytes  int64
	hand   uint32 // where the next look for idle entries starts
}

// Entry is an item with its key.
type Entry struct {
	Key   plan.Key
	Cells plan.Cells
}

// ref is an entry's number plus one, 0 when free, with the hash that placed it.
type ref struct{ hash, number uint32 }

// block is a number of entries, with a bit for each that was used since the hand
// last passed it.
type block struct {
	entries [blockSize]Entry
	touched uint64
}

const (
	blockSize = 64
	overhead  = 80 // bytes of an entry and its reference, at the usual load
	inspected = 16 // entries looked at to make room for one
	idleCheck = 2  // entries looked at on any insert
)

// Len is the number of items.
func (t *Table) Len() int { return t.keys }

// Bytes is the memory of all items and keys, approximately.
func (t *Table) Bytes() int64 { return t.bytes }

// Entry is the entry of a number that Find or Insert gave. After its removal it
// is zero, or another key's.
func (t *Table) Entry(n uint32) *Entry { return &t.blocks[n/blockSize].entries[n%blockSize] }

// Touch notes that an entry is in use.
func (t *Table) Touch(n uint32) { t.blocks[n/blockSize].touched |= 1 << (n % blockSize) }

// Grew counts memory that the cells of an entry hold more than before.
func (t *Table) Grew(bytes int) { t.bytes += int64(bytes) }

// Find returns the number of the key's entry.
func (t *Table) Find(key plan.Key) (uint32, bool) {
	if len(t.index) == 0 {
		return 0, false
	}
	hash := uint32(key.Hash())
	mask := uint32(len(t.index) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		r := t.index[i]
		if r.number == 0 {
			return 0, false
		}
		if r.hash == hash {
			if e := t.Entry(r.number - 1); e.Key == key {
				return r.number - 1, true
			}
		}
	}
}

// Insert adds an entry with these cells for a key that is not there. To stay
// within bounds it drops others: idle ones, which held nothing, and live ones.
func (t *Table) Insert(key plan.Key, cells plan.Cells, now int64) (n uint32, idle, live int) {
	size := size(key, cells.Extra())
	idle = t.Sweep(now, idleCheck)
	for t.keys > 0 && (t.keys >= t.MaxKeys || t.bytes+size > t.MaxBytes) {
		gone, lost := t.makeRoom(now)
		idle += gone
		live += lost
	}
	return t.Add(key, cells), idle, live
}

// Add is Insert without a look at the bounds, for items that are all to be taken
// up, whatever there is room for.
func (t *Table) Add(key plan.Key, cells plan.Cells) (n uint32) {
	if (t.keys+1)*4 > len(t.index)*3 {
		t.grow()
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		n = t.used
		t.used++
		if int(n/blockSize) == len(t.blocks) {
			t.blocks = append(t.blocks, new(block))
		}
	}
	e := t.Entry(n)
	e.Key, e.Cells = key, cells
	t.place(ref{uint32(key.Hash()), n + 1})
	t.keys++
	t.bytes += size(key, cells.Extra())
	return n
}

// size is what an item counts for in bytes.
func size(key plan.Key, extra int) int64 { return int64(len(key.String()) + overhead + extra) }

func (t *Table) place(r ref) {
	mask := uint32(len(t.index) - 1)
	i := r.hash & mask
	for t.index[i].number != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = r
}

func (t *Table) grow() {
	old := t.index
	t.index = make([]ref, max(8, 2*len(old)))
	for _, r := range old {
		if r.number != 0 {
			t.place(r)
		}
	}
}

// Remove takes an entry out, of whose cells extra bytes were counted, and closes
// the gap that it leaves in its chain.
func (t *Table) Remove(n uint32, extra int) {
	e := t.Entry(n)
	t.keys--
	t.bytes -= size(e.Key, extra)
	mask := uint32(len(t.index) - 1)
	gap := uint32(e.Key.Hash()) & mask
	for t.index[gap].number != n+1 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.index[i].number != 0; i = (i + 1) & mask {
		home := t.index[i].hash & mask
		if (i-home)&mask >= (i-gap)&mask { // it may stand in the gap
			t.index[gap] = t.index[i]
			gap = i
		}
	}
	t.index[gap] = ref{}
	*e = Entry{}
	t.free = append(t.free, n)
}

// Sweep looks at some entries from the hand on and removes those that are idle.
func (t *Table) Sweep(now int64, entries int) (removed int) {
	for range min(entries, int(t.used)) {
		t.advance()
		if e := t.Entry(t.hand); e.Key.Valid() && t.idleAt(t.hand, e, now) <= now {
			t.drop(t.hand)
			removed++
		}
	}
	return removed
}

func (t *Table) drop(n uint32) {
	e := t.Entry(n)
	if t.Dropped != nil {
		t.Dropped(n, e)
	}
	t.Remove(n, e.Cells.Extra())
}

func (t *Table) idleAt(n uint32, e *Entry, now int64) int64 {
	if t.IdleAt != nil {
		return t.IdleAt(n, e, now)
	}
	return e.Cells.IdleAt(now)
}

// makeRoom looks at some entries from the hand on, and drops those that are
// idle. When none is, one goes that was not used of late, and of those the one
// that is idle soonest: dropping it gives its caller the least, and a caller who
// keeps trying can't get itself dropped.
func (t *Table) makeRoom(now int64) (idle, live int) {
	var best uint32
	var soonest int64
	found, bestUsed := false, false
	entries := min(inspected, t.keys)
	for seen := 0; seen < entries; {
		t.advance()
		e := t.Entry(t.hand)
		if !e.Key.Valid() {
			continue
		}
		seen++
		at, used := t.idleAt(t.hand, e, now), t.untouch(t.hand)
		switch {
		case at <= now:
			t.drop(t.hand)
			idle++
		case !found, bestUsed && !used, bestUsed == used && at < soonest:
			found, best, soonest, bestUsed = true, t.hand, at, used
		}
	}
	if idle > 0 {
		return idle, 0
	}
	t.drop(best)
	return 0, 1
}

// untouch reports whether an entry was in use, and forgets it.
func (t *Table) untouch(n uint32) bool {
	b := t.blocks[n/blockSize]
	was := b.touched&(1<<(n%blockSize)) != 0
	b.touched &^= 1 << (n % blockSize)
	return was
}

func (t *Table) advance() {
	if t.hand++; t.hand >= t.used {
		t.hand = 0
	}
}

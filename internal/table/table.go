// Package table is the hash table in which stores of this process keep their
// items: exact keys, bounded memory, and a number for each item that stays the
// same for as long as the item is there.
//
// When a table is full it first drops items that remember nothing any more, and
// only then one that does: of some that were not used of late, the one that is
// idle soonest. A table has no lock of its own.
package table

import "github.com/weirlabs/weir/internal/plan"

// Table maps keys to items: linear probing over four-byte references to entries,
// which stand in blocks that never move. The zero Table holds nothing and has no
// room: set the bounds.
type Table struct {
	MaxKeys  int // at most 16,777,214 are held, whatever it says
	MaxBytes int64

	// IdleAt, if set, stands in for Cells.IdleAt: the time from which dropping
	// the entry changes nothing.
	IdleAt func(n uint32, e *Entry, now int64) int64
	// Dropped, if set, is told of an entry that Insert or Sweep removes, while
	// it is still whole.
	Dropped func(n uint32, e *Entry)

	index   []ref
	blocks  []*block
	touched []uint64 // for each block, a bit for each entry that was used since the hand last passed it
	free    []uint32 // numbers of removed entries
	used    uint32   // numbers that were ever given out
	keys    int
	bytes   int64
	hand    uint32 // where the next look for idle entries starts
}

// Entry is an item with its key.
type Entry struct {
	Key   plan.Key
	Cells plan.Cells
}

// ref is an entry's number plus one in its low bits, 0 when free, and above it
// some bits of the key's hash, so that hardly ever an entry is looked at in vain.
type ref uint32

const (
	numberBits = 24
	numberMask = 1<<numberBits - 1
)

// tag is a ref's bits of a hash. They are others than those that say where the
// ref stands, and those by which a store picks a table.
func tag(hash uint64) ref { return ref(hash>>32) << numberBits }

func (r ref) number() uint32 { return uint32(r)&numberMask - 1 }

// block is a number of entries: 4,096 bytes, with the eight that the allocator
// needs for itself. A power of two would take it to its next size, 4,864.
type block [blockSize]Entry

const (
	blockSize = 63
	overhead  = 72 // bytes of an entry and its reference, at the usual load
	inspected = 16 // entries looked at to make room for one
	idleCheck = 2  // entries looked at on any insert
)

// Len is the number of items.
func (t *Table) Len() int { return t.keys }

// Bytes is the memory of all items and keys, approximately.
func (t *Table) Bytes() int64 { return t.bytes }

// Entry is the entry of a number that Find or Insert gave. After its removal it
// is zero, or another key's.
func (t *Table) Entry(n uint32) *Entry { return &t.blocks[n/blockSize][n%blockSize] }

// Grew counts memory that the cells of an entry hold more than before.
func (t *Table) Grew(bytes int) { t.bytes += int64(bytes) }

// home is where the search for a hash begins.
func (t *Table) home(hash uint64) int {
	return int(uint64(uint32(hash)) * uint64(len(t.index)) >> 32)
}

// after is the place of the index that follows i.
func (t *Table) after(i int) int {
	if i++; i < len(t.index) {
		return i
	}
	return 0
}

// Find returns the number of the key's entry.
func (t *Table) Find(key plan.Key) (uint32, bool) {
	n, e := t.find(key)
	return n, e != nil
}

// Use returns the key's entry, or nil, with its number, and notes that it is in
// use.
func (t *Table) Use(key plan.Key) (uint32, *Entry) {
	n, e := t.find(key)
	if e != nil {
		t.Touch(n)
	}
	return n, e
}

// Touch notes that an entry is in use.
func (t *Table) Touch(n uint32) {
	if bits := &t.touched[n/blockSize]; *bits>>(n%blockSize)&1 == 0 {
		*bits |= 1 << (n % blockSize)
	}
}

func (t *Table) find(key plan.Key) (uint32, *Entry) {
	if len(t.index) == 0 {
		return 0, nil
	}
	want := tag(key.Hash())
	for i := t.home(key.Hash()); ; i = t.after(i) {
		r := t.index[i]
		if r == 0 {
			return 0, nil
		}
		if r&^numberMask == want {
			if e := t.Entry(r.number()); e.Key == key {
				return r.number(), e
			}
		}
	}
}

// Insert adds an entry with these cells for a key that is not there. To stay
// within bounds it drops others: idle ones, which held nothing, and live ones.
func (t *Table) Insert(key plan.Key, cells plan.Cells, now int64) (n uint32, idle, live int) {
	size := size(key, cells.Extra())
	idle = t.Sweep(now, idleCheck)
	for t.keys > 0 && (t.keys >= min(t.MaxKeys, numberMask-1) || t.bytes+size > t.MaxBytes) {
		gone, lost := t.makeRoom(now)
		idle += gone
		live += lost
	}
	return t.Add(key, cells), idle, live
}

// Add is Insert without a look at the bounds, for items that are all to be taken
// up, whatever there is room for.
func (t *Table) Add(key plan.Key, cells plan.Cells) (n uint32) {
	if (t.keys+1)*5 > len(t.index)*4 {
		t.grow()
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		n = t.used
		t.used++
		if int(n/blockSize) == len(t.blocks) {
			t.blocks, t.touched = append(t.blocks, new(block)), append(t.touched, 0)
		}
	}
	e := t.Entry(n)
	e.Key, e.Cells = key, cells
	t.place(n, key.Hash())
	t.keys++
	t.bytes += size(key, cells.Extra())
	return n
}

// size is what an item counts for in bytes.
func size(key plan.Key, extra int) int64 { return int64(len(key.String()) + overhead + extra) }

func (t *Table) place(n uint32, hash uint64) {
	i := t.home(hash)
	for t.index[i] != 0 {
		i = t.after(i)
	}
	t.index[i] = tag(hash) | ref(n+1)
}

// grow makes the index, which is four fifths full, a quarter longer, so that few
// of its bytes are idle: the search for a key looks at three references or less.
func (t *Table) grow() {
	t.index = make([]ref, max(8, len(t.index)+len(t.index)/4))
	for n := range t.used {
		if e := t.Entry(n); e.Key.Valid() {
			t.place(n, e.Key.Hash())
		}
	}
}

// Remove takes an entry out, of whose cells extra bytes were counted, and closes
// the gap that it leaves in its chain.
func (t *Table) Remove(n uint32, extra int) {
	e := t.Entry(n)
	t.keys--
	t.bytes -= size(e.Key, extra)
	gap := t.home(e.Key.Hash())
	for t.index[gap]&numberMask != ref(n+1) {
		gap = t.after(gap)
	}
	for i := t.after(gap); t.index[i] != 0; i = t.after(i) {
		home := t.home(t.Entry(t.index[i].number()).Key.Hash())
		if t.behind(i, home) >= t.behind(i, gap) { // it may stand in the gap
			t.index[gap] = t.index[i]
			gap = i
		}
	}
	t.index[gap] = 0
	*e = Entry{}
	t.free = append(t.free, n)
}

// behind is how many places of the index i is after another.
func (t *Table) behind(i, other int) int {
	if i < other {
		i += len(t.index)
	}
	return i - other
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
	bits, bit := &t.touched[n/blockSize], uint64(1)<<(n%blockSize)
	was := *bits&bit != 0
	*bits &^= bit
	return was
}

func (t *Table) advance() {
	if t.hand++; t.hand >= t.used {
		t.hand = 0
	}
}

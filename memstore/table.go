package memstore

import "github.com/weirlabs/weir"

// table is a hash table from keys to items: linear probing over eight-byte
// references to entries, which stand in chunks that never move.
type table struct {
	index    []ref // a power of two long
	chunks   []*block
	free     []uint32 // numbers of removed entries
	used     uint32   // numbers that were ever given out
	keys     int
	bytes    int64
	hand     uint32 // where the next look for idle entries starts
	maxKeys  int
	maxBytes int64
}

// ref is an entry's number plus one, 0 when free, with the hash that placed it.
type ref struct{ hash, number uint32 }

type entry struct {
	key   weir.Key
	cells weir.Cells
}

// block is a number of entries, with a bit for each that was used since the hand
// last passed it.
type block struct {
	entries [chunk]entry
	touched uint64
}

const (
	chunk     = 64
	overhead  = 80 // bytes of an entry and its reference, at the usual load
	inspected = 16 // entries looked at to make room for one
	idleCheck = 2  // entries looked at on any insert
)

func (t *table) entry(n uint32) *entry { return &t.chunks[n/chunk].entries[n%chunk] }

// touch notes that an entry is in use.
func (t *table) touch(n uint32) { t.chunks[n/chunk].touched |= 1 << (n % chunk) }

// untouch reports whether an entry was in use, and forgets it.
func (t *table) untouch(n uint32) bool {
	b := t.chunks[n/chunk]
	was := b.touched&(1<<(n%chunk)) != 0
	b.touched &^= 1 << (n % chunk)
	return was
}

// find returns the number of the key's entry.
func (t *table) find(key weir.Key) (uint32, bool) {
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
			if e := t.entry(r.number - 1); e.key == key {
				return r.number - 1, true
			}
		}
	}
}

// insert adds an empty entry for a key that is not there. To stay within
// bounds it drops others: idle ones, which held nothing, and live ones.
func (t *table) insert(key weir.Key, now int64) (n uint32, idle, live int) {
	size := int64(len(key.String()) + overhead)
	idle = t.sweep(now, idleCheck)
	for t.keys > 0 && (t.keys >= t.maxKeys || t.bytes+size > t.maxBytes) {
		gone, lost := t.makeRoom(now)
		idle += gone
		live += lost
	}
	if (t.keys+1)*4 > len(t.index)*3 {
		t.grow()
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		n = t.used
		t.used++
		if int(n/chunk) == len(t.chunks) {
			t.chunks = append(t.chunks, new(block))
		}
	}
	t.entry(n).key = key
	t.place(ref{uint32(key.Hash()), n + 1})
	t.keys++
	t.bytes += size
	return n, idle, live
}

func (t *table) place(r ref) {
	mask := uint32(len(t.index) - 1)
	i := r.hash & mask
	for t.index[i].number != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = r
}

func (t *table) grow() {
	old := t.index
	t.index = make([]ref, max(8, 2*len(old)))
	for _, r := range old {
		if r.number != 0 {
			t.place(r)
		}
	}
}

// remove takes an entry out, of whose cells extra bytes were counted, and closes
// the gap that it leaves in its chain.
func (t *table) remove(n uint32, extra int) {
	e := t.entry(n)
	t.keys--
	t.bytes -= int64(len(e.key.String()) + overhead + extra)
	mask := uint32(len(t.index) - 1)
	gap := uint32(e.key.Hash()) & mask
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
	*e = entry{}
	t.free = append(t.free, n)
}

// sweep looks at some entries from the hand on and removes those that are idle.
func (t *table) sweep(now int64, entries int) (removed int) {
	for range min(entries, int(t.used)) {
		t.advance()
		e := t.entry(t.hand)
		if e.key.Valid() && e.cells.IdleAt(now) <= now {
			t.remove(t.hand, e.cells.Extra())
			removed++
		}
	}
	return removed
}

// makeRoom looks at some entries from the hand on, and drops those that are
// idle. When none is, one goes that was not used of late, and of those the one
// that is idle soonest: dropping it gives its caller the least, and a caller who
// keeps trying can't get itself dropped.
func (t *table) makeRoom(now int64) (idle, live int) {
	var best uint32
	var soonest int64
	found, bestUsed := false, false
	entries := min(inspected, t.keys)
	for seen := 0; seen < entries; {
		t.advance()
		e := t.entry(t.hand)
		if !e.key.Valid() {
			continue
		}
		seen++
		at, used := e.cells.IdleAt(now), t.untouch(t.hand)
		switch {
		case at <= now:
			t.remove(t.hand, e.cells.Extra())
			idle++
		case !found, bestUsed && !used, bestUsed == used && at < soonest:
			found, best, soonest, bestUsed = true, t.hand, at, used
		}
	}
	if idle > 0 {
		return idle, 0
	}
	t.remove(best, t.entry(best).cells.Extra())
	return 0, 1
}

func (t *table) advance() {
	if t.hand++; t.hand >= t.used {
		t.hand = 0
	}
}

package boltstore

import (
	"encoding/binary"
	"sync"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/table"
)

// shard is a table with its lock, and with what is still to be written of it.
type shard struct {
	sync.Mutex
	table.Table
	names *names

	open  uint32     // the entry that is locked, or none
	extra int        // what it held when it was locked
	fresh weir.Cells // the state of a locked key without entry
	at    int64      // when it was locked

	marks   []mark             // by number of an entry
	home    []uint32           // by number of an entry, the number of its pack plus 1; 0: it is not in the file
	dirty   []uint32           // entries that are marked dirty, and some that are gone
	spare   []uint32           // memory for dirty
	gone    []left             // entries that had a pack
	foreign map[uint32]foreign // what entries hold that this process can't read
	touched byte               // what touch has read: unused, it would not be read

	_ [64]byte
}

// mark says of an entry what the shard's lists hold of it.
type mark uint8

const (
	isDirty   mark = 1 << iota // in dirty
	isForeign                  // in foreign
)

// left is an entry that was dropped, and the pack that it leaves.
type left struct{ n, pack uint32 }

// foreign is the fields of limits that this process has not built: they stay as
// they are until it builds them, or until they mean nothing any more.
type foreign struct {
	cells []byte
	idle  int64
}

// none is no entry: a key gets one only when something is to be remembered.
const none = 1<<32 - 1

func (sh *shard) start(n *names, maxKeys int, maxBytes int64) {
	sh.names = n
	sh.foreign = map[uint32]foreign{}
	sh.MaxKeys, sh.MaxBytes = maxKeys, maxBytes
	sh.IdleAt = sh.idleAt
	sh.Dropped = sh.dropped
}

func (sh *shard) idleAt(n uint32, e *table.Entry, now int64) int64 {
	at := e.Cells.IdleAt(now)
	if sh.marks[n]&isForeign != 0 {
		at = max(at, sh.foreign[n].idle)
	}
	return at
}

// dropped is told of entries that the table gives up, and of removed ones.
func (sh *shard) dropped(n uint32, _ *table.Entry) {
	if sh.home[n] != 0 {
		sh.gone = append(sh.gone, left{n, sh.home[n] - 1})
		sh.home[n] = 0
	}
	if sh.marks[n]&isForeign != 0 {
		sh.Grew(-len(sh.foreign[n].cells))
		delete(sh.foreign, n)
	}
	sh.marks[n] &= isDirty // it stays in that list
}

// markable makes room for the marks of an entry.
func (sh *shard) markable(n uint32) {
	for int(n) >= len(sh.marks) {
		sh.marks, sh.home = append(sh.marks, 0), append(sh.home, 0)
	}
}

// load takes up an item of a pack of the file.
func (sh *shard) load(key weir.Key, payload []byte, pack uint32) (n uint32) {
	var cells weir.Cells
	rest := sh.names.split(payload[8:], &cells)
	n = sh.Add(key, cells)
	sh.markable(n)
	sh.home[n] = pack + 1
	if len(rest) > 0 {
		sh.foreign[n] = foreign{rest, idleOf(payload)}
		sh.marks[n] |= isForeign
		sh.Grew(len(rest))
	}
	return n
}

// loaded raises the bounds to what the file holds and some more: nothing of it
// may go because it is much. others is the bytes of memory that it takes besides.
func (sh *shard) loaded(others int) {
	sh.Grew(others)
	sh.MaxKeys = max(sh.MaxKeys, sh.Len()*9/8)
	sh.MaxBytes = max(sh.MaxBytes, sh.Bytes()*9/8)
}

func (sh *shard) soil(n uint32) {
	if sh.marks[n]&isDirty == 0 {
		sh.marks[n] |= isDirty
		sh.dirty = append(sh.dirty, n)
	}
}

// lock gives the cells of an item, with the shard's lock held.
func (sh *shard) lock(item weir.Key, now int64) *weir.Cells {
	n, found := sh.Find(item)
	if !found {
		sh.open, sh.at = none, now
		return &sh.fresh
	}
	sh.Touch(n)
	e := sh.Entry(n)
	sh.open, sh.extra = n, e.Cells.Extra()
	if sh.marks[n]&isForeign != 0 {
		sh.meet(n, &e.Cells)
	}
	return &e.Cells
}

// meet moves to an item's cells what was stored for limits that this process
// has built by now.
func (sh *shard) meet(n uint32, cells *weir.Cells) {
	f := sh.foreign[n]
	if !sh.names.knowsAny(f.cells) {
		return
	}
	rest := sh.names.split(f.cells, cells)
	sh.Grew(len(rest) - len(f.cells))
	if len(rest) == 0 {
		delete(sh.foreign, n)
		sh.marks[n] &^= isForeign
		return
	}
	sh.foreign[n] = foreign{rest, f.idle}
}

// split puts those of the stored cells that this process knows into an item,
// and returns the others. They were checked when they were read.
func (n *names) split(stored []byte, into *weir.Cells) (rest []byte) {
	for len(stored) > 0 {
		c, after, ok := cutCell(stored)
		if !ok {
			break
		}
		if f, known := n.field(c); known {
			into.Set(f, c.value)
		} else {
			rest = append(rest, stored[:len(stored)-len(after)]...)
		}
		stored = after
	}
	return rest
}

// knowsAny reports whether split would find anything.
func (n *names) knowsAny(stored []byte) bool {
	for len(stored) > 0 {
		c, after, ok := cutCell(stored)
		if !ok {
			break
		}
		if _, known := n.field(c); known {
			return true
		}
		stored = after
	}
	return false
}

// unlock ends what lock began, without giving up the shard's lock. changed says
// whether the item may be another than before.
func (sh *shard) unlock(item weir.Key, changed bool) (idle, live int) {
	if sh.open == none {
		if sh.fresh.Len() == 0 {
			return 0, 0
		}
		var n uint32
		n, idle, live = sh.Insert(item, sh.fresh, sh.at)
		sh.fresh = weir.Cells{}
		sh.markable(n)
		sh.soil(n)
		return idle, live
	}
	n := sh.open
	e := sh.Entry(n)
	if e.Cells.Len() == 0 && sh.marks[n]&isForeign == 0 {
		sh.dropped(n, e)
		sh.Remove(n, sh.extra)
		return 0, 0
	}
	if grown := e.Cells.Extra() - sh.extra; grown != 0 {
		sh.Grew(grown)
	}
	if changed {
		sh.soil(n)
	}
	return 0, 0
}

// atOnce is how many items are looked at while a shard's lock is held.
const atOnce = 256

// collect marks the packs of what has changed, finds one for what had none, and
// takes it all off the shard's lists.
func (sh *shard) collect(shard int, p *packs, now func() int64) {
	sh.Lock()
	dirty := sh.dirty
	sh.dirty, sh.spare = sh.spare[:0], nil
	for rest := dirty; ; {
		// First, because a number below may have been of one of these.
		for _, l := range sh.gone {
			p.remove(l.pack, refOf(shard, l.n))
		}
		sh.gone = sh.gone[:0]
		some := rest[:min(atOnce, len(rest))]
		rest = rest[len(some):]
		at := now()
		for _, n := range some {
			sh.marks[n] &^= isDirty
			if sh.home[n] != 0 {
				p.soil(sh.home[n] - 1)
				continue
			}
			// What means nothing any more, as it does soon where a limit refills
			// fast, never gets into the file.
			if e := sh.Entry(n); e.Key.Valid() && sh.idleAt(n, e, at) > at {
				sh.home[n] = p.place(refOf(shard, n), size(e)) + 1
				p.soil(sh.home[n] - 1)
			}
		}
		if len(rest) == 0 {
			break
		}
		sh.Unlock()
		sh.Lock()
	}
	sh.spare = dirty[:0]
	sh.Unlock()
}

// size is about what an entry takes in a pack, but for a prefix.
func size(e *table.Entry) int { return len(e.Key.String()) + 14 + 12*e.Cells.Len() }

// touch reads from the keys of entries before they are put into words. They lie all
// over the memory: to wait for all at once takes a quarter of the time of one after
// the other, and with a million keys that was more than a third of a write.
func (sh *shard) touch(entries []ref) {
	for _, r := range entries {
		if key := sh.Entry(r.number()).Key; key.Valid() {
			sh.touched ^= key.String()[0]
		}
	}
}

// encode appends an entry with its key and payload.
func (sh *shard) encode(b []byte, prefix string, n uint32, e *table.Entry, idle int64) []byte {
	return appendItem(b, prefix, e.Key.String(), func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, uint64(idle))
		for slot := range e.Cells.All() {
			b = appendCell(b, sh.names.cell(slot))
		}
		if sh.marks[n]&isForeign != 0 {
			b = append(b, sh.foreign[n].cells...)
		}
		return b
	})
}

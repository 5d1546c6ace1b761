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
	dirty   []uint32           // entries that are marked dirty, and some that are gone
	gone    []string           // keys whose items are to leave the file
	foreign map[uint32]foreign // what entries hold that this process can't read

	_ [64]byte
}

// mark says of an entry what the shard's lists hold of it.
type mark uint8

const (
	isDirty   mark = 1 << iota // in dirty
	isForeign                  // in foreign
	isStored                   // perhaps in the file
)

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
func (sh *shard) dropped(n uint32, e *table.Entry) {
	if sh.marks[n]&isStored != 0 {
		sh.gone = append(sh.gone, e.Key.String())
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
		sh.marks = append(sh.marks, 0)
	}
}

// load takes up an item of the file.
func (sh *shard) load(key weir.Key, payload []byte) {
	var cells weir.Cells
	rest := sh.names.split(payload[8:], &cells)
	n := sh.Add(key, cells)
	sh.markable(n)
	sh.marks[n] |= isStored
	if len(rest) > 0 {
		sh.foreign[n] = foreign{rest, idleOf(payload)}
		sh.marks[n] |= isForeign
		sh.Grew(len(rest))
	}
}

// loaded raises the bounds to what the file holds and some more: nothing of it
// may go because it is much.
func (sh *shard) loaded() {
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

// change is what becomes of one key of a bucket of the file.
type change struct {
	key     string
	order   int    // of one key the last stands
	payload []byte // nil: the item goes
}

// atOnce is how many items are put into words while a shard's lock is held.
const atOnce = 256

// payloads is memory for many small values that live as long as one commit: one
// piece for each would keep the garbage collector busier than the takes do.
type payloads struct{ room []byte }

const payloadRoom = 64 << 10

// take gives a buffer that has room for an item of some fields; what is appended
// to it must be given to keep.
func (p *payloads) take() []byte {
	if cap(p.room)-len(p.room) < 128 {
		p.room = make([]byte, 0, payloadRoom)
	}
	return p.room[len(p.room):]
}

// keep takes what was appended to a buffer of take's, and room for its seal.
func (p *payloads) keep(b []byte) []byte {
	end := len(b) + sealSize
	if cap(b) < end || cap(b) != cap(p.room)-len(p.room) {
		return b // it outgrew the room, and has its own
	}
	p.room = p.room[:len(p.room)+end]
	return b[:len(b):end]
}

// collect appends what is to be written of a shard and takes it off its lists.
func (sh *shard) collect(list []change, memory *payloads, prefix string, now func() int64) []change {
	sh.Lock()
	for _, key := range sh.gone {
		list = append(list, change{prefix + key, len(list), nil})
	}
	sh.gone = nil
	dirty := sh.dirty
	sh.dirty = nil
	sh.Unlock()
	for len(dirty) > 0 {
		some := dirty[:min(atOnce, len(dirty))]
		dirty = dirty[len(some):]
		sh.Lock()
		at := now()
		for _, n := range some {
			sh.marks[n] &^= isDirty
			e := sh.Entry(n)
			if !e.Key.Valid() {
				continue
			}
			switch b := sh.encode(memory, n, e, at); {
			case b != nil:
				list = append(list, change{prefix + e.Key.String(), len(list), b})
				sh.marks[n] |= isStored
			case sh.marks[n]&isStored != 0:
				list = append(list, change{prefix + e.Key.String(), len(list), nil})
				sh.marks[n] &^= isStored
			}
		}
		sh.Unlock()
	}
	return list
}

// encode gives what the file is to hold of an entry: nothing if it means nothing
// any more, as it does soon where a limit refills fast.
func (sh *shard) encode(memory *payloads, n uint32, e *table.Entry, now int64) []byte {
	idle := sh.idleAt(n, e, now)
	if idle <= now {
		return nil
	}
	b := binary.BigEndian.AppendUint64(memory.take(), uint64(idle))
	for slot := range e.Cells.All() {
		b = appendCell(b, sh.names.cell(slot))
	}
	if sh.marks[n]&isForeign != 0 {
		b = append(b, sh.foreign[n].cells...)
	}
	return memory.keep(b)
}

// again puts a change that could not be written back onto the lists.
func (sh *shard) again(item weir.Key) {
	sh.Lock()
	defer sh.Unlock()
	if n, found := sh.Find(item); found {
		sh.soil(n)
		sh.marks[n] |= isStored
		return
	}
	sh.gone = append(sh.gone, item.String())
}

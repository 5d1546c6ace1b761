package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// This file reads the pages of a bbolt file (format version 2) without trust.
// bbolt itself asserts what it reads: on a damaged page it panics, partly in
// goroutines of its own, and on a page that leads to itself it never ends. So no
// file is given to it before each of its pages was looked at here.

const (
	pageHeader  = 16
	elementSize = 16 // in branches and leaves alike
	metaSize    = 64 // of which the last eight bytes are the checksum

	pageBranch = 1
	pageLeaf   = 2

	bucketFlag = 1 // of a leaf's element: the value is a bucket
	bucketSize = 16

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = 1<<64 - 1

	maxDepth = 64 // of a tree; two pages a level would do for 2^64 items
)

// fault is what is wrong with a file.
type fault struct {
	page uint64 // 0: of none
	what string
}

func (f fault) Error() string {
	if f.page == 0 {
		return f.what
	}
	return fmt.Sprintf("page %d %s", f.page, f.what)
}

// meta is the root of one of the two latest transactions.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	high     uint64 // pages from here on are not in use
	txid     uint64
}

// readMeta reads a root, and reports whether it is whole: what bbolt takes for one.
func readMeta(b []byte) (m meta, whole bool) {
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	n := binary.NativeEndian
	if n.Uint32(b) != boltMagic || n.Uint32(b[4:]) != boltVersion || n.Uint64(b[metaSize-8:]) != sum.Sum64() {
		return m, false
	}
	return meta{n.Uint32(b[8:]), n.Uint64(b[16:]), n.Uint64(b[32:]), n.Uint64(b[40:]), n.Uint64(b[48:])}, true
}

// roots is what a file says of its two latest transactions.
type roots struct {
	newest meta
	broken bool // one of the two is not whole: it may have been the newer one
	even   bool // both lead to the same pages
}

// readRoots reads the roots in the way of bbolt, so that both go on with the same
// one: that of the first page, if it is whole, says how large pages are, and if it
// is not the other is sought at the places of all sizes. The error is a fault.
func readRoots(r io.ReaderAt, size int64) (is roots, err error) {
	b := make([]byte, pageHeader+metaSize)
	at := func(offset int64) (m meta, whole bool) {
		if offset+int64(len(b)) > size {
			return m, false
		}
		if _, err := r.ReadAt(b, offset); err != nil {
			return m, false
		}
		return readMeta(b)
	}
	first, whole := at(0)
	second, also := meta{}, false
	if whole {
		second, also = at(int64(first.pageSize))
	} else {
		for offset := int64(1 << 10); !also && offset <= 1<<24; offset <<= 1 {
			if second, also = at(offset); also && int64(second.pageSize) != offset {
				return is, fault{what: "has a root in a place where none is"}
			}
		}
	}
	for i, m := range []meta{first, second} {
		switch {
		case i == 0 && !whole, i == 1 && !also:
			is.broken = true
			continue
		case m.pageSize < 1<<12 || m.pageSize > 1<<16 || m.pageSize&(m.pageSize-1) != 0, m.txid&1 != uint64(i), m.txid > 1<<62,
			whole && m.pageSize != first.pageSize:
			// bbolt would take it: the sum over it is right.
			return is, fault{what: fmt.Sprintf("has a root, number %d, that weir can't have written", i)}
		case m.txid >= is.newest.txid:
			is.newest = m
		}
	}
	if !whole && !also {
		return is, fault{what: "has no whole root"}
	}
	is.even = !is.broken && first.root == second.root && first.high == second.high
	return is, nil
}

// walker visits the pages of a tree.
type walker struct {
	r       io.ReaderAt
	meta    meta
	visited []uint64 // bits
	used    uint64   // pages
	buffers [maxDepth][]byte
	report  func(fault) error // an error ends the walk
}

// element is a key with its value, or with the bucket that the value is.
type element struct {
	key, value []byte // valid until the visit returns
	bucket     bool
}

func newWalker(r io.ReaderAt, size int64, m meta, report func(fault) error) (*walker, error) {
	w := &walker{r: r, meta: m, report: report, used: 2}
	if m.high < 2 || int64(m.high) < 0 || m.high > uint64(size)/uint64(m.pageSize) {
		return nil, fault{what: fmt.Sprintf("is cut off: %d bytes of %d pages of %d bytes are there", size, m.high, m.pageSize)}
	}
	if m.freelist != noFreelist {
		return nil, fault{what: "has a list of free pages, and weir keeps none: another program wrote to the file"}
	}
	w.visited = make([]uint64, m.high/64+1)
	return w, nil
}

// bucket visits all elements of a bucket, in the order of their keys, whose
// value is the bucket's place. Small buckets stand in the value itself.
func (w *walker) bucket(value []byte, visit func(element) error) error {
	if len(value) < bucketSize {
		return w.report(fault{what: "has a bucket without a root"})
	}
	root := binary.NativeEndian.Uint64(value)
	if root != 0 {
		return w.tree(root, 0, nil, nil, visit)
	}
	// It has no number and no further pages, or bbolt would give those free.
	page := value[bucketSize:]
	n := binary.NativeEndian
	if len(page) < pageHeader || n.Uint64(page) != 0 || n.Uint16(page[8:]) != pageLeaf || n.Uint32(page[12:]) != 0 {
		return w.report(fault{what: "has an inline bucket that is none"})
	}
	return w.leaf(0, page, nil, nil, visit)
}

// tree visits the elements below a page, whose keys lie in [from, to).
func (w *walker) tree(id uint64, depth int, from, to []byte, visit func(element) error) error {
	b, err := w.read(id, depth)
	if err != nil {
		if f, ok := err.(fault); ok {
			return w.report(f)
		}
		return err
	}
	n := binary.NativeEndian
	count := int(n.Uint16(b[10:]))
	switch n.Uint16(b[8:]) {
	case pageLeaf:
		if count == 0 && depth > 0 {
			return w.report(fault{id, "is an empty leaf"})
		}
		return w.leaf(id, b, from, to, visit)
	case pageBranch:
		if count == 0 || pageHeader+count*elementSize > len(b) {
			return w.report(fault{id, "has an impossible number of branches"})
		}
		for i := range count {
			e := b[pageHeader+i*elementSize:]
			key, ok := cut(e, n.Uint32(e), n.Uint32(e[4:]))
			end := to
			if ok && i+1 < count {
				next := e[elementSize:]
				end, ok = cut(next, n.Uint32(next), n.Uint32(next[4:]))
				ok = ok && bytes.Compare(key, end) < 0
			}
			if !ok || !inside(key, i == 0, from, to) {
				if err := w.report(fault{id, "has a branch out of place"}); err != nil {
					return err
				}
				continue
			}
			if err := w.tree(n.Uint64(e[8:]), depth+1, key, end, visit); err != nil {
				return err
			}
		}
		return nil
	}
	return w.report(fault{id, "is neither branch nor leaf"})
}

func (w *walker) leaf(id uint64, b, from, to []byte, visit func(element) error) error {
	n := binary.NativeEndian
	count := int(n.Uint16(b[10:]))
	if pageHeader+count*elementSize > len(b) {
		return w.report(fault{id, "has an impossible number of entries"})
	}
	var last []byte
	for i := range count {
		e := b[pageHeader+i*elementSize:]
		flags, pos, ksize, vsize := n.Uint32(e), n.Uint32(e[4:]), n.Uint32(e[8:]), n.Uint32(e[12:])
		key, ok := cut(e, pos, ksize)
		var value []byte
		if ok {
			value, ok = cut(e, pos+ksize, vsize)
		}
		if !ok || flags&^bucketFlag != 0 || !inside(key, i == 0, from, to) || i > 0 && bytes.Compare(last, key) >= 0 {
			if err := w.report(fault{id, "has an entry out of place"}); err != nil {
				return err
			}
			continue
		}
		if err := visit(element{key, value, flags == bucketFlag}); err != nil {
			return err
		}
		last = key
	}
	return nil
}

// read reads a page with what it spans, once.
func (w *walker) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= w.meta.high {
		return nil, fault{id, "is not in the file, and a branch leads there"}
	}
	if depth >= maxDepth {
		return nil, fault{id, "is too deep in the tree"}
	}
	size := int64(w.meta.pageSize)
	b := w.buffer(depth, int(size))
	if err := w.fill(b, int64(id)*size); err != nil {
		return nil, err
	}
	n := binary.NativeEndian
	overflow := uint64(n.Uint32(b[12:]))
	if n.Uint64(b) != id || id+overflow >= w.meta.high {
		return nil, fault{id, "is not the page that stands in its place"}
	}
	for p := id; p <= id+overflow; p++ {
		if w.visited[p/64]&(1<<(p%64)) != 0 {
			return nil, fault{p, "is in the tree twice"}
		}
		w.visited[p/64] |= 1 << (p % 64)
		w.used++
	}
	if overflow > 0 {
		b = w.buffer(depth, int(size)*int(overflow+1))
		if err := w.fill(b, int64(id)*size); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (w *walker) fill(b []byte, offset int64) error {
	if _, err := w.r.ReadAt(b, offset); err != nil {
		return fmt.Errorf("read at %d: %w", offset, err)
	}
	return nil
}

func (w *walker) buffer(depth, size int) []byte {
	if cap(w.buffers[depth]) < size {
		w.buffers[depth] = make([]byte, size)
	}
	return w.buffers[depth][:size]
}

// cut is b[pos:pos+size], if it is there.
func cut(b []byte, pos, size uint32) ([]byte, bool) {
	end := uint64(pos) + uint64(size)
	if end > uint64(len(b)) {
		return nil, false
	}
	return b[pos:end:end], true
}

// inside reports from <= key < to, where a nil bound is none, and that the first
// key of a page is the one that its parent has for it: bbolt finds a page in its
// parent by that, and would add a second branch to it where the parent has another.
func inside(key []byte, first bool, from, to []byte) bool {
	low := bytes.Compare(key, from)
	return len(key) > 0 && (low == 0 || low > 0 && !(first && from != nil)) && (to == nil || bytes.Compare(key, to) < 0)
}

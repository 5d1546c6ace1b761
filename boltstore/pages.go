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

func readMeta(b []byte) (m meta, ok bool) {
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	n := binary.NativeEndian
	if n.Uint32(b) != boltMagic || n.Uint32(b[4:]) != boltVersion || n.Uint64(b[metaSize-8:]) != sum.Sum64() {
		return m, false
	}
	m = meta{n.Uint32(b[8:]), n.Uint64(b[16:]), n.Uint64(b[32:]), n.Uint64(b[40:]), n.Uint64(b[48:])}
	return m, m.pageSize >= 1<<9 && m.pageSize <= 1<<16 && m.pageSize&(m.pageSize-1) == 0
}

// latest reads both roots and returns the newer one that is whole. A process
// that is killed while it writes one leaves the other.
func latest(r io.ReaderAt, size int64) (best meta, ok bool) {
	b := make([]byte, pageHeader+metaSize)
	at := func(offset int64) (meta, bool) {
		if offset+int64(len(b)) > size {
			return meta{}, false
		}
		if _, err := r.ReadAt(b, offset); err != nil {
			return meta{}, false
		}
		return readMeta(b)
	}
	best, ok = at(0)
	if ok {
		if m, also := at(int64(best.pageSize)); also && m.pageSize == best.pageSize && m.txid > best.txid {
			best = m
		}
		return best, true
	}
	for shift := range 8 { // the first page is lost, and with it the pages' size
		size := int64(512) << shift
		if m, whole := at(size); whole && int64(m.pageSize) == size {
			return m, true
		}
	}
	return best, false
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
	page := value[bucketSize:]
	if len(page) < pageHeader || binary.NativeEndian.Uint16(page[8:]) != pageLeaf {
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
			if !ok || !inside(key, from, to) {
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
		if !ok || flags&^bucketFlag != 0 || !inside(key, from, to) || i > 0 && bytes.Compare(last, key) >= 0 {
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

// inside reports from <= key < to, where a nil bound is none.
func inside(key, from, to []byte) bool {
	return bytes.Compare(key, from) >= 0 && (to == nil || bytes.Compare(key, to) < 0)
}

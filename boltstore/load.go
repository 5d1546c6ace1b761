package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirlabs/weir/internal/plan"
)

// contents is what a reader of a file is told, names before items. Any func may
// be nil, and the bytes are valid until it returns.
type contents struct {
	head   func(*found) error // the header was read, and no item yet
	pack   func(number uint32, payload []byte) error
	record func(key []byte, r record) error
	fault  func(fault) error // what is wrong; an error ends the reading
}

// found is what a reader has counted.
type found struct {
	head
	roots roots
	names *names
	pages uint64 // in use
}

// read reads a whole file and believes nothing. The error is a fault when the
// file is not what weir wrote, and what a func of to returned otherwise.
func read(r io.ReaderAt, size int64, to contents) (*found, error) {
	is, err := readRoots(r, size)
	if err != nil {
		return nil, err
	}
	m := is.newest
	w, err := newWalker(r, size, m, to.fault)
	if err != nil {
		return nil, err
	}
	f := &found{roots: is, names: newNames()}
	buckets := map[string][]byte{}
	err = w.tree(m.root, 0, nil, nil, func(e element) error {
		if !e.bucket {
			return to.fault(fault{what: "has an entry outside of all buckets"})
		}
		buckets[string(e.key)] = append([]byte(nil), e.value...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(buckets[string(bucketHead)]) == 0 {
		return nil, fault{what: "is a bolt file, but holds nothing of weir's: another program made it, or its root is damaged"}
	}
	for name := range buckets {
		switch name {
		case string(bucketHead), string(bucketNames), string(bucketItems), string(bucketRecords):
		default:
			return nil, fault{what: fmt.Sprintf("has a bucket %q, which is not weir's", name)}
		}
	}
	written := errHead
	err = w.bucket(buckets[string(bucketHead)], func(e element) (err error) {
		if string(e.key) == string(keyHead) && !e.bucket {
			f.head, written = decodeHead(e.value)
		}
		return nil
	})
	if errors.Is(written, errVersion) {
		return nil, written
	}
	if err == nil && written != nil {
		err = fault{what: "can't be read: " + written.Error()}
	}
	if err != nil {
		return nil, err
	}
	if to.head != nil {
		if err := to.head(f); err != nil {
			return nil, err
		}
	}
	counted, err := f.count(w, buckets, to)
	if err != nil {
		return nil, err
	}
	f.pages = w.used
	if counted != (f.head) {
		return f, to.fault(fault{what: fmt.Sprintf("does not hold what was written: there are %d packs of items of %d, %d names of %d and %d records of %d, or some are not the newest",
			counted.packs, f.packs, counted.names, f.head.names, counted.records, f.records)})
	}
	return f, nil
}

// count reads the three buckets of values, and returns the header that they should have.
func (f *found) count(w *walker, buckets map[string][]byte, to contents) (head, error) {
	counted := head{seen: f.seen, version: f.version}
	each := func(bucket []byte, n *uint64, do func(key, payload []byte) error) error {
		value, ok := buckets[string(bucket)]
		if !ok {
			return to.fault(fault{what: fmt.Sprintf("has no bucket %s", bucket)})
		}
		return w.bucket(value, func(e element) error {
			payload, sum, ok := unseal(bucket[0], e.key, e.value)
			if e.bucket || !ok {
				return to.fault(fault{what: fmt.Sprintf("holds a value, number %d of %s, that is not what was written", *n+1, bucket)})
			}
			*n++
			counted.sum += sum
			return do(e.key, payload)
		})
	}
	err := each(bucketNames, &counted.names, func(key, payload []byte) error {
		if len(key) != 4 || int(binary.BigEndian.Uint32(key)) != len(f.names.all) {
			return to.fault(fault{what: fmt.Sprintf("lacks the name of field %d", len(f.names.all))})
		}
		f.names.add(string(payload))
		return nil
	})
	if err == nil {
		f.names.saved = len(f.names.all)
		err = each(bucketItems, &counted.packs, func(key, payload []byte) error {
			if len(key) != 4 || binary.BigEndian.Uint32(key) >= maxPacks || !f.sound(payload) {
				return to.fault(fault{what: fmt.Sprintf("holds a pack of items, number %d, that can't be read", counted.packs)})
			}
			if to.pack == nil {
				return nil
			}
			return to.pack(binary.BigEndian.Uint32(key), payload)
		})
	}
	if err == nil {
		err = each(bucketRecords, &counted.records, func(key, payload []byte) error {
			r, ok := decodeRecord(payload)
			if !ok {
				return to.fault(fault{what: fmt.Sprintf("holds a record, number %d, that can't be read", counted.records)})
			}
			if to.record == nil {
				return nil
			}
			return to.record(key, r)
		})
	}
	return counted, err
}

// sound reports whether the items of a pack can be read to their ends.
func (f *found) sound(payload []byte) bool {
	for rest := payload; len(rest) > 0; {
		var item []byte
		var ok bool
		if _, item, rest, ok = cutItem(rest); !ok || len(item) < 8 {
			return false
		}
		for b := item[8:]; len(b) > 0; {
			var c cell
			if c, b, ok = cutCell(b); !ok || !f.names.fits(c) {
				return false
			}
		}
	}
	return true
}

// stop ends the reading at the first fault.
func stop(f fault) error { return f }

// load fills the store from its file, and returns the file's roots.
func (s *Store) load() (is roots, err error) {
	var f *found
	var now int64
	s.packs.prefix = len(s.prefix)
	err = reading(s.path, func(r *os.File, size int64) (err error) {
		f, err = read(r, size, contents{
			fault: stop,
			head: func(f *found) error {
				s.clock.start(f.seen)
				now = s.clock.now()
				s.start(f.names)
				return nil
			},
			pack: func(number uint32, payload []byte) error { return s.take(number, payload, now) },
			record: func(key []byte, r record) error {
				if r.over(now) {
					s.over = append(s.over, string(key))
					return nil
				}
				s.records.load(string(key), s.prefix, r)
				return nil
			},
		})
		return err
	})
	if err != nil {
		return is, err
	}
	for i := range s.shards {
		s.shards[i].loaded(s.packs.others / len(s.shards))
	}
	s.packs.loaded()
	return f.roots, nil
}

// take takes up a pack that was read.
func (s *Store) take(number uint32, payload []byte, now int64) error {
	p := s.packs.at(number)
	p.bytes = len(payload)
	others := s.words[:0]
	for key, item := range itemsOf(payload) {
		text, mine := strings.CutPrefix(string(key), s.prefix)
		k := plan.KeyFromText(text)
		if !mine || !k.Valid() {
			others = appendItem(others, "", string(key), func(b []byte) []byte { return append(b, item...) })
			continue
		}
		if idleOf(item) <= now {
			s.packs.left(number)
			continue
		}
		i := int(k.Hash() >> s.shift)
		sh := &s.shards[i]
		if _, twice := sh.Find(k); twice {
			return errTwice
		}
		p.members = append(p.members, refOf(i, sh.load(k, item, number)))
	}
	s.words = others
	if len(p.members) > 0 || p.dirty { // else it is never written
		p.others = bytes.Clone(others)
		s.packs.others += len(others)
	}
	return nil
}

var errTwice = fault{what: "holds an item twice"}

// idleOf is the time from which an item means nothing any more.
func idleOf(payload []byte) int64 { return int64(binary.BigEndian.Uint64(payload)) }

package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A flipped bit in what a branch says of a page below it, its key or how long that
// is, is found: bbolt would go by it, and leave a worse file.
func TestFlippedBranches(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4000 {
		took(t, s, "quota 10/year", fmt.Sprint("account#", n))
	}
	// Records have keys of any length, and so have the branches above them.
	for n := range 120 {
		if err := s.Put(t.Context(), fmt.Sprint("record/", n, string(bytes.Repeat([]byte("x"), n))), make([]byte, 500), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	check := func() error {
		_, err := read(bytes.NewReader(file), int64(len(file)), contents{fault: stop})
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	is, err := readRoots(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	// Pages that are in use, and branches.
	w, err := newWalker(bytes.NewReader(file), int64(len(file)), is.newest, stop)
	if err != nil {
		t.Fatal(err)
	}
	var buckets [][]byte
	err = w.tree(is.newest.root, 0, nil, nil, func(e element) error {
		buckets = append(buckets, bytes.Clone(e.value))
		return nil
	})
	for _, b := range buckets {
		err = errors.Join(err, w.bucket(b, func(element) error { return nil }))
	}
	if err != nil {
		t.Fatal(err)
	}
	n := binary.NativeEndian
	size := int(is.newest.pageSize)
	branches, flips := 0, 0
	for id := 2; id < int(is.newest.high); id++ {
		page := file[id*size:][:size]
		if w.visited[id/64]&(1<<(id%64)) == 0 || n.Uint64(page) != uint64(id) || n.Uint16(page[8:]) != pageBranch {
			continue
		}
		branches++
		count := int(n.Uint16(page[10:]))
		for _, i := range []int{0, 1, count / 2, count - 1} {
			e := pageHeader + i*elementSize
			at := []int{e + 4, e + 5, e + 8, e + 9} // another place may hold the same key
			key := e + int(n.Uint32(page[e:]))
			for k := range min(int(n.Uint32(page[e+4:])), 12) {
				at = append(at, key+k)
			}
			for _, at := range at {
				for bit := range 8 {
					page[at] ^= 1 << bit
					var f fault
					if err := check(); !errors.As(err, &f) {
						t.Errorf("page %d, byte %d, bit %d: %v; want a fault", id, at, bit, err)
					}
					page[at] ^= 1 << bit
					flips++
				}
			}
		}
	}
	if branches < 2 {
		t.Errorf("%d branches, %d flips: that tests little", branches, flips)
	}
}

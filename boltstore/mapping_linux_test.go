package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlabs/weir"
)

// unmapped has the system refuse the next longer mapping of a store's file, and
// returns the error of the write that needed it. Nobody writes then.
func unmapped(t *testing.T, s *Store, items int) error {
	t.Helper()
	still(t, s)
	const hugePages = 0x40000  // MAP_HUGETLB, which syscall lacks on some processors
	s.db.MmapFlags = hugePages // EINVAL, for a file that is not of such pages
	for n := range items {
		took(t, s, "quota 10/year", fmt.Sprint("account#", n))
	}
	return s.flush()
}

// When a longer mapping of the file is refused takes fail, and go on by themselves
// when it is granted again. Nothing is lost.
func TestMappingRefused(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const items = 2000
	if err := unmapped(t, s, items); err == nil || !strings.Contains(err.Error(), syscall.EINVAL.Error()) {
		t.Fatalf("the write that needed a longer mapping: %v", err)
	}
	key := weir.NewKey("account", "0")
	if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); err == nil || !strings.Contains(err.Error(), "can't be written") {
		t.Errorf("a take after that: %v", err)
	}
	if used := usedOf(t, s, "quota 10/year", "account#0"); used != 1 {
		t.Errorf("a look after that: %d used", used)
	}
	s.startWriter()
	for err := errClosed; err != nil; { // the store tries by itself
		if err = s.Flush(ctx); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	took(t, s, "quota 10/year", "account#0")
	for mode := range SyncAlways + 1 {
		s = reopened(t, s, Options{Sync: mode})
		if err := s.Put(ctx, fmt.Sprint("record ", mode), make([]byte, 1<<20), "", time.Time{}); err != nil {
			t.Errorf("a longer mapping after that: %v", err)
		}
		for n := range items {
			want := int64(1)
			if n == 0 {
				want = 2
			}
			if used := usedOf(t, s, "quota 10/year", fmt.Sprint("account#", n)); used != want {
				t.Fatalf("after Close and Open, of item %d %d are used, want %d", n, used, want)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// While the file is open nowhere another process may get hold of it. Takes are
// refused for as long, and for good if that has written.
func TestMappingRefusedAndHeld(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unmapped(t, s, 2000); err == nil {
		t.Fatal("a longer mapping was granted")
	}
	if err := s.db.DB.Close(); err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	err = reading(s.path, func(*os.File, int64) error { return s.flush() })
	if !errors.As(err, &held) {
		t.Errorf("while another process reads the file: %v", err)
	}
	other, err := writing(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.flush(); !errors.As(err, &held) {
		t.Errorf("while another process has the file: %v", err)
	}
	if err := other.release(); err != nil {
		t.Fatal(err)
	}
	if err := s.flush(); err != nil {
		t.Errorf("after it has ended: %v", err)
	}

	if err := s.db.DB.Close(); err != nil {
		t.Fatal(err)
	}
	if other, err = writing(s.path); err == nil {
		err = errors.Join(other.Update(func(*bolt.Tx) error { return nil }), other.release())
	}
	if err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	for range 2 {
		if err := s.flush(); !errors.As(err, &damage) {
			t.Errorf("after another process has written: %v; want a DamageError", err)
		}
	}
	s.startWriter()
	if err := s.Close(); !errors.As(err, &damage) {
		t.Errorf("Close: %v; want a DamageError", err)
	}
}

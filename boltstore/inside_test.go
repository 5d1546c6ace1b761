package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

func opened(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// anyWrite counts one unit in an item.
func anyWrite(t *testing.T) []weir.Write {
	t.Helper()
	spec, err := plan.Parse("quota 100/day")
	if err != nil {
		t.Fatal(err)
	}
	w := make([]weir.Write, 1)
	if v := spec.Plan(new(weir.Cells), time.Now().UnixNano(), 1, &w[0]); !v.OK {
		t.Fatalf("%+v", v)
	}
	w[0].If = nil
	for i := range w[0].Do {
		if a := &w[0].Do[i]; a.Value == 1 {
			a.Do = plan.Add
		}
	}
	return w
}

// Whoever does not want to wait for the disk any longer learns that the outcome
// is open, and finds the unit counted.
func TestWaitEndsWithTheContext(t *testing.T) {
	s := opened(t, Options{Sync: SyncAlways})
	key := weir.NewKey("account", "a")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	busy, err := s.db.Begin(true) // the writer has to wait for this one
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	w := anyWrite(t)
	go func() {
		_, _, err := s.Apply(ctx, key, w, new(weir.Cells))
		done <- err
	}()
	for counted := false; !counted; {
		var c weir.Cells
		if _, _, err := s.Apply(context.Background(), key, nil, &c); err != nil {
			t.Fatal(err)
		}
		counted = c.Len() > 0
	}
	cancel()
	if err := <-done; !errors.Is(err, weir.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want an unknown outcome, cancelled", err)
	}
	if err := busy.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// While a commit hangs takes fail, and pass again when it has ended.
func TestStall(t *testing.T) {
	s := opened(t, Options{})
	ctx := context.Background()
	key := weir.NewKey("account", "a")
	s.stall()
	if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); !errors.Is(err, errStalled) || errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("%v; want %v, and nothing applied", err, errStalled)
	}
	if _, _, err := s.Apply(ctx, key, nil, new(weir.Cells)); err != nil {
		t.Errorf("a read: %v", err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); err != nil {
		t.Errorf("after the commit has ended: %v", err)
	}
}

// A value that changes by itself while the file is open is found when it is
// written again. Then nothing is written any more.
func TestDamageInUse(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	key := weir.NewKey("account", "a")
	if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketItems)
		v := bytes.Clone(b.Get(numberKey(0)))
		v[3] ^= 1
		return b.Put(numberKey(0), v)
	})
	if err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Flush(ctx); !errors.As(err, &damage) {
			t.Errorf("Flush: %v; want a DamageError", err)
		}
		if _, _, err := s.Apply(ctx, key, anyWrite(t), new(weir.Cells)); !errors.As(err, &damage) {
			t.Errorf("Apply: %v; want a DamageError", err)
		}
	}
	if err := s.Close(); !errors.As(err, &damage) {
		t.Errorf("Close: %v; want a DamageError", err)
	}
	if rep, err := Check(s.path); err != nil || len(rep.Damage) == 0 {
		t.Errorf("Check: %+v, %v", rep, err)
	}
}

// A file that is cut off right after a commit made it longer, or while it did, is
// found by the next, and no page beyond is touched.
func TestCutAfterGrowth(t *testing.T) {
	for _, during := range []bool{false, true} {
		s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		still(t, s)
		before := s.db.info
		for n := range 5000 {
			took(t, s, "quota 10/year", fmt.Sprint("account#", n))
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("of %d bytes %d are left", s.db.info.Size(), before.Size())
		if during { // as if the writer had looked after the cut
			s.db.info = before
			want = fmt.Sprintf("in use %d are left", before.Size())
		}
		if err := os.Truncate(s.path, before.Size()); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if err := s.flush(); !errors.As(err, &damage) || !strings.Contains(err.Error(), want) {
			t.Errorf("cut during the commit %v: %v; want a DamageError with %q", during, err, want)
		}
		s.startWriter()
		if err := s.Close(); !errors.As(err, &damage) {
			t.Errorf("Close: %v; want a DamageError", err)
		}
	}
}

// A panic of bbolt, or a page that the disk does not deliver, is an error.
func TestGuarded(t *testing.T) {
	if err := guarded(func() error { panic("assertion failed") }); !errors.Is(err, errDamaged) {
		t.Errorf("%v; want %v", err, errDamaged)
	}
	if err := guarded(func() error { return io.EOF }); err != io.EOF {
		t.Errorf("%v; want EOF", err)
	}
}

// Another version's file is not taken for a damaged one.
func TestOtherVersions(t *testing.T) {
	for _, version := range []uint32{formatVersion + 1, formatVersion - 1} {
		b := new(head).encode()
		b = b[:len(b)-4]
		binary.BigEndian.PutUint32(b, version)
		b = append(b, "more"...)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
		path := filepath.Join(t.TempDir(), "weir.db")
		err := fill(path, func(db *bolt.DB) error {
			return db.Update(func(tx *bolt.Tx) error {
				c, err := tx.CreateBucket(bucketHead)
				if err != nil {
					return err
				}
				return c.Put(keyHead, b)
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), errVersion.Error()) {
			t.Errorf("version %d: %v, want: %v", version, err, errVersion)
		}
		if rep, err := Check(path); !errors.Is(err, errVersion) {
			t.Errorf("version %d: %+v, %v; want: %v", version, rep, err, errVersion)
		}
	}
}

// Another program's bolt file is refused, and left alone.
func TestForeignBolt(t *testing.T) {
	for _, name := range []string{"", "other", string(bucketItems)} {
		path := filepath.Join(t.TempDir(), "weir.db")
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: name != "other"})
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			if err := db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte(name)); return err }); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if _, err := Open(path, Options{}); !errors.As(err, &damage) {
			t.Errorf("bucket %q: %v; want a DamageError", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("bucket %q: the file was changed (%v)", name, err)
		}
	}
}

// Every cell comes back from its text, and from no part of it.
func TestCellText(t *testing.T) {
	for _, c := range []cell{
		{}, {name: 1, value: -1}, {name: 127, windowed: true}, {name: math.MaxUint32, windowed: true, window: math.MaxUint32, value: math.MinInt64},
		{name: 300, value: math.MaxInt64}, {name: 64, windowed: true, window: 1_796_000_400, value: 1_796_000_000_123_456_789},
	} {
		b := appendCell(nil, c)
		got, rest, ok := cutCell(append(b, 7))
		if !ok || got != c || len(rest) != 1 {
			t.Errorf("%+v comes back as %+v, %v, rest %v", c, got, ok, rest)
		}
		for n := range b {
			if _, _, ok := cutCell(b[:n]); ok {
				t.Errorf("%+v: %d of %d bytes are enough", c, n, len(b))
			}
		}
	}
	if _, _, ok := cutCell(bytes.Repeat([]byte{0xff}, 20)); ok {
		t.Error("a number without end is one")
	}
}

// FuzzRead reads what may be a file: it must end, and must not panic.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "weir.db")
	s, err := Open(path, Options{})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Put(context.Background(), "record", make([]byte, 5000), "", time.Time{}); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	b = bytes.TrimRight(b, "\x00")
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		faults := 0
		_, err := read(bytes.NewReader(b), int64(len(b)), contents{fault: func(fault) error {
			if faults++; faults > 100 {
				return errEnough
			}
			return nil
		}})
		if len(b) < 2*512 && err == nil {
			t.Errorf("%d bytes are a file", len(b))
		}
	})
}

package boltstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

// A file that is damaged, cut off, removed or replaced while a store has it open:
// no call hangs, the process lives, reads go on from memory, takes fail and say
// why, Close ends, and what is left is not touched any more.
func TestDamagedWhileOpen(t *testing.T) {
	overwrite := func(t *testing.T, path string, at int64, with []byte) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(with, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(size int64) func(*testing.T, string, []byte) {
		return func(t *testing.T, path string, _ []byte) {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(t *testing.T, path string, older []byte){
		"emptied":            cut(0),
		"cut to a page":      cut(4096),
		"cut in the middle":  cut(40_000),
		"roots zeroed":       func(t *testing.T, path string, _ []byte) { overwrite(t, path, 0, make([]byte, 8192)) },
		"newest root broken": breakNewestRoot,
		"pages zeroed": func(t *testing.T, path string, _ []byte) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, path, 8192, make([]byte, info.Size()-8192))
		},
		"older in place": func(t *testing.T, path string, older []byte) {
			if err := os.WriteFile(path, older, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, path string, _ []byte) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(t *testing.T, path string, older []byte) {
			if err := os.WriteFile(path+".other", older, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".other", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, mode := range []boltstore.Sync{boltstore.SyncInterval, boltstore.SyncAlways} {
			t.Run(fmt.Sprintf("%s, mode %d", name, mode), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "weir.db")
				s := open(t, path, boltstore.Options{Sync: mode, Now: damageClock})
				fillDamageItems(t, s)
				older, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				fillDamageItems(t, s)
				before := contents(t, s)
				damage(t, path, older)
				left, _ := os.ReadFile(path)

				ctx := context.Background()
				var damaged *boltstore.DamageError
				op := weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", "1")}
				d, err := limiterOn(s).Take(ctx, op)
				if mode == boltstore.SyncAlways && !errors.As(err, &damaged) {
					t.Errorf("a take that is answered by the file: %+v, %v; want a DamageError", d, err)
				}
				for range 2 {
					if err := s.Flush(ctx); !errors.As(err, &damaged) {
						t.Errorf("Flush: %v; want a DamageError", err)
					}
					if d, err := limiterOn(s).Take(ctx, op); !errors.As(err, &damaged) {
						t.Errorf("Take: %+v, %v; want a DamageError", d, err)
					}
					if err := s.Put(ctx, "record/0", nil, "", time.Time{}); !errors.As(err, &damaged) {
						t.Errorf("Put: %v; want a DamageError", err)
					}
				}
				after := contents(t, s)
				delete(before, op.Key.String()+op.Limit.Name())
				delete(after, op.Key.String()+op.Limit.Name())
				if !maps.Equal(before, after) {
					t.Error("what is in memory has changed")
				}
				if err := s.Close(); !errors.As(err, &damaged) {
					t.Errorf("Close: %v; want a DamageError", err)
				}
				if now, _ := os.ReadFile(path); string(now) != string(left) {
					t.Error("what was left of the file was written to")
				}
			})
		}
	}
}

// fillDamageItems takes once for each of the items that contents looks at, and
// has the file hold it.
func fillDamageItems(t *testing.T, s *boltstore.Store) {
	t.Helper()
	ctx := context.Background()
	limiter := limiterOn(s)
	daily := parse(t, dailyText)
	var wg sync.WaitGroup
	for n := range damageItems { // at once, so that they share their waits for the disk
		wg.Go(func() {
			if d, err := limiter.Take(ctx, weir.Op{Limit: daily, Key: weir.NewKey("account", fmt.Sprint(n))}); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	wg.Wait()
	_, version, err := s.Get(ctx, "record/0")
	if err == nil {
		err = s.Put(ctx, "record/0", make([]byte, 20_000), version, time.Time{})
	}
	if err = errors.Join(err, s.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
}

// breakNewestRoot breaks the newer of a file's two roots.
func breakNewestRoot(t *testing.T, path string, _ []byte) {
	t.Helper()
	breakRoot(t, path, newestRoot(t, path))
}

// newestRoot is the number of the page with the newer root.
func newestRoot(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	of := func(page int) uint64 { return binary.NativeEndian.Uint64(b[4096*page+16+48:]) }
	if of(1) > of(0) {
		return 1
	}
	return 0
}

// breakRoot flips a bit of one of a file's roots.
func breakRoot(t *testing.T, path string, page int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, at := make([]byte, 1), int64(4096*page+16+24)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// Whatever is wrong with a file, one that opens can be used: no call panics or
// hangs, and the file is in order when it is closed.
func TestUseOfWhatOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s := open(t, path, boltstore.Options{Now: damageClock})
	limiter := limiterOn(s)
	limits := []weir.Limit{parse(t, dailyText), parse(t, "1/d burst 1000")}
	const items = 1500
	use := func(limiter *weir.Limiter, step int) error {
		for n := 0; n < items; n += step {
			key := weir.NewKey("account", fmt.Sprint(n, strings.Repeat("x", n%97)))
			if d, err := limiter.Take(context.Background(), weir.Op{Limit: limits[n%2], Key: key}); err != nil || !d.Allowed {
				return fmt.Errorf("%+v, %w", d, err)
			}
		}
		return nil
	}
	for step := 1; step < 4; step++ {
		if err := errors.Join(use(limiter, step), s.Flush(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 30 {
		if err := s.Put(context.Background(), fmt.Sprint("record/", n), make([]byte, 100*n), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 5))
	opened := 0
	const damages = 150
	for n := range damages {
		file, what := damaged(random, good)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := boltstore.Check(path)
		if err != nil {
			t.Fatalf("seed %d, number %d, %s: Check: %v", seed, n, what, err)
		}
		s, err := boltstore.Open(path, boltstore.Options{Now: damageClock})
		if (err != nil) != (len(rep.Damage) > 0) {
			t.Errorf("seed %d, number %d, %s: Open says %v, and Check finds %q", seed, n, what, err, rep.Damage)
		}
		if err != nil {
			continue
		}
		opened++
		err = errors.Join(use(limiterOn(s), 1+random.IntN(9)), s.Flush(context.Background()), s.Close())
		if rep, err2 := boltstore.Check(path); err != nil || err2 != nil || len(rep.Damage)+len(rep.Warnings) > 0 {
			t.Errorf("seed %d, number %d, %s: %v; then Check: %+v, %v", seed, n, what, err, rep, err2)
		}
	}
	if opened == 0 || opened == damages {
		t.Errorf("seed %d: %d of %d opened: that tests nothing", seed, opened, damages)
	}
}

// damaged is a file with something wrong, most often in the parts of pages that
// bbolt goes by.
func damaged(random *rand.Rand, good []byte) (file []byte, what string) {
	const page = 4096
	file = bytes.Clone(good)
	used := len(bytes.TrimRight(file, "\x00"))/page + 1
	p := random.IntN(used)
	if random.IntN(8) == 0 {
		p = random.IntN(2)
	}
	body := file[p*page:][:page]
	words := []uint32{0, 1, 2, 1<<32 - 1, 1<<31 - 1, 1 << 31, random.Uint32(), uint32(random.IntN(page)), uint32(random.IntN(used))}
	word := words[random.IntN(len(words))]
	switch random.IntN(9) {
	case 0:
		at, bit := random.IntN(page), random.IntN(8)
		body[at] ^= 1 << bit
		return file, fmt.Sprintf("page %d, byte %d, bit %d flipped", p, at, bit)
	case 1, 2:
		at, bit := random.IntN(600), random.IntN(8)
		body[at] ^= 1 << bit
		return file, fmt.Sprintf("page %d, byte %d, bit %d flipped", p, at, bit)
	case 3:
		at := 4 * random.IntN(160)
		binary.NativeEndian.PutUint32(body[at:], word)
		return file, fmt.Sprintf("page %d, %d at byte %d", p, word, at)
	case 4:
		from := random.IntN(used)
		copy(body, good[from*page:][:page])
		return file, fmt.Sprintf("page %d by page %d", p, from)
	case 5:
		from := 512 * random.IntN(8)
		clear(body[from:])
		return file, fmt.Sprintf("page %d from %d cleared", p, from)
	case 6:
		at := 4 * random.IntN(20)
		count := 1 + random.IntN(60)
		for i := range min(count, len(body[at:])) {
			body[at+i] = byte(random.Uint32())
		}
		return file, fmt.Sprintf("page %d, %d bytes from %d at random", p, count, at)
	case 7:
		size := random.IntN(len(file))
		return file[:size], fmt.Sprintf("cut to %d bytes", size)
	}
	// A root with a word changed and the sum made right, as no disk does it.
	p = random.IntN(2)
	body = file[p*page:][:page]
	at := 16 + 8 + 4*random.IntN(12)
	binary.NativeEndian.PutUint32(body[at:], word)
	sumRoot(body)
	return file, fmt.Sprintf("root %d, %d at byte %d", p, word, at)
}

// sumRoot makes the sum of a root right.
func sumRoot(page []byte) {
	sum := fnv.New64a()
	sum.Write(page[16 : 16+56])
	binary.NativeEndian.PutUint64(page[16+56:], sum.Sum64())
}

// A file that was written more often than an int of 32 bits counts opens like any
// other, and goes on counting.
func TestManyCommits(t *testing.T) {
	for _, commits := range []uint64{1 << 31, 1 << 32, 1 << 40} {
		path := filepath.Join(t.TempDir(), "weir.db")
		s := open(t, path, boltstore.Options{Now: damageClock})
		fillDamageItems(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range [][]byte{b[:4096], b[4096:]} {
			binary.NativeEndian.PutUint64(root[16+48:], commits-2+binary.NativeEndian.Uint64(root[16+48:])%2) // which root has it is its last bit
			sumRoot(root)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s, err := boltstore.Open(path, boltstore.Options{Now: damageClock})
			if err != nil {
				t.Fatalf("after %d commits: %v", commits, err)
			}
			fillDamageItems(t, s)
			if err := errors.Join(s.Flush(context.Background()), s.Close()); err != nil {
				t.Fatalf("after %d commits: %v", commits, err)
			}
		}
		if rep, err := boltstore.Check(path); err != nil || len(rep.Damage)+len(rep.Warnings) > 0 {
			t.Errorf("after %d commits: %+v, %v", commits, rep, err)
		}
	}
}

// A file one of whose roots is broken opens with what the other leads to, and says
// so. When it was closed in order that is all, whichever it is.
func TestOneRoot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.db")
	s := open(t, path, boltstore.Options{Sync: boltstore.SyncAlways, Now: damageClock})
	var states []map[string]int64
	for range 3 {
		fillDamageItems(t, s)
		states = append(states, contents(t, s))
	}
	op := weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", "1")}
	if d, err := limiterOn(s).Take(context.Background(), op); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	states = append(states, contents(t, s))
	killed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest := func(t *testing.T, path string) { breakNewestRoot(t, path, nil) }
	older := func(t *testing.T, path string) { breakRoot(t, path, 1-newestRoot(t, path)) }
	both := func(t *testing.T, path string) { breakRoot(t, path, 0); breakRoot(t, path, 1) }
	last := len(states) - 1
	for name, c := range map[string]struct {
		file     []byte
		damage   func(*testing.T, string)
		state    int
		warnings int
	}{
		"closed":               {closed, nil, last, 0},
		"closed, newer broken": {closed, newest, last, 1},
		"closed, older broken": {closed, older, last, 1},
		"killed":               {killed, nil, last, 0},
		"killed, newer broken": {killed, newest, last - 1, 1},
		"killed, older broken": {killed, older, last, 1},
		"killed, both broken":  {killed, both, -1, 0},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		if c.damage != nil {
			c.damage(t, path)
		}
		rep, err := boltstore.Check(path)
		if err != nil || len(rep.Warnings) != c.warnings || (len(rep.Damage) > 0) != (c.state < 0) {
			t.Errorf("%s: Check: %+v, %v; want %d warnings", name, rep, err, c.warnings)
		}
		s, err := boltstore.Open(path, boltstore.Options{Now: damageClock})
		if c.state < 0 {
			if err == nil {
				t.Errorf("%s: it opens", name)
				s.Close()
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w := s.Warnings(); len(w) != c.warnings {
			t.Errorf("%s: warnings %q, want %d", name, w, c.warnings)
		}
		if !maps.Equal(contents(t, s), states[c.state]) {
			t.Errorf("%s: the store does not hold state %d", name, c.state)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if rep, err := boltstore.Check(path); err != nil || len(rep.Warnings)+len(rep.Damage) > 0 {
			t.Errorf("%s: after Close: %+v, %v", name, rep, err)
		}
	}
}

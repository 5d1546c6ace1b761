package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

const damageItems = 200

// contents is all that a store holds, as far as callers can tell.
func contents(t *testing.T, s *boltstore.Store) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	limiter := limiterOn(s)
	limits := []weir.Limit{parse(t, dailyText), parse(t, "1/d burst 1000")}
	for n := range damageItems {
		key := weir.NewKey("account", fmt.Sprint(n))
		for _, limit := range limits {
			ds, err := limiter.Peek(context.Background(), weir.Op{Limit: limit, Key: key})
			if err != nil {
				t.Fatal(err)
			}
			all[key.String()+limit.Name()] = ds[0].Used
		}
	}
	keys, _, err := s.List(context.Background(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		value, _, err := s.Get(context.Background(), k)
		if err != nil {
			t.Fatal(err)
		}
		all["record "+k] = int64(len(value))
	}
	return all
}

// specimen makes a file in a few commits, and returns it with what it held after
// each of them.
func specimen(t *testing.T) (file []byte, states []map[string]int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	s := open(t, path, boltstore.Options{Now: damageClock})
	limiter := limiterOn(s)
	states = append(states, contents(t, s))
	for commit := range 5 {
		for n := range damageItems {
			if commit > 0 && n%7 != commit {
				continue
			}
			key := weir.NewKey("account", fmt.Sprint(n))
			d, err := limiter.Take(ctx, weir.Op{Limit: parse(t, dailyText), Key: key}, weir.Op{Limit: parse(t, "1/d burst 1000"), Key: key, Cost: 3})
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		states = append(states, contents(t, s))
		if err := s.Put(ctx, fmt.Sprint("record/", commit), make([]byte, 3000*commit), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		states = append(states, contents(t, s))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, states
}

func damageClock() int64 { return 1_796_000_000_000_000_000 }

// opens opens a damaged file and reports whether that was refused. When it was
// not, the store must hold what it held after one of the commits.
func opens(t *testing.T, what string, file []byte, states []map[string]int64) (refused bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := boltstore.Check(path)
	if err != nil {
		t.Fatalf("%s: Check: %v", what, err)
	}
	s, err := boltstore.Open(path, boltstore.Options{Now: damageClock})
	if (err != nil) != (len(rep.Damage) > 0) {
		t.Errorf("%s: Open says %v, and Check finds %q", what, err, rep.Damage)
	}
	if err != nil {
		var damage *boltstore.DamageError
		if !errors.As(err, &damage) || damage.Path != path || !strings.Contains(err.Error(), "weir store check --store bolt:"+path) {
			t.Errorf("%s: %v; want a DamageError that says what to do", what, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(file) {
			t.Errorf("%s: the refused file was changed (%v)", what, err)
		}
		return true
	}
	defer s.Close()
	have := contents(t, s)
	for i := len(states) - 1; i >= 0; i-- {
		if maps.Equal(have, states[i]) {
			if i < len(states)-2 {
				t.Errorf("%s: the store is %d commits behind", what, len(states)-1-i)
			}
			return false
		}
	}
	t.Errorf("%s: the store holds what it never held", what)
	return false
}

// A flipped bit is found out or changes nothing, wherever it is.
func TestFlippedBits(t *testing.T) {
	file, states := specimen(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	used := len(file)
	for used > 0 && file[used-1] == 0 {
		used--
	}
	refused := 0
	const flips = 400
	for n := range flips {
		at := random.IntN(used)
		if n%2 == 0 { // the headers of pages and elements, where it hurts
			at = min(random.IntN(used/4096+1)*4096+random.IntN(200), used-1)
		}
		bit := byte(1) << random.IntN(8)
		file[at] ^= bit
		if opens(t, fmt.Sprintf("seed %d, bit %#x at %d", seed, bit, at), file, states) {
			refused++
		}
		file[at] ^= bit
	}
	if refused == 0 || refused == flips {
		t.Errorf("%d of %d were refused: that tests nothing", refused, flips)
	}
}

// Several bytes are overwritten, or a whole page by another or by zeros, as by a
// disk that writes to the wrong place or not at all.
func TestMisplacedPages(t *testing.T) {
	file, states := specimen(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	const page = 4096
	pages := len(file) / page
	for n := range 100 {
		broken := append([]byte(nil), file...)
		at := random.IntN(min(pages, 40)) * page
		switch n % 3 {
		case 0:
			from := random.IntN(min(pages, 40)) * page
			copy(broken[at:at+page], file[from:from+page])
		case 1:
			clear(broken[at : at+page])
		case 2: // a torn write
			clear(broken[at+512*random.IntN(8) : at+page])
		}
		opens(t, fmt.Sprintf("seed %d, number %d, page %d", seed, n, at/page), broken, states)
	}
}

// A file that is cut off is refused, wherever it is cut.
func TestCutFile(t *testing.T) {
	file, states := specimen(t)
	used := len(file)
	for used > 0 && file[used-1] == 0 {
		used--
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 3))
	cuts := []int{0, 1, 15, 16, 63, 64, 80, 4095, 4096, 4097, 8191, 8192, 8193, used - 1}
	for range 300 {
		cuts = append(cuts, random.IntN(used))
	}
	for _, cut := range cuts {
		if !opens(t, fmt.Sprintf("seed %d, cut at %d", seed, cut), file[:cut], states) {
			t.Errorf("cut at %d of %d: it opens", cut, used)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"text": strings.Repeat("weir\n", 5000), "empty": "", "zeros": string(make([]byte, 1<<16)), "sqlite": "SQLite format 3\x00" + strings.Repeat("x", 8192),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := boltstore.Open(path, boltstore.Options{})
		var damage *boltstore.DamageError
		if !errors.As(err, &damage) {
			t.Errorf("%s: %v; want a DamageError", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := boltstore.Open(dir, boltstore.Options{}); err == nil {
		t.Error("a folder opens")
	}
	_, err := boltstore.Open(filepath.Join(dir, "no", "such", "folder", "weir.db"), boltstore.Options{})
	var damage *boltstore.DamageError
	if !errors.Is(err, os.ErrNotExist) || errors.As(err, &damage) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if _, err := boltstore.Open("", boltstore.Options{}); err == nil {
		t.Error("no name opens")
	}
	if _, err := boltstore.Check(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Check of a file that is not there: %v", err)
	}
}

// A machine loses power: of the pages of a commit any may be on the disk, whole or
// in part, and the root follows only when they all are.
func TestPowerCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	s := open(t, path, boltstore.Options{Now: damageClock})
	limiter := limiterOn(s)
	daily := parse(t, dailyText)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 4))
	image := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	states := []map[string]int64{contents(t, s)}
	before := image()
	const page, sector = 4096, 512
	cuts, torn := 0, 0
	for commit := range 6 {
		for n := range damageItems {
			if n%3 == commit%3 || commit == 0 {
				if d, err := limiter.Take(ctx, weir.Op{Limit: daily, Key: weir.NewKey("account", fmt.Sprint(n))}); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		after := image()
		states = append(states, contents(t, s))
		now := states[len(states)-2:]
		var data, roots []int
		for at := 0; at < len(after); at += sector {
			if at >= len(before) || string(before[at:at+sector]) != string(after[at:at+sector]) {
				if at < 2*page {
					roots = append(roots, at)
				} else {
					data = append(data, at)
				}
			}
		}
		if len(data) < 4 || len(roots) == 0 {
			t.Fatalf("commit %d wrote %d sectors and %d of a root: that tests nothing", commit, len(data), len(roots))
		}
		if roots[0]/page != roots[len(roots)-1]/page {
			before = after // the writer committed by itself meanwhile: two commits, which no one cut lies between
			continue
		}
		for range 20 {
			crashed := append([]byte(nil), after...)
			clear(crashed)
			copy(crashed, before)
			for _, at := range data {
				if random.IntN(2) == 0 {
					copy(crashed[at:at+sector], after[at:at+sector])
				}
			}
			if opens(t, fmt.Sprintf("seed %d, commit %d, pages lost", seed, commit), crashed, now) {
				t.Errorf("seed %d, commit %d: lost pages of a commit that was not answered keep the file from opening", seed, commit)
			}
			cuts++
			// A disk that says that they are written, and they are not.
			for _, at := range roots {
				copy(crashed[at:at+sector], after[at:at+sector])
			}
			if opens(t, fmt.Sprintf("seed %d, commit %d, a disk that lies", seed, commit), crashed, now[1:]) {
				torn++
			}
		}
		before = after
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if cuts == 0 || torn < cuts/2 {
		t.Errorf("of %d files with lost pages %d were refused", cuts, torn)
	}
}

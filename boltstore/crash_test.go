package boltstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// inFileSums reads each item straight from a file that no store has open, as the sum
// of its fields. One that is there twice fails the test.
func inFileSums(t *testing.T, path string) map[string]int64 {
	t.Helper()
	values := map[string]int64{}
	err := reading(path, func(r *os.File, size int64) error {
		_, err := read(r, size, contents{fault: stop, pack: func(_ uint32, payload []byte) error {
			for key, item := range itemsOf(payload) {
				if _, twice := values[string(key)]; twice {
					return errTwice
				}
				sum := int64(0)
				for rest := item[8:]; len(rest) > 0; {
					var c cell
					c, rest, _ = cutCell(rest)
					sum += c.value
				}
				values[string(key)] = sum
			}
			return nil
		}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}

const crashRounds = 400

// Whenever a process ends between two transactions of a write, and whichever
// prefixes the stores have that follow each other on the file, each item of it
// is one of those that it was in memory since the write before, and those of other
// prefixes stay as they are.
func TestCrashes(t *testing.T) {
	const keys = 300
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 5))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	limit, err := weir.ParseLimit("quota 1000000/year")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	file := map[string]int64{} // what it holds
	crashes, again := 0, 0
	for range crashRounds {
		prefix := []string{"", "green/", strings.Repeat("long/", 200)}[random.IntN(3)]
		narrow := random.IntN(2) == 0 // so that items are dropped for others
		o := Options{Now: func() int64 { return someTime }, Prefix: prefix, MaxKeys: 1 << 15}
		if narrow {
			o.MaxKeys = 100
		}
		s, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.stopWriter(); err != nil { // this test writes
			t.Fatal(err)
		}
		s.db.NoSync = true // the machine goes on
		l := weir.NewLimiter(s, weir.Options{Deadline: time.Minute})
		sh := &s.shards[0]
		value := func(key string) (sum int64) {
			if n, found := sh.Find(plan.KeyFromText(key)); found {
				for slot := range sh.Entry(n).Cells.All() {
					sum += slot.Value
				}
			}
			return sum
		}
		mine := func(key string) (text string, is bool) {
			text, is = strings.CutPrefix(key, prefix)
			return text, is && plan.KeyFromText(text).Valid()
		}
		for key, want := range file {
			if text, is := mine(key); is && value(text) != want {
				t.Fatalf("%s: %d are used, and %d in the file", key, value(text), want)
			}
		}
		crashed := false
		for writes := 1 + random.IntN(4); writes > 0 && !crashed; writes-- {
			possible := map[string][]int64{}
			for key, v := range file {
				possible[key] = []int64{v}
			}
			for range random.IntN(600) {
				text := fmt.Sprint("k#", random.IntN(keys))
				switch random.IntN(10) {
				case 0:
					text = fmt.Sprint("green/k#", random.IntN(keys))
				case 1:
					text = strings.Repeat("k", 1000) + text
				}
				key, before := plan.KeyFromText(text), value(text)
				if random.IntN(3) == 0 {
					err = l.Reset(ctx, key)
				} else {
					_, err = l.Take(ctx, weir.Op{Limit: limit, Key: key, Cost: int64(1 + random.IntN(9))})
				}
				if err != nil {
					t.Fatal(err)
				}
				if before == 0 && file[prefix+text] != 0 {
					again++
				}
				possible[prefix+text] = append(possible[prefix+text], value(text))
			}
			for i := range s.shards {
				s.shards[i].collect(i, &s.packs, s.clock.now)
			}
			atOnce := 1 + random.IntN(3)
			steps := s.packs.steps(nil, atOnce)
			transactions := (len(steps) + atOnce - 1) / atOnce
			end := transactions
			if random.IntN(2) == 0 {
				end = random.IntN(transactions + 1)
			}
			for some := range slices.Chunk(steps, atOnce) {
				if crashed = end == 0; crashed {
					crashes++
					break
				}
				end--
				if err := s.transact(some, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			s.packs.dirty = s.packs.dirty[:0]
			if !crashed {
				for key := range possible { // all is in the file
					if text, is := mine(key); is {
						file[key] = value(text)
					}
				}
				maps.DeleteFunc(file, func(_ string, v int64) bool { return v == 0 })
			}
			if crashed || writes == 1 {
				if err := s.db.Close(); err != nil {
					t.Fatal(err)
				}
				now := inFileSums(t, path)
				for key, v := range now {
					if !crashed && file[key] != v || crashed && !slices.Contains(possible[key], v) {
						t.Errorf("%.20s...%s has %d, and had %d, then %v", key, key[max(0, len(key)-6):], v, file[key], possible[key])
					}
				}
				for key, v := range file {
					_, is := mine(key)
					gone := crashed && is && (narrow || slices.Contains(possible[key], 0))
					if now[key] == 0 && !gone {
						t.Errorf("%.20s...%s had %d, and is gone", key, key[max(0, len(key)-6):], v)
					}
				}
				if t.Failed() {
					return
				}
				file = now
			}
		}
	}
	if crashes < crashRounds/4 || again < crashRounds/4 {
		t.Errorf("%d crashes, %d items that were dropped and came again: that tests nothing", crashes, again)
	}
}

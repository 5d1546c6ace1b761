package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
)

// ghosts takes from limits that only the child's process knows.
func ghosts(path string) error {
	s, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	limiter := limiterOn(s)
	for i, text := range ghostLimits {
		l, err := ghost(i, text)
		if err != nil {
			return err
		}
		for range i + 1 {
			if d, err := limiter.Take(context.Background(), weir.Op{Limit: l, Key: ghostKey()}, weir.Op{Limit: l, Key: ghostKey(), Shadow: true}); err != nil || !d.Allowed {
				return fmt.Errorf("%+v, %w", d, err)
			}
		}
	}
	return s.Close()
}

var ghostLimits = []string{"1/d burst 10", "quota 10/d", "quota 10/year calendar Europe/Berlin", "sliding 10/30d"}

func ghost(i int, text string) (weir.Limit, error) {
	l, err := weir.ParseLimit(text)
	if err != nil {
		return l, err
	}
	return l.Named(fmt.Sprint("ghost-", i))
}

func ghostKey() weir.Key { return weir.NewKey("account", "haunted") }

// Fields of limits that a process does not know stay as they are, also when it
// writes the item; when it builds the limit later, it finds them.
func TestFieldsOfUnknownLimitsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	cmd, lines := startChild(t, "ghosts", path)
	for lines.Scan() {
		t.Error(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	own := weir.Op{Limit: parse(t, dailyText), Key: ghostKey()}
	for restart := range int64(3) {
		s := open(t, path, boltstore.Options{})
		if d, err := limiterOn(s).Take(ctx, own); err != nil || d.Used != restart+1 {
			t.Fatalf("%+v, %v", d, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path, boltstore.Options{})
	limiter := limiterOn(s)
	used := func(want int64) {
		t.Helper()
		for i, text := range ghostLimits {
			l, err := ghost(i, text)
			if err != nil {
				t.Fatal(err)
			}
			ds, err := limiter.Peek(ctx, weir.Op{Limit: l, Key: ghostKey()}, weir.Op{Limit: l, Key: ghostKey(), Shadow: true})
			if err != nil || ds[0].Used != int64(i)+want || ds[1].Used != int64(i)+1 {
				t.Errorf("%s: %d and %d as a shadow are used, %v; want %d and %d", text, ds[0].Used, ds[1].Used, err, int64(i)+want, i+1)
			}
		}
	}
	used(1) // built while the store is open, one after the other
	for i, text := range ghostLimits {
		l, _ := ghost(i, text)
		if d, err := limiter.Take(ctx, weir.Op{Limit: l, Key: ghostKey()}); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, boltstore.Options{}) // and built before it opens
	defer s.Close()
	limiter = limiterOn(s)
	used(2)
}

// fakeClock is a machine's clock that tests move.
type fakeClock struct{ at atomic.Int64 }

func newFakeClock() *fakeClock {
	c := &fakeClock{}
	c.at.Store(time.Date(2027, 3, 14, 15, 9, 26, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) now() int64              { return c.at.Load() }
func (c *fakeClock) advance(d time.Duration) { c.at.Add(int64(d)) }

// told is the store's now.
func told(t *testing.T, s *boltstore.Store) int64 {
	t.Helper()
	_, now, err := s.Apply(context.Background(), weir.NewKey("a", "b"), nil, new(weir.Cells))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// A machine whose clock went back while the process was down: the store's time
// goes on from where it was, nothing refills twice, and nobody waits for the
// clock to come back.
func TestClockWentBack(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Hour, 23 * time.Hour, 25 * time.Hour, 20 * 365 * 24 * time.Hour} {
		path := filepath.Join(t.TempDir(), "weir.db")
		clock := newFakeClock()
		op := weir.Op{Limit: parse(t, "1/m burst 10"), Key: weir.NewKey("account", "a"), Cost: 10}
		ctx := context.Background()
		s := open(t, path, boltstore.Options{Now: clock.now})
		if d, err := weir.NewLimiter(s, weir.Options{Now: clock.now, Deadline: time.Minute}).Take(ctx, op); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		last := told(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		clock.advance(-back)
		s = open(t, path, boltstore.Options{Now: clock.now})
		limiter := weir.NewLimiter(s, weir.Options{Now: clock.now, Deadline: time.Minute})
		op.Cost = 1
		if d, err := limiter.Take(ctx, op); err != nil || d.Allowed {
			t.Errorf("%v back: an empty bucket allows: %+v, %v", back, d, err)
		}
		believed := back < 24*time.Hour
		if w := s.Warnings(); len(w) != 1 || strings.Contains(w[0], "start over") == believed {
			t.Errorf("%v back: warnings %q", back, s.Warnings())
		}
		if believed {
			if now := told(t, s); now != last {
				t.Errorf("%v back: the time is %v after what was told before the restart", back, time.Duration(now-last))
			}
			clock.advance(back)
			if now, want := told(t, s), last+int64(back)/2; now != want {
				t.Errorf("%v back, and as long later: the time is %v off", back, time.Duration(now-want))
			}
			clock.advance(back)
			if now := told(t, s); now != clock.now() {
				t.Errorf("%v back, and twice as long later: the time is %v off", back, time.Duration(now-clock.now()))
			}
		} else {
			clock.advance(20 * time.Minute)
		}
		clock.advance(time.Minute)
		if d, err := limiter.Take(ctx, op); err != nil || !d.Allowed {
			t.Errorf("%v back: the bucket does not refill: %+v, %v", back, d, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Items and records that mean nothing any more leave memory and file, while the
// store is open and when it opens.
func TestWhatIsOverLeaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := open(t, path, boltstore.Options{})
		limiter := limiterOn(s)
		take := func(text string, n int) {
			for i := range n {
				op := weir.Op{Limit: parse(t, text), Key: weir.NewKey(strings.Fields(text)[0], fmt.Sprint(i))}
				if d, err := limiter.Take(ctx, op); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			if err := s.Put(ctx, "over/"+text, nil, "", time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		report := func() *boltstore.Report {
			rep, err := boltstore.Check(path)
			if err != nil || len(rep.Damage) > 0 {
				t.Fatalf("%+v, %v", rep, err)
			}
			return rep
		}
		reopen := func() {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path, boltstore.Options{})
			limiter = limiterOn(s)
		}
		take("1/m burst 60", 500)
		take("1/d burst 2", 10)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if rep := report(); rep.Items != 510 || rep.Records != 2 || rep.Idle != 0 {
			t.Fatalf("%+v; want 510 items and 2 records", rep)
		}
		s = open(t, path, boltstore.Options{})
		limiter = limiterOn(s)
		<-time.After(3 * time.Minute)
		if st := s.Stats(); st.Keys != 10 || st.Evicted != 500 || st.Lost != 0 {
			t.Errorf("after three minutes: %+v; want 10 keys", st)
		}
		reopen()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if rep := report(); rep.Items != 10 || rep.Records != 0 {
			t.Errorf("%+v; want 10 items and no records", rep)
		}
		<-time.After(48 * time.Hour)
		if rep := report(); rep.Items != 10 || rep.Idle != 10 {
			t.Errorf("two days later: %+v; want 10 idle items", rep)
		}
		s = open(t, path, boltstore.Options{})
		reopen()
		if st := s.Stats(); st.Keys != 0 {
			t.Errorf("two days later: %+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if rep := report(); rep.Items != 0 {
			t.Errorf("two days later, opened and closed: %+v", rep)
		}
	})
}

// A reset leaves the file as well.
func TestResetLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	op := weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", "a")}
	for range 2 {
		s := open(t, path, boltstore.Options{})
		limiter := limiterOn(s)
		for range 2 {
			if d, err := limiter.Take(ctx, op); err != nil || d.Used != 1 {
				t.Fatalf("%+v, %v", d, err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if err := limiter.Reset(ctx, op.Key); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if rep, err := boltstore.Check(path); err != nil || rep.Items != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// More items than one transaction takes come back, every one, through the bound
// on keys too; Compact loses none and gives the space back.
func TestManyItems(t *testing.T) {
	const items = 70_000
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	daily := parse(t, dailyText)
	op := func(n int) weir.Op {
		return weir.Op{Limit: daily, Key: weir.NewKey("account", fmt.Sprint(n)), Cost: int64(n%5 + 1)}
	}
	s := open(t, path, boltstore.Options{})
	limiter := limiterOn(s)
	for n := range items {
		if d, err := limiter.Take(ctx, op(n)); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := func(s *boltstore.Store) {
		t.Helper()
		limiter := limiterOn(s)
		for n := range items {
			ds, err := limiter.Peek(ctx, op(n))
			if err != nil || ds[0].Used != int64(n%5+1) {
				t.Fatalf("item %d: %+v, %v", n, ds, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lost := uint64(0)
	all(open(t, path, boltstore.Options{MaxKeys: 1000, Lost: func(total uint64) { lost = total }}))
	if lost > 0 {
		t.Errorf("opening with a bound lost %d items", lost)
	}
	before, after, err := boltstore.Compact(path)
	if err != nil || after >= before {
		t.Errorf("Compact: %d bytes before, %d after, %v", before, after, err)
	}
	if rep, err := boltstore.Check(path); err != nil || len(rep.Damage) > 0 || rep.Items != items || rep.Bytes != after {
		t.Errorf("compacted: %+v, %v", rep, err)
	}
	all(open(t, path, boltstore.Options{}))
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// A bound on keys drops items that hold something only when nothing else is left
// to drop, says so, and the file loses them too.
func TestBoundIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	var heard []uint64
	s := open(t, path, boltstore.Options{MaxKeys: 100, Lost: func(total uint64) { heard = append(heard, total) }})
	limiter := limiterOn(s)
	ctx := context.Background()
	for n := range 300 {
		if d, err := limiter.Take(ctx, weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", fmt.Sprint(n))}); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		if n%50 == 0 {
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if st := s.Stats(); st.Keys != 100 || st.Lost != 200 {
		t.Errorf("%+v; want 100 keys, 200 lost", st)
	}
	if fmt.Sprint(heard) != "[1 2 4 8 16 32 64 128]" {
		t.Errorf("heard %v", heard)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := boltstore.Check(path); err != nil || rep.Items != 100 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// Stores with prefixes share a file, one after the other, and don't see each
// other's items and records.
func TestPrefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx := context.Background()
	op := weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", "a")}
	for round := range int64(2) {
		for _, prefix := range []string{"", "blue/", "green/"} {
			s := open(t, path, boltstore.Options{Prefix: prefix})
			if d, err := limiterOn(s).Take(ctx, op); err != nil || d.Used != round+1 {
				t.Errorf("round %d, prefix %q: %+v, %v", round, prefix, d, err)
			}
			_, version, err := s.Get(ctx, "record")
			if err != nil || (version == "") != (round == 0) {
				t.Errorf("round %d, prefix %q: version %q, %v", round, prefix, version, err)
			}
			if err := s.Put(ctx, "record", []byte(prefix), version, time.Time{}); err != nil {
				t.Error(err)
			}
			if keys, _, err := s.List(ctx, "rec", "", 0); err != nil || prefix != "" && len(keys) != 1 || len(keys) > 0 && keys[0] != "record" {
				t.Errorf("round %d, prefix %q: %q, %v", round, prefix, keys, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Callers that wait for the disk share its writes.
func TestGroupCommit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "weir.db"), boltstore.Options{Sync: boltstore.SyncAlways})
	defer s.Close()
	limiter := limiterOn(s)
	const callers, each = 64, 20
	var wg sync.WaitGroup
	for n := range callers {
		op := weir.Op{Limit: parse(t, dailyText), Key: weir.NewKey("account", fmt.Sprint(n%8))}
		wg.Go(func() {
			for range each {
				if d, err := limiter.Take(context.Background(), op); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Commits > callers*each/8 {
		t.Errorf("%d takes needed %d commits", callers*each, st.Commits)
	}
	// A refusal changes nothing, and so waits for nothing.
	once := weir.Op{Limit: parse(t, "1/d burst 1"), Key: weir.NewKey("account", "once")}
	if d, err := limiter.Take(context.Background(), once); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	before := s.Stats().Commits
	for range 100 {
		if d, err := limiter.Take(context.Background(), once); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if after := s.Stats().Commits; after != before {
		t.Errorf("100 refusals needed %d commits", after-before)
	}
}

// After Close nothing is taken, and Close may be called again.
func TestClosed(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "weir.db"), boltstore.Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := s.Apply(ctx, weir.NewKey("a", "b"), nil, new(weir.Cells)); err == nil {
		t.Error("a closed store answers")
	}
	if _, _, err := s.Get(ctx, "a"); err == nil {
		t.Error("a closed store has records")
	}
	if err := s.Put(ctx, "a", nil, "", time.Time{}); err == nil {
		t.Error("a closed store keeps records")
	}
	if err := s.Flush(ctx); err == nil {
		t.Error("a closed store writes")
	}
}

// Records that bbolt can't hold are refused alone, and not with what is written
// along with them.
func TestImpossibleRecords(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "weir.db"), boltstore.Options{})
	defer s.Close()
	for _, key := range []string{"", strings.Repeat("k", 1<<15)} {
		if err := s.Put(ctx, key, nil, "", time.Time{}); err == nil || errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	if err := s.Put(ctx, "k", make([]byte, 17<<20), "", time.Time{}); err == nil {
		t.Error("a value of 17 MiB")
	}
	if err := s.Put(ctx, "k", make([]byte, 1<<20), "", time.Time{}); err != nil {
		t.Error(err)
	}
}

// A file that can't be written is said to be so when it opens.
func TestFolderWithoutRights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := boltstore.Open(filepath.Join(dir, "weir.db"), boltstore.Options{}); err == nil || !strings.Contains(err.Error(), "weir.db") {
		t.Errorf("in a file instead of a folder: %v", err)
	}
}

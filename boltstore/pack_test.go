package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// reopened closes a store and opens its file again.
func reopened(t *testing.T, s *Store, o Options) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(s.path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func flushed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// still writes all, and ends the writer until startWriter: a test can look at what
// is the writer's.
func still(t *testing.T, s *Store) {
	t.Helper()
	if err := s.stopWriter(); err != nil {
		t.Fatal(err)
	}
}

// took takes one unit and says how many are used then.
func took(t *testing.T, s *Store, text, key string) int64 {
	t.Helper()
	limit, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	l := weir.NewLimiter(s, weir.Options{Deadline: time.Minute})
	d, err := l.Take(context.Background(), weir.Op{Limit: limit, Key: plan.KeyFromText(key)})
	if err != nil || !d.Allowed {
		t.Fatalf("%s: %+v, %v", key, d, err)
	}
	return d.Used
}

// No file has an item twice. One that does is refused, and said to be damaged,
// whatever the prefix of the item.
func TestItemTwice(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	took(t, s, "quota 10/year", "account#a")
	flushed(t, s)
	if err := s.stopWriter(); err != nil { // this test writes
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		tr, err := begin(tx)
		if err != nil {
			return err
		}
		payload, _, _ := unseal(bucketItems[0], numberKey(0), tx.Bucket(bucketItems).Get(numberKey(0)))
		if err := tr.put(bucketItems, numberKey(7), bytes.Clone(payload)); err != nil {
			return err
		}
		return tr.head.save(tx)
	})
	if err = errors.Join(err, s.db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.path, Options{}); err == nil || !strings.Contains(err.Error(), errTwice.what) {
		t.Errorf("%v, want: %s", err, errTwice.what)
	}
	if rep, err := Check(s.path); err != nil || len(rep.Damage) != 1 || rep.Items != 1 {
		t.Errorf("%+v, %v; want 1 item, and one damage", rep, err)
	}
}

// Items of other prefixes stay in a pack as they are, whoever writes it.
func TestPackOfSeveralPrefixes(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"account#a", "blue/account#a", "account#b", "green/account#a"} {
		took(t, s, "quota 10/year", key)
	}
	still(t, s)
	if len(s.packs.all) != 1 {
		t.Fatalf("four items are in %d packs: that tests nothing", len(s.packs.all))
	}
	s.startWriter()
	for round := range int64(3) {
		for _, prefix := range []string{"blue/", "green/"} {
			s = reopened(t, s, Options{Prefix: prefix})
			if used := took(t, s, "quota 10/year", "account#a"); used != round+2 {
				t.Errorf("round %d, %s: %d are used, want %d", round, prefix, used, round+2)
			}
		}
	}
	s = reopened(t, s, Options{})
	for key, want := range map[string]int64{"account#a": 2, "blue/account#a": 5, "account#b": 2, "green/account#a": 5} {
		if used := took(t, s, "quota 10/year", key); used != want {
			t.Errorf("%s: %d are used, want %d", key, used, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever comes, goes, ends and is reset, each item is in one pack, packs that
// many items have left are filled again, and the file opens with all of them.
func TestItemsComeAndGo(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 5))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	var clock atomic.Int64
	clock.Store(someTime)
	o := Options{Now: clock.Load, MaxKeys: 2000}
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int64{} // of what lasts
	highest, most := 0, 0
	ctx := context.Background()
	for step := range 60 {
		for range random.IntN(600) {
			switch n := random.IntN(1000); {
			case n < 600:
				took(t, s, "1/h burst 3600", fmt.Sprint("brief#", step, "-", n))
			default:
				key := fmt.Sprint("lasting#", n%300)
				used[key]++
				if got := took(t, s, "quota 1000000/year", key); got != used[key] {
					t.Fatalf("step %d: %d of %s are used, want %d", step, got, key, used[key])
				}
			}
			if random.IntN(50) == 0 {
				key := fmt.Sprint("lasting#", random.IntN(300))
				delete(used, key)
				if err := weir.NewLimiter(s, weir.Options{Deadline: time.Minute}).Reset(ctx, plan.KeyFromText(key)); err != nil {
					t.Fatal(err)
				}
			}
		}
		clock.Add(int64(random.IntN(3600)) * int64(time.Second))
		if random.IntN(4) == 0 {
			s.shards[0].Lock()
			s.shards[0].Sweep(clock.Load(), s.shards[0].Len())
			s.shards[0].Unlock()
		}
		still(t, s)
		highest, most = max(highest, len(s.packs.all)), max(most, s.Stats().Keys)
		in := map[ref]int{}
		for number, p := range s.packs.all {
			if p == nil {
				continue
			}
			if p.dirty || len(p.members) > packItems {
				t.Fatalf("step %d: pack %d: dirty %v, %d items", step, number, p.dirty, len(p.members))
			}
			for _, r := range p.members {
				in[r]++
				if home := s.shards[r.shard()].home[r.number()]; home != uint32(number)+1 || in[r] > 1 {
					t.Fatalf("step %d: an item of pack %d is at home in %d, and in %d packs", step, number, int(home)-1, in[r])
				}
			}
		}
		s.startWriter()
		if random.IntN(5) == 0 {
			s = reopened(t, s, o)
		}
	}
	if bound := 4 * (most/packItems + 2); highest > bound {
		t.Errorf("at most %d items were in up to %d packs, want at most %d", most, highest, bound)
	}
	if most < 500 {
		t.Errorf("there were at most %d items: that tests nothing", most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := Check(s.path); err != nil || len(rep.Damage) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

const someTime = 1_796_000_000_000_000_000

// An item is dropped between two looks at what has changed, and the next one
// gets its number: it is not in the pack twice.
func TestNumberUsedAgain(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	const items = atOnce + packItems/2
	take := func() {
		for n := range items {
			took(t, s, "quota 10/year", fmt.Sprint("account#", n))
		}
	}
	take()
	if err := s.stopWriter(); err != nil { // this test writes
		t.Fatal(err)
	}
	take()
	sh := &s.shards[0]
	last := plan.KeyFromText(fmt.Sprint("account#", items-1))
	looks := 0
	sh.collect(0, &s.packs, func() int64 {
		if looks++; looks == 1 {
			n, found := sh.Find(last)
			e := sh.Entry(n)
			cells := e.Cells
			if pack := sh.home[n]; !found || pack == 0 || pack-1 != s.packs.open {
				t.Fatalf("the last item is in pack %d, and the open one is %d: that tests nothing", int(pack)-1, s.packs.open)
			}
			sh.dropped(n, e)
			sh.Remove(n, e.Cells.Extra())
			again, _, _ := sh.Insert(plan.KeyFromText("account#new"), cells, 0)
			if again != n {
				t.Fatalf("the number is %d, and was %d: that tests nothing", again, n)
			}
			sh.soil(n)
		}
		return s.clock.now()
	})
	if looks < 2 {
		t.Fatalf("%d look: that tests nothing", looks)
	}
	if err := s.transact(s.packs.steps(nil, perCommit), nil, nil); err != nil {
		t.Fatal(err)
	}
	onceInFile(t, s)
}

// Items that are dropped and come again under another number while the file is
// written are in it once, all that are in memory.
func TestDroppedWhileWritten(t *testing.T) {
	const keys, room, takers = 3000, 1000, 4
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{MaxKeys: room})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := weir.ParseLimit("quota 1000000/year")
	if err != nil {
		t.Fatal(err)
	}
	l := weir.NewLimiter(s, weir.Options{Deadline: time.Minute})
	seed := uint64(time.Now().UnixNano())
	var over atomic.Bool
	var wg sync.WaitGroup
	for taker := range takers {
		random := rand.New(rand.NewPCG(seed, uint64(taker)))
		wg.Go(func() {
			for !over.Load() {
				key := weir.NewKey("account", fmt.Sprint(random.IntN(keys)))
				if d, err := l.Take(context.Background(), weir.Op{Limit: limit, Key: key}); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	for range 100 {
		if err := s.Flush(context.Background()); err != nil {
			t.Error(err)
		}
		onceInFile(t, s)
	}
	over.Store(true)
	wg.Wait()
	st := s.Stats()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := Check(s.path)
	if err != nil || len(rep.Damage) > 0 || rep.Items != st.Keys || st.Lost < keys {
		t.Errorf("seed %d: %+v, %v; in memory are %+v", seed, rep, err, st)
	}
}

// onceInFile fails if an item is in the file of an open store twice.
func onceInFile(t *testing.T, s *Store) {
	t.Helper()
	in := map[string]int{}
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketItems).ForEach(func(number, value []byte) error {
			payload, _, ok := unseal(bucketItems[0], number, value)
			for key := range itemsOf(payload) {
				in[string(key)]++
			}
			if !ok {
				return fmt.Errorf("pack %x can't be read", number)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	for key, n := range in {
		if n > 1 {
			t.Errorf("%s is in the file %d times", key, n)
		}
	}
}

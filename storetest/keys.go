package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

func (s suite) listed(t *testing.T) {
	t.Run("every item in pages of any size", s.pages)
	t.Run("by prefix", s.prefixes)
	if s.caps.records {
		t.Run("no records", s.noRecords)
	}
	t.Run("items that stay are listed while others come and go", s.moving)
	t.Run("a page has room for one key at least", s.noRoom)
	t.Run("removing makes no item", s.noneFromRemoving)
}

// listBench is a store with some items to list.
type listBench struct {
	*bench
	weir.Lister
	limiter *weir.Limiter
	limit   weir.Limit
}

func (s suite) listing(tb testing.TB) listBench {
	tb.Helper()
	b := s.start(tb)
	l := listBench{bench: b, Lister: b.store.(weir.Lister), limit: limit(tb, "listed", "10/m")}
	l.limiter = weir.NewLimiter(b.store, weir.Options{Limits: []weir.Limit{l.limit}, Deadline: 10 * time.Second})
	return l
}

// take makes an item, which means something for a while.
func (l listBench) take(key weir.Key) error {
	d, err := l.limiter.Take(context.Background(), weir.Op{Limit: l.limit, Key: key, Cost: 5})
	if err == nil && !d.Allowed {
		err = fmt.Errorf("%s: %+v", key, d)
	}
	return err
}

func (l listBench) must(key weir.Key) {
	l.Helper()
	if err := l.take(key); err != nil {
		l.Fatal(err)
	}
}

// all lists to the end and counts how often a key is there.
func (l listBench) all(prefix string, max int) map[weir.Key]int {
	l.Helper()
	got := map[weir.Key]int{}
	cursor := ""
	for pages := 0; ; pages++ {
		keys, next, err := l.ListKeys(context.Background(), prefix, cursor, max)
		if err != nil {
			l.Fatal(err)
		}
		if len(keys) > max || pages > 100_000 {
			l.Fatalf("page %d of at most %d has %d keys", pages, max, len(keys))
		}
		for _, k := range keys {
			if !strings.HasPrefix(k.String(), prefix) {
				l.Fatalf("prefix %q lists %q", prefix, k)
			}
			if same, ok := weir.ParseKey(k.String()); !ok || same != k {
				l.Fatalf("%q is not a key as NewKey makes it", k)
			}
			got[k]++
		}
		if cursor = next; cursor == "" {
			return got
		}
	}
}

func (s suite) pages(t *testing.T) {
	l := s.listing(t)
	var want []weir.Key
	for n := range 57 {
		key := weir.NewKey("page-"+l.run, fmt.Sprintf("caller %d/%%", n))
		if n%3 == 0 {
			key = weir.NewKey("page-"+l.run, fmt.Sprint(n), "event", "the|sea#gull")
		}
		l.must(key)
		want = append(want, key)
	}
	for _, max := range []int{1, 7, 56, 57, 58, 5000} {
		got := l.all("page-"+l.run+"#", max)
		for _, key := range want {
			if got[key] == 0 {
				t.Errorf("pages of %d lack %s", max, key)
			}
		}
		if len(got) != len(want) {
			t.Errorf("pages of %d list %d keys, want %d", max, len(got), len(want))
		}
	}
}

func (s suite) prefixes(t *testing.T) {
	l := s.listing(t)
	// Characters that mean something to a store's patterns are none here.
	kind := "prefix-" + l.run
	one, two, other := weir.NewKey(kind, "a-b"), weir.NewKey(kind, "a-b", "event", "1"), weir.NewKey(kind, "a%3Fb*[x]")
	for _, key := range []weir.Key{one, two, other} {
		l.must(key)
	}
	for prefix, want := range map[string]int{
		kind: 3, kind + "#": 3, kind + "#a": 3, kind + "#a-b": 2, kind + "#a-b|": 1, two.String(): 1, other.String(): 1,
		kind + "#b": 0, kind + "*": 0, kind + "?a": 0, kind[:7] + "[" + kind[7:]: 0, two.String() + "0": 0,
	} {
		if got := l.all(prefix, 100); len(got) != want {
			t.Errorf("prefix %q lists %v, want %d keys", prefix, got, want)
		}
	}
	if got := l.all("", 5000); got[one] == 0 || got[two] == 0 || got[other] == 0 {
		t.Error("without a prefix not every item is listed")
	}
}

func (s suite) noRecords(t *testing.T) {
	l := s.listing(t)
	r := l.store.(weir.Records)
	for _, key := range []string{"accounts#" + l.run, "accounts/" + l.run, l.run} {
		if err := r.Put(context.Background(), key, []byte("v"), "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for key := range l.all("", 5000) {
		if text := key.String(); strings.HasPrefix(text, "accounts") && strings.Contains(text, l.run) || text == l.run {
			t.Errorf("the record %s is listed", text)
		}
	}
}

// moving lists while other items are made and removed.
func (s suite) moving(t *testing.T) {
	l := s.listing(t)
	kind := "moving-" + l.run
	var stay []weir.Key
	for n := range 200 {
		stay = append(stay, weir.NewKey(kind, fmt.Sprint("stays-", n)))
		l.must(stay[n])
	}
	var stop atomic.Bool
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for n := 0; !stop.Load(); n++ {
			key := weir.NewKey(kind, fmt.Sprint("comes-", n%40))
			if err := l.take(key); err != nil {
				failed <- err
				return
			}
			if err := l.limiter.Reset(context.Background(), key); err != nil {
				failed <- err
				return
			}
		}
	}()
	for range 5 {
		got := l.all(kind, 10)
		for _, key := range stay {
			if got[key] == 0 {
				t.Errorf("%s was there all the time and is not listed", key)
			}
		}
	}
	stop.Store(true)
	for err := range failed {
		t.Error(err)
	}
}

func (s suite) noRoom(t *testing.T) {
	l := s.listing(t)
	for _, max := range []int{0, -1} {
		if keys, next, err := l.ListKeys(context.Background(), "", "", max); err == nil {
			t.Errorf("a page of at most %d keys must be an error, and is %v, %q", max, keys, next)
		}
	}
}

func (s suite) noneFromRemoving(t *testing.T) {
	l, f := s.listing(t), someFields(t)
	key := weir.NewKey("removing-"+l.run, "never there")
	w := write(nil, drop(f.t), drop(f.count))
	if s.caps.LossyReplies {
		w.Nonce = 1
	}
	l.bench.must(key, w)
	if got := l.all("removing-"+l.run, 10); len(got) > 0 {
		t.Errorf("a write that only removes, from an item that is not there, made %v", got)
	}
}

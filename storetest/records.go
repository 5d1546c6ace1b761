package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

func (s suite) records(t *testing.T) {
	t.Run("put, get and the version", s.versions)
	t.Run("one of 64 wins", s.oneWins)
	t.Run("a record whose time is over is not there", s.over)
	t.Run("list", s.list)
	t.Run("records and items are apart", s.apart)
}

type recordBench struct {
	*bench
	weir.Records
}

func (s suite) recorded(tb testing.TB) recordBench {
	tb.Helper()
	b := s.start(tb)
	return recordBench{b, b.store.(weir.Records)}
}

func (r recordBench) now() time.Time {
	if r.clock != nil {
		return time.Unix(0, r.clock.now())
	}
	return time.Now()
}

func (r recordBench) put(key, value, ifVersion string) string {
	r.Helper()
	if err := r.Put(context.Background(), key, []byte(value), ifVersion, time.Time{}); err != nil {
		r.Fatalf("put: %v", err)
	}
	return r.has(key, value)
}

// has gets a record and compares; it returns the version.
func (r recordBench) has(key, want string) string {
	r.Helper()
	value, version, err := r.Get(context.Background(), key)
	if err != nil || string(value) != want || version == "" {
		r.Fatalf("get: %q, version %q, %v; want %q", value, version, err, want)
	}
	return version
}

func (r recordBench) hasNot(key string) {
	r.Helper()
	value, version, err := r.Get(context.Background(), key)
	if err != nil || value != nil || version != "" {
		r.Fatalf("get: %q, version %q, %v; there must be none", value, version, err)
	}
}

func (r recordBench) conflict(key, ifVersion string) {
	r.Helper()
	if err := r.Put(context.Background(), key, []byte("lost"), ifVersion, time.Time{}); !errors.Is(err, weir.ErrConflict) {
		r.Fatalf("put over version %q: %v; want ErrConflict", ifVersion, err)
	}
}

func (s suite) versions(t *testing.T) {
	r := s.recorded(t)
	key := "accounts/" + r.run
	r.hasNot(key)
	r.conflict(key, "some-version")
	r.hasNot(key)
	first := r.put(key, "one", "")
	r.conflict(key, "")
	r.conflict(key, first+"x")
	second := r.put(key, "two", first)
	if first == second {
		t.Fatal("two values have one version")
	}
	r.conflict(key, first)
	again := r.put(key, "two", second) // the same value is a change as well
	if again == second {
		t.Fatal("two writes have one version")
	}
	r.put(key, "", again)
	big := bytes.Repeat([]byte{0, 255, 'x', '\n'}, 25_000)
	r.put(key+"/big", string(big), "")
}

func (s suite) oneWins(t *testing.T) {
	r := s.recorded(t)
	key := "race/" + r.run
	for range 2 { // of 64 that make it, and of 64 that change it
		_, version, err := r.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		var won atomic.Int64
		at(t, func(n int) error {
			err := r.Put(context.Background(), key, fmt.Append(nil, n), version, time.Time{})
			if err == nil {
				won.Add(1)
			} else if errors.Is(err, weir.ErrConflict) {
				err = nil
			}
			return err
		})
		if won.Load() != 1 {
			t.Fatalf("%d writers of one version won", won.Load())
		}
	}
}

func (s suite) over(t *testing.T) {
	r := s.recorded(t)
	ctx := context.Background()
	key := "bans/" + r.run
	if err := r.Put(ctx, key, []byte("past"), "", r.now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.hasNot(key)
	if err := r.Put(ctx, key, []byte("new"), "", r.now().Add(time.Hour)); err != nil {
		t.Fatalf("put over a record whose time is over: %v", err)
	}
	version := r.has(key, "new")
	if r.clock != nil {
		r.clock.advance(2 * time.Hour)
		r.hasNot(key)
		r.conflict(key, version)
		r.put(key, "for ever", "")
		r.clock.advance(100_000 * time.Hour)
		r.has(key, "for ever")
	}
}

func (s suite) list(t *testing.T) {
	r := s.recorded(t)
	ctx := context.Background()
	prefix := "list/" + r.run + "/"
	var want []string
	for n := range 23 {
		key := fmt.Sprintf("%s%02d", prefix, n)
		r.put(key, "v", "")
		want = append(want, key)
	}
	r.put("list/"+r.run+"-other", "v", "")
	if err := r.Put(ctx, prefix+"over", nil, "", r.now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, max := range []int{1, 5, 23, 24, 1000} {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			keys, next, err := r.List(ctx, prefix, cursor, max)
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) > max || pages > 30 {
				t.Fatalf("page %d of at most %d has %d keys", pages, max, len(keys))
			}
			got = append(got, keys...)
			if cursor = next; cursor == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d list %v, want %v", max, got, want)
		}
	}
	if keys, next, err := r.List(ctx, "nothing/"+r.run, "", 10); err != nil || len(keys) != 0 || next != "" {
		t.Errorf("nothing: %v, %q, %v", keys, next, err)
	}
}

// apart writes an item and a record whose keys look alike.
func (s suite) apart(t *testing.T) {
	r, f := s.recorded(t), someFields(t)
	item := weir.NewKey("record", r.run)
	r.must(item, write(nil, put(f.t, 1)))
	for _, key := range []string{item.String(), r.run, "#" + r.run, "record##" + r.run} {
		r.hasNot(key)
		r.put(key, "v", "")
	}
	r.reads(item, map[weir.Field]int64{f.t: 1})
}

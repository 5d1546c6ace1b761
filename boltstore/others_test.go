package boltstore

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// usedOf says how many of a limit are used.
func usedOf(t *testing.T, s *Store, text, key string) int64 {
	t.Helper()
	limit, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := weir.NewLimiter(s, weir.Options{Deadline: time.Minute}).Peek(context.Background(), weir.Op{Limit: limit, Key: plan.KeyFromText(key)})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0].Used
}

// An item whose key is no key under another prefix, because it is too long or
// empty there, stays as it is, whoever opens and compacts the file.
func TestNoKeyElsewhere(t *testing.T) {
	long := "account#" + strings.Repeat("x", weir.MaxKey-len("account#"))
	for _, test := range []struct{ prefix, key, other string }{
		{"prod/", long, ""},
		{"prod/", long, "p"},
		{"", "account#a", "account#a"},
	} {
		s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{Prefix: test.prefix})
		if err != nil {
			t.Fatal(err)
		}
		took(t, s, "quota 10/year", test.key)
		took(t, s, "quota 10/year", "account#short")
		s = reopened(t, s, Options{Prefix: test.other})
		took(t, s, "quota 10/year", "account#new")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Compact(s.path); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(s.path, Options{Prefix: test.prefix}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{test.key, "account#short"} {
			if used := usedOf(t, s, "quota 10/year", key); used != 1 {
				t.Errorf("%q, then %q: %d of %.20s are used, want 1", test.prefix, test.other, used, key)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What packs hold of other prefixes counts: in the memory that is bounded, and
// in what there is room for in a pack.
func TestOthersCount(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "weir.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	const prefixes, each = 20, 400
	for i := range each {
		for p := range prefixes {
			took(t, s, "quota 10/year", fmt.Sprintf("p%02d/k#%d", p, i))
		}
	}
	largest := 0
	for p := range prefixes {
		s = reopened(t, s, Options{Prefix: fmt.Sprintf("p%02d/", p), MaxBytes: 1})
		st, others := s.Stats(), 0
		for _, pack := range s.packs.all {
			others += len(pack.others)
		}
		if st.Keys < each || st.Bytes < int64(others) || others < 20*each*(prefixes-1) {
			t.Fatalf("prefix %d: %d items, %d bytes, of which others take %d", p, st.Keys, st.Bytes, others)
		}
		for i := range each {
			took(t, s, "quota 1000/year", fmt.Sprint("more#", i))
		}
		flushed(t, s)
		if err := s.stopWriter(); err != nil {
			t.Fatal(err)
		}
		for _, pack := range s.packs.all {
			if pack != nil {
				largest = max(largest, pack.bytes)
			}
		}
		s.startWriter()
	}
	if largest > 2*packBytes {
		t.Errorf("a pack of %d bytes, and they are to have %d", largest, packBytes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

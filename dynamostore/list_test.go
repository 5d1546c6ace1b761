package dynamostore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
)

// Of a table that is shared, a listing shows the store's own items only: no
// records, no other prefix, none whose time is over.
func TestListOnASharedTable(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	clock := newClock(time.Now())
	one, two := open(t, client, dynamostore.Options{Prefix: "one/", Now: clock.now}), open(t, client, dynamostore.Options{Prefix: "two/", Now: clock.now})
	short, long := parse(t, "short", "1/s"), parse(t, "long", "1/30d")
	a, b, c := weir.NewKey("account", "a"), weir.NewKey("account", "b"), weir.NewKey("tenant", "c")
	for key, limit := range map[weir.Key]weir.Limit{a: short, b: long, c: long} {
		take(t, limiterOn(one, weir.Options{}), weir.Op{Limit: limit, Key: key})
	}
	take(t, limiterOn(two, weir.Options{}), weir.Op{Limit: long, Key: weir.NewKey("account", "d")})
	if err := one.Put(context.Background(), "accounts#a", nil, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	list := func(s *dynamostore.Store, prefix string, page int) (got []string) {
		t.Helper()
		for cursor, more := "", true; more; {
			keys, next, err := s.ListKeys(context.Background(), prefix, cursor, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				got = append(got, k.String())
			}
			cursor, more = next, next != ""
		}
		slices.Sort(got)
		return got
	}
	for _, page := range []int{1, 2, 1000} {
		if got := list(one, "", page); !slices.Equal(got, []string{"account#a", "account#b", "tenant#c"}) {
			t.Errorf("one/ in pages of %d: %v", page, got)
		}
	}
	if got := list(one, "account#", 10); !slices.Equal(got, []string{"account#a", "account#b"}) {
		t.Errorf("one/account#: %v", got)
	}
	if got := list(two, "", 10); !slices.Equal(got, []string{"account#d"}) {
		t.Errorf("two/: %v", got)
	}
	clock.advance(2 * time.Hour) // the item of the short limit is over, and nobody has deleted it
	if got := list(one, "account#", 10); !slices.Equal(got, []string{"account#b"}) {
		t.Errorf("two hours later: %v", got)
	}
}

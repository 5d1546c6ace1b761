package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// Of a server that is shared, a listing shows the store's own items only, and a
// page looks at a part of it.
func TestListOnASharedServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	c := single(t, server)
	ctx := context.Background()
	var trips int
	o := redisstore.Options{Prefix: "one:", Observer: &weir.Observer{Trip: func(context.Context, weir.Trip) { trips++ }}}
	one, two := newStore(t, c, o), newStore(t, c, redisstore.Options{Prefix: "two:"})
	limit, err := weir.ParseLimit("10/h")
	if err != nil {
		t.Fatal(err)
	}
	key := weir.NewKey("account", "a")
	for _, s := range []*redisstore.Store{one, two} {
		if d, err := weir.NewLimiter(s, weir.Options{Deadline: time.Minute}).Take(ctx, weir.Op{Limit: limit, Key: key}); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	server.Do(t, "SET", "one:account#text", "of another program")
	server.Do(t, "HSET", "one:account", "of", "another")
	server.Do(t, "EVAL", "for i=1,60000 do redis.call('HSET','noise:'..i,'a','b') end", "0")
	trips = 0
	var got []weir.Key
	pages := 0
	for cursor, more := "", true; more; pages++ {
		before := trips
		keys, next, err := one.ListKeys(ctx, "", cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		if n := trips - before; n > 16 {
			t.Errorf("a page took %d trips", n)
		}
		got = append(got, keys...)
		cursor, more = next, next != ""
	}
	if len(got) != 1 || got[0] != key || pages < 2 {
		t.Errorf("%v in %d pages, want %s in some", got, pages, key)
	}
	for _, cursor := range []string{"x", "{", "[]"} {
		if _, _, err := one.ListKeys(ctx, "", cursor, 10); err == nil || !strings.Contains(err.Error(), "cursor") {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// Pages end anywhere: between nodes, at an empty node, after the last one.
func TestListOverAClusterInShortPages(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	c := client(t, rueidis.ClientOption{InitAddress: []string{cluster.Nodes[0].Addr}})
	s := newStore(t, c, redisstore.Options{})
	limit, err := weir.ParseLimit("10/h")
	if err != nil {
		t.Fatal(err)
	}
	l := weir.NewLimiter(s, weir.Options{Deadline: time.Minute})
	for n := range 12 {
		if _, err := l.Take(context.Background(), weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
		for _, max := range []int{1, 2, 3, 100} {
			got := map[weir.Key]int{}
			for cursor, more := "", true; more; {
				keys, next, err := s.ListKeys(context.Background(), "account#", cursor, max)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range keys {
					got[k]++
				}
				cursor, more = next, next != ""
			}
			if len(got) != n+1 {
				t.Errorf("%d items in pages of %d: %v", n+1, max, got)
			}
		}
	}
}

package redisstore_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// documented are the rights of docs/redis.md, by the first word of their use.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([a-z ]+).* \\| `(\\+.*)` \\|$").FindAllStringSubmatch(string(page), -1) {
		rights[strings.TrimSpace(row[1])] = strings.Fields(strings.ReplaceAll(row[2], `\|`, "|"))
	}
	return rights
}

// user sets a user of every server who has these rights and no others, and makes
// it forget its scripts, so that it needs the right to bring one.
func user(t *testing.T, rights []string, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		s.Do(t, append([]string{"ACL", "SETUSER", "weir", "reset", "on", ">secret", "~test:*"}, rights...)...)
		s.Do(t, "SCRIPT", "FLUSH")
	}
}

// use is something that is done with a store.
type use struct {
	url    string
	rights []string
	do     func(ctx context.Context, b *bench, s *redisstore.Store) error
}

// Every use works with the rights that docs/redis.md gives for it, and fails without
// any one of them, with an error that names it.
func TestRights(t *testing.T) {
	rights := documented(t)
	of := func(uses ...string) (all []string) {
		for _, u := range uses {
			if rights[u] == nil {
				t.Fatalf("docs/redis.md has no rights for %q; it has %v", u, rights)
			}
			for _, r := range rights[u] {
				if !slices.Contains(all, r) {
					all = append(all, r)
				}
			}
		}
		return all
	}
	if got := strings.Join(of("decide"), " "); got != redisstore.Rights {
		t.Errorf("the page has %s to decide", got)
	}
	b := newBench(t)
	one := "redis://weir:secret@" + b.server.Addr
	cluster := redistest.StartCluster(t, redistest.Options{})
	nodes := "redis+cluster://weir:secret@" + cluster.Nodes[0].Addr
	sentinel := redistest.StartSentinel(t)
	behind := "redis://weir:secret@" + sentinel.Addr + "?master_set=" + sentinel.Name
	servers := map[string][]*redistest.Server{one: {b.server}, one + "/3": {b.server}, nodes: cluster.Nodes, behind: {sentinel.Primary}}

	nonce := uint64(0)
	decide := func(ctx context.Context, b *bench, s *redisstore.Store) error {
		for n, acts := range [][]weir.Act{{put(b.t, 1), add(b.count, 1), drop(b.i)}, {add(b.count, 1)}, {drop(b.t)}, {drop(b.count)}} {
			w := write(acts...)
			if n == 0 {
				nonce++
				w.Nonce = nonce
			}
			if err := try(s, b.key, w); err != nil {
				return err
			}
		}
		return nil
	}
	peek := func(ctx context.Context, b *bench, s *redisstore.Store) error {
		_, _, err := s.Apply(ctx, b.key, nil, new(weir.Cells))
		return err
	}
	list := func(ctx context.Context, b *bench, s *redisstore.Store) error {
		_, _, err := s.ListKeys(ctx, "", "", 5)
		return err
	}
	check := func(ctx context.Context, b *bench, s *redisstore.Store) error {
		_, err := s.Check(ctx)
		return err
	}
	for name, u := range map[string]use{
		"decide":            {url: one, rights: of("decide"), do: decide},
		"check":             {url: one, rights: of("decide"), do: check},
		"check a cluster":   {url: nodes, rights: of("decide", "a cluster"), do: check},
		"check by Sentinel": {url: behind, rights: of("decide", "behind"), do: check},
		"look":              {url: one, rights: of("look"), do: peek},
		"read accounts": {url: one, rights: of("read what is said of accounts"), do: func(ctx context.Context, b *bench, s *redisstore.Store) error {
			_, _, err := s.Get(ctx, "accounts#a")
			return err
		}},
		"write accounts": {url: one, rights: of("write it"), do: func(ctx context.Context, b *bench, s *redisstore.Store) error {
			b.server.Do(b, "DEL", "test:record##b")
			b.server.Do(b, "HSET", "test:record##a", "value", "u", "version", "1")
			b.server.Do(b, "EXPIRE", "test:record##a", "1000")
			if err := s.Put(ctx, "a", []byte("v"), "1", time.Time{}); err != nil {
				if written := b.server.Do(b, "HGET", "test:record##a", "value") == "v"; written != strings.Contains(err.Error(), "it is written") {
					b.Errorf("written is %v: %v", written, err)
				}
				return err
			}
			return s.Put(ctx, "b", []byte("v"), "", time.Now().Add(time.Hour))
		}},
		"list":                 {url: one, rights: of("list"), do: list},
		"list in a cluster":    {url: nodes, rights: of("list", "list in a cluster", "a cluster"), do: list},
		"a database":           {url: one + "/3", rights: of("look", "a database"), do: peek},
		"decide in a cluster":  {url: nodes, rights: of("decide", "a cluster"), do: decide},
		"decide with Sentinel": {url: behind, rights: of("decide", "behind"), do: decide},
	} {
		t.Run(name, func(t *testing.T) {
			b := *b
			b.TB = t
			run := func(rights []string) error {
				user(t, rights, servers[u.url]...)
				s, err := redisstore.Open(u.url, redisstore.Options{Prefix: "test:", Resend: true})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				return u.do(ctx, &b, s)
			}
			if err := run(u.rights); err != nil {
				t.Errorf("with %v: %v", u.rights, err)
			}
			for _, right := range u.rights {
				want, lacks := right+" ", func(r string) bool { return r == right }
				if strings.HasPrefix(right, "+cluster|") { // which of them is asked depends on the server
					want = "+cluster|"
					lacks = func(r string) bool { return strings.HasPrefix(r, "+cluster|") }
				}
				err := run(slices.DeleteFunc(slices.Clone(u.rights), lacks))
				if err == nil || !strings.Contains(err.Error(), "the user lacks rights") || !strings.Contains(err.Error()+" ", want) {
					t.Errorf("without %s: %v", right, err)
				}
			}
		})
	}
}

// A record that nobody has written before needs no right to take its expiry away.
func TestNewRecordWithoutPersist(t *testing.T) {
	b := newBench(t)
	user(t, []string{"+eval", "+evalsha", "+hget", "+hset", "+hmget"}, b.server)
	s := open(t, "redis://weir:secret@"+b.server.Addr+"?prefix=test:")
	if err := s.Put(t.Context(), "a", []byte("v"), "", time.Time{}); err != nil {
		t.Errorf("a new record: %v", err)
	}
	if value, _, err := s.Get(t.Context(), "a"); err != nil || string(value) != "v" {
		t.Errorf("it is %q, %v", value, err)
	}
}

// A user of Redis who may decide on all nodes but one is found out, whichever it is.
func TestCheckAsksEveryNode(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{})
	all := append(strings.Fields(redisstore.Rights), "+cluster|slots", "+cluster|shards", "+hmget", "+info")
	for _, poor := range cluster.Nodes {
		user(t, all, cluster.Nodes...)
		poor.Do(t, "ACL", "SETUSER", "weir", "-hincrby", "-hlen")
		_, err := open(t, "redis+cluster://weir:secret@"+cluster.Nodes[0].Addr+"?prefix=test:").Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), poor.Addr) || !strings.HasSuffix(err.Error(), "ACL SETUSER NAME +hlen +hincrby") {
			t.Errorf("without a right on %s: %v", poor.Addr, err)
		}
	}
	user(t, all, cluster.Nodes...)
	if warnings, err := open(t, "redis+cluster://weir:secret@"+cluster.Nodes[0].Addr+"?prefix=test:").Check(t.Context()); err != nil || len(warnings) > 0 {
		t.Errorf("check: %q, %v", warnings, err)
	}
}

// What is wrong with keys is the prefix and no command.
func TestCheckOfAnotherPrefix(t *testing.T) {
	b := newBench(t)
	user(t, strings.Fields(redisstore.Rights), b.server)
	_, err := open(t, "redis://weir:secret@"+b.server.Addr+"?prefix=else:").Check(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "ACL SETUSER NAME ~else:*") {
		t.Errorf("check: %v", err)
	}
}

// Looking writes nothing, so that a replica will do.
func TestLookingAtAReplica(t *testing.T) {
	s := redistest.StartSentinel(t)
	b := newBench(t)
	if err := try(open(t, "redis://"+s.Primary.Addr), b.key, write(put(b.t, 7))); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the replica to have the write", func() bool { return s.Replica.Do(t, "EXISTS", b.key.String()) == "1" })
	replica := open(t, "redis://"+s.Replica.Addr)
	var state weir.Cells
	if _, _, err := replica.Apply(t.Context(), b.key, nil, &state); err != nil || state.Len() != 1 {
		t.Errorf("%d fields, %v", state.Len(), err)
	}
	if keys, _, err := replica.ListKeys(t.Context(), "", "", 10); err != nil || len(keys) != 1 || keys[0] != b.key {
		t.Errorf("%v, %v", keys, err)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

const looked = `weir: 1
application:
  limits:
    - {name: orders, match: POST /orders, by: account, limit: quota 50/day}
    - {name: seats, match: POST /seats, by: account, limit: 5/h}
`

// seeded is a policy whose limits some accounts have used on a server.
func seeded(t *testing.T, server *redistest.Server, ids ...string) (file string) {
	t.Helper()
	file = writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), looked)
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), "redis://"+server.Addr, storeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := weir.NewLimiter(s.Store, weir.Options{Limits: p.Limits(), Deadline: patience})
	for _, id := range ids {
		for _, limit := range p.Limits() {
			if d, err := l.Take(t.Context(), weir.Op{Limit: limit, Key: weir.NewKey("account", id), OnFail: weir.FailError}); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
	return file
}

// saying runs a command and gives all that it says.
func saying(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if got := run(t.Context(), args, &o, &e); got != code {
		t.Errorf("weir %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, &o, &e)
	}
	return o.String(), e.String()
}

// Looking needs no right to write, nor a server that takes writes: the person of
// docs/redis.md looks, and is told what a change would need.
func TestLookingWritesNothing(t *testing.T) {
	page, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`ACL SETUSER support on '>PASSWORD' '~PREFIX\*' (.*)`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("docs/redis.md has no user who only looks")
	}
	s := redistest.StartSentinel(t)
	file := seeded(t, s.Primary, "a", "b")
	redistest.Await(t, "the replica to be in step", func() bool { return s.Replica.Do(t, "DBSIZE") == "2" })
	s.Primary.Do(t, append([]string{"ACL", "SETUSER", "support", "on", ">secret", "~*"}, strings.Fields(line[1])...)...)
	for _, store := range []string{"redis://support:secret@" + s.Primary.Addr, "redis://" + s.Replica.Addr} {
		if out, _ := saying(t, 0, "store", "ls", "--store", store); strings.Count(out, "account#") != 2 {
			t.Errorf("%s: ls: %s", store, out)
		}
		if out, _ := saying(t, 0, "keys", "top", "-c", file, "--store", store); strings.Count(out, "account#a") != 2 {
			t.Errorf("%s: top: %s", store, out)
		}
		if out, _ := saying(t, 0, "keys", "get", "account#a", "-c", file, "--store", store); !strings.Contains(out, "seats") {
			t.Errorf("%s: get: %s", store, out)
		}
		if _, errs := saying(t, 3, "keys", "reset", "account#a", "-c", file, "--store", store); !strings.Contains(errs, "+hdel") && !strings.Contains(errs, "READONLY") || !strings.Contains(errs, "account#a was not reset") {
			t.Errorf("%s: reset: %s", store, errs)
		}
		if _, errs := saying(t, 3, "store", "check", "--store", store); !strings.Contains(errs, "+hset +hincrby +hdel +pexpire") && !strings.Contains(errs, "connect to the primary") {
			t.Errorf("%s: check: %s", store, errs)
		}
	}
	s.Primary.Do(t, "ACL", "SETUSER", "lister", "on", ">secret", "~*", "+scan")
	if out, _ := saying(t, 0, "store", "ls", "--store", "redis://lister:secret@"+s.Primary.Addr); strings.Count(out, "account#") != 2 {
		t.Errorf("ls with +scan alone: %s", out)
	}
}

// A proxy that may not read what is said of accounts does not start, and says why.
func TestProxyWithoutTheRightToReadAccounts(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	server.Do(t, append([]string{"ACL", "SETUSER", "weir", "on", ">secret", "~*"}, strings.Fields(redisstore.Rights)...)...)
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), looked)
	args := []string{"proxy", "--to", "http://127.0.0.1:1", "-c", file, "--listen", "127.0.0.1:0", "--store", "redis://weir:secret@" + server.Addr}
	if _, errs := saying(t, 3, args...); !strings.Contains(errs, "get a record: the user lacks rights") || !strings.Contains(errs, "+hmget") {
		t.Errorf("%s", errs)
	}
	server.Do(t, "ACL", "SETUSER", "weir", "+hmget")
	_, stop, err := inProcess(args...)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// An item that somebody else has written to ends no look at the others, says whose
// it is and what to type, and that command mends it.
func TestASpoiledItemHidesNoOthers(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	file := seeded(t, server, "a", "b", "spoiled")
	at := []string{"-c", file, "--store", "redis://" + server.Addr}
	const key, try = "account#spoiled", "weir keys reset 'account#spoiled'"
	spoil := func() {
		server.Do(t, "HSET", key, "seats.t", "abc", "seats.i", "1.5", "orders.c", "x")
	}
	spoil()
	for n := range 40 { // more than are looked at together, and than a breaker takes for an outage
		server.Do(t, "HSET", fmt.Sprint(key, "-", n), "seats.t", "abc")
	}
	out, errs := saying(t, 3, append([]string{"keys", "top", "-n", "100"}, at...)...)
	if strings.Count(out, "account#a ") != 2 || strings.Count(out, "account#b ") != 2 {
		t.Errorf("top: %s", out)
	}
	for _, want := range []string{"41 callers on ", "and all others were:", key + ": field ", `"abc"`, try} {
		if !strings.Contains(errs, want) {
			t.Errorf("top does not say %q:\n%s", want, errs)
		}
	}
	out, _ = saying(t, 3, append([]string{"keys", "top", "--json"}, at...)...)
	var rep keysReport
	if err := json.Unmarshal([]byte(out), &rep); err != nil || len(rep.Limits) != 4 || len(rep.Unreadable) != 41 || rep.Unreadable[0].Caller != key {
		t.Errorf("%v, %s", err, out)
	}
	if _, errs := saying(t, 3, append([]string{"keys", "get", key}, at...)...); !strings.Contains(errs, key+": ") || !strings.Contains(errs, "try: "+try) {
		t.Errorf("get: %s", errs)
	}
	for _, reset := range [][]string{{"keys", "reset", key}, {"keys", "reset", key, "--json"}, {"keys", "erase", key, "--reason", "r"}} {
		spoil()
		if dry, _ := saying(t, 0, append(append(reset, "--dry-run"), at...)...); reset[1] == "reset" && len(reset) == 3 && dry != "" {
			t.Errorf("%v --dry-run shows %s", reset, dry)
		}
		if got := server.Do(t, "HGET", key, "seats.t"); got != "abc" {
			t.Errorf("%v --dry-run left %q", reset, got)
		}
		saying(t, 0, append(reset, at...)...)
		if got := server.Do(t, "EXISTS", key); got != "0" {
			t.Errorf("%v left %s", reset, server.Do(t, "HGETALL", key))
		}
	}
	// One limit of two: while the other's field is in the way, it is not reset, in
	// whatever order they stand, and a dry run says the same.
	for _, first := range []string{"seats", "orders"} {
		server.Do(t, "DEL", key)
		if first == "seats" {
			spoil()
		} else {
			server.Do(t, "HSET", key, "orders.c", "x", "seats.t", "abc")
		}
		before := server.Do(t, "HGETALL", key)
		for name, other := range map[string]string{"seats": `"orders.c" of another`, "orders": `"seats.t" of another`} {
			var said []string
			for _, dry := range [][]string{{"--dry-run"}, nil} {
				_, errs := saying(t, 3, append(append([]string{"keys", "reset", key, name}, dry...), at...)...)
				said = append(said, strings.ReplaceAll(errs, " --dry-run", ""))
				if !strings.Contains(errs, key+" was not reset: field "+other) || !strings.Contains(errs, "try: "+try) {
					t.Errorf("reset of %s %v: %s", name, dry, errs)
				}
			}
			if after := server.Do(t, "HGETALL", key); said[0] != said[1] || after != before {
				t.Errorf("reset of %s says %q, and a dry run %q; it leaves %q of %q", name, said[1], said[0], after, before)
			}
		}
	}
	saying(t, 0, append([]string{"keys", "reset", key}, at...)...)

	// What is spoiled while a reset is under way may have been noticed too late.
	if err := notReset(key, fmt.Errorf("apply: %w", &weir.SpoiledError{Err: fs.ErrInvalid})); !strings.Contains(err.Error(), "may or may not have been reset; look again") {
		t.Error(err)
	}

	// One limit of two, whose own fields only can't be read.
	seeded(t, server, "spoiled")
	orders := server.Do(t, "HGET", key, "orders.c")
	server.Do(t, "HSET", key, "seats.t", "abc", "seats.i", "1.5", "seats.d", "", "seats~.t", "x")
	saying(t, 0, append([]string{"keys", "reset", key, "seats", "--dry-run"}, at...)...)
	saying(t, 0, append([]string{"keys", "reset", key, "seats"}, at...)...)
	if got := server.Do(t, "HGET", key, "orders.c"); got != orders || server.Do(t, "HLEN", key) != "2" {
		t.Errorf("reset of one limit left %q", server.Do(t, "HGETALL", key))
	}
	saying(t, 0, append([]string{"keys", "reset", key}, at...)...)

	// Spaces, which are as good as any other text, and what is too long to be shown.
	seeded(t, server, "spoiled")
	server.Do(t, "HSET", key, "seats.t", "5 6", "seats.i", " 5", "orders.c", "5 ", "not ours", "a b")
	if _, errs := saying(t, 3, append([]string{"keys", "get", key}, at...)...); !strings.Contains(errs, key+": ") || !strings.Contains(errs, "try: "+try) {
		t.Errorf("get: %s", errs)
	}
	saying(t, 0, append([]string{"keys", "reset", key, "--dry-run"}, at...)...)
	saying(t, 0, append([]string{"keys", "reset", key}, at...)...)
	if got := server.Do(t, "HGETALL", key); got != "not ours\na b" {
		t.Errorf("a reset left %q", got)
	}
	server.Do(t, "EVAL", "redis.call('HSET',KEYS[1],ARGV[1],string.rep('9',2000000))", "1", key, "seats.t")
	if _, errs := saying(t, 3, append([]string{"keys", "get", key}, at...)...); len(errs) > 1000 || !strings.Contains(errs, "seats.t") {
		t.Errorf("get says %d bytes: %.1000s", len(errs), errs)
	}

	// A key of another type goes whole, whatever is reset.
	for _, limits := range [][]string{nil, {"orders"}, {"--json"}} {
		server.Do(t, "SET", key, "x")
		if _, errs := saying(t, 3, append([]string{"keys", "get", key}, at...)...); !strings.Contains(errs, key+": ") || !strings.Contains(errs, "try: "+try) {
			t.Errorf("get of a string: %s", errs)
		}
		reset := append(append([]string{"keys", "reset", key}, limits...), at...)
		if _, errs := saying(t, 0, append(reset, "--dry-run")...); len(limits) == 0 && !strings.Contains(errs, "all of it is deleted") {
			t.Errorf("reset --dry-run of a string: %s", errs)
		}
		if got := server.Do(t, "TYPE", key); got != "string" {
			t.Errorf("reset --dry-run left a %s", got)
		}
		saying(t, 0, reset...)
		if got := server.Do(t, "EXISTS", key); got != "0" {
			t.Errorf("reset left a %s", server.Do(t, "TYPE", key))
		}
	}
}

func TestAKeyThatIsTooLong(t *testing.T) {
	_, errs := saying(t, 2, "keys", "get", "account#"+strings.Repeat("k", 2000))
	if !strings.Contains(errs, "2008 bytes") || strings.Contains(errs, "kkkk") {
		t.Errorf("%s", errs)
	}
}

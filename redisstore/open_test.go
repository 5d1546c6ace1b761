package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

func open(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(url, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestOpenRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"redis://":                      "no host",
		"http://h":                      "scheme",
		"redis://user:secret@h?prefx=a": "unknown parameter prefx",
		"redis://user:secret@h?prefix=a&prefix=b":                  "prefix is given twice",
		"redis://user:secret@h/first":                              `database "first"`,
		"redis+cluster://user:secret@h/1":                          "no databases",
		"redis+cluster://user:secret@h?master_set=a":               "master_set",
		"redis://user:secret@h?addr=i":                             "addr",
		"redis://user:secret@h?max_ttl=soon":                       "max_ttl=soon",
		"redis://user:secret@h?max_ttl=-1h":                        "max_ttl=-1h",
		"redis://user:secret@h?ca=f.pem":                           "rediss://",
		"rediss://user:secret@h?ca=/no/such/file.pem":              "/no/such/file.pem",
		"rediss://user:secret@h?cert=f.pem":                        "belong together",
		"redis://user:secret@h?prefix={a}":                         "braces",
		"redis://user:secret@h?master_set=":                        "master_set is empty",
		"redis://user:sec ret%zz@h":                                "can't be read",
		"redis://user:secret@h?a=%zz":                              "parameters can't be read",
		"redis://h?user=u&password=secret":                         "redis://USER:PASSWORD@HOST",
		"redis://secret@h?prefx=a":                                 "unknown parameter prefx",
		"redis://u:12?secret=@h":                                   "%XX",
		"redis://u:12?secret@h":                                    "%XX",
		"redis://secret?x%zz@h":                                    "%XX",
		"redis://u:12/secret?x@h":                                  "%XX",
		"redis://u:12?max_ttl=secret@h":                            "%XX",
		"redis://secret?master_set=x@h":                            "%XX",
		"redis://u:12/secret@h":                                    "%XX",
		"redis://u:12#secret@h":                                    "%XX",
		"redis+cluster://h?addr=u:secret@h":                        "addr is HOST:PORT",
		"redis://user:secret@h?prefix=" + strings.Repeat("x", 513): "at most 512",
	} {
		_, err := redisstore.Open(url, redisstore.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, and it must say %q", url, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret")) {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

func TestOpenedStores(t *testing.T) {
	b := newBench(t)
	cluster := redistest.StartCluster(t, redistest.Options{})
	for _, url := range []string{
		"redis://" + b.server.Addr,
		"redis://" + b.server.Addr + "/3?prefix=other:&max_ttl=24h",
		"redis+cluster://" + cluster.Nodes[0].Addr + "?addr=" + cluster.Nodes[1].Addr,
	} {
		s := open(t, url)
		if err := try(s, b.key, write(put(b.t, 1))); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if warnings, err := s.Check(context.Background()); err != nil || len(warnings) > 0 {
			t.Errorf("%s: check: %v, %v", url, warnings, err)
		}
	}
	if got := b.server.Do(t, "-n", "3", "EXISTS", "other:"+b.key.String()); got != "1" {
		t.Error("database and prefix of the URL were not used")
	}
	if got := open(t, "redis://h?max_ttl=24h").Caps().MaxKeep.Hours(); got != 24 {
		t.Errorf("max_ttl=24h is a MaxKeep of %v hours", got)
	}
}

func TestTLS(t *testing.T) {
	server := redistest.Start(t, redistest.Options{TLS: true})
	b := newBench(t)
	if err := try(open(t, "rediss://"+server.Addr+"?ca="+server.CA), b.key, write(put(b.t, 1))); err != nil {
		t.Error(err)
	}
	refused(t, try(open(t, "rediss://"+server.Addr), b.key, write(put(b.t, 2))), "ca=FILE")
	err := try(open(t, "redis://"+server.Addr), b.key, write(put(b.t, 2)))
	refused(t, err, "rediss://")
	if !errors.Is(err, weir.ErrUnreachable) {
		t.Errorf("nothing was sent, and the error is %v", err)
	}
	refused(t, try(open(t, "rediss://"+b.server.Addr+"?ca="+server.CA), b.key, write(put(b.t, 2))))
	if got := server.Do(t, "HGET", b.key.String(), "rate.t"); got != "1" {
		t.Errorf("the field is %q", got)
	}
	server.Do(t, "CONFIG", "SET", "tls-auth-clients", "yes")
	refused(t, try(open(t, "rediss://"+server.Addr+"?ca="+server.CA), b.key, write(put(b.t, 2))), "cert=FILE")
}

func TestDatabaseThatIsNone(t *testing.T) {
	b := newBench(t)
	refused(t, try(open(t, "redis://"+b.server.Addr+"/99"), b.key, write(put(b.t, 1))), "fewer databases", "prefix")
}

// What to type is said where a Sentinel is taken for a server, or asked for another name.
func TestSentinelWithoutItsName(t *testing.T) {
	s := redistest.StartSentinel(t)
	b := newBench(t)
	for _, params := range []string{"", "?master_set=" + s.Name + "x"} {
		refused(t, try(open(t, "redis://"+s.Addr+params), b.key, write(put(b.t, 1))), "master_set", "SENTINEL MASTERS")
	}
}

// A Sentinel that wants a password is asked with that of the servers.
func TestSentinelWithPassword(t *testing.T) {
	s := redistest.StartSentinel(t)
	b := newBench(t)
	for _, server := range []*redistest.Server{s.Primary, s.Server} {
		server.Do(t, "ACL", "SETUSER", "weir", "on", ">secret", "~*", "&*", "+@all")
	}
	url := "@" + s.Addr + "?master_set=" + s.Name
	if err := try(open(t, "redis://weir:secret"+url), b.key, write(put(b.t, 1))); err != nil {
		t.Errorf("a Sentinel that wants none: %v", err)
	}
	s.Do(t, "ACL", "SETUSER", "default", "off")
	if err := try(open(t, "redis://weir:secret"+url), b.key, write(put(b.t, 1))); err != nil {
		t.Errorf("a Sentinel that wants one: %v", err)
	}
	refused(t, try(open(t, "redis://weir:wrong"+url), b.key, write(put(b.t, 1))), "the Sentinel refuses", "WRONGPASS")
	s.Primary.Do(t, "ACL", "SETUSER", "weir", ">other", "<secret")
	err := try(open(t, "redis://weir:secret"+url), b.key, write(put(b.t, 1)))
	if refused(t, err, "password is wrong"); strings.Contains(err.Error(), "the Sentinel") {
		t.Errorf("what the server refuses is said to be the Sentinel's: %v", err)
	}
}

// TestUser: a user with the documented rights, and no more, can decide.
func TestUser(t *testing.T) {
	b := newBench(t)
	acl := append([]string{"ACL", "SETUSER", "weir", "on", ">secret", "~test:*"}, strings.Fields(redisstore.Rights)...)
	b.server.Do(t, acl...)
	b.server.Do(t, "ACL", "SETUSER", "poor", "on", ">secret", "~test:*", "+evalsha", "+eval", "+time", "+hgetall")
	s := open(t, "redis://weir:secret@"+b.server.Addr+"?prefix=test:")
	for _, w := range []int64{1, 2} {
		if err := try(s, b.key, write(put(b.t, w), add(b.count, 1), drop(b.i))); err != nil {
			t.Error(err)
		}
	}
	warnings, err := s.Check(context.Background())
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "+hmget") || !strings.Contains(warnings[1], "INFO") {
		t.Errorf("check: %v, %v", warnings, err)
	}
	for url, want := range map[string][]string{
		"redis://weir:wrong@" + b.server.Addr + "?prefix=test:":  {"WRONGPASS", "password is wrong"},
		"redis://poor:secret@" + b.server.Addr + "?prefix=test:": {"the user lacks rights", "ACL SETUSER"},
		"redis://weir:secret@" + b.server.Addr + "?prefix=else:": {"NOPERM", "ACL SETUSER"},
	} {
		s := open(t, url)
		refused(t, try(s, b.key, write(put(b.t, 3))), want...)
		if _, err := s.Check(context.Background()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: check: %v", url, err)
		}
	}
}

func TestCheckWarnsOfEviction(t *testing.T) {
	b := newBench(t)
	b.server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	warnings, err := b.store.Check(context.Background())
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "allkeys-lru") || !strings.Contains(warnings[0], "maxmemory-policy noeviction") {
		t.Errorf("check: %v, %v", warnings, err)
	}
	if got := b.server.Do(t, "DBSIZE"); got != "0" {
		t.Errorf("check left %s keys", got)
	}
}

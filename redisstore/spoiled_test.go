package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// spoiling is a server on which a caller of some limits has an item that other
// programs write to.
type spoiling struct {
	*bench
	limiter *weir.Limiter
	limits  []weir.Limit
}

// takes counts on the caller's item, more often than a breaker lets a store fail,
// and on another's, which must be served. It reports how many takes said that the
// item is spoiled.
func (s *spoiling) takes(what string, limits ...weir.Limit) (spoilt int) {
	s.Helper()
	const often = 8
	take := func(id string) error {
		ops := make([]weir.Op, len(limits))
		for i := range ops {
			ops[i] = weir.Op{Limit: limits[i], Key: weir.NewKey("account", id), OnFail: weir.FailError}
		}
		_, err := s.limiter.Take(context.Background(), ops...)
		return err
	}
	for range often {
		var spoiled *weir.SpoiledError
		switch err := take("customer-42"); {
		case errors.As(err, &spoiled):
			spoilt++
			if len(err.Error()) > 600 || strings.Contains(err.Error(), "customer-42") {
				s.Errorf("%s: an error of %d bytes: %.600s", what, len(err.Error()), err)
			}
		case err != nil:
			s.Errorf("%s: an error of one item says of the store: %v", what, err)
		}
	}
	if err := take("another"); err != nil {
		s.Fatalf("%s: another caller's take: %v", what, err)
	}
	return spoilt
}

// mended resets limits, after which takes find no more in the way.
func (s *spoiling) mended(what string, limits ...weir.Limit) {
	s.Helper()
	if err := s.limiter.Reset(context.Background(), s.key, limits...); err != nil {
		s.Errorf("%s: reset: %v", what, err)
	}
	if n := s.takes(what, s.limits...); n != 0 {
		s.Errorf("%s: after a reset %d takes found the item spoiled: %q", what, n, s.server.Do(s, "HGETALL", s.name()))
	}
}

// hset writes fields to the caller's item, of any bytes.
func (s *spoiling) hset(fields ...string) {
	s.Helper()
	args := append([]string{s.name()}, fields...)
	if err := s.client.Do(context.Background(), s.client.B().Arbitrary("HSET").Args(args...).Build()).Error(); err != nil {
		s.Fatal(err)
	}
}

// newSpoiling is for limits of these forms. They allow all that is asked.
func newSpoiling(t *testing.T, o redisstore.Options, forms ...string) *spoiling {
	t.Helper()
	s := &spoiling{bench: newBench(t)}
	o.Prefix = "test:"
	s.store = newStore(t, s.client, o)
	for i, form := range forms {
		limit, err := weir.ParseLimit(form)
		if err == nil {
			limit, err = limit.Named(fmt.Sprintf("spoil-%d", i))
		}
		if err != nil {
			t.Fatal(err)
		}
		s.limits = append(s.limits, limit)
	}
	s.limiter = weir.NewLimiter(s.store, weir.Options{Limits: s.limits, Deadline: 10 * time.Second})
	return s
}

// junk is what another program may put into a field that is an integer.
var junk = []string{
	"abc", "", " ", "  ", "5 ", " 5", "5 6", "5 6 7", "a b c", "5 2 a 7", "5\n", "\n5", "5\x00", "\x005", "5\x01", "nan", "inf", "-inf", "1.5", "1e5", "0x10", "+5", "05", "-0", "-",
	"9223372036854775808", "-9223372036854775809", strings.Repeat("9", 300), strings.Repeat("9 ", 300), strings.Repeat("x", 1<<20), "\xff\xfe", "{}", "true",
}

// TestSpoiledFields: whatever one field of a limit holds, alone or beside others of
// its item, is an error of that item and stops no other caller, and a reset of its
// limit mends it.
func TestSpoiledFields(t *testing.T) {
	forms := []string{"5000000/h burst 5000000", "quota 5000000/h", "quota 5000000/day calendar", "sliding 5000000/h"}
	for _, resend := range []bool{false, true} {
		s := newSpoiling(t, redisstore.Options{Resend: resend}, forms...)
		for i, limit := range s.limits {
			s.takes("at first", limit)
			fields := strings.Fields(s.server.Do(t, "HKEYS", s.name()))
			prefix := fmt.Sprintf("spoil-%d.", i)
			fields = slices.DeleteFunc(fields, func(name string) bool { return !strings.HasPrefix(name, prefix) })
			if len(fields) == 0 {
				t.Fatalf("%s has no fields", forms[i])
			}
			for _, name := range fields {
				for _, v := range junk {
					what := fmt.Sprintf("%s, %s is %.20q", forms[i], name, v)
					spoil := func() { s.hset(name, v) }
					spoil()
					spoilt := s.takes(what, limit)
					spoil()
					spoilt += s.takes(what+", with all limits", s.limits...)
					spoil()
					if s.takes(what+", by another limit", s.limits[(i+1)%len(s.limits)]) > 0 {
						t.Errorf("%s: another limit's take failed", what)
					}
					if spoilt == 0 && name != "spoil-0.r" { // no take of a bucket needs that while the others are as they were
						t.Errorf("%s: nobody was told", what)
					}
					spoil()
					var spoiled *weir.SpoiledError
					if _, err := s.limiter.Peek(context.Background(), weir.Op{Limit: limit, Key: s.key}); !errors.As(err, &spoiled) || spoiled.Field != name {
						t.Errorf("%s: a look: %v", what, err)
					}
					s.mended(what, limit)
				}
			}
		}
	}
}

// TestResetOfOneSpoiledLimit: while a field of another limit can't be read, nothing is
// forgotten; with all that are spoiled, however many fields that is, all of it is.
func TestResetOfOneSpoiledLimit(t *testing.T) {
	s := newSpoiling(t, redisstore.Options{}, "5000000/h burst 5000000", "quota 5000000/h", "sliding 5000000/h")
	s.takes("at first", s.limits...)
	s.hset("spoil-0.t", "x", "spoil-1.c", "5 ", "spoil-1~.c", "")
	for n := range 100 {
		s.hset(fmt.Sprintf("spoil-2.c@1h:%d", n), "x")
	}
	before := s.server.Do(t, "HGETALL", s.name())
	for i := range s.limits {
		for _, limits := range [][]weir.Limit{{s.limits[i]}, {s.limits[i], s.limits[(i+1)%len(s.limits)]}} {
			var spoiled *weir.SpoiledError
			err := s.limiter.Reset(t.Context(), s.key, limits...)
			if !errors.As(err, &spoiled) || len(spoiled.More) != 102 {
				t.Errorf("a reset of %v: %v", limits, err)
				continue
			}
			_, other, _ := strings.Cut(err.Error(), `nothing is reset while field "`)
			if other, _, _ = strings.Cut(other, `" of another limit`); !strings.HasPrefix(other, "spoil-") || slices.ContainsFunc(limits, func(l weir.Limit) bool { return strings.HasPrefix(other, l.Name()) }) {
				t.Errorf("a reset of %v does not name what is in its way: %v", limits, err)
			}
		}
	}
	if after := s.server.Do(t, "HGETALL", s.name()); after != before {
		t.Errorf("they left %.200q", after)
	}
	for _, limits := range [][]weir.Limit{s.limits, nil} {
		s.hset("spoil-0.t", "x", "spoil-1.c", "5 ", "spoil-2.c@1h:0", "x")
		if err := s.limiter.Reset(t.Context(), s.key, limits...); err != nil {
			t.Error(err)
		}
		if got := s.server.Do(t, "EXISTS", s.name()); got != "0" {
			t.Errorf("a reset of %v leaves %.200q", limits, s.server.Do(t, "HGETALL", s.name()))
		}
	}
}

// TestASpoiledLimitIsAlone: a limit of which a field is spoiled neither allows nor
// counts, whatever is asked with it; the others of the item do both, exactly.
func TestASpoiledLimitIsAlone(t *testing.T) {
	for _, o := range []weir.Options{{}, {NoMemo: true, NoCoalescing: true}} {
		for _, resend := range []bool{false, true} {
			s := newSpoiling(t, redisstore.Options{Resend: resend}, "5/d burst 5", "quota 5/d", "quota 5/year calendar", "sliding 5/90d")
			o.Deadline = 10 * time.Second
			s.limiter = weir.NewLimiter(s.store, o)
			key := s.key
			ops := func(limits ...weir.Limit) (ops []weir.Op) {
				for _, l := range limits {
					ops = append(ops, weir.Op{Limit: l, Key: key, OnFail: weir.FailDeny})
				}
				return ops
			}
			for i, broken := range s.limits {
				key = weir.NewKey("account", fmt.Sprint("customer-", i))
				name := "test:" + key.String()
				if _, err := s.limiter.Take(t.Context(), ops(broken)...); err != nil {
					t.Fatal(err)
				}
				for _, field := range strings.Fields(s.server.Do(t, "HKEYS", name)) {
					if strings.HasPrefix(field, fmt.Sprintf("spoil-%d.", i)) {
						s.server.Do(t, "HSET", name, field, "abc")
					}
				}
				for _, sound := range s.limits {
					if sound == broken {
						continue
					}
					for n := range 7 {
						d, err := s.limiter.Take(t.Context(), ops(sound)...)
						if err != nil || d.Allowed != (n < 5) || d.Degraded || d.Used != int64(min(n+1, 5)) {
							t.Errorf("take %d of %v beside %v: %+v, %v", n, sound, broken, d, err)
						}
						for _, with := range [][]weir.Op{ops(broken), ops(sound, broken), ops(broken, sound)} {
							if d, err := s.limiter.Take(t.Context(), with...); err != nil || d.Allowed || !d.Degraded && n < 4 {
								t.Errorf("take %d of %v and %v: %+v, %v", n, sound, broken, d, err)
							}
						}
					}
				}
				if err := s.limiter.Reset(t.Context(), key, broken); err != nil {
					t.Error(err)
				}
				each, err := s.limiter.Peek(t.Context(), ops(s.limits...)...)
				for j := range each {
					want := int64(5)
					if j == i {
						want = 0
					}
					if each[j].Used != want {
						t.Errorf("%v beside %v has used %d, want %d", s.limits[j], broken, each[j].Used, want)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestAResetSaysWhatItLacked: a server that refuses to mend an item is what a reset
// fails of, and not the item again.
func TestAResetSaysWhatItLacked(t *testing.T) {
	s := newSpoiling(t, redisstore.Options{}, "5/h")
	for _, lacks := range []string{"hdel", "pexpire"} {
		s.hset("spoil-0.t", "abc")
		s.server.Do(t, "ACL", "SETUSER", "mender", "reset", "on", ">secret", "~*", "+@all", "-"+lacks)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.server.Addr}, DisableCache: true, Username: "mender", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		limiter := weir.NewLimiter(newStore(t, client, redisstore.Options{Prefix: "test:"}), weir.Options{Deadline: 10 * time.Second})
		if err := limiter.Reset(t.Context(), s.key, s.limits...); err == nil || errors.As(err, new(*weir.SpoiledError)) || !strings.Contains(err.Error(), lacks) {
			t.Errorf("a reset without %s: %v", lacks, err)
		}
		client.Close()
	}
}

// keeper is a store that deletes nothing, whatever it is told.
type keeper struct {
	*redisstore.Store
	told int
}

func (k *keeper) Delete(context.Context, weir.Key) error {
	k.told++
	return nil
}

// TestAResetThatIsInVainEnds: an item that is as it was after each deletion is not
// deleted for as long as there is time.
func TestAResetThatIsInVainEnds(t *testing.T) {
	s := newSpoiling(t, redisstore.Options{}, "5/h", "quota 5/h")
	s.server.Do(t, "SET", s.name(), "x")
	for _, limits := range [][]weir.Limit{nil, s.limits} {
		k := &keeper{Store: s.store}
		err := weir.NewLimiter(k, weir.Options{Deadline: 10 * time.Second}).Reset(t.Context(), s.key, limits...)
		if !errors.As(err, new(*weir.SpoiledError)) || errors.Is(err, context.DeadlineExceeded) || k.told != 3 {
			t.Fatalf("told to delete %d times: %v", k.told, err)
		}
		want := []string{"not reset", "deleted 3 times", "stop what writes it"}
		for _, l := range limits {
			want = append(want, l.Name())
		}
		for _, want := range want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		if strings.Contains(err.Error(), "customer-42") {
			t.Errorf("the error has the key: %v", err)
		}
	}
	s.mended("after all", s.limits...) // by a store that deletes
}

// TestForeignFields: fields of others are nobody's business, whatever they hold and
// are called; they stay when limits are reset.
func TestForeignFields(t *testing.T) {
	for _, resend := range []bool{false, true} {
		s := newSpoiling(t, redisstore.Options{Resend: resend}, "5000000/h burst 5000000", "quota 5000000/h")
		for _, fields := range [][]string{
			{"foo", "bar"}, {"foo.t", "7"}, {"foo.t", "bar"}, {"my name", "1"}, {"foo", "a b"}, {"a b", "c d e"}, {"a b", "1", "c d", "2"}, {"a b 5 spoil-0.t 2 c", "6"},
			{"", "1"}, {"foo", ""}, {"", ""}, {" ", " "}, {"a\nb", "c\nd"}, {"a,b", "=1"}, {"a\x01b", "\x01"}, {"w w", "w"}, {"spoil-0.t ", "5"}, {" spoil-0.t", "5"},
			{strings.Repeat("n", 1<<20), "1"}, {"foo", strings.Repeat("x", 1<<20)}, {"spoil-9.t", "nan"},
		} {
			what := fmt.Sprintf("%.40q", fields)
			s.hset(fields...)
			s.sound(what, len(fields)/2)
		}
		var many []string
		for n := range 5000 {
			many = append(many, fmt.Sprint("f ", n), "v v", fmt.Sprint("g", n%300), "v v")
		}
		s.hset(many...)
		s.sound("5,300 fields", 5300)
		s.hset("w", "junk, with spaces, where the nonces are")
		if n := s.takes("the nonces", s.limits...); n != 0 {
			t.Errorf("junk in the place of nonces is taken for a spoiled item %d times", n)
		}
	}
}

// sound expects all to be served, and so many fields to be left after a reset.
func (s *spoiling) sound(what string, left int) {
	s.Helper()
	for _, limits := range [][]weir.Limit{s.limits[:1], s.limits[1:], s.limits} {
		if n := s.takes(what, limits...); n != 0 {
			s.Errorf("%s: %d takes found the item spoiled", what, n)
		}
	}
	if err := s.limiter.Reset(context.Background(), s.key); err != nil {
		s.Errorf("%s: reset: %v", what, err)
	}
	s.server.Do(s, "HDEL", s.name(), "w")
	if got := s.server.Do(s, "HLEN", s.name()); got != fmt.Sprint(left) {
		s.Errorf("%s: after a reset %s fields are left, want %d", what, got, left)
	}
	s.server.Do(s, "DEL", s.name())
}

// TestSpoiledIsAskedOnce: a store that sends again what was lost does not send again
// what was answered with a spoiled item.
func TestSpoiledIsAskedOnce(t *testing.T) {
	var trips atomic.Int64
	s := newSpoiling(t, redisstore.Options{Resend: true, Observer: &weir.Observer{Trip: func(context.Context, weir.Trip) { trips.Add(1) }}}, "quota 5000000/h")
	s.takes("at first", s.limits...)
	s.hset("spoil-0.c", "5 ") // which the script takes for a number
	trips.Store(0)
	var spoiled *weir.SpoiledError
	if _, err := s.limiter.Take(context.Background(), weir.Op{Limit: s.limits[0], Key: s.key, OnFail: weir.FailError}); !errors.As(err, &spoiled) || trips.Load() != 1 {
		t.Errorf("%v, in %d trips", err, trips.Load())
	}
}

// TestResetOfASpoiledKeyIsSeenAtOnce: who was refused before a key was spoiled is not
// refused by memory after a reset.
func TestResetOfASpoiledKeyIsSeenAtOnce(t *testing.T) {
	s := newSpoiling(t, redisstore.Options{}, "quota 1/h")
	op := weir.Op{Limit: s.limits[0], Key: s.key, OnFail: weir.FailError}
	for n := range 3 {
		if d, err := s.limiter.Take(context.Background(), op); err != nil || d.Allowed != (n == 0) {
			t.Fatalf("take %d: %+v, %v", n, d, err)
		}
	}
	s.server.Do(t, "SET", s.name(), "x")
	if err := s.limiter.Reset(context.Background(), s.key); err != nil {
		t.Fatal(err)
	}
	if d, err := s.limiter.Take(context.Background(), op); err != nil || !d.Allowed {
		t.Errorf("after a reset: %+v, %v", d, err)
	}
}

// TestSpoiledKeys: a key of another type, or with more fields than an item can have,
// stops its own caller only; a reset of any limit removes it.
func TestSpoiledKeys(t *testing.T) {
	many := func(s *spoiling) []string {
		return []string{"EVAL", "for i=1,100000,100 do local f={} for j=i,i+99 do f[#f+1]='f '..j f[#f+1]='v '..j end redis.call('HSET',KEYS[1],unpack(f)) end", "1", s.name()}
	}
	for _, o := range []redisstore.Options{{}, {OneByOne: true}, {Resend: true}} {
		s := newSpoiling(t, o, "5000000/h burst 5000000", "quota 5000000/day calendar")
		for name, command := range map[string]func(*spoiling) []string{
			"string":       func(s *spoiling) []string { return []string{"SET", s.name(), "abc"} },
			"integer":      func(s *spoiling) []string { return []string{"SET", s.name(), "5"} },
			"list":         func(s *spoiling) []string { return []string{"RPUSH", s.name(), "a"} },
			"set":          func(s *spoiling) []string { return []string{"SADD", s.name(), "a"} },
			"sorted set":   func(s *spoiling) []string { return []string{"ZADD", s.name(), "1", "a"} },
			"stream":       func(s *spoiling) []string { return []string{"XADD", s.name(), "*", "a", "b"} },
			"many of them": many,
		} {
			for _, reset := range [][]weir.Limit{nil, s.limits[:1], s.limits} {
				if name == "many of them" && len(reset) != 1 {
					continue // slow
				}
				s.takes(name, s.limits...)
				s.server.Do(t, "DEL", s.name())
				s.server.Do(t, command(s)...)
				for _, limits := range [][]weir.Limit{s.limits[:1], s.limits[1:], s.limits} {
					if n := s.takes(name, limits...); n == 0 {
						t.Errorf("%s: nobody was told", name)
					}
				}
				var spoiled *weir.SpoiledError
				if _, err := s.limiter.Peek(context.Background(), weir.Op{Limit: s.limits[0], Key: s.key}); !errors.As(err, &spoiled) || spoiled.Field != "" {
					t.Errorf("%s: a look: %v", name, err)
				}
				s.mended(name, reset...)
			}
		}
	}
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, redistest.Options{})
		c := client(t, rueidis.ClientOption{InitAddress: []string{cluster.Nodes[0].Addr}})
		limit, err := weir.ParseLimit("quota 5000000/h")
		if err != nil {
			t.Fatal(err)
		}
		limiter := weir.NewLimiter(newStore(t, c, redisstore.Options{}), weir.Options{Deadline: 10 * time.Second})
		for n := range 20 { // on all nodes
			key := weir.NewKey("account", fmt.Sprint(n))
			if err := c.Do(context.Background(), c.B().Set().Key(key.String()).Value("x").Build()).Error(); err != nil {
				t.Fatal(err)
			}
			op := weir.Op{Limit: limit, Key: key, OnFail: weir.FailError}
			var spoiled *weir.SpoiledError
			if _, err := limiter.Take(context.Background(), op); !errors.As(err, &spoiled) {
				t.Errorf("a take: %v", err)
			}
			if err := limiter.Reset(context.Background(), key, limit); err != nil {
				t.Errorf("reset: %v", err)
			}
			if _, err := limiter.Take(context.Background(), op); err != nil {
				t.Errorf("after a reset: %v", err)
			}
		}
	})
}

// Between a read that finds a key spoiled and its deletion somebody else may have
// mended it and counted there: that stays.
func TestDeleteLeavesWhatCanBeRead(t *testing.T) {
	s := newSpoiling(t, redisstore.Options{}, "quota 5/h")
	take := weir.Op{Limit: s.limits[0], Key: s.key, OnFail: weir.FailError}
	if _, err := s.limiter.Take(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	if err := s.store.Delete(t.Context(), s.key); err != nil {
		t.Fatal(err)
	}
	if d, err := s.limiter.Take(t.Context(), take); err != nil || d.Used != 2 {
		t.Errorf("a healthy item after a deletion: %+v, %v", d, err)
	}
	// As many fields as can be read, of which it keeps its time.
	s.server.Do(t, "EVAL", "for i=redis.call('HLEN',KEYS[1])+1,8192 do redis.call('HSET',KEYS[1],i,1) end", "1", s.name())
	lasts := s.server.Do(t, "PEXPIRETIME", s.name())
	if err := s.store.Delete(t.Context(), s.key); err != nil {
		t.Fatal(err)
	}
	if n, at := s.server.Do(t, "HLEN", s.name()), s.server.Do(t, "PEXPIRETIME", s.name()); n != "8192" || at != lasts {
		t.Errorf("a healthy item has %s of 8192 fields after a deletion, and lasts until %s, not %s", n, at, lasts)
	}
	for _, spoil := range [][]string{{"SET", s.name(), "x"}, {"EVAL", "for i=1,8193 do redis.call('HSET',KEYS[1],i,1) end", "1", s.name()}, {"DEL", s.name()}} {
		if spoil[0] != "EVAL" {
			s.server.Do(t, "DEL", s.name())
		}
		s.server.Do(t, spoil...)
		if err := s.store.Delete(t.Context(), s.key); err != nil {
			t.Fatal(err)
		}
		if n := s.server.Do(t, "EXISTS", s.name()); n != "0" {
			t.Errorf("%.40s: %s keys are left", spoil, n)
		}
	}
}

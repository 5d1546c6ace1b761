package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// try applies a write to an item and returns the error, if any.
func try(s *redisstore.Store, key weir.Key, w weir.Write) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var state weir.Cells
	_, _, err := s.Apply(ctx, key, []weir.Write{w}, &state)
	return err
}

// refused checks an error: it is known that nothing happened, and the text says
// what to do.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	if errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("the outcome is said to be unknown: %v", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q and does not say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "customer-42") {
		t.Errorf("the error %q shows a caller's key", err)
	}
}

func TestScriptIsLoadedAgain(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.must(write(add(b.count, 1)))
		b.server.Do(t, "SCRIPT", "FLUSH")
		b.must(write(add(b.count, 1)))
		if got := b.stored("quota.c"); got != strconv.Itoa(2*(i+1)) {
			t.Fatalf("the count is %s after %d writes", got, 2*(i+1))
		}
	}
}

// TestCase_B139_RefusalsOfTheServerAreErrors: whatever the server refuses with
// is an error of the store that says what to do, and never an answer to a take.
func TestCase_B139_RefusalsOfTheServerAreErrors(t *testing.T) {
	t.Run("READONLY", func(t *testing.T) {
		s := redistest.StartSentinel(t)
		store := newStore(t, single(t, s.Replica), redisstore.Options{})
		b := newBench(t)
		refused(t, try(store, b.key, write(put(b.t, 1))), "READONLY", "connect to the primary")
	})
	t.Run("OOM", func(t *testing.T) {
		b := newBench(t)
		b.must(write(put(b.t, 1)))
		b.server.Do(t, "CONFIG", "SET", "maxmemory", "1mb")
		refused(t, try(b.store, b.key, write(put(b.t, 2), drop(b.i))), "OOM", "maxmemory")
		if got := b.stored("rate.t"); got != "1" {
			t.Errorf("a write that was refused left %s", got)
		}
		b.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		b.must(write(put(b.t, 2)))
	})
	t.Run("MISCONF", func(t *testing.T) {
		b := newBench(t)
		b.server.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
		refused(t, try(b.store, b.key, write(put(b.t, 2))), "NOREPLICAS", "bring the replicas back")
	})
	t.Run("WRONGTYPE", func(t *testing.T) {
		b := newBench(t)
		b.server.Do(t, "SET", b.name(), "x")
		refused(t, try(b.store, b.key, write(put(b.t, 2))), "WRONGTYPE", "prefix")
	})
	t.Run("not a number", func(t *testing.T) {
		b := newBench(t)
		b.server.Do(t, "HSET", b.name(), "rate.t", "soon")
		refused(t, try(b.store, b.key, write(add(b.t, 2))), "not a number")
		var state weir.Cells
		_, _, err := b.store.Apply(context.Background(), b.key, nil, &state)
		refused(t, err, "rate.t", "soon", "remove the field")
	})
	t.Run("LOADING", func(t *testing.T) {
		server := redistest.Start(t, redistest.Options{Config: []string{"enable-debug-command yes", "loading-process-events-interval-bytes 1024", "rdbcompression no"}})
		b := newBench(t)
		store := newStore(t, single(t, server), redisstore.Options{})
		server.Do(t, "DEBUG", "POPULATE", "2000", "key", "200")
		server.Do(t, "CONFIG", "SET", "key-load-delay", "20000") // 40 s for all of them, unless it is told otherwise meanwhile
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			server.Do(t, "DEBUG", "RELOAD")
		}()
		var err error
		redistest.Await(t, "the server to load", func() bool {
			err = try(store, b.key, write(put(b.t, 1)))
			return err != nil && strings.Contains(err.Error(), "LOADING")
		})
		server.Do(t, "CONFIG", "SET", "key-load-delay", "0")
		refused(t, err, "LOADING", "answers when that is done")
		<-loaded
		if err := try(store, b.key, write(put(b.t, 1))); err != nil {
			t.Errorf("after loading: %v", err)
		}
	})
	t.Run("MOVED and CLUSTERDOWN", func(t *testing.T) {
		cluster := redistest.StartCluster(t, redistest.Options{})
		b := newBench(t)
		one := newStore(t, single(t, cluster.Nodes[0]), redisstore.Options{})
		moved := 0
		for n := range 30 {
			if err := try(one, weir.NewKey("account", "customer-42", "n", strconv.Itoa(n)), write(put(b.t, 1))); err != nil {
				refused(t, err, "MOVED", "redis+cluster://")
				moved++
			}
		}
		if moved == 0 || moved == 30 {
			t.Errorf("%d of 30 keys are on other nodes", moved)
		}
		cluster.Lose(t, 2)
		redistest.Await(t, "the cluster to be down", func() bool {
			return strings.Contains(cluster.Nodes[0].Do(t, "CLUSTER", "INFO"), "cluster_state:fail")
		})
		refused(t, try(one, b.key, write(put(b.t, 1))), "CLUSTERDOWN", "redis-cli --cluster check")
	})
}

// TestSpoiledItem: what another program has written to one caller's item touches no
// other caller, and Reset mends it.
func TestSpoiledItem(t *testing.T) {
	b := newBench(t)
	var limits []weir.Limit
	for _, l := range [][2]string{{"spoiled-rate", "5/h"}, {"spoiled-quota", "quota 5/day calendar"}, {"sound", "5/h"}} {
		limit, err := weir.ParseLimit(l[1])
		if err == nil {
			limit, err = limit.Named(l[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
	}
	rate, sound := limits[0], limits[2]
	limiter := weir.NewLimiter(b.store, weir.Options{Limits: limits, NoMemo: true})
	take := func(key weir.Key, l weir.Limit) error {
		_, err := limiter.Take(context.Background(), weir.Op{Limit: l, Key: key, OnFail: weir.FailError})
		return err
	}
	for _, l := range limits {
		if err := take(b.key, l); err != nil {
			t.Fatal(err)
		}
	}
	var spoilt []string
	for _, name := range strings.Fields(b.server.Do(t, "HKEYS", b.name())) {
		if strings.HasPrefix(name, "spoiled-") {
			spoilt = append(spoilt, name)
			b.server.Do(t, "HSET", b.name(), name, "abc")
		}
	}
	if len(spoilt) < 4 {
		t.Fatalf("the fields are %v", spoilt)
	}
	var spoiled *weir.SpoiledError
	for range 20 { // more than a breaker takes for an outage
		if err := take(b.key, rate); !errors.As(err, &spoiled) {
			t.Fatalf("a take from a spoiled item: %v", err)
		}
		if _, err := limiter.Peek(context.Background(), weir.Op{Limit: rate, Key: b.key}); !errors.As(err, &spoiled) || !slices.Contains(spoilt, spoiled.Field) {
			t.Fatalf("a look at a spoiled item: %v", err)
		}
	}
	if err := take(weir.NewKey("account", "another"), rate); err != nil {
		t.Errorf("another caller's take: %v", err)
	}
	if err := limiter.Reset(context.Background(), b.key, sound); !errors.As(err, &spoiled) {
		t.Errorf("a reset of a limit that is not spoiled: %v", err)
	}
	if got := b.server.Do(t, "HLEN", b.name()); got == "0" {
		t.Error("it removed what is none of its own")
	}
	if err := limiter.Reset(context.Background(), b.key); err != nil {
		t.Errorf("reset: %v", err)
	}
	if got := b.server.Do(t, "EXISTS", b.name()); got != "0" {
		t.Errorf("after a reset there is %s", b.server.Do(t, "HGETALL", b.name()))
	}
	if err := take(b.key, rate); err != nil {
		t.Errorf("after a reset: %v", err)
	}
}

// lossy is a store behind a proxy that loses replies.
func lossy(t *testing.T) (*bench, *redistest.Proxy) {
	t.Helper()
	b := newBench(t)
	p := redistest.NewProxy(t, b.server)
	b.store = newStore(t, client(t, rueidis.ClientOption{InitAddress: []string{p.Addr}, ForceSingleClient: true}), redisstore.Options{Prefix: "test:", Resend: true})
	return b, p
}

// TestCase_B149_B151_ALostReplyIsChargedOnce: a reply is lost after the script
// has run. The outcome is unknown, and the same write, sent again, is applied
// and has happened once.
func TestCase_B149_B151_ALostReplyIsChargedOnce(t *testing.T) {
	b, p := lossy(t)
	w := write(add(b.count, 1))
	w.If = []weir.Cond{{Field: b.count, Cmp: plan.AtMost, Value: 0, OrAbsent: true}}
	w.Nonce = 99
	if err := try(b.store, weir.NewKey("account", "customer-41"), w); err != nil {
		t.Fatal(err) // connected, and the server knows the script
	}
	p.LoseReply("EVALSHA")
	if err := try(b.store, b.key, w); !errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Fatalf("a lost reply is %v", err)
	}
	if got := b.stored("quota.c"); got != "1" {
		t.Fatalf("the count is %s: the proxy lost the wrong thing", got)
	}
	b.must(w) // though its guard fails by now
	if got := b.stored("quota.c"); got != "1" {
		t.Errorf("the count is %s after the same write was sent twice", got)
	}

	// And so a take through the limiter is one take. (Of a limit whose first
	// write needs no knowledge of the item: the limiter cannot tell a lost
	// refusal of a guess from a lost take.)
	limit, err := weir.ParseLimit("quota 5/year calendar")
	if err != nil {
		t.Fatal(err)
	}
	limiter := weir.NewLimiter(b.store, weir.Options{Limits: []weir.Limit{limit}, Deadline: time.Minute})
	key := weir.NewKey("account", "customer-43")
	for n := range int64(5) {
		p.LoseReply("EVALSHA")
		d, err := limiter.Take(context.Background(), weir.Op{Limit: limit, Key: key, OnFail: weir.FailError})
		if err != nil || !d.Allowed || d.Used != n+1 {
			t.Fatalf("take %d: %+v, %v", n, d, err)
		}
	}
	if d, err := limiter.Take(context.Background(), weir.Op{Limit: limit, Key: key, OnFail: weir.FailError}); err != nil || d.Allowed {
		t.Fatalf("take 6 of 5: %+v, %v", d, err)
	}
	if p.Lost() < 6 {
		t.Errorf("only %d replies were lost", p.Lost())
	}
}

// TestServerThatHangs: a call ends with its deadline, its outcome unknown, and
// the next one after the server has come back works.
func TestServerThatHangs(t *testing.T) {
	b := newBench(t)
	b.must(write(put(b.t, 1)))
	b.server.Pause(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	var state weir.Cells
	_, _, err := b.store.Apply(ctx, b.key, []weir.Write{write(add(b.t, 1))}, &state)
	if took := time.Since(began); took > 8*time.Second { // the client itself waits for 10 s
		t.Errorf("a call with a deadline of 50 ms took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("the error is %v", err)
	}
	b.server.Resume(t)
	redistest.Await(t, "the store to work again", func() bool { return try(b.store, b.key, write(put(b.t, 5))) == nil })
}

// TestCase_B146_StartBeforeTheServer: a store opens while its server is down,
// says so at each call, and works when it is there, and again after a crash.
func TestCase_B146_StartBeforeTheServer(t *testing.T) {
	b := newBench(t)
	b.server.Kill()
	store, err := redisstore.Open("redis://"+b.server.Addr, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for range 3 {
		err := try(store, b.key, write(put(b.t, 1)))
		refused(t, err, "is the server running", b.server.Addr)
		if !errors.Is(err, weir.ErrUnreachable) {
			t.Errorf("nothing was sent, and the error is %v", err)
		}
	}
	for range 2 {
		b.server.Restart(t)
		redistest.Await(t, "the store to work", func() bool { return try(store, b.key, write(put(b.t, 1))) == nil })
		b.server.Kill()
		if err := try(store, b.key, write(put(b.t, 1))); err == nil {
			t.Error("a write to a server that is gone succeeded")
		}
	}
}

// TestFailover: the primary dies, and the store goes on with the one that the
// Sentinel names.
func TestFailover(t *testing.T) {
	s := redistest.StartSentinel(t)
	b := newBench(t)
	store, err := redisstore.Open("redis://"+s.Addr+"?master_set="+s.Name, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w := write(put(b.t, 1))
	if err := try(store, b.key, w); err != nil {
		t.Fatal(err)
	}
	if warnings, err := store.Check(context.Background()); err != nil || len(warnings) > 0 {
		t.Errorf("check: %v, %v", warnings, err)
	}
	redistest.Await(t, "the replica to have the write", func() bool { return s.Replica.Do(t, "EXISTS", b.key.String()) == "1" })
	s.LosePrimary(t)
	redistest.Await(t, "the store to go on with the new primary", func() bool { return try(store, b.key, w) == nil })
	if got := s.Replica.Do(t, "HGET", b.key.String(), "rate.t"); got != "1" {
		t.Errorf("the new primary has %q", got)
	}
	var state weir.Cells
	if _, _, err := store.Apply(context.Background(), b.key, nil, &state); err != nil || state.Len() != 1 {
		t.Errorf("after the failover the item has %d fields, %v", state.Len(), err)
	}
}

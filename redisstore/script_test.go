package redisstore_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// client connects to a server, as a program would that has its own client.
func client(tb testing.TB, o rueidis.ClientOption) rueidis.Client {
	tb.Helper()
	o.DisableCache = true
	c, err := rueidis.NewClient(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func single(tb testing.TB, s *redistest.Server) rueidis.Client {
	tb.Helper()
	return client(tb, rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true})
}

func newStore(tb testing.TB, c rueidis.Client, o redisstore.Options) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.New(c, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// bench is a store with a server to itself and a limit whose fields exist.
type bench struct {
	testing.TB
	server *redistest.Server
	client rueidis.Client
	store  *redisstore.Store
	key    weir.Key
	t, i   weir.Field
	count  weir.Field
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{})
	b := &bench{TB: tb, server: server, client: single(tb, server), key: weir.NewKey("account", "customer-42")}
	b.store = newStore(tb, b.client, redisstore.Options{Prefix: "test:"})
	b.t, b.i, b.count = field(tb, "10/s burst 20", "rate.t"), field(tb, "10/s burst 20", "rate.i"), field(tb, "quota 100/day", "quota.c")
	return b
}

// field is a field of a limit, which is built first: a store knows no other.
func field(tb testing.TB, limit, text string) weir.Field {
	tb.Helper()
	if _, err := weir.ParseLimit(limit); err != nil {
		tb.Fatal(err)
	}
	f, ok := weir.ParseField(text)
	if !ok {
		tb.Fatalf("field %q is unknown", text)
	}
	return f
}

func (b *bench) name() string { return "test:" + b.key.String() }

func (b *bench) apply(tries ...weir.Write) (applied int, now int64, state *weir.Cells) {
	b.Helper()
	state = new(weir.Cells)
	applied, now, err := b.store.Apply(context.Background(), b.key, tries, state)
	if err != nil {
		b.Fatalf("Apply: %v", err)
	}
	return applied, now, state
}

func (b *bench) must(w weir.Write) {
	b.Helper()
	if applied, _, _ := b.apply(w); applied != 0 {
		b.Fatalf("%+v was not applied", w)
	}
}

func put(f weir.Field, v int64) weir.Act { return weir.Act{Field: f, Do: plan.Put, Value: v} }
func add(f weir.Field, v int64) weir.Act { return weir.Act{Field: f, Do: plan.Add, Value: v} }
func drop(f weir.Field) weir.Act         { return weir.Act{Field: f, Do: plan.Remove} }

func write(acts ...weir.Act) weir.Write { return weir.Write{Do: acts, Keep: time.Hour} }

// edges are the values at which arithmetic in doubles, in billions, or in text
// would go wrong.
func edges() []int64 {
	var all []int64
	for _, v := range []int64{0, 1e9, 1e10, 1e15, 1e16, 1 << 53, 1 << 62, math.MaxInt64 - 1_600_000_000e9, 1_796_000_000_123_456_789, math.MaxInt64 - 1e9, math.MaxInt64} {
		for off := int64(-2); off <= 2; off++ {
			if off > 0 && v > math.MaxInt64-off {
				continue
			}
			all = append(all, v+off, -(v + off))
		}
	}
	return append(all, math.MinInt64, math.MinInt64+1)
}

// TestScriptIsExact compares what the script makes of guards and sums with what
// Write itself does, for all pairs of edges and for random numbers.
func TestScriptIsExact(t *testing.T) {
	b := newBench(t)
	values := edges()
	random := rand.New(rand.NewPCG(1, 2))
	pair := func(have, want int64) {
		b.must(write(put(b.t, have)))
		// Guards that all hold, with an addition; then one after the other.
		var state weir.Cells
		state.Set(b.t, have)
		// An addition by itself, which the server may do.
		alone := write(add(b.t, want))
		_, now, got := b.apply(alone)
		alone.Apply(&state, now)
		expect, _ := state.Get(b.t)
		if v, _ := got.Get(b.t); v != expect || b.stored("rate.t") != strconv.FormatInt(expect, 10) {
			t.Fatalf("%d plus %d: the answer says %d, stored is %s, want %d", have, want, v, b.stored("rate.t"), expect)
		}
		b.must(write(put(b.t, have)))
		state.Set(b.t, have)
		for cmp := plan.AtMost; cmp <= plan.Equal; cmp++ {
			for _, rel := range []bool{false, true} {
				if rel && want > math.MaxInt64-4e18 && want < math.MaxInt64-1_600_000_000e9 {
					continue // beyond int64 or not, depending on the day
				}
				w := write(add(b.t, want), put(b.i, int64(cmp)))
				w.If = []weir.Cond{{Field: b.t, Cmp: cmp, Value: want, Rel: rel}}
				applied, now, got := b.apply(w)
				holds := w.Holds(&state, now)
				if (applied == 0) != holds {
					t.Fatalf("%d against %d (relative: %v), comparison %d, now %d: applied %d", have, want, rel, cmp, now, applied)
				}
				if applied != 0 {
					continue
				}
				w.Apply(&state, now)
				expect, _ := state.Get(b.t)
				if v, _ := got.Get(b.t); v != expect {
					t.Fatalf("%d plus %d: the answer says %d", have, want, v)
				}
				if text := b.stored("rate.t"); text != strconv.FormatInt(expect, 10) {
					t.Fatalf("%d plus %d: stored is %s, want %d", have, want, text, expect)
				}
				b.must(write(put(b.t, have)))
				state.Set(b.t, have)
			}
		}
	}
	pair(1<<62, 1<<62)
	pair(-1<<62, -1<<62-1)
	for _, have := range values {
		pair(have, values[random.IntN(len(values))])
		pair(values[random.IntN(len(values))], have)
		for off := int64(-2); off <= 2; off++ {
			if sum := have + off; (off > 0) == (sum > have) {
				pair(have, sum)
			}
			if now := time.Now().UnixNano(); have > math.MinInt64+now {
				pair(have, have-now+off)
			}
		}
	}
	for range 200 {
		pair(int64(random.Uint64())>>random.IntN(64), int64(random.Uint64())>>random.IntN(64))
	}
}

// stored is a field as it stands on the server.
func (b *bench) stored(name string) string {
	b.Helper()
	text, err := b.client.Do(context.Background(), b.client.B().Hget().Key(b.name()).Field(name).Build()).ToString()
	if err != nil {
		b.Fatalf("HGET %s: %v", name, err)
	}
	return text
}

package dynamostore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
)

// A user over a limit of his own costs another user of the same tenant nothing:
// of a tenant's 35 units, five are his, and the other one gets the thirty that he
// wants, while two processes are flooded with the first one's calls.
func TestUserOverHisLimitCostsNobody(t *testing.T) {
	for _, o := range []weir.Options{{}, {NoMemo: true}} {
		open(t, clientOf(t, servers.full, nil), dynamostore.Options{})
		var limiters []*weir.Limiter
		for range 2 {
			limiters = append(limiters, limiterOn(open(t, clientOf(t, servers.full, nil), dynamostore.Options{}), o))
		}
		for i, kind := range []string{"1/d burst %d", "quota %d/d", "quota %d/year calendar", "sliding %d/90d"} {
			name := fmt.Sprint("t", i, o.NoMemo)
			tenant := weir.Op{Limit: parse(t, "tenant", fmt.Sprintf(kind, 35)), Key: weir.NewKey("tenant", name)}
			of := func(user string, most int) []weir.Op {
				return []weir.Op{tenant, {Limit: parse(t, "user", fmt.Sprintf(kind, most)), Key: weir.NewKey("tenant", name, "user", user)}}
			}
			greedy, modest := of("a", 5), of("b", 100)
			var wg sync.WaitGroup
			var mu sync.Mutex
			allowed := map[string]int{}
			call := func(user string, l *weir.Limiter, ops []weir.Op) {
				d, err := l.Take(context.Background(), ops...)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed[user]++
				} else if user == "b" {
					t.Errorf("%s: %+v", kind, d)
				}
			}
			for n := range 8 {
				wg.Go(func() {
					for range 20 {
						call("a", limiters[n%2], greedy)
					}
				})
			}
			for n := range 3 {
				wg.Go(func() {
					for range 10 {
						call("b", limiters[n%2], modest)
					}
				})
			}
			wg.Wait()
			if allowed["a"] != 5 || allowed["b"] != 30 || used(t, limiters[0], tenant) != 35 {
				t.Errorf("%s: %v, and %d of the tenant are used", kind, allowed, used(t, limiters[0], tenant))
			}
		}
	}
}

// In a rollout old and new processes meet at one bucket. The first new one
// carries the balance over, what was used stays used, and from then on all go by
// the new limit: nobody writes the old one back, and a take is one write.
func TestRolloutOfAChangedLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		for _, c := range []struct{ old, changed string }{
			{"1/d burst 20", "5/d burst 100"}, // raised
			{"5/d burst 100", "1/d burst 20"}, // lowered
		} {
			old, changed := parse(t, "rolled", c.old), parse(t, "rolled", c.changed).Revised(1, weir.KeepUsed)
			key := weir.NewKey("account", c.old)
			var cost trips
			store := func() *dynamostore.Store {
				return open(t, clientOf(t, server, nil), dynamostore.Options{Observer: cost.observer()})
			}
			// Without coalescing nothing is put together, and every call asks.
			before, after := limiterOn(store(), weir.Options{NoCoalescing: true}), limiterOn(store(), weir.Options{NoCoalescing: true})
			for range 8 {
				take(t, before, weir.Op{Limit: old, Key: key})
			}
			if d := take(t, after, weir.Op{Limit: changed, Key: key}); !d.Allowed || d.Used != 9 || d.Remaining != changed.Max()-9 {
				t.Errorf("%s: the first new process: %+v", c.old, d)
			}
			take(t, before, weir.Op{Limit: old, Key: key}) // the first that meets the new limit
			cost.take()
			for n := int64(11); n <= 20; n++ {
				l, limit := before, old
				if n%2 == 0 {
					l, limit = after, changed
				}
				if d := take(t, l, weir.Op{Limit: limit, Key: key}); !d.Allowed || d.Used != n || d.Remaining != changed.Max()-n {
					t.Errorf("%s, call %d: %+v", c.old, n, d)
				}
			}
			if spent := cost.take(); spent.applied != 10 || spent.all > 11 {
				t.Errorf("%s: 10 calls cost %+v", c.old, spent)
			}
			if changed.Max() == 20 {
				for _, op := range []weir.Op{{Limit: old, Key: key}, {Limit: changed, Key: key}} {
					if d := take(t, after, op); d.Allowed {
						t.Errorf("%s: %+v", c.old, d)
					}
				}
			}
			pk := item(t, clientOf(t, server, nil), tableOf(t), key.String())
			if r := number(t, pk, "rolled.r"); r != "1" {
				t.Errorf("%s: the item is of revision %s", c.old, r)
			}
		}
	})
}

// A process whose clock was an hour ahead has written into an item. The next one
// repairs it: nobody is locked out for longer than the limit takes to fill. And a
// clock that steps by an hour either way mints at most one full bucket, once.
func TestWrongHour(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		for i, c := range []struct {
			text  string
			fills time.Duration
		}{{"1/s burst 10", 10 * time.Second}, {"quota 10/m", time.Minute}, {"quota 10/minute calendar", time.Minute}, {"sliding 10/m", 2 * time.Minute}} {
			limit := parse(t, fmt.Sprint("hour-", i), c.text)
			x := newTimed(t, server, limit)
			ahead := func() int64 { return x.clock.now() + int64(time.Hour) }
			wrong := limiterOn(open(t, x.client, dynamostore.Options{Now: ahead}), weir.Options{Now: ahead})
			op := weir.Op{Limit: limit, Key: weir.NewKey("account", c.text)}
			drain := func(l *weir.Limiter) (n int) {
				for range 25 {
					if d := take(t, l, op); !d.Allowed {
						return n
					}
					n++
				}
				return n
			}
			if n := drain(wrong); n != 10 {
				t.Errorf("%s: %d at once by a clock that is ahead", c.text, n)
			}
			if n := drain(x.limiter); n > 10 {
				t.Errorf("%s: %d at once by the right clock", c.text, n)
			}
			x.clock.advance(c.fills)
			if n := drain(x.limiter); n != 10 {
				t.Errorf("%s: %d at once after %v", c.text, n, c.fills)
			}
			for _, step := range []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour} {
				x.clock.advance(step)
				if n := drain(x.limiter); n > 10 {
					t.Errorf("%s: %d at once after a step of %v", c.text, n, step)
				}
				x.clock.advance(c.fills)
				if n := drain(x.limiter); n < 9 || n > 10 {
					t.Errorf("%s: %d at once, %v after a step of %v", c.text, n, c.fills, step)
				}
			}
		}
	})
}

// Calls that come at the same time for many limits of one key don't share a request that
// DynamoDB would not take; a call that asks for too many by itself says so.
func TestManyLimitsOfOneKey(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		store := open(t, clientOf(t, server, nil), dynamostore.Options{})
		limiter := limiterOn(store, weir.Options{})
		key := weir.NewKey("account", "a")
		var ops []weir.Op
		for i := range 64 {
			ops = append(ops, weir.Op{Limit: parse(t, fmt.Sprint("route-", i), "sliding 10/d"), Key: key})
		}
		var calls sync.WaitGroup
		for _, op := range ops {
			calls.Go(func() {
				if d, err := limiter.Take(t.Context(), op); err != nil || !d.Allowed || d.Degraded {
					t.Errorf("%v: %+v, %v", op.Limit, d, err)
				}
			})
		}
		calls.Wait()
		for i := range ops {
			ops[i].OnFail = weir.FailError
		}
		if _, err := limiter.Take(t.Context(), ops...); err == nil || !strings.Contains(err.Error(), "give some of them another key") {
			t.Errorf("64 at once: %v", err)
		}
		if d := take(t, limiter, ops[:30]...); !d.Allowed {
			t.Errorf("30 at once: %+v", d)
		}
	})
}

// A shadow for which there is room for one call and none for another of the same request
// is named twice in it.
func TestShadowsWithRoomForSome(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		limiter := limiterOn(open(t, clientOf(t, server, nil), dynamostore.Options{}), weir.Options{})
		key := weir.NewKey("account", "a")
		ops := func(cost int64) []weir.Op {
			ops := []weir.Op{{Limit: parse(t, "counted", "quota 1000000/d"), Key: key, Cost: 1}}
			for i := range 15 {
				shadow, err := parse(t, fmt.Sprint("shadow-", i), "quota 1000/d").Noticed(71, 72, 73, 74, 75, 76, 77, 78, 80, 90, 100)
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, weir.Op{Limit: shadow, Key: key, Cost: cost, Shadow: true})
			}
			return ops
		}
		take(t, limiter, ops(705)...)
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				for range 6 {
					if d, err := limiter.Take(t.Context(), ops([]int64{500, 1}[i%2])...); err != nil || d.Degraded {
						t.Errorf("%+v, %v", d, err)
					}
				}
			})
		}
		calls.Wait()
	})
}

// An account may have had more limits than one request can name. A reset ends all of them.
func TestResetOfManyLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		limiter := limiterOn(open(t, clientOf(t, server, nil), dynamostore.Options{}), weir.Options{})
		key := weir.NewKey("account", "a")
		var ops []weir.Op
		for i := range 260 {
			ops = append(ops, weir.Op{Limit: parse(t, fmt.Sprint("route-", i), "10/d burst 10"), Key: key})
		}
		for some := range slices.Chunk(ops, 26) {
			take(t, limiter, some...)
		}
		if err := limiter.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		for some := range slices.Chunk(ops, 26) {
			each, err := limiter.Peek(t.Context(), some...)
			for _, d := range each {
				if d.Used != 0 {
					t.Errorf("%v: %d are used", d.Limit, d.Used)
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}

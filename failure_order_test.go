package weir_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
)

// gated is a store whose trips wait until the test lets one of them go on. Every
// caller comes in a context with its name.
type gated struct {
	*lossy
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

type callerName struct{}

func (g *gated) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	name, _ := ctx.Value(callerName{}).(string)
	if name == "" { // the test itself
		return g.lossy.Apply(ctx, item, tries, state)
	}
	release := make(chan struct{})
	g.mu.Lock()
	g.waiting[name] = release
	g.mu.Unlock()
	<-release
	return g.lossy.Apply(ctx, item, tries, state)
}

// proceed lets the trip of the n-th waiting caller go on, in the order of their
// names, and returns how many there were.
func (g *gated) proceed(n int) (of int) {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name := range g.waiting {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > 0 {
		close(g.waiting[names[n]])
		delete(g.waiting, names[n])
	}
	return len(names)
}

// everyOrder runs calls, each in a process of its own, in every order in which
// their trips can reach the store, and has the outcome checked each time.
func everyOrder(t *testing.T, calls map[string][]weir.Op, check func(order string, l *weir.Limiter, allowed map[string]bool)) (orders int) {
	for next := []int{}; next != nil; {
		var took, of []int
		synctest.Test(t, func(t *testing.T) {
			g := &gated{lossy: newLossy(nil, 0).undisturbed(), waiting: map[string]chan struct{}{}}
			allowed := map[string]bool{}
			var mu sync.Mutex
			for name, ops := range calls {
				go func() {
					l := weir.NewLimiter(g, weir.Options{Deadline: time.Hour})
					d, err := l.Take(context.WithValue(t.Context(), callerName{}, name), ops...)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					allowed[name] = d.Allowed
				}()
			}
			for {
				choice := 0
				if len(took) < len(next) {
					choice = next[len(took)]
				}
				n := g.proceed(choice)
				if n == 0 {
					break
				}
				took, of = append(took, choice), append(of, n)
			}
			check(fmt.Sprint(took), weir.NewLimiter(g, weir.Options{}), allowed)
		})
		orders++
		// The next order: the last choice that can be made differently.
		next = nil
		for i := len(took) - 1; i >= 0; i-- {
			if took[i]+1 < of[i] {
				next = append(slices.Clone(took[:i]), took[i]+1)
				break
			}
		}
	}
	return orders
}

var orderKinds = []string{"1/d burst %d", "quota %d/d", "quota %d/day calendar", "sliding %d/d"}

// A user over a limit of his own costs another user of the same tenant nothing,
// in whatever order the trips of their calls reach the store.
func TestUserOverHisLimitCostsNobody(t *testing.T) {
	for _, kind := range orderKinds {
		user, tenant := limit(t, fmt.Sprintf(kind, 1), "user"), limit(t, fmt.Sprintf(kind, 2), "tenant")
		of := func(id string) []weir.Op {
			return []weir.Op{{Limit: tenant, Key: weir.NewKey("tenant", "t")}, {Limit: user, Key: weir.NewKey("tenant", "t", "user", id)}}
		}
		calls := map[string][]weir.Op{"a1": of("a"), "a2": of("a"), "a3": of("a"), "b": of("b")}
		n := everyOrder(t, calls, func(order string, l *weir.Limiter, allowed map[string]bool) {
			ofA := 0
			for _, name := range []string{"a1", "a2", "a3"} {
				if allowed[name] {
					ofA++
				}
			}
			each, err := l.Peek(context.Background(), append(of("a"), of("b")[1])...)
			if err != nil {
				t.Fatal(err)
			}
			if !allowed["b"] || ofA != 1 || each[0].Used != 2 || each[1].Used != 1 || each[2].Used != 1 {
				t.Errorf("%s, order %s: %v; used %d of the tenant, %d and %d of the users", user, order, allowed, each[0].Used, each[1].Used, each[2].Used)
			}
		})
		if n < 50 {
			t.Errorf("%s: %d orders", user, n)
		}
		t.Logf("%s: %d orders", user, n)
	}
}

// What two users want of the last unit of their tenant: one gets it, and the
// other's own limit is as it was.
func TestLastUnitOfATenant(t *testing.T) {
	for _, kind := range orderKinds {
		user, tenant := limit(t, fmt.Sprintf(kind, 2), "user"), limit(t, fmt.Sprintf(kind, 1), "tenant")
		of := func(id string) []weir.Op {
			return []weir.Op{{Limit: tenant, Key: weir.NewKey("tenant", "t")}, {Limit: user, Key: weir.NewKey("tenant", "t", "user", id)}}
		}
		n := everyOrder(t, map[string][]weir.Op{"a": of("a"), "b": of("b")}, func(order string, l *weir.Limiter, allowed map[string]bool) {
			each, err := l.Peek(context.Background(), of("a")[0], of("a")[1], of("b")[1])
			if err != nil {
				t.Fatal(err)
			}
			used := map[bool]int64{true: 1}
			if allowed["a"] == allowed["b"] || each[0].Used != 1 || each[1].Used != used[allowed["a"]] || each[2].Used != used[allowed["b"]] {
				t.Errorf("%s, order %s: %v; used %d of the tenant, %d and %d of the users", user, order, allowed, each[0].Used, each[1].Used, each[2].Used)
			}
		})
		if n < 6 {
			t.Errorf("%s: %d orders", user, n)
		}
	}
}

// A limit that all share and that is used up costs one process, and one item of
// it, a single write a second, however narrow the other limits of the calls are:
// what the memo of any of them refuses is not asked of the others.
func TestMemosOfAllItemsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAway()
		l := weir.NewLimiter(store, weir.Options{})
		tenant := weir.Op{Limit: limit(t, "1/d burst 1", "tenant"), Key: weir.NewKey("tenant", "t")}
		call := func(n int) (weir.Decision, error) {
			return l.Take(t.Context(), tenant, weir.Op{Limit: limit(t, "quota 5/h", "user"), Key: weir.NewKey("tenant", "t", "user", fmt.Sprint(n))})
		}
		if d, err := call(0); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		before := store.trips.Load()
		for n := range 990 {
			d, err := call(n)
			if err != nil || d.Allowed || d.Limit.Name() != "tenant" || d.Op != 0 || d.RetryAfter < 23*time.Hour {
				t.Fatalf("%+v, %v", d, err)
			}
			<-time.After(time.Millisecond)
		}
		if n := store.trips.Load() - before; n != 0 {
			t.Errorf("%d trips in a second after the one that took the last unit", n)
		}
		<-time.After(time.Minute)
		before = store.trips.Load()
		for n := range 900 {
			if d, err := call(n); err != nil || d.Allowed {
				t.Fatal(d, err)
			}
			<-time.After(time.Millisecond)
		}
		if n := store.trips.Load() - before; n > 3 { // the user's, the tenant's, and giving back
			t.Errorf("%d trips in a second", n)
		}
		each, err := l.Peek(t.Context(), weir.Op{Limit: limit(t, "quota 5/h", "user"), Key: weir.NewKey("tenant", "t", "user", "0")})
		if err != nil || each[0].Used != 1 {
			t.Errorf("%+v, %v", each, err)
		}
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// twice lists every key twice, as Redis may while it grows.
type twice struct{ weir.Lister }

func (l twice) ListKeys(ctx context.Context, prefix, cursor string, max int) ([]weir.Key, string, error) {
	keys, next, err := l.Lister.ListKeys(ctx, prefix, cursor, (max+1)/2)
	return slices.Concat(keys, keys), next, err
}

func memoryCounters(t *testing.T, store weir.Store) *counters {
	t.Helper()
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), `weir: 1
application:
  plans:
    order: [free, paid]
    free: {orders: quota 10/day}
    paid: {orders: quota 1000/day}
  operations: {orders: {match: POST /orders}}
`)
	p, err := loadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	return &counters{policy: p, file: file, store: "memory:", limiter: weir.NewLimiter(store, weir.Options{Limits: p.Limits()})}
}

// use takes n units of the paid plan's orders.
func (k *counters) use(t *testing.T, id string, n int64) {
	t.Helper()
	for _, r := range k.policy.Rules() {
		if r.Plan == "paid" {
			if d, err := k.limiter.Take(t.Context(), weir.Op{Limit: r.Limit, Key: weir.NewKey("account", id), Cost: n}); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
}

// Of many callers the right few are shown, each once, whatever is listed twice.
func TestTopOfManyCallers(t *testing.T) {
	store := memstore.New(memstore.Options{})
	k := memoryCounters(t, store)
	k.lister = twice{store}
	for n := range 3000 {
		k.use(t, fmt.Sprint(n), int64(11+n%900))
	}
	k.use(t, "small", 10) // all of the free plan's
	k.use(t, "over", 999)
	rows, seen, _, err := k.top(t.Context(), "account#", 5)
	if err != nil || seen != 2*3002 {
		t.Fatalf("%d callers, %v", seen, err)
	}
	var got []string
	for _, u := range rows {
		got = append(got, fmt.Sprintf("%s %s %d/%d", u.Caller, u.Plan, u.Used, u.Limit))
	}
	// 10 of 10 is the whole of the lowest plan; what no lower plan has room for is paid.
	want := []string{"account#small free 10/10", "account#over paid 999/1000", "account#1799 paid 910/1000", "account#2699 paid 910/1000", "account#899 paid 910/1000"}
	if !slices.Equal(got, want) {
		t.Errorf("top: %q\nwant %q", got, want)
	}
	// Who is in no plan that has room is held against the highest.
	k.plan = "free"
	if rows, _, _, err = k.top(t.Context(), "account#over", 5); err != nil || len(rows) != 1 || rows[0].share() != 99.9 {
		t.Errorf("against the free plan: %+v, %v", rows, err)
	}
}

// deaf is a store that fails, or is asked by somebody who leaves.
type deaf struct {
	*memstore.Store
	err error
}

func (d deaf) Lock(weir.Key) {} // so that it is not in this process

func (d deaf) Apply(context.Context, weir.Key, []weir.Write, *weir.Cells) (int, int64, error) {
	return -1, 0, d.err
}

func TestTopOfAStoreThatFails(t *testing.T) {
	inside := memstore.New(memstore.Options{})
	memoryCounters(t, inside).use(t, "a", 1)
	down := errors.New("down")
	k := memoryCounters(t, deaf{inside, down})
	k.lister = inside
	if _, _, _, err := k.top(t.Context(), "", 5); !errors.Is(err, down) || exitCode(t.Context(), err) != 3 {
		t.Errorf("%v, want the store's error and exit 3", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := k.top(ctx, "", 5); exitCode(ctx, err) != 130 {
		t.Errorf("interrupted: %v", err)
	}
}

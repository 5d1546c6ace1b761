package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlabs/weir/internal/plan"
)

// someCells is a state that is idle at a time.
func someCells(t testing.TB, idleAt int64) plan.Cells {
	t.Helper()
	if _, err := plan.Parse("1/s"); err != nil {
		t.Fatal(err)
	}
	f, ok := plan.ParseField("rate.t")
	if !ok {
		t.Fatal("no field rate.t")
	}
	var c plan.Cells
	c.Set(f, idleAt)
	return c
}

// The table is a map from keys to states, through growth, removal and reuse.
func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab := Table{MaxKeys: 1 << 20, MaxBytes: 1 << 40}
		want := map[string]int64{}
		keys := 1 + r.IntN(800)
		bytes := int64(0)
		for step := range 20_000 {
			key := plan.NewKey("k", fmt.Sprint(r.IntN(keys)))
			n, found := tab.Find(key)
			if _, in := want[key.String()]; in != found {
				t.Fatalf("seed %d, step %d: %s found %v, want %v", seed, step, key, found, in)
			}
			switch {
			case !found:
				v := 1 + r.Int64N(1000)
				tab.Insert(key, someCells(t, v), 0)
				want[key.String()] = v
				bytes += int64(len(key.String()) + overhead)
			case r.IntN(3) > 0:
				if e := tab.Entry(n); e.Key != key || e.Cells.IdleAt(0) != want[key.String()] {
					t.Fatalf("seed %d, step %d: %s holds %d of %s, want %d", seed, step, key, e.Cells.IdleAt(0), e.Key, want[key.String()])
				}
			default:
				tab.Remove(n, 0)
				delete(want, key.String())
				bytes -= int64(len(key.String()) + overhead)
			}
			if tab.keys != len(want) || tab.bytes != bytes || int(tab.used) != tab.keys+len(tab.free) {
				t.Fatalf("seed %d, step %d: %d keys, %d bytes, %d used, %d free; want %d and %d", seed, step, tab.keys, tab.bytes, tab.used, len(tab.free), len(want), bytes)
			}
		}
		for text, v := range want {
			var id string
			fmt.Sscanf(text, "k#%s", &id)
			if n, found := tab.Find(plan.NewKey("k", id)); !found || tab.Entry(n).Cells.IdleAt(0) != v {
				t.Fatalf("seed %d: %s is lost", seed, text)
			}
		}
	}
}

// What is idle goes first, then what has not been used of late and is idle
// soonest.
func TestTableMakesRoom(t *testing.T) {
	tab := Table{MaxKeys: 10, MaxBytes: 1 << 40}
	add := func(id string, idleAt, now int64) (idle, live int) {
		_, idle, live = tab.Insert(plan.NewKey("k", id), someCells(t, idleAt), now)
		return idle, live
	}
	has := func(id string) bool {
		_, ok := tab.Find(plan.NewKey("k", id))
		return ok
	}
	for i := range 10 {
		add(fmt.Sprint(i), int64(100+i), 50)
	}
	n, _ := tab.Find(plan.NewKey("k", "0"))
	tab.Touch(n)
	if idle, live := add("a", 500, 50); idle != 0 || live != 1 || has("1") || !has("0") {
		t.Errorf("nothing idle: dropped %d idle, %d live; the soonest that is not in use is there: %v", idle, live, has("1"))
	}
	if idle, live := add("b", 500, 50); idle != 0 || live != 1 || has("0") {
		t.Errorf("0 was not used again: dropped %d idle, %d live, and it is there: %v", idle, live, has("0"))
	}
	if idle, live := add("c", 500, 105); idle < 1 || live != 0 {
		t.Errorf("some idle: dropped %d idle, %d live", idle, live)
	}
	if tab.keys > 10 {
		t.Errorf("%d keys of 10", tab.keys)
	}
}

// Whoever keeps more of an item elsewhere decides with IdleAt when it may go,
// and hears of everything that goes by itself, while it is still whole.
func TestTableAsksAndTells(t *testing.T) {
	told := map[string]int64{}
	tab := Table{
		MaxKeys: 4, MaxBytes: 1 << 40,
		IdleAt:  func(n uint32, e *Entry, now int64) int64 { return 10 * e.Cells.IdleAt(now) },
		Dropped: func(n uint32, e *Entry) { told[e.Key.String()] = e.Cells.IdleAt(0) },
	}
	for i := range int64(4) {
		tab.Insert(plan.NewKey("k", fmt.Sprint(i)), someCells(t, 1+i), 5)
	}
	if tab.Sweep(9, 4); len(told) != 0 {
		t.Errorf("%v went, and nothing is idle before 10", told)
	}
	if n := tab.Sweep(20, 4); n != 2 || told["k#0"] != 1 || told["k#1"] != 2 {
		t.Errorf("at 20 %d went, and told was %v; want the first two", n, told)
	}
	clear(told)
	for i := range 3 {
		tab.Insert(plan.NewKey("more", fmt.Sprint(i)), someCells(t, 1000), 21)
	}
	if len(told) != 1 || told["k#2"] != 3 || tab.Len() != 4 {
		t.Errorf("to make room went %v of %d, want the one that is idle soonest", told, tab.Len())
	}
}

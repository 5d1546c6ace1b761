package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlabs/weir"
)

// someCells is a state that is idle at a time.
func someCells(t testing.TB, idleAt int64) weir.Cells {
	t.Helper()
	if _, err := weir.ParseLimit("1/s"); err != nil {
		t.Fatal(err)
	}
	f, ok := weir.ParseField("rate.t")
	if !ok {
		t.Fatal("no field rate.t")
	}
	var c weir.Cells
	c.Set(f, idleAt)
	return c
}

// The table is a map from keys to states, through growth, removal and reuse.
func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab := table{maxKeys: 1 << 20, maxBytes: 1 << 40}
		want := map[string]int64{}
		keys := 1 + r.IntN(800)
		bytes := int64(0)
		for step := range 20_000 {
			key := weir.NewKey("k", fmt.Sprint(r.IntN(keys)))
			n, found := tab.find(key)
			if _, in := want[key.String()]; in != found {
				t.Fatalf("seed %d, step %d: %s found %v, want %v", seed, step, key, found, in)
			}
			switch {
			case !found:
				n, _, _ = tab.insert(key, 0)
				v := 1 + r.Int64N(1000)
				tab.entry(n).cells = someCells(t, v)
				want[key.String()] = v
				bytes += int64(len(key.String()) + overhead)
			case r.IntN(3) > 0:
				if e := tab.entry(n); e.key != key || e.cells.IdleAt(0) != want[key.String()] {
					t.Fatalf("seed %d, step %d: %s holds %d of %s, want %d", seed, step, key, e.cells.IdleAt(0), e.key, want[key.String()])
				}
			default:
				tab.remove(n, 0)
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
			if n, found := tab.find(weir.NewKey("k", id)); !found || tab.entry(n).cells.IdleAt(0) != v {
				t.Fatalf("seed %d: %s is lost", seed, text)
			}
		}
	}
}

// What is idle goes first, then what has not been used of late and is idle
// soonest.
func TestTableMakesRoom(t *testing.T) {
	tab := table{maxKeys: 10, maxBytes: 1 << 40}
	add := func(id string, idleAt, now int64) (idle, live int) {
		n, idle, live := tab.insert(weir.NewKey("k", id), now)
		tab.entry(n).cells = someCells(t, idleAt)
		return idle, live
	}
	has := func(id string) bool {
		_, ok := tab.find(weir.NewKey("k", id))
		return ok
	}
	for i := range 10 {
		add(fmt.Sprint(i), int64(100+i), 50)
	}
	n, _ := tab.find(weir.NewKey("k", "0"))
	tab.touch(n)
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

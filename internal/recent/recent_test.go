package recent

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// Whatever is asked by however many at once, a key has its own value or none.
func TestTableIsExact(t *testing.T) {
	var table Table[uint64, uint64]
	var all sync.WaitGroup
	for n := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, n))
			found := 0
			for range 100_000 {
				key := r.Uint64N(3000)
				hash := key % 1500 // two keys of each place, and places that share
				if v, ok := table.Find(hash, key); ok {
					if found++; v != key*key {
						t.Errorf("%d has %d", key, v)
						return
					}
				} else {
					table.Keep(hash, key, key*key)
				}
			}
			if found < 10_000 {
				t.Errorf("only %d of 100,000 were remembered", found)
			}
		})
	}
	all.Wait()
}

// Keys whose hashes are neighbours lie apart.
func TestNeighboursHavePlacesOfTheirOwn(t *testing.T) {
	var table Table[int, int]
	for i := range 250 {
		table.Keep(uint64(i), i, i)
	}
	kept := 0
	for i := range 250 {
		if _, ok := table.Find(uint64(i), i); ok {
			kept++
		}
	}
	if kept < 240 {
		t.Errorf("%d of 250 neighbours were kept", kept)
	}
}

// A crowd that passes by once leaves those who were there, and who stays comes in.
func TestACrowdPushesFewOut(t *testing.T) {
	var table Table[int, int]
	for i := range 250 {
		table.Keep(uint64(i), i, i)
	}
	for i := range 500 {
		table.Keep(uint64(i), 1000+i, i)
	}
	there := 0
	for i := range 250 {
		if _, ok := table.Find(uint64(i), i); ok {
			there++
		}
	}
	if there < 125 { // three in four, after two of the crowd have asked for each place
		t.Errorf("%d of 250 are still there", there)
	}
	for n := range 1000 {
		if _, ok := table.Find(7, -1); ok {
			return
		}
		table.Keep(7, -1, n)
	}
	t.Error("who asks a thousand times is never kept")
}

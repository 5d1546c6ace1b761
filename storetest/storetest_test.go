package storetest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/storetest"
)

// The suite holds for a store without a network.
func TestMemory(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, now func() int64) weir.Store {
		return memstore.New(memstore.Options{Now: now})
	})
}

func BenchmarkMemory(b *testing.B) {
	storetest.Bench(b, func(_ testing.TB, now func() int64) weir.Store {
		return memstore.New(memstore.Options{Now: now})
	})
}

// The checker says of random logs what the definition says.
func TestBoundIsItsDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	within, beyond := 0, 0
	for range 20_000 {
		b := storetest.Bound{Burst: 1 + random.Int64N(5), Tokens: 1 + random.Int64N(3), Per: time.Duration(1 + random.Int64N(4))}
		var log []storetest.Admission
		for range random.IntN(12) {
			at := random.Int64N(15)
			log = append(log, storetest.Admission{From: at, To: at, Cost: random.Int64N(6) - 2})
		}
		good := true
		for from := int64(0); from < 15; from++ {
			for to := from; to < 15; to++ {
				sum := int64(0)
				for _, a := range log {
					if from <= a.From && a.From <= to {
						sum += a.Cost
					}
				}
				good = good && sum*int64(b.Per) <= b.Burst*int64(b.Per)+b.Tokens*(to-from)
			}
		}
		if err := b.Check(log); (err == nil) != good {
			t.Fatalf("seed %d: %+v of %v: %v, and by the definition it holds: %v", seed, b, log, err, good)
		}
		if good {
			within++
		} else {
			beyond++
		}
	}
	if within == 0 || beyond == 0 {
		t.Errorf("%d logs within the bound and %d beyond: the logs test nothing", within, beyond)
	}
}

// What may lie outside an interval is not held against the limit.
func TestBoundGivesUncertainTimesTheBenefitOfTheDoubt(t *testing.T) {
	b := storetest.Bound{Burst: 1, Tokens: 1, Per: 10}
	if err := b.Check([]storetest.Admission{{0, 10, 1}, {5, 10, 1}}); err != nil {
		t.Errorf("0 and 10 are possible: %v", err)
	}
	if err := b.Check([]storetest.Admission{{0, 9, 1}, {5, 9, 1}}); err == nil {
		t.Error("two units in 9 ns are too many, whenever they were")
	}
	if err := b.Check([]storetest.Admission{{0, 0, 1}, {1, 5, -1}, {2, 2, 1}}); err != nil {
		t.Errorf("the give-back may have come in between: %v", err)
	}
}

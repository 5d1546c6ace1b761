// Package measure times calls on a machine that others use too. Peers take
// turns in short rounds, so that a busy second falls on all of them, and the
// median of the rounds counts. Processor time hardly moves when others share
// the cores, as wall time does: it is what to compare on one processor.
package measure

import (
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Cost is what one call took, the mean of a round.
type Cost struct {
	CPU, Wall float64 // ns; CPU is that of the whole process
	Allocs    float64
	Calls     int64
	Wrong     int64 // calls that were not answered as wanted
}

// Take is one decision, on the key with this number. It is called by several
// goroutines.
type Take func(key int) bool

// Loop makes calls on procs processors, one goroutine each, for about a time.
// Keys are taken from the sequence, from a different place on in each goroutine.
func Loop(procs int, about time.Duration, sequence []uint32, want bool, take Take) Cost {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	const batch = 1 << 12
	var over atomic.Bool
	var calls, wrong atomic.Int64
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := CPU(), time.Now()
	for p := range procs {
		wg.Go(func() {
			at, bad, n := p*len(sequence)/procs, int64(0), int64(0)
			for ; !over.Load(); n += batch {
				for range batch {
					if take(int(sequence[at])) != want {
						bad++
					}
					if at++; at == len(sequence) {
						at = 0
					}
				}
				if time.Since(began) > about {
					over.Store(true)
				}
			}
			calls.Add(n)
			wrong.Add(bad)
		})
	}
	wg.Wait()
	wall, used := time.Since(began), CPU()-cpu
	runtime.ReadMemStats(&after)
	n := float64(calls.Load())
	return Cost{
		CPU: float64(used) / n, Wall: float64(wall) / n, Allocs: float64(after.Mallocs-before.Mallocs) / n,
		Calls: calls.Load(), Wrong: wrong.Load(),
	}
}

// Zipf is an endless-looking sequence of keys below n, of which some are asked
// for far more often than others (s = 1.1). Keys that are asked for alike do not
// lie side by side.
func Zipf(n int) []uint32 {
	sequence := make([]uint32, 1<<20)
	if n == 1 {
		return sequence
	}
	zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(n-1))
	place := rand.New(rand.NewSource(2)).Perm(n)
	for i := range sequence {
		sequence[i] = uint32(place[zipf.Uint64()])
	}
	return sequence
}

// CPU is the user and system time that this process has used.
func CPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0 // it can't fail for the process itself
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Heap is the memory in use after a collection, in bytes.
func Heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Median is the middle of values, with the least and the most; zeros without
// any. It sorts them.
func Median(values []float64) (median, least, most float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	slices.Sort(values)
	return values[len(values)/2], values[0], values[len(values)-1]
}

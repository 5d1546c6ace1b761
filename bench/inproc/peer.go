// Package inproc lists the keyed limiters of one process that a Go program can
// pick today, each as its documentation says to use it, and the floors under
// them: what no limiter of this kind can do without.
package inproc

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlabs/weir/bench/measure"
)

// Limit allows Burst calls at once, and Rate more in every Period.
type Limit struct {
	Rate   int
	Period time.Duration
	Burst  int
}

// Never is a limit that no measurement reaches: 1000000/s burst 100000000000, or
// what an int holds.
// Once allows one call and no other for an hour.
var (
	Never = Limit{Rate: 1_000_000, Period: time.Second, Burst: min(100_000_000_000, math.MaxInt)}
	Once  = Limit{Rate: 1, Period: time.Hour, Burst: 1}
)

// Peer is one limiter, or one floor.
type Peer struct {
	Name string
	// New makes an instance for these keys. What a caller can prepare once for
	// each key, it prepares here.
	New func(limit Limit, keys []string) (Instance, error)
	// Floor: no limiter, so it is not asked whether its answers are right.
	Floor bool
	// Stateless: there is no state for each key, so no bytes are counted.
	Stateless bool
}

// Instance is a peer at work.
type Instance struct {
	Take measure.Take
	// Fill, if set, takes of a key for the first time, so that it is kept for
	// as long as a measurement lasts; otherwise Take does.
	Fill  func(key int)
	close func()
}

// Close ends what runs in the background.
func (i Instance) Close() {
	if i.close != nil {
		i.close()
	}
}

// Start makes an instance in which every key is present.
func (p Peer) Start(limit Limit, keys []string) (Instance, error) {
	i, err := p.New(limit, keys)
	if err != nil {
		return i, fmt.Errorf("%s: %w", p.Name, err)
	}
	if i.Fill == nil {
		i.Fill = func(key int) { i.Take(key) }
	}
	for k := range keys {
		i.Fill(k)
	}
	return i, nil
}

// Keys makes n keys of 15 bytes.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%08d", i)
	}
	return keys
}

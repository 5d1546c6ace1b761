package inproc

import (
	"fmt"
	"time"
)

// Refill is what a limit of 100,000 a second allows in one go, two seconds after
// it was drained. It should be 100,000, and a few more for what refills on the
// way.
func Refill(p Peer) (allowed int, err error) {
	i, err := p.New(Limit{Rate: 100_000, Period: time.Second, Burst: 100_000}, Keys(1))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer i.Close()
	for i.Take(0) {
	}
	<-time.After(2 * time.Second)
	for i.Take(0) {
		allowed++
	}
	return allowed, nil
}

package storetest

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Bound is what a limit promises: in no interval [a, b] are more than
// Burst + Tokens/Per x (b-a) units admitted. It is checked from the outside, by
// the log of decisions alone, and shares no code with the limiter.
type Bound struct {
	Burst  int64
	Tokens int64 // units that refill in Per
	Per    time.Duration
}

// Admission is units that were admitted, or given back when Cost is negative,
// at an instant between From and To, in Unix nanoseconds. A give-back counts at
// its own time, not at that of its take.
type Admission struct {
	From, To int64
	Cost     int64
}

// Check looks at every interval that begins and ends with an admission, and
// returns an error about the first in which too much was surely admitted. It
// needs time quadratic in the log.
func (b Bound) Check(log []Admission) error {
	var taken, given []Admission
	for _, a := range log {
		if a.Cost > 0 {
			taken = append(taken, a)
		} else if a.Cost < 0 {
			given = append(given, a)
		}
	}
	slices.SortFunc(taken, func(x, y Admission) int { return cmpInt(x.To, y.To) })
	slices.SortFunc(given, func(x, y Admission) int { return cmpInt(x.From, y.From) })
	for _, first := range taken {
		from, sum, g := first.From, int64(0), 0
		for _, a := range taken {
			if a.From < from {
				continue // may lie before the interval
			}
			sum += a.Cost
			for ; g < len(given) && given[g].From <= a.To; g++ {
				if given[g].To >= from { // may lie in the interval
					sum += given[g].Cost
				}
			}
			if !b.allows(sum, a.To-from) {
				return fmt.Errorf("%d units in %v from %d on, and the limit is %d and %d for each %v", sum, time.Duration(a.To-from), from, b.Burst, b.Tokens, b.Per)
			}
		}
	}
	return nil
}

// allows reports sum <= Burst + Tokens*elapsed/Per, without rounding.
func (b Bound) allows(sum, elapsed int64) bool {
	over := sum - b.Burst
	if over <= 0 {
		return true
	}
	hi, lo := bits.Mul64(uint64(over), uint64(b.Per))
	canHi, canLo := bits.Mul64(uint64(b.Tokens), uint64(elapsed))
	return hi < canHi || hi == canHi && lo <= canLo
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

package plan

import (
	"math/rand/v2"
	"testing"
)

// The product with the inverse is the division, at every edge of a unit.
func TestUnitsIsADivision(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(s *Spec, level int64) {
		if got, want := s.units(level), (level+s.interval-1)/s.interval; level >= 0 && got != want {
			t.Fatalf("%s: %d ns are %d units, want %d", s, level, got, want)
		}
	}
	for _, text := range []string{
		"1000000/s burst 1", "1000000/s burst 1000000000000000", "999999/s burst 3", "3/s burst 100", "7/m", "0.25/s burst 7",
		"1/h", "1/day burst 36500", "1/s burst 3000000000", "333333/s burst 1000000000000",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for range 20_000 {
			edge := s.depth / s.interval
			if edge > 0 {
				edge = r.Int64N(edge+1) * s.interval
			}
			for d := int64(-2); d <= 2; d++ {
				check(s, edge+d)
			}
			check(s, r.Int64N(s.depth+1))
			check(s, r.Int64N(maxPeriod))
		}
		check(s, s.depth)
	}
}

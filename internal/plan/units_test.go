package plan

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// The product with the inverse is the division, at every edge of a unit.
func TestUnitsIsADivision(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(s *Spec, level int64) {
		if got, want := s.units(level), (level+s.interval-1)/s.interval; level >= 0 && level <= s.depth && got != want {
			t.Fatalf("%s: %d ns are %d units, want %d", s, level, got, want)
		}
	}
	for _, text := range []string{
		"1000000/s burst 1", "1000000/s burst 1000000000000000", "999999/s burst 3", "3/s burst 100", "7/m", "0.25/s burst 7",
		"1/h", "1/day burst 36500", "1/s burst 3000000000", "333333/s burst 1000000000000", "1/36500day",
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
		}
		check(s, s.depth)
		check(s, s.depth-1)
	}
}

// invert is right at every multiple, where a wrong inverse is wrong first.
func TestInvert(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		d := 2 + r.Uint64()>>(1+r.IntN(60))&(1<<62-1)
		m, shift := invert(d)
		x := r.Uint64() >> (1 + r.IntN(60))
		for _, x := range []uint64{x, x / d * d, max(x/d*d, 1) - 1, 1<<63 - 1, (1<<63 - 1) / d * d, (1<<63-1)/d*d - 1} {
			if hi, _ := bits.Mul64(x, m); hi>>shift != x/d {
				t.Fatalf("%d/%d is %d, got %d", x, d, x/d, hi>>shift)
			}
		}
	}
}

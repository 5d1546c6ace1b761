package plan

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// written is a rate as somebody may write it, with what it exactly is.
type written struct {
	text  string
	rate  *big.Rat // tokens for each ns
	burst int64
}

var periods = []struct {
	unit string
	ns   int64
}{
	{"s", second}, {"second", second}, {"30s", 30 * second}, {"m", 60 * second}, {"7m", 420 * second}, {"hour", 3600 * second}, {"d", 86400 * second},
	{"week", 7 * 86400 * second}, {"month", 30 * 86400 * second}, {"year", 365 * 86400 * second}, {"100year", 36500 * 86400 * second},
}

func randomRate(r *rand.Rand) written {
	for {
		p := periods[r.IntN(len(periods))]
		digits := 1 + r.Int64N([]int64{9, 100, 10_000, 1_000_000, 1_000_000_000}[r.IntN(5)])
		decimals := r.IntN(4)
		scale := int64(1)
		text := fmt.Sprint(digits)
		for range decimals {
			scale *= 10
		}
		if decimals > 0 {
			text = fmt.Sprintf("%d.%0*d", digits/scale, decimals, digits%scale)
		}
		burst := max(1, digits/scale)
		text += "/" + p.unit
		if r.IntN(2) == 0 {
			burst = 1 + r.Int64N([]int64{3, 1000, 1_000_000_000}[r.IntN(3)])
			text += fmt.Sprintf(" burst %d", burst)
		}
		rate := new(big.Rat).SetFrac(big.NewInt(digits), new(big.Int).Mul(big.NewInt(scale), big.NewInt(p.ns)))
		fill := new(big.Rat).Quo(new(big.Rat).SetInt64(burst), rate)
		if rate.Cmp(big.NewRat(1_000_000, second)) <= 0 && fill.Cmp(new(big.Rat).SetInt64(maxPeriod/1000*999)) <= 0 {
			return written{text, rate, burst}
		}
	}
}

// exact is a bucket in rational numbers, fed with the decisions of the bucket
// under test.
type exact struct {
	rate, tokens, burst *big.Rat
	at                  int64
}

func newExact(rate *big.Rat, burst, now int64) *exact {
	return &exact{rate: rate, tokens: new(big.Rat).SetInt64(burst), burst: new(big.Rat).SetInt64(burst), at: now}
}

func (e *exact) to(now int64) {
	e.tokens.Add(e.tokens, new(big.Rat).Mul(e.rate, new(big.Rat).SetInt64(now-e.at)))
	if e.tokens.Cmp(e.burst) > 0 {
		e.tokens.Set(e.burst)
	}
	e.at = now
}

func (e *exact) has(n int64) bool { return e.tokens.Cmp(new(big.Rat).SetInt64(n)) >= 0 }
func (e *exact) take(n int64)     { e.tokens.Sub(e.tokens, new(big.Rat).SetInt64(n)) }

// A bucket is never above the rate as it was written, in exact numbers, and at
// most a thousandth below it. A new bucket gives its whole burst at once; the
// announced wait is enough, and not 1 ns longer than needed.
func TestPrecision(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 17))
	allowed := 0
	for range 400 {
		w := randomRate(r)
		s := parsed(t, "", w.text)
		var c Cells
		now := base
		ideal := newExact(w.rate, w.burst, now)
		slow := newExact(new(big.Rat).Mul(w.rate, big.NewRat(999, 1000)), w.burst, now)
		if v := s.Step(&c, now, w.burst); !v.OK || v.Used != w.burst {
			t.Fatalf("%s: a new bucket does not give its burst: %+v", w.text, v)
		}
		ideal.take(w.burst)
		slow.take(w.burst)
		for range 60 {
			n := 1 + r.Int64N(min(w.burst, 1+r.Int64N(1000)))
			if now += r.Int64N(2 * max(1, s.interval*n)); now > base+maxPeriod {
				break // the times themselves end in 2262
			}
			ideal.to(now)
			slow.to(now)
			v := s.Step(&c, now, n)
			if !v.OK {
				if slow.has(n) {
					t.Fatalf("%s: %d refused although a bucket at 0.999 of the rate has %s", w.text, n, slow.tokens.FloatString(3))
				}
				early, late := new(Cells), new(Cells)
				early.CopyFrom(&c)
				late.CopyFrom(&c)
				if v.Wait <= 0 || s.Step(early, now+v.Wait-1, n).OK || !s.Step(late, now+v.Wait, n).OK {
					t.Fatalf("%s: a wait of %d ns for %d is not the shortest that is enough", w.text, v.Wait, n)
				}
				continue
			}
			allowed++
			ideal.take(n)
			slow.take(n)
			if ideal.tokens.Sign() < 0 {
				t.Fatalf("%s: let through more than the rate as written, by %s", w.text, ideal.tokens.FloatString(12))
			}
			if used := new(big.Rat).SetInt64(w.burst - v.Used); used.Cmp(ideal.tokens) > 0 {
				t.Fatalf("%s: shows %s left of %s", w.text, used.FloatString(0), ideal.tokens.FloatString(6))
			}
		}
	}
	if allowed < 5000 {
		t.Fatalf("only %d takes were allowed", allowed)
	}
}

// Saturated for long, a bucket keeps to its rate within a thousandth.
func TestPrecisionInTheLongRun(t *testing.T) {
	for _, text := range []string{"1000000/s", "999999/s", "999999.5/s burst 3", "333333.333/s", "10/13s burst 1", "7/11m", "1/100year", "0.25/s burst 7", "3/d"} {
		s := parsed(t, "", text)
		var c Cells
		now, n := base, int64(0)
		for ; n < 20_000+s.max; n++ {
			v := s.Step(&c, now, 1)
			if !v.OK {
				if now += v.Wait; now > base+2*maxPeriod {
					break
				}
				if !s.Step(&c, now, 1).OK {
					t.Fatalf("%s: refused after the wait", text)
				}
			}
		}
		rate := new(big.Rat).SetFrac(big.NewInt(s.tokens), new(big.Int).Mul(big.NewInt(s.tokensScale), big.NewInt(s.period.fixed())))
		want := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(now-base))
		got := new(big.Rat).SetInt64(n - s.max)
		if got.Cmp(want) > 0 || new(big.Rat).Mul(want, big.NewRat(999, 1000)).Cmp(new(big.Rat).SetInt64(n-s.max+1)) > 0 {
			t.Errorf("%s: %s beyond the burst in %d ns, want %s", text, got.FloatString(0), now-base, want.FloatString(3))
		}
	}
}

// Time in many small steps is time in one: looks and refusals on the way
// change nothing.
func TestStepsSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, text := range []string{"10/13s burst 4", "999999.5/s burst 50", "quota 4/7s", "sliding 4/7s", "quota 4/minute calendar"} {
		s := parsed(t, "", text)
		for range 50 {
			var often, once Cells
			now := base + r.Int64N(60*second)
			for range 4 {
				s.Step(&often, now, 1)
				s.Step(&once, now, 1)
			}
			end := now + r.Int64N(10*second)
			for at := now; at < end; at += 1 + r.Int64N(second/20) {
				s.Look(&often, at, 1)
				s.Step(&often, at, s.max+1) // never fits
			}
			if a, b := s.Step(&often, end, 1), s.Step(&once, end, 1); a != b {
				t.Fatalf("%s: %+v after many steps, %+v after one", text, a, b)
			}
		}
	}
}

// A wait that is announced is enough, whatever the limit and whatever the
// state, if nobody else takes; and a remaining that is shown can be taken.
func TestWaitsAreEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 18))
	count, zones := 0, []string{"", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"}
	for range 3000 {
		var text string
		limit := 1 + r.Int64N(20)
		switch r.IntN(4) {
		case 0:
			text = randomRate(r).text
		case 1:
			text = fmt.Sprintf("quota %d/%ds", limit, 1+r.IntN(100))
		case 2:
			text = fmt.Sprintf("sliding %d/%ds", limit, 1+r.IntN(100))
		case 3:
			text = fmt.Sprintf("quota %d/%s calendar %s", limit, []string{"minute", "5m", "hour", "day", "week", "month", "year"}[r.IntN(7)], zones[r.IntN(4)])
		}
		s := parsed(t, "", strings.TrimSpace(text))
		var c Cells
		now := base + r.Int64N(365*86400*second)
		for range 12 {
			n := 1 + r.Int64N(s.max)
			look := s.Look(&c, now, n)
			v := s.Step(&c, now, n)
			if look.OK != v.OK || look.Wait != v.Wait {
				t.Fatalf("%s: looks like %+v and is %+v", text, look, v)
			}
			if v.OK && v.Used != look.Used+n || !v.OK && v.Used != look.Used {
				t.Fatalf("%s: %d used, then %d more: %d", text, look.Used, n, v.Used)
			}
			if left := look.Max - look.Used; left >= n != v.OK {
				t.Fatalf("%s: %d are left, and a take of %d says %v", text, left, n, v.OK)
			}
			if v.OK {
				now += r.Int64N(second)
				continue
			}
			count++
			if v.Wait <= 0 || v.Wait > 2*s.Horizon()+second {
				t.Fatalf("%s: a wait of %d ns", text, v.Wait)
			}
			early := new(Cells)
			early.CopyFrom(&c)
			if s.Step(early, now+v.Wait-1, n).OK {
				t.Fatalf("%s: %d would fit before the announced wait of %d ns is over", text, n, v.Wait)
			}
			now += v.Wait
			if v := s.Step(&c, now, n); !v.OK {
				t.Fatalf("%s: %d refused after the announced wait: %+v", text, n, v)
			}
		}
	}
	if count < 1000 {
		t.Fatalf("only %d refusals", count)
	}
}

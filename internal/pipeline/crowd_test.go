package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// In a rollout the bucket may be a newer policy's, with room for more than the
// older limit ever takes at once: a crowd's calls then go out in several writes.
func TestCrowdInALargerBucket(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		older, newer := spec(b.T, "b", "1/h burst 3"), spec(b.T, "b", "1/h burst 20").Revised(1, plan.Keep)
		b.must(key("a"), newer, 1)
		b.must(key("a"), older, 1)
		b.store.took = 2 * time.Millisecond
		var calls [][]Ask
		for range 12 {
			calls = append(calls, []Ask{{Spec: older, Cost: 2}})
		}
		allowed := 0
		for _, v := range b.queue(key("a"), calls...) {
			if v[0].OK {
				allowed++
			}
		}
		if n := b.used(key("a"), newer); allowed != 9 || n != 20 {
			b.Errorf("%d of 9 allowed, %d of 20 used", allowed, n)
		}
	})
}

// Calls of a crowd wait for each other by 8 ms, so that a write is full; a
// single call never waits.
func TestGapBetweenWritesOfACrowd(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = time.Millisecond
		s := spec(b.T, "q", "quota 1000000/h")
		began := time.Now()
		for range 10 {
			b.must(key("a"), s, 1)
		}
		if took := time.Since(began); took != 10*time.Millisecond {
			b.Errorf("ten calls, one after the other, took %v", took)
		}
		before := b.store.trips()
		began = time.Now()
		all(64, func(int) {
			for range 100 {
				b.must(key("a"), s, 1)
			}
		})
		trips := b.store.trips() - before
		took := time.Since(began)
		if want := 100 * 8 * time.Millisecond; took < want-16*time.Millisecond || took > want+16*time.Millisecond || trips > 102 {
			b.Errorf("6,400 calls: %d trips in %v", trips, took)
		}
		if n := b.used(key("a"), s); n != 6410 {
			b.Errorf("%d are used", n)
		}
		<-time.After(time.Second)
		began = time.Now()
		b.must(key("a"), s, 1)
		if took := time.Since(began); took != time.Millisecond {
			b.Errorf("a single call after the crowd took %v", took)
		}
	})
}

// A store that wants no gap is not made to wait: the next write goes out with
// whoever has come while the last one was under way, also where nothing is left.
func TestNoGap(t *testing.T) {
	inBubble(t, Options{Gap: -1, NoMemo: true}, func(b *bench) {
		b.store.took = time.Millisecond
		s := spec(b.T, "q", "quota 6400/h")
		began := time.Now()
		all(64, func(int) {
			for range 110 {
				b.must(key("a"), s, 1)
			}
		})
		// Who comes during a trip waits for its end and for the next one.
		if took := time.Since(began); took > 222*time.Millisecond {
			b.Errorf("110 calls each of 64 callers, with 1 ms for a trip, took %v", took)
		}
		if n := b.used(key("a"), s); n != 6400 {
			b.Errorf("%d are used", n)
		}
	})
}

// A crowd that asks again as soon as it is answered is served by one write after the
// other, and not one half by every second: one that has come in two parts is whole after
// the first of them, also where nothing is left for anybody.
func TestCrowdIsNotHalved(t *testing.T) {
	for _, text := range []string{"quota 1000000/h", "quota 1/h"} {
		inBubbleOn(t, Options{Gap: -1, NoMemo: true}, func(s *items) Applier { return s }, func(b *bench) {
			b.store.took = time.Millisecond
			s := spec(b.T, "q", text)
			const callers, rounds = 64, 50
			b.trip(3, text+": one call, one part, and all", func() {
				all(1+callers, func(i int) {
					switch {
					case i == 0:
						b.must(key("a"), s, 1)
					case i%8 < 3:
						<-time.After(b.store.took / 2)
						b.must(key("a"), s, 1)
						b.must(key("a"), s, 1)
					default:
						<-time.After(b.store.took * 3 / 2)
						b.must(key("a"), s, 1)
					}
				})
			})
			before := b.store.trips()
			all(callers, func(int) {
				for range rounds {
					b.must(key("a"), s, 1)
				}
			})
			if n := b.store.trips() - before; n > rounds+1 { // twice as many in halves
				b.Errorf("%s: %d calls each of %d callers: %d trips", text, rounds, callers, n)
			}
		})
	}
}

// A crowd that has come before anybody waited for it leaves nothing behind that would
// be taken for the next one.
func TestCrowdThatHasCome(t *testing.T) {
	p, l := New(Options{}), &lane{running: true}
	l.crowd.expect(2, p.clock(), time.Hour)
	for range 2 {
		p.enter(l, new(take), 0)
	}
	if l.gather(p); len(l.crowd.here) != 0 || l.crowd.size != 0 {
		t.Errorf("%d waits, of %d", len(l.crowd.here), l.crowd.size)
	}
}

// A crowd that does not come back holds up who asks next for no longer than a write
// takes, or 2 ms, and ever more rarely, until one does come back.
func TestCrowdThatDoesNotComeBack(t *testing.T) {
	for _, took := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		inBubbleOn(t, Options{Gap: -1}, func(s *items) Applier { return s }, func(b *bench) {
			b.store.took = took
			s := spec(b.T, "q", "quota 1000000/h")
			again := took / 20 // after which those come back who do
			// held has crowds come one after the other: one caller, two who share the next
			// write, and one who comes during that. It returns when that one was held up.
			held := func(crowds int, back bool) (when []int) {
				for n := range crowds {
					all(4, func(i int) {
						<-time.After([]time.Duration{0, took / 2, took / 2, took * 3 / 2}[i])
						began := time.Now()
						b.must(key("a"), s, 1)
						if i < 3 {
							if i > 0 && back {
								<-time.After(again)
								b.must(key("a"), s, 1)
							}
							return
						}
						switch wait := time.Since(began) - took*3/2; {
						case wait == 0:
						case wait == min(took, 2*time.Millisecond) && !back, wait == again && back:
							when = append(when, n)
						default:
							b.Errorf("a trip takes %v: held up for %v", took, wait)
						}
					})
					<-time.After(time.Second) // nobody is waited for then
				}
				return when
			}
			if when, want := held(400, false), []int{0, 2, 6, 14, 30, 62, 126, 191, 256, 321, 386}; !slices.Equal(when, want) {
				b.Errorf("a trip takes %v: crowds %v were waited for, want %v", took, when, want)
			}
			if when := held(maxSkip, true); len(when) != 38 { // which came, each of them
				b.Errorf("a trip takes %v: of those that come back %v were waited for", took, when)
			}
			if when, want := held(4, false), []int{0, 2}; !slices.Equal(when, want) {
				b.Errorf("a trip takes %v: crowds %v were waited for after those, want %v", took, when, want)
			}
		})
	}
}

// Who asks first after a crowd that was answered together is held up for the moment in
// which it may come back, and only then.
func TestFirstAfterACrowd(t *testing.T) {
	inBubbleOn(t, Options{Gap: -1}, func(s *items) Applier { return s }, func(b *bench) {
		const took = time.Millisecond
		b.store.took = took
		s := spec(b.T, "q", "quota 1000000/h")
		for i, c := range []struct{ after, held time.Duration }{{took / 10, took * 9 / 10}, {took / 10, 0}, {took, 0}, {time.Second, 0}} {
			all(4, func(i int) {
				if i > 0 {
					<-time.After(took / 2)
				}
				b.must(key("a"), s, 1)
			})
			<-time.After(c.after)
			began := time.Now()
			b.must(key("a"), s, 1)
			if held := time.Since(began) - took; held != c.held {
				b.Errorf("%d: %v after a crowd, held up for %v", i, c.after, held)
			}
			<-time.After(time.Second)
		}
	})
}

// Nobody of a crowd is passed over: with a limit that is far away, each is
// served by the next write or the one after it.
func TestNobodyStarves(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = 4 * time.Millisecond
		s := spec(b.T, "q", "quota 1000000/h")
		longest := make([]time.Duration, 64)
		all(64, func(i int) {
			for range 50 {
				began := time.Now()
				b.must(key("a"), s, 1)
				longest[i] = max(longest[i], time.Since(began))
			}
		})
		if most := slices.Max(longest); most > 24*time.Millisecond {
			b.Errorf("one waited for %v", most)
		}
	})
}

// A crowd larger than a write takes goes out in several.
func TestBatchIsBounded(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = 10 * time.Millisecond
		s := spec(b.T, "q", "quota 1000000/h")
		all(3*maxBatch, func(int) { b.must(key("a"), s, 1) })
		if n := b.store.trips(); n < 3 || n > 4 {
			b.Errorf("%d trips", n)
		}
		if n := b.used(key("a"), s); n != 3*maxBatch {
			b.Errorf("%d are used", n)
		}
	})
}

// Calls that ask one item for many limits go out in several writes, none of which names
// more than fit into a store's request; one call alone is not divided.
func TestLimitsOfAWriteAreBounded(t *testing.T) {
	for _, text := range everyLimit {
		inBubble(t, Options{}, func(b *bench) {
			b.store.took = 2 * time.Millisecond
			var specs []*plan.Spec
			for i := range 2 * maxLimits {
				specs = append(specs, spec(b.T, fmt.Sprint("limit-", i), text))
			}
			all(3*len(specs), func(i int) { // some of which meet
				asks := []Ask{{Spec: specs[i/3], Cost: 1}, {Spec: specs[(i+7)%len(specs)].Shadow(), Cost: 1, Shadow: true}}
				if _, err := b.Take(b.Context(), b.Until(1), key("a"), asks, false, make([]plan.Verdict, 2)); err != nil {
					b.Error(err)
				}
			})
			b.store.mu.Lock()
			most, trips := 0, len(b.store.log)
			for _, trip := range b.store.log {
				for _, w := range trip.tries {
					n := 0
					for _, s := range specs {
						for _, s := range []*plan.Spec{s, s.Shadow()} {
							if slices.ContainsFunc(w.Do, func(a plan.Act) bool { return s.Owns(a.Field) }) {
								n++
							}
						}
					}
					most = max(most, n)
				}
			}
			b.store.mu.Unlock()
			if most != maxLimits || trips > 12 {
				b.Errorf("%s: %d limits in a write, %d trips", text, most, trips)
			}
			for i := range specs {
				if n := b.used(key("a"), specs[i]); n != 3 {
					b.Errorf("%v: %d are used", specs[i], n)
				}
			}

			var asks []Ask
			for _, s := range specs {
				asks = append(asks, Ask{Spec: s, Cost: 1})
			}
			if refused, err := b.Take(b.Context(), b.Until(1), key("b"), asks, false, make([]plan.Verdict, len(asks))); refused || err != nil {
				b.Errorf("all at once: refused %v, %v", refused, err)
			}
			before := b.store.trips()
			all(32, func(int) {
				if _, err := b.Take(b.Context(), b.Until(1), key("b"), asks, false, make([]plan.Verdict, len(asks))); err != nil {
					b.Error(err)
				}
			})
			if n := b.store.trips() - before; n > 4 {
				b.Errorf("%s: 32 calls of the same %d limits made %d trips", text, len(asks), n)
			}
		})
	}
}

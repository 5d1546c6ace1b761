package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// What another program has spoiled stops the takes that ask for it, and no others that
// come at the same time; of a shadow, nobody.
func TestSpoiledFieldOfOneLimitStopsNoOther(t *testing.T) {
	for _, o := range []Options{{}, {NoCoalescing: true}} {
		inBubble(t, o, func(b *bench) {
			s, bad, sh := spec(b.T, "q", "quota 1000/d"), spec(b.T, "bad", "quota 10/d"), spec(b.T, "sh", "quota 10/d").Shadow()
			b.store.took = 5 * time.Millisecond
			b.store.lost = func(_ int, tries []plan.Write) error {
				for _, w := range tries {
					for _, a := range w.Do {
						if bad.Owns(a.Field) || sh.Owns(a.Field) {
							return &plan.SpoiledError{Err: errBroken} // the store does not say which
						}
					}
				}
				return nil
			}
			sound, with := []Ask{{Spec: s, Cost: 1}}, []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}}
			var errs [8]error
			var wg sync.WaitGroup
			verdicts := make([][]plan.Verdict, len(errs))
			for i := range errs {
				asks := slices.Clone([][]Ask{sound, {{Spec: bad, Cost: 1}}, with, {{Spec: bad, Cost: 1}, {Spec: s, Cost: 1}}}[i%4])
				verdicts[i] = make([]plan.Verdict, len(asks))
				wg.Go(func() {
					_, errs[i] = b.Take(b.Context(), b.clock()+time.Hour, key("a"), asks, false, verdicts[i])
					if last := asks[len(asks)-1]; last.Shadow && (!errors.Is(last.Err, errBroken) || !verdicts[i][1].Unseen) {
						b.Errorf("of the shadow: %+v, %v", verdicts[i][1], last.Err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			for i, err := range errs {
				if i%2 == 0 && (err != nil || !verdicts[i][0].OK) || i%2 == 1 && !errors.Is(err, errBroken) {
					b.Errorf("%+v, call %d: %v, %+v", o, i, err, verdicts[i])
				}
			}
			if n := b.used(key("a"), s); n != 4 {
				b.Errorf("%+v: %d are used", o, n)
			}
		})
	}
}

// A write that failed by a spoiled field and may have been applied is not sent again
// without the shadows: nobody knows, and it was charged once.
func TestSpoiledFieldOfAWriteOfUnknownOutcome(t *testing.T) {
	for _, o := range []Options{{}, {Nonces: true}} {
		inBubble(t, o, func(b *bench) {
			s, sh := spec(b.T, "q", "quota 10/d"), spec(b.T, "sh", "quota 10/d").Shadow()
			b.store.back = func(trip, _ int) error {
				if trip == 1 {
					return fmt.Errorf("%w: %w", errUnknown, &plan.SpoiledError{Field: "sh~.c", Err: errBroken})
				}
				return nil
			}
			asks := []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}}
			if _, err := b.Take(b.Context(), b.Until(1), key("a"), asks, false, make([]plan.Verdict, 2)); !errors.Is(err, errUnknown) {
				b.Errorf("%v", err)
			}
			if n := b.used(key("a"), s); n != 1 {
				b.Errorf("%d are used", n)
			}
		})
	}
}

// spoils has the store fail each write that names a field of one of some limits, and
// say of which: of all of them that it names, or by other texts.
func (b *bench) spoils(says func(named []string) *plan.SpoiledError, limits ...*plan.Spec) {
	b.store.lost = func(_ int, tries []plan.Write) error {
		var named []string
		for _, a := range tries[0].Do {
			if slices.ContainsFunc(limits, func(s *plan.Spec) bool { return s.Owns(a.Field) }) {
				named = append(named, a.Field.Text())
			}
		}
		if len(named) == 0 {
			return nil
		}
		return says(named)
	}
}

// crowdBehind has calls share the write that follows that of one call for another limit,
// and returns the error of each.
func (b *bench) crowdBehind(calls ...[]Ask) []error {
	var wg sync.WaitGroup
	errs := make([]error, 1+len(calls))
	for i, asks := range append([][]Ask{{{Spec: spec(b.T, "first", "quota 9/d"), Cost: 1}}}, calls...) {
		wg.Go(func() {
			_, errs[i] = b.Take(b.Context(), b.clock()+time.Hour, key("a"), asks, false, make([]plan.Verdict, len(asks)))
		})
		synctest.Wait()
	}
	wg.Wait()
	return errs[1:]
}

// A store that says which fields are spoiled stops, in one trip, those alone who ask for
// them, and of shadows those alone; all others go on together.
func TestSpoiledFieldsThatAreNamed(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, one, two := spec(b.T, "q", "quota 1000/d"), spec(b.T, "one", "quota 10/d"), spec(b.T, "two", "sliding 10/h")
		sh, sound := spec(b.T, "sh", "quota 10/d").Shadow(), spec(b.T, "sound", "quota 10/d").Shadow()
		b.store.took = 5 * time.Millisecond
		b.spoils(func(named []string) *plan.SpoiledError {
			return &plan.SpoiledError{Field: named[0], More: named[1:], Err: errBroken}
		}, one, two, sh)
		call := []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}, {Spec: sound, Cost: 1, Shadow: true}}
		calls := [][]Ask{call, {{Spec: one, Cost: 1}}, slices.Clone(call), {{Spec: two, Cost: 1}, {Spec: sound, Cost: 1, Shadow: true}}, slices.Clone(call)}
		// The first, all of them, those without the shadow, and those who ask for sound limits.
		b.trip(4, "named", func() {
			for i, err := range b.crowdBehind(calls...) {
				if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, errBroken) {
					b.Errorf("call %d: %v", i, err)
				}
			}
		})
		for i := 0; i < len(calls); i += 2 {
			if why, other := calls[i][1].Err, calls[i][2].Err; !errors.Is(why, errBroken) || other != nil {
				b.Errorf("call %d: of the spoiled shadow %v, of the other %v", i, why, other)
			}
		}
		if n, m := b.used(key("a"), s), b.used(key("a"), sound); n != 3 || m != 3 {
			b.Errorf("%d are used, and of the shadow %d", n, m)
		}
	})
}

// Where the field that is named is nobody's, it may be any shadow's.
func TestSpoiledFieldThatNobodyAsksFor(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, sh := spec(b.T, "q", "quota 1000/d"), spec(b.T, "sh", "quota 10/d").Shadow()
		spec(b.T, "other", "quota 10/d") // so that its fields are known
		b.spoils(func([]string) *plan.SpoiledError { return &plan.SpoiledError{Field: "other.c", Err: errBroken} }, sh)
		asks := []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}}
		if v := b.queue(key("a"), asks)[0]; !v[0].OK || !v[1].Unseen || !errors.Is(asks[1].Err, errBroken) {
			b.Errorf("%+v, of the shadow %v", v, asks[1].Err)
		}
	})
}

// Where none is named, calls go one by one until one fails, with all that ask for
// the same; and no call goes twice.
func TestSpoiledFieldThatIsNotNamed(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, bad := spec(b.T, "q", "quota 1000/d"), spec(b.T, "bad", "quota 10/d")
		b.store.took = 5 * time.Millisecond
		b.spoils(func([]string) *plan.SpoiledError { return &plan.SpoiledError{Err: errBroken} }, bad)
		sound, spoiled := []Ask{{Spec: s, Cost: 1}}, []Ask{{Spec: bad, Cost: 1}}
		// The first, all of them, three one by one, one that fails with its like, and the rest.
		b.trip(7, "not named", func() {
			for i, err := range b.crowdBehind(sound, sound, sound, spoiled, sound, spoiled, sound) {
				if fails := i == 3 || i == 5; fails != errors.Is(err, errBroken) || !fails && err != nil {
					b.Errorf("call %d: %v", i, err)
				}
			}
		})
		if n := b.used(key("a"), s); n != 5 {
			b.Errorf("%d are used", n)
		}
	})
}

// Those behind the call that was found go together again also after trips in vain.
func TestTriesBehindASpoiledField(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, bad, one := spec(b.T, "q", "quota 1000/d"), spec(b.T, "bad", "quota 10/d"), spec(b.T, "one", "1/h burst 3")
		b.store.took = time.Millisecond
		b.spoils(func([]string) *plan.SpoiledError { return &plan.SpoiledError{Err: errBroken} }, bad)
		spoiled := b.store.lost
		b.store.lost = func(trip int, tries []plan.Write) error {
			if trip > 3 && trip <= 3+patience {
				b.turned("one", trip)
			}
			return spoiled(trip, tries)
		}
		sound := []Ask{{Spec: s, Cost: 1}}
		// The first, all of them, the one that fails, some in vain, one alone, and the rest.
		b.trip(3+patience+2, "behind", func() {
			if errs := b.crowdBehind([]Ask{{Spec: bad, Cost: 1}}, []Ask{{Spec: one, Cost: 1}}, sound, sound, sound); !errors.Is(errs[0], errBroken) || errors.Join(errs[1:]...) != nil {
				b.Errorf("%v", errs)
			}
		})
	})
}

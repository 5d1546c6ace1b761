package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// A shadow rides along while it fits, and holds nobody up when it does not.
func TestBatchWithShadows(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		b.store.took = 20 * time.Millisecond
		s, shadow := spec(b.T, "q", "quota 10/h"), spec(b.T, "sh", "quota 2/h").Shadow()
		var calls [][]Ask
		for range 4 {
			calls = append(calls, []Ask{{Spec: s, Cost: 1}, {Spec: shadow, Cost: 1, Shadow: true}})
		}
		var got []string
		for _, v := range b.queue(key("a"), calls...) {
			got = append(got, fmt.Sprint(v[0].OK, v[0].Used, v[1].OK, v[1].Used))
		}
		want := []string{"true 1 true 1", "true 2 true 2", "true 3 false 2", "true 4 false 2"}
		if !slices.Equal(got, want) {
			b.Errorf("got %v, want %v", got, want)
		}
		// Shadows alone are judged by the store, not by what was seen long ago.
		alone := []Ask{{Spec: shadow, Cost: 1, Shadow: true}}
		<-time.After(time.Hour)
		if v := b.queue(key("a"), alone); !v[0][0].OK {
			b.Errorf("%+v", v)
		}
		delete(b.store.by, key("a")) // somebody has reset it
		if v := b.queue(key("a"), alone, alone, alone); !v[0][0].OK || !v[1][0].OK || v[2][0].OK {
			b.Errorf("%+v", v)
		}
		never := []Ask{{Spec: shadow, Cost: 3, Shadow: true}}
		if v := b.queue(key("new"), never); v[0][0].OK || !v[0][0].Never || !v[0][0].Unseen {
			b.Errorf("%+v", v)
		}
	})
}

// A shadow that does not fit by what was last seen stays out of the write only if
// it still does not fit: another process may have given back. That costs a trip
// when it has, and none when it has not.
func TestShadowThatOthersHaveMadeRoomFor(t *testing.T) {
	for _, text := range everyLimit {
		inBubble(t, Options{}, func(b *bench) {
			s, sh := spec(b.T, "q", "quota 100/d"), spec(b.T, "sh", text).Shadow()
			most := sh.Max()
			call := func(n int64) plan.Verdict {
				b.Helper()
				v := b.queue(key("a"), []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: n, Shadow: true}})[0]
				if !v[0].OK {
					b.Fatalf("%s: %+v", text, v)
				}
				return v[1]
			}
			if v := call(most); !v.OK {
				b.Fatalf("%s: %+v", text, v)
			}
			b.trip(1, text+", as it was", func() {
				if v := call(1); v.OK || v.Used != most || v.Wait == 0 {
					b.Errorf("%s: %+v", text, v)
				}
			})
			var c plan.Cells
			var w plan.Write
			b.store.apply(key("a"), nil, &c)
			if now := b.store.now(); !sh.GiveBack(&c, now, 1, sh.Look(&c, now, 1).Stamp, &w) || b.store.apply(key("a"), []plan.Write{w}, &c) != 0 {
				b.Fatal(text)
			}
			b.trip(2, text+", with room for one", func() {
				if v := call(1); !v.OK || v.Used != most {
					b.Errorf("%s: %+v", text, v)
				}
			})
			if n := b.used(key("a"), sh); n != most {
				b.Errorf("%s: %d are used", text, n)
			}
			if n := b.used(key("a"), s); n != 3 {
				b.Errorf("%s: %d are used of what counts", text, n)
			}
		})
	}
}

// A shadow that stays out of a batch hears what there was in its turn, and not what
// a later call of the batch has left.
func TestShadowThatStaysOutIsInOrder(t *testing.T) {
	for _, text := range []string{"1/h burst 10", "quota 10/h", "quota 10/hour calendar", "sliding 10/h"} {
		inBubble(t, Options{}, func(b *bench) {
			b.store.took = 20 * time.Millisecond
			s, sh := spec(b.T, "q", "quota 100/d"), spec(b.T, "sh", text).Shadow()
			var calls [][]Ask
			for _, n := range []int64{1, 6, 5, 2} {
				calls = append(calls, []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: n, Shadow: true}})
			}
			var got []string
			var now int64
			b.trip(2, text, func() {
				for _, v := range b.queue(key("a"), calls...) {
					got = append(got, fmt.Sprint(v[0].Used, v[1].OK, v[1].Used))
					if !v[1].OK {
						now = v[1].Wait
					}
				}
			})
			want := []string{"1 true 1", "2 true 7", "3 false 7", "4 true 9"}
			if !slices.Equal(got, want) {
				b.Errorf("%s:\ngot  %v\nwant %v", text, got, want)
			}
			if least := 2*time.Hour - 21*time.Millisecond; text == "1/h burst 10" && (now < int64(least) || now > int64(2*time.Hour)) {
				b.Errorf("%s: to wait %v for 5 of 10 beside 7", text, time.Duration(now))
			}
		})
	}
}

// Shadows keep no limit that counts from coming through: of many at their limits one
// or the other has room whenever a write is planned, and none when it arrives.
func TestShadowsAtTheirLimitsHoldNobodyUp(t *testing.T) {
	const many = 3 * maxTrips
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "q", "quota 1000/d")
		call := []Ask{{Spec: s, Cost: 1}}
		for n := range many {
			call = append(call, Ask{Spec: spec(b.T, fmt.Sprint("sh", n), "quota 1/d").Shadow(), Cost: 1, Shadow: true})
		}
		var c plan.Cells
		apply := func(w plan.Write) {
			if b.store.apply(key("a"), []plan.Write{w}, &c) != 0 {
				b.Fatal("what others do was not done")
			}
		}
		trips := 0
		b.store.lost = func(int, []plan.Write) error {
			// Others take of one, and give back of the one before.
			if b.store.apply(key("a"), nil, &c); s.Look(&c, b.store.now(), 1).Used > 0 {
				return nil
			}
			now, one, before := b.store.now(), call[1+trips%many].Spec, call[1+(trips+many-1)%many].Spec
			var w plan.Write
			if trips > 0 && before.GiveBack(&c, now, 1, before.Look(&c, now, 1).Stamp, &w) {
				apply(w)
			}
			w.Reset()
			if one.Plan(&c, now, 1, &w).OK {
				apply(w)
			}
			trips++
			return nil
		}
		v := b.queue(key("a"), call)[0]
		if !v[0].OK || v[0].Used != 1 || trips > 2*patience+1 {
			b.Errorf("%+v after %d trips", v[0], trips)
		}
		lost := 0
		for n, one := range v[1:] {
			switch {
			case call[n+1].Err != nil:
				lost++
				if !one.Unseen || !errors.Is(call[n+1].Err, errBusy) {
					b.Errorf("shadow %d: %+v, %v", n, one, call[n+1].Err)
				}
			case one.OK || one.Used != 1 || one.Wait == 0:
				b.Errorf("shadow %d: %+v, want what was seen while another had taken it", n, one)
			}
		}
		if lost == 0 {
			b.Error("every trip of the call failed by a shadow, and all are known")
		}
	})
}

// Nor do those that have room, whose guards fail whenever others write to them: full
// and in use by turns, or of a bucket that means something else to others. Theirs alone
// may then be unknown.
func TestShadowsThatOthersChangeHoldNobodyUp(t *testing.T) {
	for _, text := range everyLimit {
		for _, o := range []Options{{}, {NoCoalescing: true}} {
			inBubble(t, o, func(b *bench) {
				s, sh, other := spec(b.T, "q", "quota 1000/d"), spec(b.T, "sh", text).Shadow(), spec(b.T, "q2", "quota 1000/d")
				b.store.took = 5 * time.Millisecond
				b.store.lost = func(int, []plan.Write) error {
					// Others take of the shadow, or reset it.
					var c plan.Cells
					b.store.apply(key("a"), nil, &c)
					now := b.store.now()
					if s.Look(&c, now, 1).Used > 0 && other.Look(&c, now, 1).Used > 0 {
						return nil
					}
					var w plan.Write
					if sh.Look(&c, now, 1).Used == 0 {
						sh.Plan(&c, now, 1, &w)
					} else {
						for slot := range c.All() {
							if sh.Owns(slot.Field) {
								w.Do = append(w.Do, plan.Act{Field: slot.Field, Do: plan.Remove})
							}
						}
					}
					b.store.apply(key("a"), []plan.Write{w}, &c) // or one of ours was faster
					return nil
				}
				call, beside := []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}}, []Ask{{Spec: other, Cost: 1}}
				calls := [][]Ask{call, slices.Clone(call), beside}
				v := b.queue(key("a"), calls...)
				if !v[0][0].OK || !v[1][0].OK || !v[2][0].OK || b.used(key("a"), s) != 2 || b.used(key("a"), other) != 1 {
					b.Errorf("%s, %+v: %+v", text, o, v)
				}
				for n := range 2 {
					if err := calls[n][1].Err; err != nil {
						if !errors.Is(err, errBusy) || !v[n][1].Unseen {
							b.Errorf("%s, %+v: of the shadow %+v, %v", text, o, v[n][1], err)
						}
					} else if v[n][1].Unseen {
						b.Errorf("%s, %+v: nobody says why of the shadow nothing is known", text, o)
					}
				}
				if trips := b.store.trips(); trips > 3*(patience+2) {
					b.Errorf("%s, %+v: %d trips", text, o, trips)
				}
			})
		}
	}
}

// turned has a bucket mean something else each time, as by others who change its limit:
// no write that goes by what was known of it holds.
func (b *bench) turned(name string, times int) {
	var c plan.Cells
	var w plan.Write
	for kind, value := range map[string]int64{".i": 3600*second + int64(times), ".t": second, ".d": 4 * 3600 * second} {
		f, _ := plan.ParseField(name + kind)
		w.Do = append(w.Do, plan.Act{Field: f, Do: plan.Put, Value: value, Rel: kind == ".t"})
	}
	b.store.apply(key("a"), []plan.Write{w}, &c)
}

// Of shadows with room, after three trips that did not hold those stay out whose own
// guards did not, and no others.
func TestShadowThatOthersChangeStaysOutAlone(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, sh, still := spec(b.T, "q", "quota 1000/d"), spec(b.T, "sh", "1/h burst 3").Shadow(), spec(b.T, "still", "1/h burst 3").Shadow()
		b.store.lost = func(trip int, _ []plan.Write) error { b.turned("sh~", trip); return nil }
		asks := []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 1, Shadow: true}, {Spec: still, Cost: 1, Shadow: true}}
		// One write holds without it, and one adapts its bucket.
		b.trip(patience+2, "a shadow that others change", func() {
			if v := b.queue(key("a"), asks)[0]; !v[0].OK || !errors.Is(asks[1].Err, errBusy) || asks[2].Err != nil || !v[2].OK {
				b.Errorf("%+v, of the shadows %v and %v", v, asks[1].Err, asks[2].Err)
			}
		})
	})
}

// A shadow that was seen to have no room, and whose turn comes only after a trip has
// failed, is told what was seen.
func TestShadowSeenBeforeATripThatFailed(t *testing.T) {
	inBubble(t, Options{NoMemo: true}, func(b *bench) {
		s := spec(b.T, "b", "60/h burst 100")
		sh, other := spec(b.T, "sh", "quota 2/d").Shadow(), spec(b.T, "sh", "quota 40/d").Shadow() // of two plans: one write can't have both
		b.queue(key("a"), []Ask{{Spec: s, Cost: 1}, {Spec: sh, Cost: 2, Shadow: true}})
		b.store.took = 5 * time.Millisecond
		trips := 0
		b.store.lost = func(int, []plan.Write) error {
			switch trips++; trips {
			case 2: // somebody resets the bucket, so that the write does not hold
				var c plan.Cells
				var w plan.Write
				b.store.apply(key("a"), nil, &c)
				for slot := range c.All() {
					if s.Owns(slot.Field) {
						w.Do = append(w.Do, plan.Act{Field: slot.Field, Do: plan.Remove})
					}
				}
				if b.store.apply(key("a"), []plan.Write{w}, &c) != 0 {
					b.Error("there was no bucket")
				}
			case 3:
				return errUnknown
			}
			return nil
		}
		for _, asks := range [][]Ask{{{Spec: s, Cost: 1}}, {{Spec: s, Cost: 1}, {Spec: other, Cost: 1, Shadow: true}}} {
			go b.Take(b.Context(), b.clock()+time.Hour, key("a"), asks, false, make([]plan.Verdict, len(asks)))
			synctest.Wait()
		}
		if v := b.queue(key("a"), []Ask{{Spec: sh, Cost: 1, Shadow: true}})[0][0]; trips != 3 || v.OK || v.Unseen || v.Used != 2 || v.Wait == 0 {
			b.Errorf("after %d trips: %+v", trips, v)
		}
	})
}

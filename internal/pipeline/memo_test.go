package pipeline

import (
	"testing"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

var everyLimit = []string{"1/h burst 3", "quota 3/h", "quota 3/hour calendar", "sliding 3/h"}

// A refusal is remembered for a second from the moment at which it was asked
// for, and for no longer.
func TestMemoRefusesForASecond(t *testing.T) {
	for _, text := range everyLimit {
		inBubble(t, Options{}, func(b *bench) {
			b.store.took = 20 * time.Millisecond
			s := spec(b.T, "m", text)
			b.trip(3, "three that fit", func() {
				for range 3 {
					if !b.must(key("a"), s, 1) {
						b.Error("refused")
					}
				}
			})
			<-time.After(time.Minute)
			b.trip(1, "the first refusal", func() {
				if b.must(key("a"), s, 1) {
					b.Error("allowed")
				}
			})
			b.trip(0, "refusals within the second", func() {
				for range 97 {
					<-time.After(10 * time.Millisecond)
					if v, err := b.ask(key("a"), s, 1); err != nil || v.OK || v.Wait <= 0 || v.Used != 3 {
						b.Errorf("%+v, %v", v, err)
					}
				}
			})
			<-time.After(10 * time.Millisecond) // 1 s since the trip began
			b.trip(0, "at one second", func() { b.must(key("a"), s, 1) })
			<-time.After(1)
			b.trip(1, "1 ns later", func() { b.must(key("a"), s, 1) })
			if n := b.Stats().Memo; n != 98 {
				b.Errorf("%d refused by the memo", n)
			}
		})
	}
}

// What is remembered never allows, and refuses only what it refuses: another
// cost, another limit and the time that passes are judged anew.
func TestMemoNeverAllows(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s, other := spec(b.T, "m", "2/s burst 3"), spec(b.T, "o", "quota 5/h")
		b.must(key("a"), s, 2)
		b.trip(0, "one that does not fit in what the write has left", func() { b.must(key("a"), s, 2) })
		b.trip(0, "the same again", func() { b.must(key("a"), s, 3) })
		b.trip(1, "one that fits", func() {
			if !b.must(key("a"), s, 1) {
				b.Error("refused by a state that has one left")
			}
		})
		b.trip(0, "none left", func() { b.must(key("a"), s, 1) })
		b.trip(1, "another limit", func() { b.must(key("a"), other, 1) })
		<-time.After(499 * time.Millisecond)
		b.trip(0, "just before one has refilled", func() { b.must(key("a"), s, 1) })
		<-time.After(time.Millisecond)
		b.trip(1, "as soon as one has refilled", func() {
			if !b.must(key("a"), s, 1) {
				b.Error("refused")
			}
		})
		b.trip(1, "another item", func() { b.must(key("b"), s, 1) })
	})
}

// When this machine's time is set, what was remembered before is not used.
func TestMemoAfterTheClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 1001 * time.Millisecond, -1001 * time.Millisecond} {
		inBubble(t, Options{}, func(b *bench) {
			s := spec(b.T, "m", "1/d burst 1")
			b.must(key("a"), s, 1)
			b.must(key("a"), s, 1)
			b.trip(0, "before", func() { b.must(key("a"), s, 1) })
			b.step.Store(int64(step))
			b.trip(1, "after a step of "+step.String(), func() { b.must(key("a"), s, 1) })
			b.trip(0, "again", func() { b.must(key("a"), s, 1) })
		})
	}
}

func TestStagesCanBeSwitchedOff(t *testing.T) {
	inBubble(t, Options{NoMemo: true}, func(b *bench) {
		s := spec(b.T, "m", "1/d burst 1")
		b.must(key("a"), s, 1)
		b.trip(3, "without a memo", func() {
			for range 3 {
				b.must(key("a"), s, 1)
			}
		})
	})
	inBubble(t, Options{NoCoalescing: true}, func(b *bench) {
		b.store.took = 10 * time.Millisecond
		s := spec(b.T, "m", "1/d burst 10")
		b.must(key("a"), s, 1)
		began := time.Now()
		b.trip(11, "every call a write of its own", func() {
			all(11, func(int) { b.must(key("a"), s, 1) })
		})
		if took := time.Since(began); took != 10*time.Millisecond {
			b.Errorf("11 calls at once took %v", took)
		}
		if n := b.used(key("a"), s); n != 10 {
			b.Errorf("%d are used", n)
		}
		b.trip(1, "and no memo", func() { b.must(key("a"), s, 1) })
		if st := b.Stats(); st.Memo != 0 || st.Coalesced != 0 || st.Trips != 13 {
			b.Errorf("%+v", st)
		}
	})
}

// Refuses is the memo's word alone: it asks nobody.
func TestRefusesAsksNobody(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "m", "1/d burst 1")
		verdicts := make([]plan.Verdict, 1)
		refuses := func() bool { return b.Refuses(key("a"), []Ask{{Spec: s, Cost: 1}}, verdicts) }
		b.trip(0, "nothing known", func() {
			if refuses() {
				b.Error("refused by nothing")
			}
		})
		b.must(key("a"), s, 1)
		b.trip(0, "known to be empty", func() {
			if !refuses() || verdicts[0].OK || verdicts[0].Wait <= 0 {
				b.Errorf("not refused: %+v", verdicts[0])
			}
		})
	})
}

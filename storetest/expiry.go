package storetest

import (
	"testing"
	"time"

	"github.com/weirlabs/weir"
)

// expiry tests that an item stays for as long as its last write said. That it
// goes afterwards is nobody's duty.
func (s suite) expiry(t *testing.T) {
	if s.caps.clocked {
		t.Run("an item stays to the last nanosecond", s.stays)
	} else {
		t.Run("an item stays for two seconds", s.staysBriefly)
	}
}

// keeps are how long an item is kept, as far as the store does.
func (s suite) keeps(all ...time.Duration) (some []time.Duration) {
	for _, k := range all {
		if s.caps.MaxKeep == 0 || k <= s.caps.MaxKeep {
			some = append(some, k)
		}
	}
	return some
}

func (s suite) stays(t *testing.T) {
	b, f := s.start(t), someFields(t)
	for _, keep := range s.keeps(time.Second, 90*time.Second, time.Hour, 31*24*time.Hour, 366*24*time.Hour) {
		once, twice := b.key(), b.key()
		w := weir.Write{Do: []weir.Act{put(f.t, farAhead)}, Keep: keep}
		b.must(once, w)
		b.must(twice, w)
		b.clock.advance(keep / 2)
		w.Do = []weir.Act{add(f.count, 1)}
		b.must(twice, w)
		b.clock.advance(keep - keep/2 - 1)
		b.reads(once, map[weir.Field]int64{f.t: farAhead})
		b.clock.advance(keep / 2)
		b.reads(twice, map[weir.Field]int64{f.t: farAhead, f.count: 1})
	}
}

// staysBriefly is for a store that has a clock of its own, which goes as slowly as
// any. A look that comes too late to tell is made again on another item.
func (s suite) staysBriefly(t *testing.T) {
	const tries = 10
	b, f := s.start(t), someFields(t)
	keep := 2 * time.Second
	if s.caps.MaxKeep > 0 {
		keep = min(keep, s.caps.MaxKeep)
	}
	for range tries {
		key := b.key()
		w := weir.Write{Do: []weir.Act{put(f.t, farAhead)}, Keep: keep}
		_, written, _ := b.apply(key, w)
		if !b.watched(key, f.t, written, keep) {
			continue
		}
		w.Do = []weir.Act{put(f.count, 1)} // once more, and it stays as long again
		_, again, _ := b.apply(key, w)
		if again < written+int64(keep*19/20) && b.watched(key, f.t, again, keep) {
			return
		}
	}
	t.Errorf("the store is too slow to be read within %v of a write, %d times", keep, tries)
}

// watched reads an item, which a write has to keep, until three quarters of that
// time are over, and reports whether the last look came before all of it was.
func (b *bench) watched(key weir.Key, f weir.Field, written int64, keep time.Duration) bool {
	b.Helper()
	tick := time.NewTicker(keep / 100)
	defer tick.Stop()
	for {
		_, now, state := b.apply(key)
		since := time.Duration(now - written)
		if since >= keep*19/20 {
			return false
		}
		if _, ok := state[f]; !ok {
			b.Fatalf("an item that was to be kept for %v is gone after %v", keep, since)
		}
		if since >= keep*3/4 {
			return true
		}
		<-tick.C
	}
}

package redisstore_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/internal/redistest"
)

// ttl is the time to live that the server gives the bench's item.
func (b *bench) ttl() time.Duration {
	b.Helper()
	ms, err := b.client.Do(context.Background(), b.client.B().Pttl().Key(b.name()).Build()).AsInt64()
	if err != nil {
		b.Fatalf("PTTL: %v", err)
	}
	return time.Duration(ms) * time.Millisecond
}

func (b *bench) exists() bool {
	b.Helper()
	n, err := b.client.Do(context.Background(), b.client.B().Exists().Key(b.name()).Build()).AsInt64()
	if err != nil {
		b.Fatalf("EXISTS: %v", err)
	}
	return n == 1
}

// wantTTL allows for the time between write and look, and for whole milliseconds.
func (b *bench) wantTTL(want time.Duration) {
	b.Helper()
	if got := b.ttl(); got >= want+time.Millisecond || got < want-20*time.Second {
		b.Errorf("time to live %v, want %v", got, want)
	}
}

// TestCase_B061_B062_B064_B068_EveryWriteSetsTheExpiry: no key is ever without a
// time to live, whatever the write, and a key in use never nears its end.
func TestCase_B061_B062_B064_B068_EveryWriteSetsTheExpiry(t *testing.T) {
	b := newBench(t)
	nonce := uint64(0)
	for name, acts := range map[string][]weir.Act{
		"put":       {put(b.t, 1)},
		"put again": {put(b.t, 1)}, // changes nothing
		"add":       {add(b.count, 1)},
		"now":       {{Field: b.t, Do: plan.Put, Rel: true}},
		"remove":    {drop(b.t)},
		"mixed":     {put(b.t, 1), add(b.count, 1), drop(b.i)},
	} {
		for _, withNonce := range []bool{false, true} {
			b.must(write(put(b.t, 1), put(b.i, 1)))
			b.server.Do(t, "PERSIST", b.name()) // as if it never had one
			w := write(acts...)
			if withNonce {
				nonce++
				w.Nonce = nonce
			}
			b.must(w)
			if got := b.ttl(); got <= 0 {
				t.Errorf("%s: time to live %v", name, got)
			}
			b.wantTTL(time.Hour)
		}
	}
	// What refuses does not prolong anything.
	w := write(put(b.t, 1))
	w.If = []weir.Cond{{Field: b.t, Cmp: plan.Equal, Value: 2}}
	b.must(weir.Write{Do: []weir.Act{put(b.t, 1)}, Keep: time.Minute})
	if applied, _, _ := b.apply(w); applied != -1 {
		t.Fatal("a guard that fails let the write through")
	}
	b.wantTTL(time.Minute)
}

// TestCase_B065_B067_B073_KeepIsTheTimeToLive reads back what the server makes
// of short and of long times.
func TestCase_B065_B067_B073_KeepIsTheTimeToLive(t *testing.T) {
	b := newBench(t)
	for keep, want := range map[time.Duration]time.Duration{
		60 * time.Second:                 60 * time.Second,
		0:                                time.Second,
		1:                                time.Second,
		30 * time.Minute:                 30 * time.Minute,
		31 * 24 * time.Hour:              31 * 24 * time.Hour,
		100 * 365 * 24 * time.Hour:       100 * 365 * 24 * time.Hour,
		math.MaxInt64 - time.Second:      math.MaxInt64 - time.Second,
		90*time.Second + time.Nanosecond: 90*time.Second + time.Millisecond,
	} {
		b.must(weir.Write{Do: []weir.Act{put(b.t, 1)}, Keep: keep})
		if want > time.Second {
			b.wantTTL(want)
		} else if got := b.ttl(); got > time.Second {
			t.Errorf("Keep %v: time to live %v", keep, got)
		}
	}
}

// TestCase_B040_B077_AnItemThatExpiredIsNone: what is gone and what was never
// there are the same, and the first writer afterwards starts afresh, once.
func TestCase_B040_B077_AnItemThatExpiredIsNone(t *testing.T) {
	b := newBench(t)
	short := weir.Write{Do: []weir.Act{put(b.count, 5)}, Keep: time.Second, Nonce: 7}
	b.must(short)
	redistest.Await(t, "the item to expire", func() bool { return !b.exists() })
	if _, _, state := b.apply(); state.Len() != 0 {
		t.Fatalf("an expired item has %d fields", state.Len())
	}
	first := write(put(b.count, 1))
	first.If = []weir.Cond{{Field: b.count, Cmp: plan.AtMost, Value: -1, OrAbsent: true}}
	b.must(first)
	if applied, _, _ := b.apply(first); applied != -1 {
		t.Error("a second writer was the first too")
	}
}

// TestRemovingLeavesNoKey: a write that only removes makes no key, and an item
// without fields goes.
func TestRemovingLeavesNoKey(t *testing.T) {
	b := newBench(t)
	remove := write(drop(b.t), drop(b.i))
	remove.Nonce = 1
	b.must(remove)
	if b.exists() {
		t.Error("removing from nothing made a key")
	}
	b.must(write(put(b.t, 1), put(b.i, 1)))
	b.must(write(drop(b.t), drop(b.i)))
	if b.exists() {
		t.Error("a key is left of an item without fields")
	}
	// With nonces, those stay a little: their writes may still be repeated.
	w := write(put(b.t, 1))
	w.Nonce = 2
	b.must(w)
	b.must(write(drop(b.t)))
	if b.exists() {
		b.wantTTL(time.Minute)
	}
	b.must(w)
	if _, _, state := b.apply(); state.Len() != 0 {
		t.Error("a write that is repeated after a removal was applied again")
	}
}

// TestItemAsOthersReadIt: another client finds plain names and plain numbers.
func TestItemAsOthersReadIt(t *testing.T) {
	b := newBench(t)
	w := write(put(b.t, 1_796_000_000_123_456_789), put(b.i, 100_000_000), put(b.count, 3))
	w.Nonce = 1
	b.must(w)
	got := strings.Fields(b.server.Do(t, "HGETALL", "test:account#customer-42"))
	fields := map[string]string{}
	for i := 0; i+1 < len(got); i += 2 {
		fields[got[i]] = got[i+1]
	}
	for name, want := range map[string]string{"rate.t": "1796000000123456789", "rate.i": "100000000", "quota.c": "3"} {
		if fields[name] != want {
			t.Errorf("%s is %q, want %s; the item is %v", name, fields[name], want, fields)
		}
	}
	if len(fields) != 4 || len(fields["w"]) != 12 {
		t.Errorf("the item is %v; there must be three fields and one nonce", fields)
	}
}

// TestCase_B034_TheServersMicroseconds: the store's now is TIME of the server,
// seconds and microseconds, between two looks at it.
func TestCase_B034_TheServersMicroseconds(t *testing.T) {
	b := newBench(t)
	look := func() int64 {
		f := strings.Fields(b.server.Do(t, "TIME"))
		s, err1 := strconv.ParseInt(f[0], 10, 64)
		us, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("TIME is %v", f)
		}
		return s*1e9 + us*1e3
	}
	for range 20 {
		before := look()
		_, now, state := b.apply(write(weir.Act{Field: b.t, Do: plan.Put, Value: 5, Rel: true}))
		after := look()
		if now < before || now > after {
			t.Fatalf("the store's now is %d, not between %d and %d", now, before, after)
		}
		if v, _ := state.Get(b.t); v != now+5 || b.stored("rate.t") != strconv.FormatInt(now+5, 10) {
			t.Fatalf("now+5 is %d, stored %s, at %d", v, b.stored("rate.t"), now)
		}
	}
}

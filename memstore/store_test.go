package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

var start = time.Date(2027, 3, 14, 15, 9, 26, 0, time.UTC).UnixNano()

// clocked is a store and a limiter on a clock that stands still until moved.
func clocked(o memstore.Options) (*memstore.Store, *weir.Limiter, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(start)
	o.Now = now.Load
	s := memstore.New(o)
	return s, weir.NewLimiter(s, weir.Options{}), now
}

func take(t testing.TB, l *weir.Limiter, limit weir.Limit, id string) weir.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), weir.Op{Limit: limit, Key: weir.NewKey("account", id)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Looks, refusals, resets and cancelled takes of unknown keys leave nothing,
// and push nobody out of a full store.
func TestNothingToRememberLeavesNothing(t *testing.T) {
	s, l, _ := clocked(memstore.Options{MaxKeys: 8})
	ctx := context.Background()
	bucket, quota, sliding := parse(t, "1/s burst 2"), parse(t, "quota 2/h"), parse(t, "sliding 2/h")
	for i := range 8 {
		take(t, l, bucket, fmt.Sprint("live", i))
	}
	for i := range 200 {
		for _, limit := range []weir.Limit{bucket, quota, sliding} {
			op := weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint("new", i)), Cost: 3}
			if _, err := l.Peek(ctx, op); err != nil {
				t.Fatal(err)
			}
			if d, err := l.Take(ctx, op); err != nil || d.Reason != weir.ReasonNever {
				t.Fatalf("%+v, %v", d, err)
			}
			if err := l.Reset(ctx, op.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if st := s.Stats(); st.Keys != 8 || st.Lost != 0 || st.Evicted != 0 {
		t.Errorf("%+v after looks and refusals only", st)
	}
	for i := range 8 {
		if d := take(t, l, bucket, fmt.Sprint("live", i)); d.Remaining != 0 {
			t.Errorf("live%d has %d left", i, d.Remaining)
		}
	}
}

// The memory is bounded whatever keys come, and what is lost is counted.
func TestBoundedUnderHostileKeys(t *testing.T) {
	const keys = 250_000
	var reported, calls atomic.Uint64
	s, l, now := clocked(memstore.Options{MaxKeys: 70_000, Lost: func(total uint64) {
		reported.Store(total)
		calls.Add(1)
	}})
	ctx := context.Background()
	limit, quota := parse(t, "1/h burst 2"), parse(t, "quota 2/day")
	for i := range keys {
		now.Add(1000)
		take(t, l, limit, fmt.Sprintf("%032d", i))
		if i%1000 == 0 { // somebody who is refused all the time
			for _, limit := range []weir.Limit{limit, quota} {
				d, err := l.Take(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "greedy-"+limit.Name()), Cost: 2})
				if err != nil || d.Allowed != (i == 0) {
					t.Fatalf("after %d keys: %+v, %v", i, d, err)
				}
			}
		}
	}
	st := s.Stats()
	if st.Keys > 70_000 || st.Bytes > 70_000*200 {
		t.Errorf("%+v", st)
	}
	if st.Lost+st.Evicted+uint64(st.Keys) != keys+2 || st.Evicted != 0 {
		t.Errorf("%+v do not add up to %d", st, keys+2)
	}
	if got := reported.Load(); got == 0 || got > st.Lost || 2*got < st.Lost || calls.Load() > 64 {
		t.Errorf("%d reported of %d, in %d calls", got, st.Lost, calls.Load())
	}

	// When all are idle they go without a loss.
	now.Add(int64(48 * time.Hour))
	for i := range 10_000 {
		take(t, l, limit, fmt.Sprint("later", i))
	}
	if later := s.Stats(); later.Lost != st.Lost || later.Evicted == 0 {
		t.Errorf("%+v, before %+v", later, st)
	}
}

func TestBoundedInBytes(t *testing.T) {
	s, l, _ := clocked(memstore.Options{MaxBytes: 100_000})
	limits := []weir.Limit{parse(t, "1/h"), parse(t, "quota 2/day"), parse(t, "sliding 2/day")}
	for i := range 20_000 {
		var ops []weir.Op
		for _, limit := range limits {
			ops = append(ops, weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprintf("%0*d", 1+i%900, i))})
		}
		if _, err := l.Take(context.Background(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	// The last item may stand above the bound with what it holds beside its key.
	if st := s.Stats(); st.Bytes > 101_000 || st.Keys == 0 || st.Lost == 0 {
		t.Errorf("%+v", st)
	}
	for i := range 20_000 {
		if err := l.Reset(context.Background(), weir.NewKey("account", fmt.Sprintf("%0*d", 1+i%900, i))); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.Keys != 0 || st.Bytes != 0 {
		t.Errorf("%+v is left when every item was reset", st)
	}
}

func TestCase_B157_IdleItemsGoWithNewOnes(t *testing.T) {
	s, l, now := clocked(memstore.Options{})
	limit := parse(t, "1/s burst 2")
	for i := range 50_000 {
		now.Add(int64(time.Millisecond))
		take(t, l, limit, fmt.Sprint(i))
	}
	// 1,000 items are live at any time; each insert looks at two others.
	if st := s.Stats(); st.Keys > 4_000 || st.Lost != 0 {
		t.Errorf("%+v with 1,000 live items", st)
	}
}

func TestCase_B158_MemoryDoesNotGrowWithTheLimit(t *testing.T) {
	bytes := func(text string) int64 {
		s, l, now := clocked(memstore.Options{})
		limit := parse(t, text)
		for range 20_000 {
			now.Add(int64(time.Millisecond))
			take(t, l, limit, "one")
		}
		return s.Stats().Bytes
	}
	for _, form := range []string{"%d/s", "quota %d/day", "sliding %d/s"} {
		if few, many := bytes(fmt.Sprintf(form, 10)), bytes(fmt.Sprintf(form, 1_000_000)); few != many || many > 256 {
			t.Errorf(form+": %d bytes, at %d: %d", 10, few, 1_000_000, many)
		}
	}
}

func TestCase_B160_SweepsAreBounded(t *testing.T) {
	// A take among a million idle items looks at a constant number of them:
	// those that a full store looks at to make room for one.
	s, l, now := clocked(memstore.Options{MaxKeys: 60_000})
	limit := parse(t, "1/s")
	for i := range 60_000 {
		take(t, l, limit, fmt.Sprint(i))
	}
	now.Add(int64(time.Hour))
	for i := range 100 {
		before := s.Stats().Evicted
		take(t, l, limit, fmt.Sprint("new", i))
		if swept := s.Stats().Evicted - before; swept < 1 || swept > 2+16 {
			t.Fatalf("one take swept %d items", swept)
		}
	}
}

// A thousand goroutines on one key, and on a key that none of them has met.
func TestCase_B041_ColdKeyUnderManyCallers(t *testing.T) {
	_, l, _ := clocked(memstore.Options{})
	limit := parse(t, "10/s")
	for round := range 20 {
		var allowed atomic.Int64
		var group sync.WaitGroup
		gate := make(chan struct{})
		for range 1000 {
			group.Go(func() {
				<-gate
				if take(t, l, limit, fmt.Sprint("cold", round)).Allowed {
					allowed.Add(1)
				}
			})
		}
		close(gate)
		group.Wait()
		if allowed.Load() != 10 {
			t.Fatalf("round %d: %d of 1,000 at one instant, want 10", round, allowed.Load())
		}
	}
}

// A thousand goroutines on one key, on a clock that moves with every reading:
// together they are allowed exactly what one caller would be.
func TestCase_B043_B044_ExactUnderContention(t *testing.T) {
	const goroutines, each = 1000, 50
	for _, text := range []string{"2000/s burst 50", "quota 40/1s", "sliding 300/s", "quota 900/s calendar"} {
		limit := parse(t, text)
		run := func(callers, each int) (allowed int64) {
			var now, count atomic.Int64
			now.Store(start)
			l := weir.NewLimiter(memstore.New(memstore.Options{Now: func() int64 { return now.Add(70_000) }}), weir.Options{})
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					for range each {
						if take(t, l, limit, "hot").Allowed {
							count.Add(1)
						}
						runtime.Gosched()
					}
				})
			}
			group.Wait()
			return count.Load()
		}
		want := run(1, goroutines*each)
		if got := run(goroutines, each); got != want || want < 100 || want > goroutines*each/2 {
			t.Errorf("%s: %d allowed to %d callers, %d to one", text, got, goroutines, want)
		}
	}
}

func TestRecords(t *testing.T) {
	s, _, now := clocked(memstore.Options{})
	ctx := context.Background()
	put := func(key, value, version string, expires time.Time) error {
		return s.Put(ctx, key, []byte(value), version, expires)
	}
	if v, version, err := s.Get(ctx, "a/1"); err != nil || version != "" || v != nil {
		t.Errorf("%q %q %v of a record that is not there", v, version, err)
	}
	if err := put("a/1", "one", "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := put("a/1", "two", "", time.Time{}); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	v, version, err := s.Get(ctx, "a/1")
	if err != nil || string(v) != "one" || version == "" {
		t.Fatalf("%q %q %v", v, version, err)
	}
	v[0] = 'X' // what a caller does with its copy stays with the caller
	if err := put("a/1", "two", version, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := put("a/1", "three", version, time.Time{}); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("written over a newer version: %v", err)
	}

	// An expiry is an instant, however far away.
	at := time.Unix(0, now.Load())
	for i, c := range []struct {
		expires time.Time
		alive   bool
	}{{at.Add(time.Hour), true}, {at.Add(time.Minute), false}, {time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), true}, {at, false}, {time.Unix(0, 0), false}} {
		if err := put(fmt.Sprint("b/", i), "x", "", c.expires); err != nil {
			t.Fatal(err)
		}
	}
	now.Add(int64(time.Minute))
	for i, alive := range []bool{true, false, true, false, false} {
		if _, version, err := s.Get(ctx, fmt.Sprint("b/", i)); err != nil || (version != "") != alive {
			t.Errorf("b/%d: version %q, want alive %v (%v)", i, version, alive, err)
		}
	}
	if err := put("b/1", "again", "", time.Time{}); err != nil {
		t.Errorf("an expired record is in the way: %v", err)
	}

	for i := range 25 {
		if err := put(fmt.Sprintf("c/%02d", i), "x", "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		keys, next, err := s.List(ctx, "c/", cursor, 10)
		if err != nil || len(keys) > 10 {
			t.Fatal(keys, err)
		}
		for _, k := range keys {
			if seen[k] {
				t.Errorf("%s is listed twice", k)
			}
			seen[k] = true
		}
		if cursor = next; next == "" {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d of 25 keys are listed", len(seen))
	}
}

func TestTakeAllocatesNothingWithAnObserver(t *testing.T) {
	heard := 0
	l := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{Observer: &weir.Observer{Decided: func(context.Context, weir.Op, weir.Decision) { heard++ }}})
	ctx := context.Background()
	op := weir.Op{Limit: parse(t, "1000/s"), Key: weir.NewKey("account", "a")}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := l.Take(ctx, op); err != nil {
			t.Fatal(err)
		}
	}); n != 0 || heard != 1001 {
		t.Errorf("%v allocations, %d decisions heard", n, heard)
	}
}

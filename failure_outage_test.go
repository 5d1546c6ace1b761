package weir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/storetest"
)

// away is a store that can be away: it then answers nothing until a trip's time
// is over, or fails at once. A trip takes 2 ms.
type away struct {
	*lossy
	silent, broken atomic.Bool
	trips          atomic.Int64
	open           atomic.Int64 // trips under way
}

func newAway() *away { return &away{lossy: newLossy(nil, 0).undisturbed()} }

// undisturbed is a lossy store on its good days.
func (l *lossy) undisturbed() *lossy {
	l.chance = 0
	return l
}

func (a *away) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	a.trips.Add(1)
	a.open.Add(1)
	defer a.open.Add(-1)
	for _, wait := range []bool{a.silent.Load(), false} {
		if a.broken.Load() {
			return -1, 0, errDown
		}
		after := time.After(time.Millisecond)
		if wait {
			after = nil
		}
		select {
		case <-after:
		case <-ctx.Done():
			return -1, 0, fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, ctx.Err())
		}
	}
	return a.lossy.Apply(ctx, item, tries, state)
}

// crowd calls n times at once and waits.
func crowd(n int, call func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { call(i) })
	}
	wg.Wait()
}

// For a minute the store never answers. Every call returns by its deadline; soon
// they return at once, and one call at a time tries the store. A limit that
// refuses then admits nothing, one that allows says that it does so without
// knowing, one with a share admits its share. Within two seconds of the store's
// return all is as before, and what the shares still show as used is charged.
func TestStoreThatNeverAnswers(t *testing.T) {
	const deadline = 100 * time.Millisecond
	modes := []weir.FailureMode{weir.FailError, weir.FailAllow, weir.FailDeny, weir.FailLocal}
	for _, c := range []struct {
		limit, share string
		local        int64 // what the share admits in the outage
		used         int64 // of it that is still used at its end
	}{
		{"1/d burst 40", "1/d burst 10", 10, 10},
		{"quota 40/d", "quota 10/d", 10, 10},
		{"sliding 40/d", "sliding 10/d", 10, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			rest := runtime.NumGoroutine()
			store := newAway()
			var told atomic.Int64
			lim := weir.NewLimiter(store, weir.Options{Deadline: deadline, Observer: &weir.Observer{
				Failed: func(context.Context, weir.Op, error) { told.Add(1) },
			}})
			var ops []weir.Op
			for _, mode := range modes {
				ops = append(ops, weir.Op{Limit: limit(t, c.limit), Local: limit(t, c.share), OnFail: mode, Key: weir.NewKey("account", fmt.Sprint(mode))})
			}
			take := func(op weir.Op, bound time.Duration) (d weir.Decision, err error) {
				began := time.Now()
				d, err = lim.Take(t.Context(), op)
				if took := time.Since(began); took > bound {
					t.Errorf("a call of mode %d took %v", op.OnFail, took)
				}
				return d, err
			}
			for _, op := range ops {
				if d, err := take(op, deadline); err != nil || !d.Allowed || d.Degraded {
					t.Fatalf("%+v, %v", d, err)
				}
			}

			store.silent.Store(true)
			gone := time.Now()
			var admitted [4]atomic.Int64
			var degraded atomic.Int64
			round := func(bound time.Duration) {
				crowd(16, func(i int) {
					op := ops[i%4]
					d, err := take(op, bound)
					switch {
					case op.OnFail == weir.FailError:
						if err == nil {
							t.Errorf("no error: %+v", d)
						}
						return
					case err != nil || !d.Degraded || op.OnFail != weir.FailLocal && !d.Unknown:
						t.Errorf("mode %d: %+v, %v", op.OnFail, d, err)
					case op.OnFail == weir.FailDeny && (d.Reason != weir.ReasonUnavailable || d.RetryAfter <= 0):
						t.Errorf("%+v", d)
					}
					degraded.Add(1)
					if d.Allowed {
						admitted[op.OnFail].Add(1)
					}
				})
			}
			for range 3 { // until five trips have failed
				round(deadline)
			}
			<-time.After(time.Second)
			most, trips := 0, store.trips.Load()
			for time.Since(gone) < time.Minute {
				round(deadline)
				most = max(most, int(store.open.Load()))
				<-time.After(25 * time.Millisecond)
			}
			if n := store.trips.Load() - trips; n > 60 || n < 30 || most > 1 {
				t.Errorf("%d trips in a minute, %d at once", n, most)
			}
			if a, d, l := admitted[weir.FailAllow].Load(), admitted[weir.FailDeny].Load(), admitted[weir.FailLocal].Load(); a < 1000 || d != 0 || l != c.local {
				t.Errorf("%s: admitted in the outage: %d by allow, %d by deny, %d by the share", c.limit, a, d, l)
			}
			if told.Load() != degraded.Load() {
				t.Errorf("%d degraded calls, and the observer was told of %d", degraded.Load(), told.Load())
			}
			<-time.After(2 * deadline)
			synctest.Wait()
			if n := runtime.NumGoroutine(); n > rest+1 {
				t.Errorf("%d goroutines, %d before", n, rest)
			}

			store.silent.Store(false)
			<-time.After(2 * time.Second)
			for _, op := range ops {
				if d, err := take(op, deadline); err != nil || d.Degraded {
					t.Errorf("after two seconds: %+v, %v", d, err)
				}
			}
			each, err := lim.Peek(t.Context(), ops...)
			if err != nil {
				t.Fatal(err)
			}
			// The first call and the last; those that were sent to the silent store
			// did not reach it.
			for i, want := range []int64{2, 2, 2, 2 + c.used} {
				if each[i].Used != want {
					t.Errorf("%s, mode %d: %d are used, want %d", c.limit, i, each[i].Used, want)
				}
			}
			if st := lim.Stats(); st.Skipped < 1000 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Half of the processes lose the store, again and again. In every interval what
// all of them admit is at most the limit and, for each outage of a process, its
// share; after an outage nobody is refused for it in the next window.
func TestCase_B053_Partitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, outages = 4, 20
		store := newLossy(nil, 0).undisturbed()
		rate, share := limit(t, "40/s burst 40"), limit(t, "10/s burst 10")
		op := weir.Op{Limit: rate, Local: share, Key: someone, OnFail: weir.FailLocal}
		var ways []*away
		var lims []*weir.Limiter
		for range processes {
			way := &away{lossy: store}
			ways = append(ways, way)
			lims = append(lims, weir.NewLimiter(way, weir.Options{}))
		}
		var mu sync.Mutex
		var log []storetest.Admission
		degraded := 0
		attack := func(d time.Duration) {
			end := time.Now().Add(d)
			crowd(processes, func(i int) {
				for time.Now().Before(end) {
					from := time.Now().UnixNano()
					d, err := lims[i].Take(t.Context(), op)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						mu.Lock()
						log = append(log, storetest.Admission{From: from, To: time.Now().UnixNano(), Cost: 1})
						if d.Degraded {
							degraded++
						}
						mu.Unlock()
					}
					<-time.After(4 * time.Millisecond)
				}
			})
		}
		for range outages {
			from := len(log)
			attack(500 * time.Millisecond)
			ways[0].broken.Store(true)
			ways[1].broken.Store(true)
			attack(2 * time.Second)
			ways[0].broken.Store(false)
			ways[1].broken.Store(false)
			attack(1500 * time.Millisecond)
			// Two shares, of 10 at once and 10 a second for as long as the outage
			// and the last pause of the breaker last.
			slack := int64(2 * (10 + 10*3))
			if err := (storetest.Bound{Burst: 40 + slack, Tokens: 40, Per: time.Second}).Check(log[from:]); err != nil {
				t.Error(err)
			}
			if n := len(log) - from; n < 40*4 {
				t.Errorf("%d admitted in four seconds", n)
			}
			<-time.After(3 * time.Second)
			for range 40 {
				if d, err := lims[0].Take(t.Context(), op); err != nil || !d.Allowed || d.Degraded {
					t.Fatalf("refused for an outage that is over: %+v, %v", d, err)
				}
			}
			<-time.After(time.Second)
		}
		if degraded < outages*40 {
			t.Errorf("%d were decided by a share", degraded)
		}
	})
}

// A flood of refusals costs no retry: after each, a blip of the store is got over
// as if nothing had been.
func TestRefusalsCostNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLossy(nil, 0).undisturbed()
		blip := 0
		way := trips(func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
			if blip--; blip >= 0 {
				return -1, 0, fmt.Errorf("reset: %w", weir.ErrOutcomeUnknown)
			}
			return store.Apply(ctx, item, tries, state)
		})
		lim := weir.NewLimiter(way, weir.Options{NoMemo: true})
		empty, free := weir.Op{Limit: limit(t, "1/d burst 1", "empty"), Key: someone}, weir.Op{Limit: limit(t, "quota 1000/d", "free"), Key: weir.NewKey("account", "b")}
		if d, err := lim.Take(t.Context(), empty); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		for range 100 {
			for range 200 {
				if d, err := lim.Take(t.Context(), empty); err != nil || d.Allowed {
					t.Fatal(d, err)
				}
			}
			blip = 3
			if d, err := lim.Take(t.Context(), free); err != nil || !d.Allowed || d.Degraded {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	})
}

// trips is a store of one func.
type trips func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error)

func (trips) Caps() weir.Caps { return weir.Caps{OwnClock: true, LossyReplies: true} }
func (trips) Close() error    { return nil }
func (f trips) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	return f(ctx, item, tries, state)
}

// B143: a share is for failures. A refusal of the store is one, whatever the
// share would allow; and a failed call is not decided by the share of another.
func TestCase_B143_AShareIsForFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAway()
		lim := weir.NewLimiter(store, weir.Options{})
		op := weir.Op{Limit: limit(t, "quota 2/h"), Local: limit(t, "quota 2/h"), Key: someone, OnFail: weir.FailLocal}
		for n := range 5 {
			if d, err := lim.Take(t.Context(), op); err != nil || d.Allowed != (n < 2) || d.Degraded {
				t.Errorf("call %d: %+v, %v", n, d, err)
			}
		}
		store.broken.Store(true)
		strict := op
		strict.Limit, strict.OnFail = limit(t, "quota 9/h", "strict"), weir.FailDeny
		<-time.After(2 * time.Second)
		if d, err := lim.Take(t.Context(), op, strict); err != nil || d.Allowed || d.Reason != weir.ReasonUnavailable {
			t.Errorf("%+v, %v", d, err)
		}
		strict.OnFail = weir.FailError
		if _, err := lim.Take(t.Context(), op, strict); !errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
		d, err := lim.Take(t.Context(), op)
		if err != nil || !d.Allowed || !d.Degraded {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

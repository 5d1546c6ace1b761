package dynamostore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/storetest"
)

// crowd lets callers take at once, each several times, and counts.
func crowd(tb testing.TB, callers, each int, take func(caller int) (weir.Decision, error)) (allowed, refused int) {
	tb.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for range each {
				d, err := take(n)
				mu.Lock()
				switch {
				case err != nil:
					tb.Error(err)
				case d.Allowed:
					allowed++
				case d.Reason == weir.ReasonLimit:
					refused++
				default:
					tb.Errorf("%+v", d)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return allowed, refused
}

// B040, B077: at a window's edge, with the item deleted in between or not,
// callers below the limit are not refused, and none is admitted beyond it.
func TestCase_B040_B077_WindowEdgeUnderACrowd(t *testing.T) {
	for i, text := range []string{"quota 100/m", "quota 100/m calendar"} {
		limit := parse(t, fmt.Sprintf("edge-%d", i), text)
		x := newTimed(t, servers.full, limit)
		op := weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint("edge", i))}
		for window := range 4 {
			allowed, refused := crowd(t, 30, 2, func(int) (weir.Decision, error) { return x.limiter.Take(context.Background(), op) })
			if allowed != 60 || refused != 0 {
				t.Errorf("%s, window %d: %d of 60 allowed", text, window, allowed)
			}
			allowed, _ = crowd(t, 30, 2, func(int) (weir.Decision, error) { return x.limiter.Take(context.Background(), op) })
			if allowed != 40 {
				t.Errorf("%s, window %d: %d of the 40 left were allowed", text, window, allowed)
			}
			x.clock.advance(time.Minute)
			if window == 2 {
				x.delete(op.Key)
			}
		}
	}
}

// B043, B044, B049: while the bucket refills under 64 callers in two processes,
// nothing is minted and nothing is lost: what is admitted is the burst and what
// has refilled, to the unit, and what is left is the rest.
func TestCase_B043_B044_B049_RefillUnderACrowd(t *testing.T) {
	const burst, rate = 50, 8 // a unit every 125 ms
	limit := parse(t, "refilled", fmt.Sprintf("%d/s burst %d", rate, burst))
	x := newTimed(t, servers.full, limit)
	second := limiterOn(open(t, clientOf(t, servers.full, nil), dynamostore.Options{Now: x.clock.now}), weir.Options{Now: x.clock.now})
	limiters := []*weir.Limiter{x.limiter, second}
	op := weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")}
	var log []storetest.Admission
	total, fits := 0, burst
	for phase := range 8 {
		allowed, _ := crowd(t, 64, 1, func(n int) (weir.Decision, error) { return limiters[n%2].Take(context.Background(), op) })
		total += allowed
		if allowed != min(64, fits) {
			t.Errorf("phase %d: %d allowed, and %d fit", phase, allowed, fits)
		}
		log = append(log, storetest.Admission{From: x.clock.now(), To: x.clock.now(), Cost: int64(allowed)})
		x.clock.advance(time.Duration(1+phase) * 250 * time.Millisecond)
		fits = min(burst, fits-allowed+2*(1+phase))
	}
	if err := (storetest.Bound{Burst: burst, Tokens: rate, Per: time.Second}).Check(log); err != nil {
		t.Error(err)
	}
	if got := used(t, x.limiter, op); got != int64(burst-fits) {
		t.Errorf("%d are used after %d were admitted, want %d", got, total, burst-fits)
	}
}

// B056, B208: callers that lose to each other on a hot key far below its limit
// are neither refused nor told that the store is busy, also while the limit is
// changed under them; and no transaction is used.
func TestCase_B056_B208_HotKeyBelowItsLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		f := newFaulty(t, server)
		for i, text := range everyKind {
			old := parse(t, fmt.Sprintf("hot-%d", i), text)
			wide := parse(t, fmt.Sprintf("hot-%d", i), map[string]string{
				"1/d burst 10": "10/d burst 100000", "quota 10/d": "quota 100000/d",
				"quota 10/year calendar": "quota 100000/year calendar", "sliding 10/90d": "sliding 100000/90d",
			}[text]).Revised(1, weir.KeepUsed)
			key := weir.NewKey("account", text)
			take(t, f.limiter, weir.Op{Limit: old, Key: key})
			limiters := []*weir.Limiter{f.limiter, f.other}
			allowed, refused := crowd(t, 64, 3, func(n int) (weir.Decision, error) {
				return limiters[n%2].Take(context.Background(), weir.Op{Limit: wide, Key: key})
			})
			if allowed != 64*3 || refused != 0 {
				t.Errorf("%s: %d of %d allowed, %d refused", text, allowed, 64*3, refused)
			}
			f.wantUsed(weir.Op{Limit: wide, Key: key}, 64*3+1)
		}
		if n := f.through.Calls("TransactWriteItems"); n > 0 {
			t.Errorf("%d transactions", n)
		}
	})
}

// B047: an observer may call whatever it likes.
func TestCase_B047_ObserverCallsBack(t *testing.T) {
	ctx := context.Background()
	limit := parse(t, "observed", "1/d burst 100")
	inner := weir.Op{Limit: limit, Key: weir.NewKey("account", "inner")}
	var store *dynamostore.Store
	var limiter *weir.Limiter
	var again sync.Mutex // held while the observer itself calls
	calls := 0
	back := func() {
		if !again.TryLock() {
			return
		}
		defer again.Unlock()
		calls++
		if _, err := limiter.Take(ctx, inner); err != nil {
			t.Error(err)
		}
		if _, err := limiter.Peek(ctx, inner); err != nil {
			t.Error(err)
		}
		if err := limiter.Reset(ctx, inner.Key); err != nil {
			t.Error(err)
		}
		store.Skew()
		store.Caps()
	}
	o := &weir.Observer{
		Trip:    func(context.Context, weir.Trip) { back() },
		Decided: func(context.Context, weir.Op, weir.Decision) { back() },
	}
	open(t, clientOf(t, servers.full, nil), dynamostore.Options{})
	store, err := dynamostore.New(clientOf(t, servers.full, nil), dynamostore.Options{Table: tableOf(t), Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	limiter = limiterOn(store, weir.Options{Observer: o})
	if d := take(t, limiter, weir.Op{Limit: limit, Key: weir.NewKey("account", "outer")}); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if calls != 2 { // of the trip, and of the decision
		t.Errorf("the observer was called %d times", calls)
	}
}

// B152: a server that never sends the old item is asked for it; one that does
// is believed when it sends none.
func TestCase_B152_OldItemThatIsNotSent(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		f := newFaulty(t, server)
		f.limiter = limiterOn(f.store, weir.Options{NoCoalescing: true}) // and so no memo: every call asks
		limit := parse(t, "old", "1/d burst 1")
		op := weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")}
		take(t, f.other, op)
		for range 5 {
			if d := take(t, f.limiter, op); d.Allowed || d.Remaining != 0 || d.RetryAfter <= 23*time.Hour || d.RetryAfter > 24*time.Hour || d.Unknown {
				t.Errorf("%+v", d)
			}
		}
		wantReads := 0
		if server == servers.plain {
			wantReads = 5
		}
		if n := f.through.Calls("GetItem"); n != wantReads {
			t.Errorf("%d reads for 5 refusals, want %d", n, wantReads)
		}
		// A failed condition on an item that is not there.
		field, ok := weir.ParseField("old.t")
		if !ok {
			t.Fatal("old.t is no field")
		}
		w := []weir.Write{{If: []weir.Cond{{Field: field, Cmp: 1}}, Do: []weir.Act{{Field: field, Do: 1}}, Keep: time.Hour}}
		var state weir.Cells
		if applied, _, err := f.store.Apply(context.Background(), weir.NewKey("account", "nobody"), w, &state); applied != -1 || err != nil || state.Len() != 0 {
			t.Errorf("%d, %v, %d fields", applied, err, state.Len())
		}
		if server == servers.plain {
			wantReads++
		}
		if n := f.through.Calls("GetItem"); n != wantReads {
			t.Errorf("%d reads, want %d", n, wantReads)
		}
	})
}

// B205: every caller has a partition key of his own.
func TestCase_B205_CallersDontShareAPartition(t *testing.T) {
	client := clientOf(t, servers.full, nil)
	l := limiterOn(open(t, client, dynamostore.Options{}), weir.Options{})
	limit := parse(t, "apart", "1/d")
	const callers = 40
	for n := range callers {
		take(t, l, weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint(n))})
	}
	table := tableOf(t)
	out, err := client.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table})
	if err != nil || len(out.Items) != callers {
		t.Errorf("%d partition keys for %d callers, %v", len(out.Items), callers, err)
	}
}

// Processes whose clocks differ by d add at most d x rate, once: the excess does
// not grow with the time that they run.
func TestClocksThatDifferAddOnce(t *testing.T) {
	const burst, rate, apart = 20, 4, 5 * time.Second
	limit := parse(t, "skewed", fmt.Sprintf("%d/s burst %d", rate, burst))
	x := newTimed(t, servers.full, limit)
	ahead := func() int64 { return x.clock.now() + int64(apart) }
	other := limiterOn(open(t, clientOf(t, servers.full, nil), dynamostore.Options{Now: ahead}), weir.Options{Now: ahead})
	op := weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")}
	var log []storetest.Admission
	for range 60 {
		for _, l := range []*weir.Limiter{x.limiter, other} {
			allowed, _ := crowd(t, 8, 1, func(int) (weir.Decision, error) { return l.Take(context.Background(), op) })
			log = append(log, storetest.Admission{From: x.clock.now(), To: x.clock.now(), Cost: int64(allowed)})
		}
		x.clock.advance(500 * time.Millisecond)
	}
	extra := int64(apart/time.Second) * rate
	if err := (storetest.Bound{Burst: burst + extra, Tokens: rate, Per: time.Second}).Check(log); err != nil {
		t.Error(err)
	}
	if err := (storetest.Bound{Burst: burst, Tokens: rate, Per: time.Second}).Check(log); err == nil {
		t.Error("the clocks made no difference: that tests nothing")
	}
}

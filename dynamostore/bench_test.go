package dynamostore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/storetest"
)

// workload is what a scheme is measured on.
type workload struct {
	name    string
	burst   int64
	tokens  int64 // that refill in per
	per     time.Duration
	callers int
	key     func(call int64) string
	warm    int           // keys that are taken from once before
	offered int           // calls a second; 0 is as many as there can be
	spared  bool          // the limit is never reached, so that every denial is false
	bar     float64       // writes per allowed call that ours may cost; 0 is no bar
	lasts   time.Duration // of the measurement
}

// scheme decides one call. A denial is false when the state by which it was
// decided had a token.
type scheme interface {
	take(ctx context.Context, key string) (allowed, falsely bool, err error)
}

// spent is what one call cost. It travels in the call's context.
type spent struct {
	mu            sync.Mutex
	trips         int
	reads, writes float64
	falsely       bool
}

type spentKey struct{}

func observeSpent() *weir.Observer {
	return &weir.Observer{Trip: func(ctx context.Context, t weir.Trip) {
		if s, ok := ctx.Value(spentKey{}).(*spent); ok {
			s.add(t.ReadUnits, t.WriteUnits)
		}
	}}
}

func (s *spent) add(reads, writes float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trips++
	s.reads += reads
	s.writes += writes
}

// guarded is weir: one guarded write.
type guarded struct {
	limiter *weir.Limiter
	limit   weir.Limit
}

func newGuarded(b *testing.B, client *dynamodb.Client, table string, w workload) scheme {
	text := fmt.Sprintf("%d/%ds burst %d", w.tokens, w.per/time.Second, w.burst)
	limit := parse(b, "bench", text)
	arrival, ok := weir.ParseField("bench.t")
	if !ok {
		b.Fatal("bench.t is no field")
	}
	store := open(b, client, dynamostore.Options{Table: table, Observer: observeSpent()})
	interval := int64(w.per) / w.tokens
	return guarded{limiterOn(judge{store, arrival, interval, interval * w.burst}, weir.Options{Limits: []weir.Limit{limit}}), limit}
}

func (g guarded) take(ctx context.Context, key string) (allowed, falsely bool, err error) {
	d, err := g.limiter.Take(ctx, weir.Op{Limit: g.limit, Key: weir.NewKey("account", key)})
	s := ctx.Value(spentKey{}).(*spent)
	return d.Allowed, err == nil && !d.Allowed && (d.Reason != weir.ReasonLimit || s.falsely), err
}

// judge looks over a store's shoulder: had the last state that it returned room
// for one more unit?
type judge struct {
	weir.Store
	arrival         weir.Field
	interval, depth int64
}

func (j judge) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	applied, now, err := j.Store.Apply(ctx, item, tries, state)
	if s, ok := ctx.Value(spentKey{}).(*spent); ok && err == nil {
		t, there := state.Get(j.arrival)
		s.falsely = !there || t+j.interval <= now+j.depth
	}
	return applied, now, err
}

// result is what a workload showed of a scheme.
type result struct {
	elapsed time.Duration
	calls   [2][]*spent // denied, allowed
	took    []time.Duration
	falsely int
	log     []storetest.Admission
}

func measure(b *testing.B, w workload, s scheme) *result {
	b.Helper()
	do := func(n int64) (from, to time.Time, c *spent, allowed, falsely bool) {
		c = new(spent)
		from = time.Now()
		allowed, falsely, err := s.take(context.WithValue(context.Background(), spentKey{}, c), w.key(n))
		if err != nil {
			b.Error(err)
		}
		return from, time.Now(), c, allowed, falsely
	}
	for n := range w.warm {
		do(int64(n))
	}
	r := &result{}
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range w.callers {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				if w.offered > 0 {
					due := start.Add(time.Duration(n) * time.Second / time.Duration(w.offered))
					<-time.After(time.Until(due))
				}
				if time.Since(start) >= w.lasts {
					return
				}
				from, to, c, allowed, falsely := do(n)
				mu.Lock()
				r.took = append(r.took, to.Sub(from))
				kind := 0
				if allowed {
					kind = 1
					r.log = append(r.log, storetest.Admission{From: from.UnixNano(), To: to.UnixNano(), Cost: 1})
				}
				r.calls[kind] = append(r.calls[kind], c)
				if falsely || !allowed && w.spared {
					r.falsely++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.elapsed = time.Since(start)
	slices.Sort(r.took)
	return r
}

// each is what a call cost on average.
func each(calls []*spent) (reads, writes, trips float64) {
	for _, c := range calls {
		reads += c.reads
		writes += c.writes
		trips += float64(c.trips)
	}
	n := float64(max(1, len(calls)))
	return reads / n, writes / n, trips / n
}

func costs(calls []*spent) string {
	if len(calls) == 0 {
		return "-"
	}
	reads, writes, trips := each(calls)
	return fmt.Sprintf("%.2f / %.2f / %.2f", reads, writes, trips)
}

func (r *result) at(share float64) string {
	if len(r.took) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.took[int(share*float64(len(r.took)-1))].Seconds()*1e3)
}

// BenchmarkDynamo prints what decisions cost on a real table, beside the scheme
// that is usual there: read, write on condition that the version is still the
// same, three attempts, then deny. It fails when weir crosses a bar.
func BenchmarkDynamo(b *testing.B) {
	cold := func(n int64) string { return "cold-" + strconv.FormatInt(n, 10) }
	of200 := func(n int64) string { return "warm-" + strconv.FormatInt(n%200, 10) }
	hot := func(int64) string { return "hot" }
	workloads := []workload{
		{name: "cold keys", burst: 10, tokens: 1, per: 2 * time.Second, callers: 16, key: cold, bar: 1.05},
		{name: "warm keys, full again", burst: 10, tokens: 1_000_000, per: time.Second, callers: 16, key: of200, warm: 200, spared: true, bar: 1.05},
		{name: "warm keys, partly used", burst: 1_000_000, tokens: 1, per: 60 * time.Second, callers: 16, key: of200, warm: 200, spared: true},
		{name: "hot key below its limit", burst: 1_000_000, tokens: 1000, per: time.Second, callers: 64, key: hot, warm: 1, spared: true},
		{name: "hot key at 100 x its limit", burst: 10, tokens: 10, per: time.Second, callers: 64, key: hot, offered: 1000},
	}
	client := clientOf(b, servers.full, nil)
	var out strings.Builder
	rows := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "workload\tscheme\tcalls/s\tallowed\tdenied\treads / writes / trips per allowed\tper denied\tms p50\tp99\tfalse denials\tallowed <= burst + rate x time")
	for i, w := range workloads {
		w.lasts = 3 * time.Second
		for _, name := range []string{"weir", "classic"} {
			table := fmt.Sprintf("bench-%s-%d", name, i)
			var s scheme
			if name == "weir" {
				s = newGuarded(b, client, table, w)
			} else {
				s = newClassic(b, client, table, w)
			}
			r := measure(b, w, s)
			holds := "not asked: many keys"
			if w.key(0) == w.key(1) { // one key, and so one limit
				holds = "holds"
				if err := (storetest.Bound{Burst: w.burst, Tokens: w.tokens, Per: w.per}).Check(r.log); err != nil {
					holds = err.Error()
				}
			}
			allowed, denied := r.calls[1], r.calls[0]
			fmt.Fprintf(rows, "%s\t%s\t%.0f\t%d\t%d\t%s\t%s\t%s\t%s\t%d (%.1f%%)\t%s\n", w.name, name, float64(len(r.took))/r.elapsed.Seconds(), len(allowed), len(denied),
				costs(allowed), costs(denied), r.at(0.5), r.at(0.99), r.falsely, 100*float64(r.falsely)/float64(max(1, len(r.took))), holds)
			if name != "weir" {
				continue
			}
			reads, writes, _ := each(allowed)
			if w.bar > 0 && (reads > 0 || writes > w.bar) {
				b.Errorf("%s: %.2f reads and %.2f writes per allowed call; at most 0 and %.2f are right", w.name, reads, writes, w.bar)
			}
			if r.falsely > 0 || strings.Contains(holds, "units in") || len(allowed) == 0 {
				b.Errorf("%s: %d false denials, %d allowed, bound: %s", w.name, r.falsely, len(allowed), holds)
			}
		}
	}
	rows.Flush()
	fmt.Fprint(os.Stdout, "\n", out.String())
}

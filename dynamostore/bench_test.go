package dynamostore_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/storetest"
)

// workload is what a scheme is measured on.
type workload struct {
	name      string
	burst     int64
	tokens    int64 // that refill in per
	per       time.Duration
	processes int // with callers each; 0 is this one
	callers   int
	keys      int  // 0: a new one for every call; 1 is a hot key
	warm      bool // every key is taken from once before
	offered   int  // calls a second of all processes; 0 is as many as there can be
	spared    bool // the limit is never reached, so that every denial is false
	bars      bars
}

// bars are what weir's own scheme may cost and must give. 0 is no bar.
type bars struct {
	writes  float64 // per allowed call
	denied  float64 // units per denied call
	granted float64 // of the limit
	perItem float64 // writes a second to one item
}

func (w workload) limit() string {
	return fmt.Sprintf("%d/%ds burst %d", w.tokens, w.per/time.Second, w.burst)
}

func (w workload) key(n int64) string {
	if w.keys > 0 {
		n %= int64(w.keys)
	}
	return strconv.FormatInt(n, 10)
}

var workloads = []workload{
	{name: "cold keys", burst: 10, tokens: 1, per: 2 * time.Second, callers: 16, spared: true, bars: bars{writes: 1.05}},
	{name: "warm keys, full again", burst: 10, tokens: 1_000_000, per: time.Second, callers: 16, keys: 200, warm: true, spared: true, bars: bars{writes: 1.05}},
	{name: "warm keys, partly used", burst: 1_000_000, tokens: 1, per: time.Minute, callers: 16, keys: 200, warm: true, spared: true, bars: bars{writes: 1.05}},
	{name: "hot key below its limit", burst: 1_000_000, tokens: 1000, per: time.Second, callers: 64, keys: 1, warm: true, spared: true, bars: bars{writes: 0.05, perItem: 1000}},
	{name: "hot key at 100 x its limit", burst: 100, tokens: 100, per: time.Second, callers: 64, keys: 1, offered: 10_000, bars: bars{denied: 0.01, granted: 0.99, perItem: 1000}},
	{name: "8 processes at 10 x the limit", burst: 200, tokens: 200, per: time.Second, processes: 8, callers: 8, keys: 1, offered: 2000, bars: bars{denied: 0.3, granted: 0.99, perItem: 1000}},
}

// result is what a workload showed of a scheme. A process sends its own home as
// JSON.
type result struct {
	Elapsed time.Duration
	Offered time.Duration // the time in which calls were offered
	First   time.Time     // when the first answer came: until then the bucket is full
	Refused time.Time     // when the last of the refused calls began: nothing was left
	Last    time.Time     // when the last call was allowed, or no more were offered
	Allowed cost
	Denied  cost
	Falsely int // denials that no state which was seen could justify
	Took    []time.Duration
	Log     []storetest.Admission
	Err     string
}

// cost is what calls of one outcome cost together.
type cost struct {
	Calls, Trips  int
	Reads, Writes float64
}

func (c *cost) add(o cost) {
	c.Calls += o.Calls
	c.Trips += o.Trips
	c.Reads += o.Reads
	c.Writes += o.Writes
}

// each is the reads and writes of one call on average.
func (c cost) each() (reads, writes float64) {
	n := float64(max(1, c.Calls))
	return c.Reads / n, c.Writes / n
}

func (c cost) String() string {
	if c.Calls == 0 {
		return "-"
	}
	reads, writes := c.each()
	return fmt.Sprintf("%.2f / %.3f / %.2f", reads, writes, float64(c.Trips)/float64(c.Calls))
}

// drive lets callers take for a time, from an instant on, and counts. A process
// is one of several that share what is offered.
func drive(w workload, s scheme, start time.Time, lasts time.Duration) *result {
	<-time.After(time.Until(start))
	start = time.Now()
	r := &result{Offered: lasts, Last: start.Add(lasts)}
	var mu sync.Mutex
	do := func(n int64) {
		from := time.Now()
		c := new(spent)
		allowed, falsely, err := s.take(context.WithValue(context.Background(), spentKey{}, c), w.key(n))
		to := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			r.Err = err.Error()
		}
		if len(r.Took) == 0 {
			r.First = to
		}
		r.Took = append(r.Took, to.Sub(from))
		if allowed {
			r.Allowed.add(c.cost())
			r.Last = later(r.Last, to)
			if w.keys == 1 {
				r.Log = append(r.Log, storetest.Admission{From: from.UnixNano(), To: to.UnixNano(), Cost: 1})
			}
			return
		}
		r.Denied.add(c.cost())
		r.Refused = later(r.Refused, from)
		if falsely || w.spared {
			r.Falsely++
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range w.callers {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				if w.offered > 0 {
					due := start.Add(time.Duration(n) * time.Second * time.Duration(max(1, w.processes)) / time.Duration(w.offered))
					<-time.After(time.Until(due))
				}
				if time.Since(start) >= lasts {
					return
				}
				do(n)
			}
		})
	}
	wg.Wait()
	r.Elapsed = time.Since(start)
	return r
}

// measure runs a workload on a table of its own.
func measure(tb testing.TB, server *dynalite.Server, w workload, scheme, table string, delay, lasts time.Duration) *result {
	tb.Helper()
	setup := setup{URL: server.URL, Table: table, Scheme: scheme, Delay: delay, Lasts: lasts}
	s, err := setup.create(w)
	if err != nil {
		tb.Fatal(err)
	}
	if w.warm {
		var wg sync.WaitGroup
		for n := range w.keys {
			wg.Go(func() {
				ctx := context.WithValue(context.Background(), spentKey{}, new(spent))
				if _, _, err := s.take(ctx, w.key(int64(n))); err != nil {
					tb.Error(err)
				}
			})
		}
		wg.Wait()
	}
	var r *result
	if w.processes == 0 {
		r = drive(w, s, time.Now(), lasts)
	} else {
		r = inProcesses(tb, w, setup)
	}
	if r.Err != "" {
		tb.Errorf("%s, %s: %s", w.name, scheme, r.Err)
	}
	slices.Sort(r.Took)
	return r
}

// granted is what was allowed of what the limit allows from the first answer on,
// until an instant.
func (r *result) granted(w workload, until time.Time) float64 {
	return float64(r.Allowed.Calls) / (float64(w.burst) + float64(w.tokens)*until.Sub(r.First).Seconds()/w.per.Seconds())
}

// free is how many calls had to be allowed before the last that was refused, at
// which nothing was left: at some time before, the bucket was full for the last
// time, and from then on nothing is lost. Before that, a machine that is busy with
// other things may have made fewer calls than the limit allows.
func (r *result) free(w workload) float64 {
	slices.SortFunc(r.Log, func(a, b storetest.Admission) int { return cmp.Compare(a.To, b.To) })
	end, least := r.Refused.UnixNano(), math.Inf(1)
	for allowed, a := range r.Log {
		if a.To <= end {
			least = min(least, float64(allowed)+float64(w.burst)+float64(w.tokens)*float64(end-a.To)/float64(w.per))
		}
	}
	return least
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// bound is whether the limit held in every interval. The log of a hot key below
// its limit is not looked at: it can't reach it.
func (r *result) bound(w workload) string {
	if w.keys != 1 || w.spared {
		return "-"
	}
	if err := (storetest.Bound{Burst: w.burst, Tokens: w.tokens, Per: w.per}).Check(r.Log); err != nil {
		return err.Error()
	}
	return "holds"
}

func (r *result) perSecond(n float64) float64 { return n / r.Elapsed.Seconds() }

func (r *result) at(share float64) string {
	if len(r.Took) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.Took[int(share*float64(len(r.Took)-1))].Seconds()*1e3)
}

// check fails where weir crosses a bar. All of them are counts. What refills when no
// call is made is nobody's, and refusals are cheap on average where there are as many as
// are offered.
func (r *result) check(tb testing.TB, w workload, what string) {
	tb.Helper()
	reads, writes := r.Allowed.each()
	_, denied := r.Denied.each()
	item := 0.0
	if w.keys == 1 {
		item = r.perSecond(r.Allowed.Writes + r.Denied.Writes)
	}
	for _, bar := range []struct {
		name     string
		got, bar float64
		atLeast  bool
		seen     bool
	}{
		{"reads per allowed call", reads, 1e-9, false, true},
		{"writes per allowed call", writes, w.bars.writes, false, true},
		{"units per denied call", denied, w.bars.denied, false, r.pressed(w)},
		{"share of the limit that was granted", float64(r.Allowed.Calls) / r.free(w), w.bars.granted, true, r.Denied.Calls > 0},
		{"writes a second to one item", item, w.bars.perItem, false, true},
	} {
		if !bar.seen {
			continue
		}
		if bar.bar != 0 && (bar.atLeast && bar.got < bar.bar || !bar.atLeast && bar.got > bar.bar) {
			tb.Errorf("%s, %s: %s: %.4f, and the bar is %.4f", w.name, what, bar.name, bar.got, bar.bar)
		}
	}
	if b := r.bound(w); b != "-" && b != "holds" {
		tb.Errorf("%s, %s: %s", w.name, what, b)
	}
	if r.Falsely > 0 || r.Allowed.Calls == 0 || w.bars.denied > 0 && r.Denied.Calls == 0 && r.pressed(w) {
		tb.Errorf("%s, %s: %d allowed, %d denied, %d falsely", w.name, what, r.Allowed.Calls, r.Denied.Calls, r.Falsely)
	}
}

// pressed reports whether the machine made about as many calls as the workload
// offers, so that the limit had to refuse most of them. One that is busy with other
// things does not.
func (r *result) pressed(w workload) bool {
	return w.offered == 0 || float64(r.Allowed.Calls+r.Denied.Calls) >= 0.8*float64(w.offered)*r.Offered.Seconds()
}

// table prints results side by side.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t, "workload\tadded\tscheme\tcalls/s\tallowed\tdenied\treads / writes / trips per allowed\tper denied\tfalse denials\tof the limit\twrites/s\tms p50\tp99\tallowed <= burst + rate x time")
	return t
}

func (t table) row(w workload, added time.Duration, scheme string, r *result) {
	limit := "-"
	if w.keys == 1 && !w.spared {
		limit = fmt.Sprintf("%.1f%%", 100*r.granted(w, r.Last))
	}
	fmt.Fprintf(t, "%s\t%v\t%s\t%.0f\t%d\t%d\t%s\t%s\t%d (%.1f%%)\t%s\t%.0f\t%s\t%s\t%s\n", w.name, added, scheme, r.perSecond(float64(len(r.Took))), r.Allowed.Calls, r.Denied.Calls,
		r.Allowed, r.Denied, r.Falsely, 100*float64(r.Falsely)/float64(max(1, len(r.Took))), limit, r.perSecond(r.Allowed.Writes+r.Denied.Writes), r.at(0.5), r.at(0.99), r.bound(w))
}

// BenchmarkDynamo prints what decisions cost on a real table, in three schemes
// side by side and with two lengths of the way there:
//   - classic is usual there: read, write on condition that the version is still
//     the same, three attempts, then deny;
//   - one write is weir without its pipeline;
//   - weir is weir as it comes.
//
// It fails when weir crosses a bar.
func BenchmarkDynamo(b *testing.B) {
	rows := newTable(os.Stdout)
	fmt.Println()
	for i, w := range workloads {
		for _, added := range []time.Duration{0, 4 * time.Millisecond} {
			for _, scheme := range []string{"classic", "one write", "weir"} {
				r := measure(b, servers.full, w, scheme, fmt.Sprintf("%s-%d-%s-%d", tableOf(b), i, scheme[:3], added), added, 3*time.Second)
				rows.row(w, added, scheme, r)
				if scheme == "weir" {
					r.check(b, w, fmt.Sprint("with ", added, " added"))
				}
			}
		}
	}
	rows.Flush()
}

// The counts of the benchmark, in a short form: what weir's own scheme costs.
func TestCostBars(t *testing.T) {
	for i, w := range workloads {
		lasts := time.Second
		if w.offered > 0 {
			lasts = 2 * time.Second
		}
		r := measure(t, servers.full, w, "weir", fmt.Sprint(tableOf(t), i), 0, lasts)
		r.check(t, w, "in short")
		t.Logf("%s: %d allowed at %s, %d denied at %s, %.1f%% of the limit, %.0f writes/s", w.name, r.Allowed.Calls, r.Allowed, r.Denied.Calls, r.Denied,
			100*r.granted(w, r.Last), r.perSecond(r.Allowed.Writes+r.Denied.Writes))
	}
}

package bench_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/bench/measure"
	"github.com/weirlabs/weir/bench/middleware"
	"github.com/weirlabs/weir/bench/remote"
	"github.com/weirlabs/weir/bench/report"
	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/memstore"
)

func onRedis(b *testing.B, r *report.Report) {
	const keys = 10_000
	ctx := context.Background()
	server := redistest.Start(b, redistest.Options{})
	speed := report.Section{Title: "On Redis", Intro: "Decisions a second in a closed loop, client and server on the same processors; 10,000 keys (Zipf, s = 1.1). \"Every call asks\" is NoCoalescing: each call is a write of its own, and nothing is remembered. As it comes, weir sends calls for one key together and remembers a refusal for a second at most. The first floor sends, for every call, the script that weir sends for one, recorded, with every argument prepared; the second a script that decides with a single integer. Both go through the same client, a script for each call, as anybody sends one; weir has calls that wait at the same time share a script, and so can be above its floor."}
	wait := report.Section{Title: "On Redis, waiting", Intro: "The time within which 99 of 100 decisions of the table above were answered."}
	names := inproc.Keys(keys)
	for _, want := range []bool{true, false} {
		limit, mode := inproc.Never, "allowed"
		if !want {
			limit, mode = inproc.Once, "refused"
		}
		for _, callers := range []int{64, 256} {
			peers := remote.Peers()
			rates, p99, cpu := make([]samples, len(peers)), make([]samples, len(peers)), make([]float64, len(peers))
			for range *rounds {
				for i, p := range peers {
					server.Do(b, "FLUSHALL")
					instance, err := p.Start(ctx, server.Addr, callers, limit, names)
					if err != nil {
						b.Fatal(err)
					}
					measure.Heap()
					got := remote.Run(ctx, instance, keys, callers, 5**turn, want)
					instance.Close()
					c := measure.Cost{Wrong: got.Wrong, Calls: got.Calls}
					rates[i].add(got.PerSecond, c)
					rates[i].errors += got.Errors
					p99[i].add(got.P99, measure.Cost{})
					cpu[i] += got.CPU / float64(*rounds)
				}
			}
			what := fmt.Sprintf("%d callers, %s", callers, mode)
			// Each of weir's three is held against the same rows.
			for _, of := range []struct{ name, what string }{{remote.Default, ""}, {remote.Weir, ", every call asks"}, {remote.Store, ", store alone"}} {
				var rows, waits []report.Row
				name := what + of.what
				for i, p := range peers {
					ours := strings.HasPrefix(p.Name, "weir")
					if ours && p.Name != of.name {
						continue
					}
					row, late := rates[i].row(name, p.Name, "/s"), p99[i].row(name, p.Name, "us")
					if ours {
						row.Note = strings.TrimPrefix(fmt.Sprintf("%s, %.1f us of the client's processor", row.Note, cpu[i]), ", ")
					}
					rows, waits = append(rows, row), append(waits, late)
				}
				speed.Rows = append(speed.Rows, compare(rows, map[string]*report.Bar{
					remote.Raw: report.AtLeast(0.93), remote.Minimal: report.AtLeast(0.80), remote.RedisRate: report.AtLeast(2.1)})...)
				wait.Rows = append(wait.Rows, compare(waits, map[string]*report.Bar{remote.Raw: report.AtMost(1.3)})...)
			}
			for i, p := range peers {
				if strings.HasPrefix(p.Name, "weir") {
					speed.Rows = append(speed.Rows, report.Row{What: what, Who: p.Name, Median: float64(rates[i].errors + rates[i].wrong), Unit: "errors and wrong answers", Bar: report.AtMost(0)})
				}
			}
		}
	}
	r.Add(speed)
	r.Add(wait)
}

func overHTTP(b *testing.B, r *report.Report) {
	s := report.Section{Title: "net/http middleware", Intro: "Processor time of one request from handler to recorder, limit by address, not reached, header fields as they come. \"Over bare\" is what the middleware adds. One caller on one connection, and then two thousand in turn, each of whom everybody has to find anew. A refusal has a body: weir's is JSON with the reason, the wait and an id, the rivals' a line of text."}
	peers := middleware.Peers()
	one := requests(b, peers, 1, inproc.Never)
	var rows, over []report.Row
	bare, _, _ := measure.Median(one[0].figures)
	bareAllocs, _, _ := measure.Median(one[0].allocs)
	for i, p := range peers {
		row := one[i].row("request", p.Name, "ns")
		rows = append(rows, row)
		if i == 0 {
			continue
		}
		allocs, _, _ := measure.Median(one[i].allocs)
		added := report.Row{What: "over bare", Who: p.Name, Median: row.Median - bare, Unit: "ns"}
		more := report.Row{What: "over bare", Who: p.Name, Median: math.Round(allocs - bareAllocs), Unit: "allocations"}
		if p.Name == middleware.Weir {
			added.Bar, more.Bar = report.AtMost(600), report.AtMost(5)
		} else {
			added.Ratio = over[0].Median / added.Median
		}
		over = append(over, added, more)
	}
	for _, more := range []struct {
		what    string
		callers int
		limit   inproc.Limit
	}{{"over bare, 2,000 callers", 2000, inproc.Never}, {"refused, over bare", 1, inproc.Once}} {
		times := requests(b, peers, more.callers, more.limit)
		bare, _, _ := measure.Median(times[0].figures)
		first := 0.0
		for i, p := range peers[1:] {
			median, _, _ := measure.Median(times[i+1].figures)
			added := report.Row{What: more.what, Who: p.Name, Median: median - bare, Unit: "ns"}
			if first == 0 {
				first = added.Median
			} else {
				added.Ratio = first / added.Median
			}
			over = append(over, added)
		}
	}
	s.Rows = append(rows, over...)
	r.Add(s)
}

// requests measures a request behind each peer, with callers in turn. Only with the
// limit Once, and by all but the bare handler, they are refused.
func requests(b *testing.B, peers []middleware.Peer, callers int, limit inproc.Limit) []samples {
	times := make([]samples, len(peers))
	sequence := inTurn(callers)
	sent := make([]*http.Request, callers)
	for i := range sent {
		sent[i] = httptest.NewRequest("GET", "/v1/things", nil)
		sent[i].RemoteAddr = fmt.Sprintf("10.0.%d.%d:%d", i>>8, i&255, 20_000+i*7919%30_000)
	}
	for range *rounds {
		for i, p := range peers {
			h, err := p.Wrap(limit, middleware.Handler())
			if err != nil {
				b.Fatal(err)
			}
			for n := range callers {
				middleware.Serve(h, sent[n])
			}
			status := http.StatusOK
			if limit == inproc.Once && p.Name != middleware.Bare {
				status = http.StatusTooManyRequests
			}
			take := func(caller int) bool { return middleware.Serve(h, sent[caller]) == status }
			measure.Heap()
			c := measure.Loop(1, 3**turn, sequence, true, take) // forty collections of garbage are too few to be alike
			times[i].add(c.CPU, c)
		}
	}
	return times
}

// onDisk measures the embedded store beside the memory store: served from
// memory and written behind, and waiting for the disk.
func onDisk(b *testing.B, r *report.Report) {
	s := report.Section{Title: "In a file", Intro: "boltstore beside memstore: processor time of one decision over a second, what is written behind included. 10,000 keys are Zipf's, s = 1.1; of more all come in turn, so that most or all are written twice a second. With sync=always 64 callers wait for the disk, and share the waits: each commit is two of them."}
	limit, err := inproc.WeirLimit(inproc.Never)
	if err != nil {
		b.Fatal(err)
	}
	const keys = 10_000
	s.Rows = append(s.Rows, behind(b, limit, "10,000 keys, allowed", keys, measure.Zipf(keys), report.AtMost(1.5))...)
	s.Rows = append(s.Rows, behind(b, limit, "100,000 keys in turn, allowed", 100_000, inTurn(100_000), nil)...)
	s.Rows = append(s.Rows, behind(b, limit, "1,000,000 keys in turn, allowed", 1_000_000, inTurn(1_000_000), nil)...)
	s.Rows = append(s.Rows, waiting(b, limit, "64 callers of a key each wait for the disk", 64)...)
	s.Rows = append(s.Rows, waiting(b, limit, "64 callers of one key wait for the disk", 1)...)
	r.Add(s)
}

// inTurn is every key below n, not in the order in which they were made.
func inTurn(n int) []uint32 {
	sequence := make([]uint32, n)
	for i := range sequence {
		sequence[i] = uint32(i * 7919 % n)
	}
	return sequence
}

// behind measures a store that writes behind, and the memory store in turns with it.
func behind(b *testing.B, limit weir.Limit, what string, keys int, sequence []uint32, bar *report.Bar) []report.Row {
	made := inproc.WeirKeys(inproc.Keys(keys))
	ctx := context.Background()
	file, err := boltstore.Open(filepath.Join(b.TempDir(), "weir.db"), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	stores := []struct {
		name  string
		store weir.Store
	}{{"memstore", memstore.New(memstore.Options{})}, {"boltstore, sync=interval", file}}
	times := make([]samples, len(stores))
	for range *rounds {
		for i, st := range stores {
			limiter := weir.NewLimiter(st.store, weir.Options{})
			take := func(key int) bool {
				d, err := limiter.Take(ctx, weir.Op{Limit: limit, Key: made[key]})
				return d.Allowed && err == nil
			}
			useUp(b, limiter, limit, made)
			if err := file.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			measure.Heap()
			began := measure.CPU()
			c := measure.Loop(1, time.Second, sequence, true, take)
			if err := file.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			times[i].add(float64(measure.CPU()-began)/float64(c.Calls), c)
		}
	}
	interval := times[1].row(what, stores[1].name, "ns")
	memory := times[0].row(what, stores[0].name, "ns")
	memory.Ratio, memory.Bar = interval.Median/memory.Median, bar
	return []report.Row{interval, memory}
}

// useUp takes so much from every key that none has refilled before the end:
// what has refilled would not be written.
func useUp(b *testing.B, limiter *weir.Limiter, limit weir.Limit, keys []weir.Key) {
	for _, key := range keys {
		d, err := limiter.Take(context.Background(), weir.Op{Limit: limit, Key: key, Cost: 1_000_000_000})
		if err != nil || !d.Allowed {
			b.Fatalf("%+v, %v", d, err)
		}
	}
}

// waiting measures a store whose callers wait for the disk.
func waiting(b *testing.B, limit weir.Limit, what string, keys int) []report.Row {
	made := inproc.WeirKeys(inproc.Keys(keys))
	ctx := context.Background()
	always, err := boltstore.Open(filepath.Join(b.TempDir(), "weir.db"), boltstore.Options{Sync: boltstore.SyncAlways})
	if err != nil {
		b.Fatal(err)
	}
	defer always.Close()
	limiter := weir.NewLimiter(always, weir.Options{Deadline: time.Minute})
	useUp(b, limiter, limit, made)
	var shared, rate samples
	for range *rounds {
		before, began := always.Stats().Commits, time.Now()
		var mu sync.Mutex
		var wg sync.WaitGroup
		takes := int64(0)
		for n := range 64 {
			wg.Go(func() {
				mine := int64(0)
				for time.Since(began) < 5**turn {
					if d, err := limiter.Take(ctx, weir.Op{Limit: limit, Key: made[n%keys]}); err != nil || !d.Allowed {
						b.Errorf("sync=always: %+v, %v", d, err)
						return
					}
					mine++
				}
				mu.Lock()
				takes += mine
				mu.Unlock()
			})
		}
		wg.Wait()
		c := measure.Cost{Calls: takes}
		shared.add(float64(takes)/float64(2*max(always.Stats().Commits-before, 1)), c)
		rate.add(float64(takes)/time.Since(began).Seconds(), c)
	}
	row := shared.row(what, "boltstore, sync=always", "takes a wait")
	row.Bar = report.AtLeast(20)
	return []report.Row{row, rate.row(what, "boltstore, sync=always", "/s")}
}

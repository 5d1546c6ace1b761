package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/internal/redistest"
)

// minimal decides one key with one integer, in microseconds, and little else:
// what any script that limits a rate must do.
const minimal = `local t=redis.call('TIME')
local now=t[1]*1000000+t[2]
local tat=tonumber(redis.call('GET',KEYS[1]) or now)
if tat<now then tat=now end
local new=tat+ARGV[1]
local over=new-now-ARGV[2]
if over>0 then return over end
redis.call('SET',KEYS[1],new,'PX',math.ceil((new-now)/1000))
return over`

const (
	benchKeys   = 10_000
	benchRounds = 5
	benchRound  = 400 * time.Millisecond
)

// peer decides one call on a key, given by its number, and says whether it is
// allowed.
type peer struct {
	name string
	take func(ctx context.Context, worker, key int) (bool, error)
}

// BenchmarkFloors measures the store in interleaved rounds against what it
// stands on: the same script sent by rueidis with prepared arguments, and a
// script that decides with a single integer. Keys are drawn from a Zipf
// distribution over 10,000. It reports decisions a second, medians of five
// rounds, the ratios, and the server's processor time for one.
func BenchmarkFloors(b *testing.B) {
	server := redistest.Start(b, redistest.Options{})
	for _, mode := range []string{"allow", "deny", "allow-resend"} {
		for _, callers := range []int{64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", mode, callers), func(b *testing.B) {
				for b.Loop() {
					floors(b, server, mode != "deny", mode == "allow-resend", callers)
				}
			})
		}
	}
}

func floors(b *testing.B, server *redistest.Server, allow, resend bool, callers int) {
	peers := benchPeers(b, server, allow, resend, callers)
	rates, costs := make([][]float64, len(peers)), make([][]float64, len(peers))
	for range benchRounds {
		for i, p := range peers {
			before := serverCPU(b, server)
			r := rate(b, p, allow, callers)
			rates[i] = append(rates[i], r)
			costs[i] = append(costs[i], (serverCPU(b, server)-before)*1e6/(r*benchRound.Seconds()))
		}
	}
	medians := make([]float64, len(peers))
	for i := range peers {
		slices.Sort(rates[i])
		slices.Sort(costs[i])
		medians[i] = rates[i][benchRounds/2]
		b.ReportMetric(medians[i], peers[i].name+"/s")
		b.ReportMetric(costs[i][benchRounds/2], peers[i].name+"-server-us")
	}
	b.ReportMetric(medians[0]/medians[1], "of-raw")
	b.ReportMetric(medians[0]/medians[2], "of-minimal")
	b.ReportMetric(0, "ns/op") // of all rounds: it means nothing
}

// serverCPU is the processor time that the server has used, in seconds.
func serverCPU(b *testing.B, server *redistest.Server) (sum float64) {
	for line := range strings.Lines(server.Do(b, "INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += s
		}
	}
	return sum
}

// rate runs callers in a closed loop for a round.
func rate(b *testing.B, p peer, allow bool, callers int) float64 {
	ctx := context.Background()
	var done, wrong atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	over := time.Now().Add(benchRound)
	for worker := range callers {
		wg.Go(func() {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(worker), 7)), 1.1, 1, benchKeys-1)
			for time.Now().Before(over) {
				for range 20 {
					ok, err := p.take(ctx, worker, int(zipf.Uint64()))
					if err != nil {
						failed.Store(&err)
						return
					}
					if ok != allow {
						wrong.Add(1)
					}
				}
				done.Add(20)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		b.Fatalf("%s: %v", p.name, *err)
	}
	if n := wrong.Load(); n > 0 {
		b.Fatalf("%s: %d of %d answers are wrong", p.name, n, done.Load())
	}
	return float64(done.Load()) / benchRound.Seconds()
}

func benchPeers(b *testing.B, server *redistest.Server, allow, resend bool, callers int) []peer {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	store, err := New(client, Options{Resend: resend})
	if err != nil {
		b.Fatal(err)
	}
	if err := client.Do(ctx, client.B().Flushall().Build()).Error(); err != nil {
		b.Fatal(err)
	}
	limit := "1000000/s burst 1000000"
	interval, depth := int64(1000), int64(1e9)
	if !allow {
		limit, interval, depth = "1/h", int64(time.Hour), int64(time.Hour)
	}
	take := takes(b, limit, interval, depth)
	withNonce := func(tries []weir.Write) []weir.Write {
		if !resend {
			return tries
		}
		for i := range tries {
			tries[i].Nonce = rand.Uint64() | 1
		}
		return tries
	}
	keys := make([]weir.Key, benchKeys)
	texts := make([]string, benchKeys)
	plain := make([]string, benchKeys)
	for i := range keys {
		keys[i] = weir.NewKey("account", "customer-"+strconv.Itoa(i))
		texts[i], plain[i] = keys[i].String(), "minimal:"+keys[i].String()
	}
	minimalSHA := newLua(minimal)
	if err := client.Do(ctx, client.B().ScriptLoad().Script(minimal).Build()).Error(); err != nil {
		b.Fatal(err)
	}
	minimalArgs := []string{strconv.FormatInt(interval/1000, 10), strconv.FormatInt(depth/1000, 10)}
	evalMinimal := func(key int) (bool, error) {
		over, err := client.Do(ctx, client.B().Evalsha().Sha1(minimalSHA.sha).Numkeys(1).Key(plain[key]).Arg(minimalArgs...).Build()).AsInt64()
		return over <= 0, err
	}
	prepared := make([][]string, 1<<12) // with as many nonces
	var raw *lua
	for i := range prepared {
		var e encoded
		store.names.encode(&e, withNonce(take))
		raw = store.batches.scripts.of(&e)
		prepared[i] = e.args([]string{"1"})
	}
	cells := make([]weir.Cells, callers)
	writes := make([][]weir.Write, callers)
	for i := range writes {
		writes[i] = slices.Clone(take)
	}
	next := make([]int, callers*16) // apart from one another
	for i := range keys {           // one is taken of each: there is a bucket, and without another token to deny
		var c weir.Cells
		if _, _, err := store.Apply(ctx, keys[i], withNonce(writes[0]), &c); err != nil {
			b.Fatal(err)
		}
		if _, err := evalMinimal(i); err != nil {
			b.Fatal(err)
		}
	}
	return []peer{
		{"weir", func(ctx context.Context, worker, key int) (bool, error) {
			applied, _, err := store.Apply(ctx, keys[key], withNonce(writes[worker]), &cells[worker])
			return applied >= 0, err
		}},
		{"raw", func(ctx context.Context, worker, key int) (bool, error) {
			n := next[worker*16]
			next[worker*16]++
			answer, err := client.Do(ctx, client.B().Evalsha().Sha1(raw.sha).Numkeys(1).Key(texts[key]).Arg(prepared[(n+worker*64)%len(prepared)]...).Build()).ToString()
			return err == nil && !strings.Contains(answer, "\n-1"), err
		}},
		{"minimal", func(_ context.Context, _, key int) (bool, error) { return evalMinimal(key) }},
	}
}

// takes are the two writes of a take of one from a bucket: of a full one, and of
// one that is in use.
func takes(tb testing.TB, limit string, interval, depth int64) []weir.Write {
	l, err := weir.ParseLimit(limit)
	if err != nil {
		tb.Fatal(err)
	}
	field := func(letter string) weir.Field {
		f, ok := weir.ParseField(l.Name() + "." + letter)
		if !ok {
			tb.Fatalf("no field %s.%s", l.Name(), letter)
		}
		return f
	}
	return []weir.Write{{
		Keep: 2 * time.Hour,
		If: []weir.Cond{
			{Field: field("t"), Cmp: plan.AtMost, OrAbsent: true, Rel: true},
			{Field: field("r"), Cmp: plan.AtMost, OrAbsent: true},
		},
		Do: []weir.Act{
			{Field: field("t"), Do: plan.Put, Value: interval, Rel: true},
			{Field: field("i"), Do: plan.Put, Value: interval},
			{Field: field("d"), Do: plan.Put, Value: depth},
			{Field: field("r"), Do: plan.Put},
		},
	}, {
		Keep: 2 * time.Hour,
		If: []weir.Cond{
			{Field: field("t"), Cmp: plan.Above, Rel: true},
			{Field: field("t"), Cmp: plan.AtMost, Value: depth - interval, Rel: true},
			{Field: field("i"), Cmp: plan.Equal, Value: interval},
			{Field: field("d"), Cmp: plan.Equal, Value: depth},
		},
		Do: []weir.Act{{Field: field("t"), Do: plan.Add, Value: interval}},
	}}
}

// BenchmarkClient measures what the store itself does around a round trip.
func BenchmarkClient(b *testing.B) {
	w := takes(b, "1000000/s burst 1000000", 1000, 1e9)
	var n names
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var e encoded
		for b.Loop() {
			w[0].Nonce++
			n.encode(&e, w)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var state weir.Cells
		var e encoded
		n.encode(&e, w[1:])
		for b.Loop() {
			state.Reset()
			if _, err := n.decode("0,2 1796000000123456789 1000 1000000000 rate.r 0", e.fields, &state); err != nil {
				b.Fatal(err)
			}
			w[0].Apply(&state, 1)
		}
	})
}

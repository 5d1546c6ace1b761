package dynamostore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
)

// scheme decides one call. A denial is false when no state that was seen can
// justify it.
type scheme interface {
	take(ctx context.Context, key string) (allowed, falsely bool, err error)
}

// setup is what makes a scheme, in this process or in another.
type setup struct {
	URL, Table, Scheme string
	Delay              time.Duration // added to every trip
	Lasts              time.Duration
	Start              time.Time
	Workload           string // by name
}

// create makes the table, and the scheme on it.
func (s setup) create(w workload) (scheme, error) {
	store, err := dynamostore.New(s.client(), dynamostore.Options{Table: s.Table})
	if err == nil {
		err = store.Create(context.Background())
	}
	if err != nil {
		return nil, err
	}
	return s.scheme(w)
}

func (s setup) scheme(w workload) (scheme, error) {
	if s.Scheme == "classic" {
		return newClassic(s.client(), s.Table, w), nil
	}
	return newGuarded(s.client(), s.Table, w, weir.Options{NoCoalescing: s.Scheme == "one write"})
}

func (s setup) client() *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(s.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   &http.Client{Transport: delayed{&http.Transport{MaxIdleConnsPerHost: 256}, s.Delay}},
	})
}

// delayed makes the way there longer.
type delayed struct {
	http.RoundTripper
	by time.Duration
}

func (d delayed) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.by > 0 {
		select {
		case <-time.After(d.by):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return d.RoundTripper.RoundTrip(r)
}

// spent is what one call cost. It travels in the call's context; a trip that
// several calls share is charged to the first of them.
type spent struct {
	mu            sync.Mutex
	trips         int
	reads, writes float64
}

type spentKey struct{}

func (s *spent) add(reads, writes float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trips++
	s.reads += reads
	s.writes += writes
}

func (s *spent) cost() cost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cost{1, s.trips, s.reads, s.writes}
}

func observeSpent() *weir.Observer {
	return &weir.Observer{Trip: func(ctx context.Context, t weir.Trip) {
		if s, ok := ctx.Value(spentKey{}).(*spent); ok {
			s.add(t.ReadUnits, t.WriteUnits)
		}
	}}
}

// guarded is weir: one guarded write.
type guarded struct {
	limiter *weir.Limiter
	limit   weir.Limit
	judge   *judge
}

func newGuarded(client *dynamodb.Client, table string, w workload, o weir.Options) (scheme, error) {
	limit, err := weir.ParseLimit(w.limit())
	if err == nil {
		limit, err = limit.Named("bench")
	}
	if err != nil {
		return nil, err
	}
	arrival, ok := weir.ParseField("bench.t")
	if !ok {
		return nil, fmt.Errorf("bench.t is no field")
	}
	store, err := dynamostore.New(client, dynamostore.Options{Table: table, Observer: observeSpent()})
	if err != nil {
		return nil, err
	}
	j := &judge{Store: store, arrival: arrival}
	o.Limits = []weir.Limit{limit}
	return guarded{limiterOn(j, o), limit, j}, nil
}

func (g guarded) take(ctx context.Context, key string) (allowed, falsely bool, err error) {
	from := time.Now().UnixNano()
	d, err := g.limiter.Take(ctx, weir.Op{Limit: g.limit, Key: weir.NewKey("account", key)})
	if err != nil || d.Allowed {
		return d.Allowed, false, err
	}
	// A state that refuses at the moment of the decision refuses before it too.
	n, scale := g.limit.Rate()
	interval := int64(g.limit.Period().Duration()) * scale / n
	return false, d.Reason != weir.ReasonLimit || g.judge.latest.Load() <= from+interval*(g.limit.Max()-1), nil
}

// judge looks over a store's shoulder, at the one item of a hot key: when will
// the bucket be full again, in the state that says the latest time?
type judge struct {
	weir.Store
	arrival weir.Field
	latest  atomic.Int64
}

func (j *judge) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	applied, now, err := j.Store.Apply(ctx, item, tries, state)
	if t, _ := state.Get(j.arrival); err == nil {
		for was := j.latest.Load(); t > was && !j.latest.CompareAndSwap(was, t); was = j.latest.Load() {
		}
	}
	return applied, now, err
}

const driverVariable = "WEIR_DYNAMOSTORE_TEST_DRIVER"

// driver is the body of a process that takes part in a workload. What it has
// found goes to its output.
func driver() int {
	var s setup
	err := json.Unmarshal([]byte(os.Getenv(driverVariable)), &s)
	if err == nil {
		for _, w := range workloads {
			if w.name != s.Workload {
				continue
			}
			var sch scheme
			if sch, err = s.scheme(w); err == nil {
				err = json.NewEncoder(os.Stdout).Encode(drive(w, sch, s.Start, s.Lasts))
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// inProcesses runs a workload in processes of their own, which know nothing of
// each other, and adds up what they have found.
func inProcesses(tb testing.TB, w workload, s setup) *result {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	s.Workload, s.Start = w.name, time.Now().Add(1500*time.Millisecond)
	text, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	results := make([]*result, w.processes)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), driverVariable+"="+string(text))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err == nil {
				err = json.NewDecoder(bytes.NewReader(out)).Decode(&results[i])
			}
			if err != nil {
				tb.Errorf("process %d: %v", i, err)
				results[i] = &result{}
			}
		})
	}
	wg.Wait()
	sum := &result{Offered: s.Lasts, First: results[0].First}
	for _, r := range results {
		if r.First.Before(sum.First) {
			sum.First = r.First
		}
		sum.Refused, sum.Last = later(sum.Refused, r.Refused), later(sum.Last, r.Last)
		sum.Elapsed = max(sum.Elapsed, r.Elapsed)
		sum.Allowed.add(r.Allowed)
		sum.Denied.add(r.Denied)
		sum.Falsely += r.Falsely
		sum.Took = append(sum.Took, r.Took...)
		sum.Log = append(sum.Log, r.Log...)
		if r.Err != "" {
			sum.Err = r.Err
		}
	}
	return sum
}

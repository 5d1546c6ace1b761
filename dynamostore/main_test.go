package dynamostore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/storetest"
)

// servers are shared by the tests, each of which has a table of its own. The
// plain one does not return the old item of a failed condition.
var servers struct{ full, plain *dynalite.Server }

func TestMain(m *testing.M) {
	if os.Getenv(takerVariable) != "" {
		os.Exit(taker())
	}
	if os.Getenv(driverVariable) != "" {
		os.Exit(driver())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if servers.full, err = dynalite.Launch(dynalite.Options{}); err == nil {
		defer servers.full.Close()
		if servers.plain, err = dynalite.Launch(dynalite.Options{Plain: true}); err == nil {
			defer servers.plain.Close()
			return m.Run()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// onBoth runs a test on a server with and one without the old item.
func onBoth(t *testing.T, test func(t *testing.T, server *dynalite.Server)) {
	t.Run("full", func(t *testing.T) { test(t, servers.full) })
	t.Run("plain", func(t *testing.T) { test(t, servers.plain) })
}

// tables are the names of the tests' tables, by the tests' contexts: each run of a
// test has one of its own.
var tables sync.Map

// tableOf is a table name of this run of a test alone.
func tableOf(tb testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '.'
	}, tb.Name())
	own, _ := tables.LoadOrStore(tb.Context(), fmt.Sprintf("%s.%x", name, rand.Uint64()))
	return own.(string)
}

// clientOf makes a client of a server, through a Transport if there is one.
func clientOf(tb testing.TB, s *dynalite.Server, through *dynalite.Transport) *dynamodb.Client {
	tb.Helper()
	if through != nil {
		return dynamodb.New(dynamodb.Options{
			Region:       "us-east-1",
			BaseEndpoint: aws.String(s.URL),
			Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
			HTTPClient:   &http.Client{Transport: through},
		})
	}
	c, err := dynamostore.NewClient(context.Background(), "us-east-1", s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// open opens a store and makes its table: by default one of this test alone.
func open(tb testing.TB, client *dynamodb.Client, o dynamostore.Options) *dynamostore.Store {
	tb.Helper()
	if o.Table == "" {
		o.Table = tableOf(tb)
	}
	store, err := dynamostore.New(client, o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := store.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return store
}

func parse(tb testing.TB, name, text string) weir.Limit {
	tb.Helper()
	l, err := weir.ParseLimit(text)
	if err == nil {
		l, err = l.Named(name)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// deadline is long, so that a loaded machine fails no test.
const deadline = 30 * time.Second

func limiterOn(store weir.Store, o weir.Options) *weir.Limiter {
	o.Deadline = deadline
	return weir.NewLimiter(store, o)
}

func take(tb testing.TB, l *weir.Limiter, ops ...weir.Op) weir.Decision {
	tb.Helper()
	d, err := l.Take(context.Background(), ops...)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func used(tb testing.TB, l *weir.Limiter, op weir.Op) int64 {
	tb.Helper()
	ds, err := l.Peek(context.Background(), op)
	if err != nil {
		tb.Fatal(err)
	}
	return ds[0].Used
}

// item reads an item behind the store's back.
func item(tb testing.TB, client *dynamodb.Client, table, pk string) map[string]types.AttributeValue {
	tb.Helper()
	out, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out.Item
}

func number(tb testing.TB, item map[string]types.AttributeValue, name string) string {
	tb.Helper()
	n, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		tb.Fatalf("attribute %q is %#v, not a number; the item is %v", name, item[name], names(item))
	}
	return n.Value
}

func names(item map[string]types.AttributeValue) []string {
	var list []string
	for name := range item {
		list = append(list, name)
	}
	return list
}

// clock stands still until it is moved.
type clock struct{ at atomic.Int64 }

func newClock(at time.Time) *clock {
	c := new(clock)
	c.at.Store(at.UnixNano())
	return c
}

func (c *clock) now() int64              { return c.at.Load() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// trips counts what an Observer hears.
type trips struct {
	mu sync.Mutex
	counts
}

type counts struct {
	all, applied, failed int
	reads, writes        float64
}

func (n *trips) observer() *weir.Observer {
	return &weir.Observer{Trip: func(_ context.Context, t weir.Trip) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all++
		n.reads += t.ReadUnits
		n.writes += t.WriteUnits
		if t.Applied {
			n.applied++
		}
		if t.Err != nil {
			n.failed++
		}
	}}
}

// take gives the counts and starts over.
func (n *trips) take() counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.counts
	n.counts = counts{}
	return was
}

func TestConformance(t *testing.T) {
	onBoth(t, func(t *testing.T, server *dynalite.Server) {
		client, table := clientOf(t, server, nil), tableOf(t)
		storetest.Run(t, func(tb testing.TB, now func() int64) weir.Store {
			return open(tb, client, dynamostore.Options{Table: table, Now: now})
		})
	})
}

func BenchmarkStore(b *testing.B) {
	client := clientOf(b, servers.full, nil)
	storetest.Bench(b, func(tb testing.TB, now func() int64) weir.Store {
		return open(tb, client, dynamostore.Options{Table: "benchmark", Now: now})
	})
}

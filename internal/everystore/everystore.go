// Package everystore runs one test on memory, on a DynamoDB-compatible server
// and on Redis, between processes that share nothing but the store.
//
// [Run] starts the servers, and [Stores.Open] gives the test a store for each
// process that it stands for: a client of its own where there is a server, the
// same store in memory. A behaviour that spec.md numbers for all stores is a
// test of this form.
//
// Only tests import this package.
package everystore

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/redisstore"
)

// Options of [Run]. The zero value bounds nothing.
type Options struct {
	// MaxKeep, if not 0, is the longest time for which the stores keep an item.
	MaxKeep time.Duration
}

// Stores are the stores of one test, which hold the same items. Open is called
// by the test's own goroutine; the other methods may be called concurrently.
type Stores struct {
	// Remote says that there is a server, which can be counted and lost.
	Remote bool

	open  func(t *testing.T) (weir.Store, error)
	stop  func()
	calls *relay
}

// Open gives a store to one more process. It is closed with the test.
func (s *Stores) Open(t *testing.T) weir.Store {
	t.Helper()
	store, err := s.open(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// Connections is how many connections the opened stores have made to their
// server so far; 0 in memory.
func (s *Stores) Connections() int64 {
	if s.calls == nil {
		return 0
	}
	return s.calls.accepted.Load()
}

// Lose ends the server for good. In memory there is none, and nothing happens.
func (s *Stores) Lose() {
	if s.calls != nil {
		s.stop()
		s.calls.close()
	}
}

// Run runs a test once on each kind of store, in subtests memory, dynamodb and
// redis.
func Run(t *testing.T, o Options, test func(t *testing.T, s *Stores)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		m := memstore.New(memstore.Options{})
		test(t, &Stores{open: func(*testing.T) (weir.Store, error) {
			if o.MaxKeep > 0 {
				return bounded{m, o.MaxKeep}, nil
			}
			return m, nil
		}})
	})
	t.Run("dynamodb", func(t *testing.T) {
		server := dynalite.Start(t, dynalite.Options{})
		calls := newRelay(t, strings.TrimPrefix(server.URL, "http://"))
		made := false
		test(t, &Stores{Remote: true, calls: calls, stop: server.Close, open: func(t *testing.T) (weir.Store, error) {
			client, err := dynamostore.NewClient(t.Context(), "us-east-1", "http://"+calls.addr,
				config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("id", "secret", "")))
			if err != nil {
				return nil, err
			}
			s, err := dynamostore.New(client, dynamostore.Options{Table: "items", MaxKeep: o.MaxKeep})
			if err != nil || made {
				return s, err
			}
			made = true
			return s, s.Create(context.Background())
		}})
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t, redistest.Options{})
		calls := newRelay(t, server.Addr)
		test(t, &Stores{Remote: true, calls: calls, stop: server.Kill, open: func(*testing.T) (weir.Store, error) {
			return redisstore.Open("redis://"+calls.addr, redisstore.Options{Prefix: "items:", MaxKeep: o.MaxKeep})
		}})
	})
}

// bounded is memory of which the test says how long it keeps an item.
type bounded struct {
	*memstore.Store
	keep time.Duration
}

func (b bounded) Caps() weir.Caps {
	c := b.Store.Caps()
	c.MaxKeep = b.keep
	return c
}

// relay stands before a server and counts the connections to it.
type relay struct {
	addr     string
	accepted atomic.Int64
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("everystore: %v", err)
	}
	r := &relay{addr: l.Addr().String(), listener: l, open: map[net.Conn]struct{}{}}
	r.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			r.running.Go(func() { r.join(c, server) })
		}
	})
	t.Cleanup(r.close)
	return r
}

// join passes on what comes from either side, until one ends.
func (r *relay) join(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.hold(client, server) {
		return
	}
	defer r.release(client, server)
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client, server)
		client.Close()
	})
	io.Copy(server, client)
	server.Close()
	back.Wait()
}

// hold notes connections that close ends; it reports false after close.
func (r *relay) hold(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.open[c] = struct{}{}
	}
	return !r.closed
}

func (r *relay) release(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.open, c)
	}
}

// close ends the relay and its connections, and waits for them.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

package httpretry_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	dialed atomic.Int64
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		p.dialed.Add(1)
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connected runs a real server, and returns a transport that reaches it over
// real HTTP/1.1.
func connected(t *testing.T, h http.Handler) (*httpretry.Transport, *pipes) {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	go server.Serve(p)
	base := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return httpretry.New(httpretry.Options{Base: base, Rand: noChance}), p
}

// A refusal that is read to its end leaves the connection usable; one that is
// too long or too slow costs the connection, and holds nobody.
func TestConnections(t *testing.T) {
	write := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }
	}
	for _, tt := range []struct {
		name   string
		refuse func(http.ResponseWriter, *http.Request)
		dials  int64
	}{
		{"empty", write(""), 1},
		{"short", write(`{"error":"rate_limited"}`), 1},
		{"chunked", func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				write(strings.Repeat("x", 1000))(w, r)
				w.(http.Flusher).Flush()
			}
		}, 1},
		{"a megabyte", write(strings.Repeat("x", 1<<20)), 2},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, 2},
		{"a trickle", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				write(".")(w, r)
				w.(http.Flusher).Flush()
				<-time.After(300 * time.Millisecond)
			}
		}, 2},
		{"a stall", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int64
				rt, p := connected(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sent.Add(1) > 1 {
						w.Write([]byte("served"))
						return
					}
					w.Header().Set("Retry-After", "3")
					w.WriteHeader(429)
					tt.refuse(w, r)
				}))
				status, body, took := send(t, rt, request(t, "POST", strings.NewReader("two tickets")))
				if status != 200 || body != "served" || took != 3*time.Second {
					t.Errorf("%d %q after %v, want 200 after 3 s", status, body, took)
				}
				if n := p.dialed.Load(); n != tt.dials {
					t.Errorf("%d connections, want %d", n, tt.dials)
				}
			})
		})
	}
}

// The refusal that comes back is a whole answer, on a connection that lives on.
func TestReturnedRefusalIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, p := connected(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "later", http.StatusTooManyRequests)
		}))
		for range 3 {
			if status, body, took := send(t, rt, request(t, "GET", nil)); status != 429 || body != "later\n" || took != 3*time.Second {
				t.Errorf("%d %q after %v", status, body, took)
			}
		}
		if n := p.dialed.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

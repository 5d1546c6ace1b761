package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What a handler finds in its writer to stream with.

// wrapped is a writer in front of the middleware that only http.ResponseController
// sees through.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A flush that nothing in front can do sends no header: the status is still to come,
// and is what the call is judged by.
func TestAFlushThatCannotBeSendsNothing(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			if err := http.NewResponseController(w).Flush(); err != nil {
				w.Header().Set("Unsupported", map[bool]string{true: "yes"}[errors.Is(err, http.ErrNotSupported)])
			}
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	late := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "") }
	wrap := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) })
	}
	outer := func(h http.Handler) http.Handler { return newGate(t, one("1000/s"), h) } // the same middleware once more
	for _, c := range []struct {
		name   string
		front  []func(http.Handler) http.Handler // from the middleware to the server
		status int
		left   string
	}{
		{"nothing", nil, 200, "8"},
		{"a wrapper", []func(http.Handler) http.Handler{wrap}, 200, "8"},
		{"another middleware", []func(http.Handler) http.Handler{outer}, 200, "8"},
		{"a timeout", []func(http.Handler) http.Handler{late}, 500, "9"},
		{"a wrapper and a timeout", []func(http.Handler) http.Handler{wrap, late}, 500, "9"},
		{"another middleware and a timeout", []func(http.Handler) http.Handler{outer, wrap, late}, 500, "9"},
	} {
		g := newGate(t, counted, next)
		h := http.Handler(g)
		for _, f := range c.front {
			h = f(h)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Test-Sub", "a")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if unsupported := w.Header().Get("Unsupported") == "yes"; w.Code != c.status || unsupported != (c.status == 500) || w.Result().Header.Get("X-RateLimit-Limit") == "" {
			t.Errorf("behind %s: %d %v", c.name, w.Code, w.Result().Header)
		}
		if got := left(g); got != c.left {
			t.Errorf("behind %s: %s left, want %s", c.name, got, c.left)
		}
	}
}

// closeNotifier is http.CloseNotifier, which frameworks still ask for.
type closeNotifier interface{ CloseNotify() <-chan bool }

func TestAHandlerIsToldThatTheClientLeft(t *testing.T) {
	begun, told := make(chan struct{}), make(chan bool)
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		left := w.(closeNotifier).CloseNotify()
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		told <- <-left
	}))
	for _, version := range []int{1, 2} {
		s := httptest.NewUnstartedServer(g)
		s.EnableHTTP2 = version == 2
		s.StartTLS()
		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		r.Header.Set("Test-Sub", "a")
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != version {
			t.Errorf("the protocol is %s", res.Proto)
		}
		<-begun
		leave()
		if !<-told {
			t.Error("told that the client is there")
		}
		res.Body.Close()
		s.Close()
	}
}

// streams can what the server's writer can, but for telling that the client left.
type streams struct{ *httptest.ResponseRecorder }

func (streams) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }
func (w streams) ReadFrom(r io.Reader) (int64, error)        { return io.Copy(w.ResponseRecorder, r) }

// In front of a handler that asks may stand what can't tell: then it is never told.
func TestNobodyIsToldWhatNobodyKnows(t *testing.T) {
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-w.(closeNotifier).CloseNotify():
			t.Error("told that the client left")
		default:
		}
		io.Copy(w, strings.NewReader("here"))
	}))
	for _, w := range []interface {
		http.ResponseWriter
		Result() *http.Response
	}{httptest.NewRecorder(), streams{httptest.NewRecorder()}} {
		g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := body(t, w.Result()); got != "here" {
			t.Errorf("%q", got)
		}
	}
}

// What is copied arrives as it does without the middleware: the first bytes at once,
// also of a source that is slow to have more, and in the same form.
func TestACopyArrivesAsItComes(t *testing.T) {
	size := 0
	var arrived chan struct{}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const begin = 512
		body := strings.NewReader(strings.Repeat("x", size))
		first := io.LimitReader(body, begin)
		if size >= begin && arrived != nil {
			first = io.MultiReader(first, waits(arrived))
		}
		if n, err := io.Copy(w, io.MultiReader(first, body)); n != body.Size() || err != nil {
			t.Errorf("%d bytes: %d are said to be copied, %v", body.Size(), n, err)
		}
	})
	gate := newGate(t, one("1000/s"), next)
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		bare, g := start(next), start(gate)
		defer bare.Close()
		defer g.Close()
		for _, size = range []int{0, 1, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 100_000} {
			var forms [2]string
			for i, server := range []*httptest.Server{bare, g} {
				if arrived = nil; name == "http" { // behind TLS the server sends nothing before there is more
					arrived = make(chan struct{})
				}
				client := server.Client()
				client.Timeout = 10 * time.Second // of what does not arrive
				r, _ := http.NewRequest("GET", server.URL, nil)
				r.Header.Set("Test-Sub", "a")
				res, err := client.Do(r)
				if arrived != nil {
					close(arrived)
				}
				if err != nil {
					t.Fatalf("%s, %d bytes: %v", name, size, err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || len(body) != size {
					t.Errorf("%s, %d bytes: %d arrived, %v", name, size, len(body), err)
				}
				forms[i] = fmt.Sprint(res.ContentLength, res.TransferEncoding)
			}
			if forms[0] != forms[1] {
				t.Errorf("%s, %d bytes: %s behind the middleware, %s without", name, size, forms[1], forms[0])
			}
		}
	}
}

// waits is a source that has nothing more until the channel is closed.
type waits chan struct{}

func (c waits) Read([]byte) (int, error) {
	<-c
	return 0, io.EOF
}

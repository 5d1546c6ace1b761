package httplimit_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/httplimit"
)

const counted = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: render, match: /, by: account, limit: quota 10/h, count: on_success, header_styles: [ietf, x]}
`

// left asks how much of the quota remains, by taking one more.
func left(g *gate) string {
	g.t.Helper()
	return g.send("GET", "/ok", "Test-Sub", "a").Header.Get("X-RateLimit-Remaining")
}

// Whatever a handler does with its response, it is judged once, by the status
// that the client sees.
func TestSpec_B08_SuccessIsJudgedWhenTheHeaderIsWritten(t *testing.T) {
	for _, tt := range []struct {
		name    string
		counted bool
		handle  func(http.ResponseWriter, *http.Request)
	}{
		{"nothing written is 200", true, func(http.ResponseWriter, *http.Request) {}},
		{"a body without a status is 200", true, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) }},
		{"a string", true, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }},
		{"a redirect", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }},
		{"not found", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }},
		{"an error of the service", false, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }},
		{"early hints are not the status", false, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(503)
		}},
		{"the first status holds", true, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			w.WriteHeader(500)
		}},
		{"a flush sends 200", true, func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(500)
		}},
		{"a controller's flush sends 200", true, func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			w.WriteHeader(500)
		}},
		{"gRPC that succeeds", true, func(w http.ResponseWriter, _ *http.Request) { grpcAnswer(w, "0", false) }},
		{"gRPC that fails in its trailer", false, func(w http.ResponseWriter, _ *http.Request) { grpcAnswer(w, "13", false) }},
		{"gRPC that fails at once", false, func(w http.ResponseWriter, _ *http.Request) { grpcAnswer(w, "5", true) }},
		{"gRPC that breaks before its status", true, func(w http.ResponseWriter, _ *http.Request) { grpcAnswer(w, "", false) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ok" {
					tt.handle(w, r)
				}
			}))
			s := httptest.NewUnstartedServer(g)
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // a second WriteHeader is part of the test
			s.Start()
			defer s.Close()
			r, _ := http.NewRequest("POST", s.URL+"/try", nil)
			r.Header.Set("Test-Sub", "a")
			res, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.Header.Get("RateLimit") == "" {
				t.Error("no limit fields")
			}
			io.Copy(io.Discard, res.Body) // until the handler has returned
			s.Close()
			if got, want := left(g), map[bool]string{true: "8", false: "9"}[tt.counted]; got != want {
				t.Errorf("%s left, want %s", got, want)
			}
		})
	}
}

func grpcAnswer(w http.ResponseWriter, code string, atOnce bool) {
	w.Header().Set("Content-Type", "application/grpc")
	if atOnce {
		w.Header().Set("Grpc-Status", code)
		w.WriteHeader(200)
		return
	}
	w.Write([]byte("message"))
	if code != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
	}
}

func TestSpec_B08_AnAbortWithoutAnAnswerStaysCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, counted, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/ok" {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() {
				if v := recover(); !errors.Is(v.(error), http.ErrAbortHandler) {
					t.Errorf("the panic became %v", v)
				}
			}()
			g.send("POST", "/try", "Test-Sub", "a")
		}()
		if got := left(g); got != "8" {
			t.Errorf("%s left, want 8", got)
		}
	})
}

func TestCase_B124_AClientThatLeavesMidStreamStaysCounted(t *testing.T) {
	gone := make(chan struct{})
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ok" {
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	s := httptest.NewServer(g)
	defer s.Close()
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/stream", nil)
	r.Header.Set("Test-Sub", "a")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	<-gone
	res.Body.Close()
	if got := left(g); got != "8" {
		t.Errorf("%s left, want 8", got)
	}
}

func TestGiveBackReturnsWhatNeverReachedTheService(t *testing.T) {
	// Not counted on success: only an edge that lost its service gives it back.
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: things, match: /, by: account, limit: quota 10/h, header_styles: [x]}
`
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ok" {
				return
			}
			for range 2 { // once is enough
				if err := httplimit.Outcome(r.Context()).GiveBack(r.Context()); err != nil {
					t.Error(err)
				}
			}
			w.WriteHeader(502)
		}), canGiveBack)
		if got := g.count(20, "GET", "/lost", "Test-Sub", "a"); got[502] != 20 {
			t.Errorf("%v", got)
		}
		if got := left(g); got != "9" {
			t.Errorf("%s left, want 9", got)
		}
	})
}

func TestHandlersFindTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type keyType struct{}
		var d weir.Decision
		var found, other bool
		g := newGate(t, shop, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			d, found = weir.FromContext(ctx)
			other = ctx.Value(keyType{}) == "the server's"
		}))
		r := httptest.NewRequest("POST", "/reservations", nil)
		r.Header.Set("Test-Sub", "a")
		g.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), keyType{}, "the server's")))
		if !found || d.Limit.Name() != "reservations" || d.Remaining != 9 || !other {
			t.Errorf("found %v %+v, the server's value %v", found, d, other)
		}
		g.send("GET", "/healthz")
		if found {
			t.Error("an exempt request has a decision")
		}
	})
}

// Cancelling the server's context reaches handlers that derived their own.
func TestTheRequestContextIsStillTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		g := newGate(t, shop, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			<-ctx.Done()
			ended = true
		}))
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequest("GET", "/seats", nil).WithContext(ctx)
		done := make(chan struct{})
		go func() { g.ServeHTTP(httptest.NewRecorder(), r); close(done) }()
		synctest.Wait()
		cancel()
		<-done
		if !ended {
			t.Error("the handler was not told")
		}
	})
}

// B244: what the server's writer can do, the handler's can.
func TestCase_B244_UpgradesStreamsAndHTTP2Work(t *testing.T) {
	can := make(chan string, 8)
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list []string
		if _, ok := w.(http.Flusher); ok {
			list = append(list, "flush")
		}
		if _, ok := w.(http.Hijacker); ok {
			list = append(list, "hijack")
		}
		if _, ok := w.(io.ReaderFrom); ok {
			list = append(list, "readfrom")
		}
		if _, ok := w.(http.Pusher); ok {
			list = append(list, "push")
		}
		can <- strings.Join(list, " ")
		switch r.URL.Path {
		case "/copy":
			io.Copy(w, struct{ io.Reader }{strings.NewReader("copied")})
		case "/upgrade":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
			rw.Flush()
		}
	}))

	http.TimeoutHandler(g, time.Minute, "").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if got := <-can; got != "push" {
		t.Errorf("behind a TimeoutHandler the writer can %s", got)
	}

	one := httptest.NewServer(g)
	defer one.Close()
	get := func(c *http.Client, url string) string {
		r, _ := http.NewRequest("GET", url, nil)
		r.Header.Set("Test-Sub", "a")
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.Header.Get("RateLimit") == "" {
			t.Errorf("%s: no limit fields", url)
		}
		b, _ := io.ReadAll(res.Body)
		return string(b)
	}
	if b := get(one.Client(), one.URL+"/copy"); b != "copied" {
		t.Errorf("copied %q", b)
	}
	if got := <-can; got != "flush hijack readfrom" {
		t.Errorf("HTTP/1: the writer can %s", got)
	}

	two := httptest.NewUnstartedServer(g)
	two.EnableHTTP2 = true
	two.StartTLS()
	defer two.Close()
	get(two.Client(), two.URL+"/")
	if got := <-can; got != "flush push" {
		t.Errorf("HTTP/2: the writer can %s", got)
	}

	conn, err := net.Dial("tcp", one.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /upgrade HTTP/1.1\r\nHost: shop\r\nTest-Sub: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	var all bytes.Buffer
	if _, err := all.ReadFrom(bufio.NewReader(conn)); err != nil {
		t.Fatal(err)
	}
	<-can
	if got := all.String(); !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.HasSuffix(got, "hello") {
		t.Errorf("upgraded: %q", got)
	}
	if got := left(g); got != "6" {
		t.Errorf("%s left, want 6: an upgrade is counted", got)
	}
}

// A WebSocket through a reverse proxy behind the middleware: the answer to the
// handshake carries the limit fields, and it is counted once.
func TestCase_B244_AProxiedUpgradeShowsItsLimit(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		rw.Flush()
	}))
	defer service.Close()
	target, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			forward.ServeHTTP(w, r)
		}
	}))
	front := httptest.NewServer(g)
	defer front.Close()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: shop\r\nTest-Sub: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 101 {
		t.Fatalf("status %d", res.StatusCode)
	}
	want(t, res, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9")
	if hello, err := io.ReadAll(in); string(hello) != "hello" {
		t.Errorf("%q, %v", hello, err)
	}
	if got := left(g); got != "8" {
		t.Errorf("%s left, want 8", got)
	}
}

// Copying from a source that has nothing writes no header, so the status is still
// to come, and is what the call is judged by.
func TestACopyOfNothingIsNoAnswerYet(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var src io.Reader
		switch r.URL.Path {
		case "/broken":
			src = iotest.ErrReader(errors.New("the source broke"))
		case "/empty":
			src = struct{ io.Reader }{strings.NewReader("")}
		case "/breaks":
			src = io.MultiReader(strings.NewReader("begun"), iotest.ErrReader(errors.New("the source broke")))
		case "/big":
			src = struct{ io.Reader }{strings.NewReader(big)}
		default:
			return
		}
		if n, err := io.Copy(w, src); err != nil || n == 0 {
			w.WriteHeader(http.StatusBadGateway) // of an answer that has begun it changes nothing
		}
	}))
	server := httptest.NewServer(g)
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, c := range []struct {
		path   string
		status int
		body   string
		left   string
	}{
		{"/broken", 502, "", "9"}, {"/empty", 502, "", "8"}, {"/breaks", 200, "begun", "6"}, {"/big", 200, big, "4"},
	} {
		r, _ := http.NewRequest("GET", server.URL+c.path, nil)
		r.Header.Set("Test-Sub", "a")
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || string(body) != c.body || err != nil || res.Header.Get("RateLimit") == "" {
			t.Errorf("%s: status %d, %d bytes, %v, %v", c.path, res.StatusCode, len(body), err, res.Header)
		}
		if got := left(g); got != c.left {
			t.Errorf("%s: then %s left, want %s", c.path, got, c.left)
		}
	}
}

// What a handler leaves running may ask for the decision while the call is settled:
// it finds the one under which the handler began.
func TestADecisionIsTheSameWhileACallIsSettled(t *testing.T) {
	var asking sync.WaitGroup
	settled := make(chan struct{})
	g := newGate(t, counted, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, ok := weir.FromContext(r.Context())
		if !ok {
			t.Error("no decision")
		}
		asking.Go(func() {
			for over := false; !over; {
				select {
				case <-settled:
					over = true
				default:
				}
				if d, ok := weir.FromContext(r.Context()); !ok || d != first {
					t.Errorf("%+v, %v, at first %+v", d, ok, first)
					return
				}
			}
		})
		w.WriteHeader(http.StatusInternalServerError)
	}))
	for range 20 {
		settled = make(chan struct{})
		g.send("GET", "/ok", "Test-Sub", "a")
		close(settled)
		asking.Wait()
	}
}

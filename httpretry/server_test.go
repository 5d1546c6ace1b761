package httpretry_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

// server is a handler at the other end of a transport, in memory. It notes when
// each request came, what was in it, and what became of the answers.
type server struct {
	http.Handler
	mu      sync.Mutex
	came    []time.Time
	bodies  []string
	answers []*answerBody
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.came = append(s.came, time.Now())
	s.bodies = append(s.bodies, string(body))
	s.mu.Unlock()

	in := r.Clone(r.Context())
	in.RemoteAddr = "192.0.2.44:1234"
	in.Body = io.NopCloser(strings.NewReader(string(body)))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, in)
	resp := w.Result()
	a := &answerBody{Reader: resp.Body}
	resp.Body, resp.Request = a, r
	s.mu.Lock()
	s.answers = append(s.answers, a)
	s.mu.Unlock()
	return resp, nil
}

// gaps are the times between the requests.
func (s *server) gaps() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gaps []time.Duration
	for i := 1; i < len(s.came); i++ {
		gaps = append(gaps, s.came[i].Sub(s.came[i-1]))
	}
	return gaps
}

func (s *server) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came)
}

// answerBody notes what a client did with it.
type answerBody struct {
	io.Reader
	ended, closed bool
	closings      int
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.closed {
		return 0, fmt.Errorf("read after close")
	}
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *answerBody) Close() error {
	b.closed = true
	b.closings++
	return nil
}

// refusing refuses the first n requests with a status and fields, pairs of name
// and value, and serves the others.
func refusing(n, status int, fields ...string) *server {
	var mu sync.Mutex
	return &server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		refuse := n > 0
		n--
		mu.Unlock()
		if !refuse {
			io.WriteString(w, "served")
			return
		}
		for i := 0; i+1 < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, "refused")
	})}
}

// always is more than any test sends.
const always = 1 << 30

func noChance(int64) int64 { return 0 }

func mostChance(n int64) int64 { return n - 1 }

// client makes a transport to a server without chance, unless change brings it.
func client(s *server, change ...func(*httpretry.Options)) *httpretry.Transport {
	o := httpretry.Options{Base: s, Rand: noChance}
	for _, f := range change {
		f(&o)
	}
	return httpretry.New(o)
}

func request(t testing.TB, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://shop.example/reservations", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send sends a request, and returns the status and the body of the answer and
// how long it took.
func send(t testing.TB, rt http.RoundTripper, r *http.Request) (int, string, time.Duration) {
	t.Helper()
	start := time.Now()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), took
}

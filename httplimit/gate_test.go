package httplimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// gate is the middleware on a memory store, with all that it tells.
type gate struct {
	http.Handler
	t       *testing.T
	mw      *httplimit.Middleware
	engine  *engine.Engine
	store   weir.Store
	log     *bytes.Buffer
	mu      sync.Mutex
	records []engine.Record
	asked   int // ops that the limiters decided
}

// load compiles a policy's text.
func load(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{
		"weir.yaml": {Data: []byte(text)},
		"keys.txt":  {Data: []byte(keysFile)},
	}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatalf("policy: %v", err)
	}
	return p
}

// keysFile has one key, "partner-key-of-at-least-128-bits", of the owner acme.
const keysFile = "acme partner 9f1fcb3f2ec1d77d9e5b1b7c6d8a2b0e9e0f5a1d2c3b4a5968778695a4b3c2d1\n"

// identify stands for a verifier of tokens: the tests say who calls in fields
// that no client of theirs can reach.
func identify(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
	var id policy.Identity
	if sub := first(a.Header["Test-Sub"]); sub != "" {
		id.Claims = map[string]any{"sub": sub}
		if plans := first(a.Header["Test-Plans"]); plans != "" {
			id.Claims["plans"] = plans
		}
	}
	if owner := first(a.Header["Test-Owner"]); owner != "" {
		id.KeyOwner, id.KeyPlan = owner, "partner"
	}
	if first(a.Header["Test-Broken"]) != "" {
		return id, &policy.RequestError{Status: 401, Code: "unauthorized", Reason: "The token is not valid."}
	}
	return id, nil
}

func first(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

// newGate puts a policy in front of a handler.
func newGate(t *testing.T, text string, next http.Handler, change ...func(*engine.Options)) *gate {
	t.Helper()
	g := &gate{t: t, log: new(bytes.Buffer)}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	o := engine.Options{
		Policy: load(t, text), Store: store, Identify: identify, LogKey: []byte("a key for tests only"),
		Logger:       slog.New(slog.NewJSONHandler(g.log, nil)),
		AllowedShare: 1,
		Decisions: func(r engine.Record) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.records = append(g.records, r)
		},
		Observer: &weir.Observer{Decided: func(context.Context, weir.Op, weir.Decision) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.asked++
		}},
	}
	for _, f := range change {
		f(&o)
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatalf("engine: %v", err)
	}
	t.Cleanup(func() { e.Close() })
	g.engine, g.mw, g.store = e, httplimit.New(e), o.Store
	g.Handler = g.mw.Handler(next)
	return g
}

// send makes a request; fields are pairs of name and value.
func (g *gate) send(method, target string, fields ...string) *http.Response {
	g.t.Helper()
	return g.sendWith(context.Background(), method, target, fields...)
}

func (g *gate) sendWith(ctx context.Context, method, target string, fields ...string) *http.Response {
	g.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, target, nil)
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	if from := r.Header.Get("Test-From"); from != "" {
		r.RemoteAddr = from + ":1234"
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result()
}

// count sends a request n times and counts the statuses.
func (g *gate) count(n int, method, target string, fields ...string) map[int]int {
	g.t.Helper()
	seen := map[int]int{}
	for range n {
		seen[g.send(method, target, fields...).StatusCode]++
	}
	return seen
}

// lines are the log lines of a level.
func (g *gate) lines(level string) []map[string]any {
	g.t.Helper()
	var out []map[string]any
	for line := range strings.Lines(g.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			g.t.Fatalf("log line %q: %v", line, err)
		}
		if m["level"] == level {
			out = append(out, m)
		}
	}
	return out
}

func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func object(t *testing.T, r *http.Response) map[string]any {
	t.Helper()
	var m map[string]any
	text := body(t, r)
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("body %q: %v", text, err)
	}
	return m
}

// want compares header fields, given as pairs; "" means absent.
func want(t *testing.T, r *http.Response, fields ...string) {
	t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		got := strings.Join(r.Header.Values(fields[i]), " | ")
		if got != fields[i+1] {
			t.Errorf("%s: %q, want %q", fields[i], got, fields[i+1])
		}
	}
}

const shop = `
weir: 1
callers:
  account: jwt.sub
  ip: client_ip
exempt:
  - {name: webhooks, path: /webhooks/*, because: "signature-authenticated"}
  - {name: health, path: /healthz, because: "a load balancer asks"}
edge:
  - {name: rate-all, limit: sliding 2000/5m, by: ip}
  - {name: rate-auth, limit: sliding 100/5m, by: ip, path: /api/auth/*, except_ips: [203.0.113.0/24]}
application:
  limits:
    - name: reservations
      match: POST /reservations
      by: [account, ip]
      limit: 0.5/s burst 10
      anonymous: 1/s burst 2
      header_styles: [ietf, draft6, x]
    - name: orders
      match: POST /orders
      by: [account, ip]
      limit: quota 50/hour
      header_styles: [ietf, draft6]
      denied: {upgrade_url: /billing}
`

// wait moves the clock of the test's bubble on.
func wait(d time.Duration) { <-time.After(d) }

func canGiveBack(o *engine.Options) { o.CanGiveBack = true }

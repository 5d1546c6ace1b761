// Package middleware lists net/http middlewares that limit by the client's
// address, to measure what each adds to one request: handler to recorder, no
// network, with the header fields that it writes as it comes.
package middleware

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing/fstest"
	"time"

	"github.com/go-chi/httprate"
	sethvargohttp "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"

	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// The names that bars refer to.
const (
	Weir = "weir httplimit"
	More = "weir httplimit, a policy of four rules"
	Bare = "bare handler"
)

// Peer is one middleware. Wrap limits by the client's address.
type Peer struct {
	Name string
	Wrap func(limit inproc.Limit, next http.Handler) (http.Handler, error)
}

// Handler is what stands behind every middleware.
func Handler() http.Handler {
	body := []byte("ok\n")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })
}

// Serve sends one request through a handler and gives the status.
func Serve(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Peers are the bare handler, weir and the rivals.
func Peers() []Peer {
	return []Peer{
		{Bare, func(_ inproc.Limit, next http.Handler) (http.Handler, error) { return next, nil }},
		{Weir, weir},
		{More, more},
		{"go-chi/httprate", func(l inproc.Limit, next http.Handler) (http.Handler, error) {
			return httprate.LimitBy(l.Burst, window(l), func(r *http.Request) (string, error) {
				ip, _, err := net.SplitHostPort(r.RemoteAddr)
				return httprate.CanonicalizeIP(ip), err
			})(next), nil
		}},
		{"throttled", func(l inproc.Limit, next http.Handler) (http.Handler, error) {
			store, err := throttledmem.NewCtx(0)
			if err != nil {
				return nil, err
			}
			t, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate: throttled.PerDuration(l.Rate, l.Period), MaxBurst: l.Burst - 1})
			if err != nil {
				return nil, err
			}
			h := throttled.HTTPRateLimiterCtx{RateLimiter: t, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
			return h.RateLimit(next), nil
		}},
		{"sethvargo/go-limiter", func(l inproc.Limit, next http.Handler) (http.Handler, error) {
			store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.Burst), Interval: window(l)})
			if err != nil {
				return nil, err
			}
			m, err := sethvargohttp.NewMiddleware(store, sethvargohttp.IPKeyFunc())
			if err != nil {
				return nil, err
			}
			return m.Handle(next), nil
		}},
	}
}

// window is the length of a window in which Burst calls are the limit's rate.
func window(l inproc.Limit) time.Duration { return l.Period * time.Duration(l.Burst/l.Rate) }

func weir(l inproc.Limit, next http.Handler) (http.Handler, error) {
	limit, err := inproc.WeirLimit(l)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.FromLimit(limit.String(), "ip")
	if err != nil {
		return nil, err
	}
	return behind(p, next)
}

// more has an exemption, an edge rule that each request meets, and two limits that
// go by the path, of which one applies.
func more(l inproc.Limit, next http.Handler) (http.Handler, error) {
	limit, err := inproc.WeirLimit(l)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`weir: 1
exempt:
  - {name: probes, path: /healthz}
edge:
  - {name: everybody, by: ip, limit: %[1]s}
application:
  limits:
    - {name: things, match: GET /v1/things, by: ip, limit: %[1]s}
    - {name: sign-in, match: POST /v1/sign-in, by: ip, limit: 5/m}
`, limit)
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		return nil, err
	}
	return behind(p, next)
}

func behind(p *policy.Policy, next http.Handler) (http.Handler, error) {
	e, err := engine.New(engine.Options{
		Policy: p, Store: memstore.New(memstore.Options{}), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	return httplimit.New(e).Handler(next), nil
}

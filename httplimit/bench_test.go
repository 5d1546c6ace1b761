package httplimit_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/memstore"
)

const benchPolicy = `
weir: 1
callers: {ip: client_ip}
application:
  limits:
    - {name: things, match: /v1/things, by: ip, limit: 1000000/s burst 1000000000}
`

// nullWriter is a response of which nobody reads anything: what is measured is
// the middleware, not the recorder.
type nullWriter struct{ h http.Header }

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) WriteHeader(int)             {}
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkHTTP compares a bare handler with the same one behind weir: one
// limit by address, not reached, in memory, default header fields. The response
// header is a fresh map with a Content-Type, as a server makes it.
func BenchmarkHTTP(b *testing.B) {
	ok := []byte("ok")
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		w.Write(ok)
	})
	store := memstore.New(memstore.Options{})
	defer store.Close()
	e, err := engine.New(engine.Options{
		Policy: load(b, benchPolicy), Store: store, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for _, bm := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"weir", httplimit.New(e).Handler(bare)}} {
		b.Run(bm.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/v1/things", nil)
			b.ReportAllocs()
			for b.Loop() {
				bm.h.ServeHTTP(&nullWriter{make(http.Header)}, r)
			}
		})
		b.Run(bm.name+"-recorder", func(b *testing.B) {
			r := httptest.NewRequest("GET", "/v1/things", nil)
			b.ReportAllocs()
			for b.Loop() {
				bm.h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

// TestAllocations bounds what a request costs that no limit refuses, beyond the
// handler behind: the call's record, the fields, and with several limits the verdicts.
// The key of an address that called lately is there already.
func TestAllocations(t *testing.T) {
	type elsewhere struct{}
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Context().Value(elsewhere{}) // as tracing and logging do, many times
		w.WriteHeader(http.StatusOK)
	})
	for name, text := range map[string]string{
		"one limit": benchPolicy,
		"edge rule and limit": benchPolicy + `
edge:
  - {name: all, limit: sliding 1000000000/5m, by: ip}
`,
		"unlimited path": "weir: 1\nedge:\n  - {name: auth, limit: 1/s, by: ip, path: /auth/*}\n",
	} {
		store := memstore.New(memstore.Options{})
		e, err := engine.New(engine.Options{Policy: load(t, text), Store: store, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		h := httplimit.New(e).Handler(bare)
		r := httptest.NewRequest("GET", "/v1/things", nil)
		w := &nullWriter{make(http.Header)}
		h.ServeHTTP(w, r)
		if name != "unlimited path" && len(w.h["Ratelimit"]) != 1 {
			t.Fatalf("%s: %v", name, w.h)
		}
		own := testing.AllocsPerRun(200, func() { bare.ServeHTTP(w, r) })
		const most = 3
		if n := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) }) - own; n > most {
			t.Errorf("%s: %v allocations, want %d at most", name, n, most)
		} else {
			t.Logf("%s: %v allocations", name, n)
		}
		e.Close()
		store.Close()
	}
}

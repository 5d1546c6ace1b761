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

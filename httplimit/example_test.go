package httplimit_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

func ExampleMiddleware_Handler() {
	files := fstest.MapFS{"weir.yaml": {Data: []byte(`
weir: 1
callers: {ip: client_ip}
application:
  limits:
    - {name: reservations, match: POST /reservations, by: ip, limit: 0.5/s burst 2}
`)}}
	p, err := policy.Load(files, "weir.yaml", policy.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	e, err := engine.New(engine.Options{Policy: p, Store: store, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	shop := httplimit.New(e).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := weir.FromContext(r.Context())
		fmt.Println("reserved;", d.Remaining, "left")
	}))
	for range 3 {
		w := httptest.NewRecorder()
		shop.ServeHTTP(w, httptest.NewRequest("POST", "/reservations", nil))
		fmt.Printf("%d, Retry-After %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// reserved; 1 left
	// 200, Retry-After ""
	// reserved; 0 left
	// 200, Retry-After ""
	// 429, Retry-After "2"
}

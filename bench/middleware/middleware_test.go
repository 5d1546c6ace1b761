package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/bench/middleware"
)

// Behind every middleware the handler is reached as often as the limit says, by
// each address, and a refusal says when to come back.
func TestMiddlewaresAllowTheirBurst(t *testing.T) {
	five := inproc.Limit{Rate: 1, Period: time.Hour, Burst: 5}
	for _, p := range middleware.Peers() {
		t.Run(p.Name, func(t *testing.T) {
			h, err := p.Wrap(five, middleware.Handler())
			if err != nil {
				t.Fatal(err)
			}
			for _, address := range []string{"192.0.2.1:1234", "198.51.100.2:80"} {
				served := 0
				for range 20 {
					r := httptest.NewRequest("GET", "/v1/things", nil)
					r.RemoteAddr = address
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					switch w.Code {
					case http.StatusOK:
						served++
					case http.StatusTooManyRequests:
						if w.Header().Get("Retry-After") == "" {
							t.Error("429 without Retry-After")
						}
					default:
						t.Errorf("status %d", w.Code)
					}
				}
				want := 5
				if p.Name == middleware.Bare {
					want = 20
				}
				if served != want {
					t.Errorf("%s: %d served of 20, want %d", address, served, want)
				}
			}
		})
	}
}

func TestMiddlewaresNeverRefuseBelowTheLimit(t *testing.T) {
	for _, p := range middleware.Peers() {
		h, err := p.Wrap(inproc.Never, middleware.Handler())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/v1/things", nil)
		for range 2000 {
			if code := middleware.Serve(h, r); code != http.StatusOK {
				t.Fatalf("%s: status %d", p.Name, code)
			}
		}
	}
}

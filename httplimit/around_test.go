package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What stands around the middleware.

// Behind a StripPrefix a limit names the path that the handler is given.
func TestLimitsSeeThePathThatIsLeft(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: orders, match: GET /orders, by: ip, limit: quota 2/h}
`
	g := newGate(t, text, status(http.StatusOK))
	h := http.StripPrefix("/api", g)
	for i, want := range []int{200, 200, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/orders?page=1", nil))
		if w.Code != want {
			t.Errorf("call %d: %d, want %d", i+1, w.Code, want)
		}
	}
}

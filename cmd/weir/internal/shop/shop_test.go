package shop_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlabs/weir/cmd/weir/internal/shop"
)

func TestShop(t *testing.T) {
	s := shop.New()
	srv := httptest.NewServer(s)
	defer srv.Close()
	n := int64(0)
	for _, c := range []struct {
		method, path, body string
		status             int
		holds              string
	}{
		{"GET", "/", "", 200, ""},
		{"GET", "/healthz", "", 200, "ok"},
		{"POST", "/reservations", `{"event":"jazz-night"}`, 201, "reservation"},
		{"POST", "/reservations", "", 201, "seat"},
		{"POST", "/reservations", `{"event":`, 400, "error"},
		{"POST", "/orders", `{"reservation":"r-1"}`, 201, "order"},
		{"POST", "/API/Auth/login", `{}`, 401, "error"},
		{"POST", "/webhooks/payments", "signed", 202, "from"},
		{"GET", "/partner/events", "", 200, "events"},
		{"POST", "/assistant/search", "{}", 200, "events"},
		{"GET", "/nowhere", "", 404, ""},
		{"GET", "/reservations", "", 405, ""},
	} {
		req, _ := http.NewRequest(c.method, srv.URL+c.path, strings.NewReader(c.body))
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if n++; res.StatusCode != c.status || s.Served() != n {
			t.Errorf("%s %s: %d, served %d; want %d, %d", c.method, c.path, res.StatusCode, s.Served(), c.status, n)
		}
		var got map[string]any
		if c.holds != "" && (json.Unmarshal(b, &got) != nil || got[c.holds] == nil) {
			t.Errorf("%s %s: %s holds no %q", c.method, c.path, b, c.holds)
		}
	}
}

package httplimit_test

import (
	"context"
	"io"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

// A banned caller is told that, and no more, in the form of his protocol.
func TestABanIsAnsweredInEveryForm(t *testing.T) {
	g := newGate(t, shop, status(201))
	e := account.Editor{Records: g.store.(weir.Records)}
	if _, _, err := e.Edit(context.Background(), weir.NewKey("account", "bad"), func(r *account.Record) error {
		r.Ban = &account.Ban{Terms: account.Terms{Reason: "card testing"}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, kind, accept string
		status               int
		body                 string
		fields               []string
	}{
		{"POST", "", "", 403, `{"error":"banned"}` + "\n", []string{"Content-Type", "application/json", "Cache-Control", "no-store", "Retry-After", ""}},
		{"POST", "", "application/problem+json", 403, `{"type":"about:blank","title":"Forbidden","status":403,"detail":"","error":"banned"}` + "\n", []string{"Content-Type", "application/problem+json"}},
		{"POST", "application/grpc", "", 200, "", []string{"Grpc-Status", "7", "Grpc-Message", "Forbidden", "Content-Type", "application/grpc"}},
	} {
		r := g.send(c.method, "/reservations", "Test-Sub", "bad", "Content-Type", c.kind, "Accept", c.accept)
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s %s %s: %d %q, %v", c.method, c.kind, c.accept, r.StatusCode, body, err)
		}
		want(t, r, c.fields...)
	}
	if r := g.send("POST", "/reservations", "Test-Sub", "good"); r.StatusCode != 201 {
		t.Errorf("another account: %d", r.StatusCode)
	}
	if r := g.send("POST", "/webhooks/stripe", "Test-Sub", "bad"); r.StatusCode != 201 {
		t.Errorf("an exempt path: %d", r.StatusCode)
	}
}

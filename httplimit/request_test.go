package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

func TestAddressOfAPeer(t *testing.T) {
	var known peers
	for remote, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "192.0.2.1": "192.0.2.1",
		"[2001:db8::1]:1234": "2001:db8::1", "[2001:db8::1]": "2001:db8::1", "2001:db8::1": "2001:db8::1",
		"[::ffff:192.0.2.1]:80": "::ffff:192.0.2.1", "[fe80::1%eth0]:80": "fe80::1%eth0",
		"192.0.2.2:1234": "192.0.2.2", // ends as the first
	} {
		for range 2 { // read, and remembered
			if got := known.of(remote); got != netip.MustParseAddr(want) {
				t.Errorf("%s: %s, want %s", remote, got, want)
			}
		}
	}
	for _, remote := range []string{"", "@", ":80", "[]:80", "[", "shop:80", "192.0.2.1:80:80", "1.2.3"} {
		if got := known.of(remote); got.IsValid() {
			t.Errorf("%q: %s", remote, got)
		}
	}
}

func TestPathIsAsReceived(t *testing.T) {
	for target, want := range map[string]string{
		"/a%2Fb/../c;d?x=/y":    "/a%2Fb/../c;d",
		"http://shop/a%2Fb?x=y": "/a%2Fb",
		"/":                     "/",
		"/?":                    "/",
		"//double//slash":       "//double//slash",
	} {
		r := httptest.NewRequest("GET", target, nil)
		if got := path(r); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	r := httptest.NewRequest("GET", "/a%2Fb", nil)
	r.RequestURI = "" // made by a client, or by an adapter
	if got := path(r); got != "/a%2Fb" {
		t.Errorf("without a request target: %q", got)
	}
}

// Whoever made the request may write into it what the handler was given, as some
// frameworks do, or use it for another one: the context of a call stays its own.
func TestTheContextIsTheCallsOwn(t *testing.T) {
	type key struct{}
	store := memstore.New(memstore.Options{})
	p, _, err := policy.FromLimit("10/s", "ip")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policy: p, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "first"))
	var kept context.Context
	New(e).Handler(http.HandlerFunc(func(_ http.ResponseWriter, given *http.Request) {
		kept = given.Context()
		*r = *given
		if r.Context().Value(key{}) != "first" || r.Context().Err() != nil {
			t.Errorf("within the handler: %v, %v", r.Context().Value(key{}), r.Context().Err())
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	*r = *r.WithContext(context.WithValue(context.Background(), key{}, "second"))
	if _, ok := weir.FromContext(kept); !ok || kept.Value(key{}) != "first" {
		t.Errorf("afterwards: %v", kept.Value(key{}))
	}
}

// Whoever identifies is given the method in upper case, however it was sent.
func TestIdentifyIsGivenTheMethodInUpperCase(t *testing.T) {
	p, _, err := policy.FromLimit("10/s", "ip")
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	e, err := engine.New(engine.Options{Policy: p, Store: memstore.New(memstore.Options{}),
		Identify: func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			seen = a.Method
			return policy.Identity{}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	New(e).Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("post", "/", nil))
	if seen != "POST" {
		t.Errorf("%q", seen)
	}
}

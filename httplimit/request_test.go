package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
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

// What stands in front may have rewritten the URL, and leaves the request target as it
// was: the policy goes by what the handler sees.
func TestARewrittenPathIsTheHandlers(t *testing.T) {
	for _, c := range []struct{ target, path, rawPath, want string }{
		{"/api/orders", "/orders", "", "/orders"},
		{"/api/orders?x=/y", "/orders", "", "/orders"},
		{"/api/a b", "/a b", "", "/a%20b"},
		{"/api/a%2Fb", "/a/b", "/a%2Fb", "/a%2Fb"},
		{"/api/a%2Fb", "/a/b", "", "/a/b"},
		{"/api/a%2Fb", "/other", "/api/a%2Fb", "/other"}, // RawPath is what is left of another path
		{"/api/%6frders", "/orders", "/%6frders", "/%6frders"},
		{"/a%2Fb", "/a/b", "", "/a/b"},
		{"/api/\"", "/\"", "/\"", "/%22"},
		{"/api", "", "", ""},
		{"/api/orders", "orders", "", "/orders"},
		{"/api/a%2Fb", "a/b", "a%2Fb", "/a%2Fb"},
		{"/api//orders", "/orders", "", "/orders"},
		{"/api/*", "*", "", "*"},
		{"http://shop/api/orders", "/orders", "", "/orders"},
		{"*", "/orders", "", "/orders"},
	} {
		r := &http.Request{RequestURI: c.target, URL: &url.URL{Path: c.path, RawPath: c.rawPath}}
		if got := path(r); got != c.want {
			t.Errorf("%s rewritten as %q, %q: %q, want %q", c.target, c.path, c.rawPath, got, c.want)
		}
	}
}

// Nobody has rewritten what comes from the server: the path is the request target's,
// byte for byte, however odd that is.
func TestPathOfWhatAServerReads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	seen, raw := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		want := r.URL.EscapedPath()
		if strings.HasPrefix(r.RequestURI, "/") {
			want, _, _ = strings.Cut(r.RequestURI, "?")
			if want != r.URL.EscapedPath() {
				raw++
			}
		}
		if got := path(r); got != want {
			t.Errorf("%q: %q, want %q", r.RequestURI, got, want)
		}
		seen++
	}))
	defer server.Close()
	parts := []string{
		"/", "/", "/", "//", "/.", "/..", "a", "Orders", "%2F", "%2f", "%25", "%252F", "%41", "%6f", "%20", "%22", "%00", "%7F",
		"%C3%A9", "\xc3\xa9", "\xff", "%zz", "%", "%2", ";", ";x=1", "+", "!", "'", "(", ")", "*", "\"", "<", ">", "[", "]", "{", "}", "|",
		"\\", "^", "`", "~", ":", "@", "&", "=", "$", ",", "#", "#f", "?", "?x=/y", "??", "/api/v1",
	}
	var conn net.Conn
	var in *bufio.Reader
	for range 5000 {
		if conn == nil {
			var err error
			if conn, err = net.Dial("tcp", server.Listener.Addr().String()); err != nil {
				t.Fatal(err)
			}
			in = bufio.NewReader(conn)
		}
		method, target := "GET", "/"
		switch rnd.IntN(16) {
		case 0:
			target = "http://shop/"
		case 1:
			method, target = "OPTIONS", "*"
		case 2:
			method, target = "CONNECT", "shop:80"
		}
		if strings.HasSuffix(target, "/") {
			for range rnd.IntN(8) {
				target += parts[rnd.IntN(len(parts))]
			}
		}
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: shop\r\n\r\n", method, target); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s %q: %v", method, target, err)
		}
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusOK { // what no URL is: the server closes
			conn.Close()
			conn = nil
		}
	}
	if conn != nil {
		conn.Close()
	}
	server.Close()
	if seen < 1000 || raw < 100 {
		t.Errorf("only %d reached the handler, %d of them spelled as Go would not", seen, raw)
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

package httplimit

import (
	"net/http/httptest"
	"net/netip"
	"testing"
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

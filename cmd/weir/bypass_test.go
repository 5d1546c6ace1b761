package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// spelledOrders are ways to write /orders/12 that one server or another takes for
// it, as they go over the wire.
var spelledOrders = []string{
	"/orders/12", "/orders/12/", "/Orders/12", "/ORDERS/12", "//orders/12", "/orders//12", "///orders///12", "/./orders/12", "/orders/./12", "/x/../orders/12",
	"/orders/x/../12", "/orders/12/.", "/orders/12/x/..", "/../orders/12", "/../../orders/12", "/%6frders/12", "/%6Frders/12", "/orders/%31%32", "/orders/1%32",
	"/%6f%72%64%65%72%73/12", "/%256frders/12", "/%25256frders/12", "/orders%2f12", "/orders%2F12", "/orders%252f12", "/orders%5c12", "/orders%255c12", "/orders/12;v=1",
	"/orders;v=1/12", "/orders;/12;", "/orders/12;jsessionid=1", "/%2e/orders/12", "/x/%2e%2e/orders/12", "/x/%2E%2E/orders/12", "/x/.%2e/orders/12", "/x/%252e%252e/orders/12",
	"/x%2f..%2forders/12", "/orders/12?a=b", "/orders/12?", "/orders/12/?x", "/oRdErS/12", "/%4frders/12", "/orders/%2e/12", "//x//..//orders//12", "/orders/12%2f", "/orders/%2e%2e/orders/12",
}

// remainingOf sends one request as it is written, and returns its status and what is
// left under the limit that speaks, or -1.
func remainingOf(t *testing.T, addr, target string, headers ...string) (status, remaining int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := "POST " + target + " HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nContent-Length: 0\r\n"
	for _, h := range headers {
		request += h + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s %q: %v", target, headers, err)
	}
	defer res.Body.Close()
	remaining, err = strconv.Atoi(res.Header.Get("RateLimit-Remaining"))
	if err != nil {
		remaining = -1
	}
	return res.StatusCode, remaining
}

const bypassPolicy = `weir: 1
header_styles: draft6
%s
application:
  limits:
    - {name: orders, match: "POST /orders/{id}", by: ip+path.id, limit: quota 1000/hour}
`

// Whatever way a path is written that reaches one handler, it counts on one counter;
// what is another path does not.
func TestCase_B097_EverySpellingOfAPathIsOne(t *testing.T) {
	if len(spelledOrders) < 40 {
		t.Fatalf("only %d spellings", len(spelledOrders))
	}
	up := newRecorder(t, nil)
	addr := strings.TrimPrefix(proxied(t, fmt.Sprintf(bypassPolicy, ""), up.URL), "http://")
	left := 1000
	for _, target := range spelledOrders {
		left--
		if status, remaining := remainingOf(t, addr, target); status != 200 || remaining != left {
			t.Errorf("%s: status %d, %d remain, want 200 and %d", target, status, remaining, left)
			left = max(left, remaining)
			if remaining >= 0 {
				left = remaining
			} else {
				left++
			}
		}
	}
	for _, target := range []string{"/order/12", "/orders", "/orders/12/items", "/ordersx/12", "/api/orders/12", "/"} {
		if status, remaining := remainingOf(t, addr, target); status != 200 || remaining != -1 {
			t.Errorf("%s: status %d, %d remain: it is another path", target, status, remaining)
		}
	}
	if status, remaining := remainingOf(t, addr, "/orders/13"); status != 200 || remaining != 999 {
		t.Errorf("/orders/13: status %d, %d remain: it is another order", status, remaining)
	}
}

// No header that a client can send makes another client of it: neither from a
// stranger, nor through a proxy of ours, which adds what it saw at the end.
func TestCase_B079_NoHeaderMakesAnotherClient(t *testing.T) {
	forged := []string{
		"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: 10.0.0.1, 6.6.6.6", "X-Forwarded-For: ", "X-Forwarded-For: unknown", "X-Forwarded-For: ,,,",
		"X-Forwarded-For: [2001:db8::6]:80", "X-Forwarded-For: ::ffff:6.6.6.6", "X-Forwarded-For: 6.6.6.6:1234", "x-forwarded-for: 6.6.6.6", "X_Forwarded_For: 6.6.6.6",
		"X-Forwarded: for=6.6.6.6", "Forwarded: for=6.6.6.6", "Forwarded: for=\"[2001:db8::6]\"", "Forwarded-For: 6.6.6.6", "X-Real-IP: 6.6.6.6", "X_Real_IP: 6.6.6.6", "True-Client-IP: 6.6.6.6",
		"CF-Connecting-IP: 6.6.6.6", "CF-Connecting-IPv6: 2001:db8::6", "Fastly-Client-IP: 6.6.6.6", "X-Client-IP: 6.6.6.6", "Client-IP: 6.6.6.6", "X-Cluster-Client-IP: 6.6.6.6", "X-Original-Forwarded-For: 6.6.6.6",
		"X-Remote-IP: 6.6.6.6", "X-Remote-Addr: 6.6.6.6", "X-Originating-IP: 6.6.6.6", "X-Azure-ClientIP: 6.6.6.6", "CloudFront-Viewer-Address: 6.6.6.6:80", "X-Envoy-External-Address: 6.6.6.6",
		"X-ProxyUser-Ip: 6.6.6.6", "WL-Proxy-Client-IP: 6.6.6.6", "X-Original-URL: /other", "X-Rewrite-URL: /other", "X-HTTP-Method-Override: GET", "X-Forwarded-Host: other.example", "X-Api-Key: 1234", "Weir-Decision: exempt",
	}
	if len(forged) < 30 {
		t.Fatalf("only %d headers", len(forged))
	}
	for name, c := range map[string]struct{ policy, added string }{
		"a stranger":                {"", ""},
		"through a trusted network": {"trusted_proxies: [127.0.0.0/8]", "X-Forwarded-For: 198.51.100.7"},
		"through one hop":           {"trusted_proxies: [127.0.0.0/8]\nclient_ip: {hops: 1}", "X-Forwarded-For: 198.51.100.7"},
		"nobody is in front":        {"client_ip: {from: socket}", ""},
		"behind Cloudflare only":    {"client_ip: {from: cloudflare}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			up := newRecorder(t, nil)
			addr := strings.TrimPrefix(proxied(t, fmt.Sprintf(bypassPolicy, c.policy), up.URL), "http://")
			left := 1000
			for _, header := range forged {
				left--
				headers := []string{header}
				if c.added != "" {
					headers = append(headers, c.added)
				}
				if status, remaining := remainingOf(t, addr, "/orders/12", headers...); status != 200 || remaining != left {
					t.Fatalf("%s: status %d, %d remain, want 200 and %d", header, status, remaining, left)
				}
			}
		})
	}
}

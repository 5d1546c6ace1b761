package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/proxy"
)

// front is a running proxy.
type front struct {
	url  string
	addr string
	logs *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type setup struct {
	o   proxy.Options
	tls bool
	h2c bool
}

// start puts the proxy, on the server that the program uses, in front of target.
func start(t *testing.T, target string, s setup) front {
	t.Helper()
	u, err := proxy.ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.o.Target, s.o.Log = u, log
	h, err := proxy.New(s.o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = proxy.NewServer(h, s.h2c, log)
	if s.tls {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return front{url: srv.URL, addr: srv.Listener.Addr().String(), logs: logs}
}

func upstream(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// raw sends bytes as they are, and reads one answer.
func raw(t *testing.T, addr, request string) (*http.Response, string) {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer to %q: %v", request, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen in 20 s", what)
	}
}

func TestTargetReachesUpstreamAsReceived(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) })
	f := start(t, up.URL, setup{})
	for _, c := range []struct{ sent, want string }{
		{"/", "/"},
		{"/a/b?x=1&x=2", "/a/b?x=1&x=2"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%2fb/%41", "/a%2fb/%41"},
		{"/a%252Fb", "/a%252Fb"},
		{"//double//slash/", "//double//slash/"},
		{"/a/../b/./c", "/a/../b/./c"},
		{"/a;v=1/b;c", "/a;v=1/b;c"},
		{"/a?x=1;y=2", "/a?x=1;y=2"},
		{"/a?x=%zz&y=%", "/a?x=%zz&y=%"},
		{"/a?", "/a?"},
		{"/a??b", "/a??b"},
		{"/a?q=a+b%20c", "/a?q=a+b%20c"},
		{"/a:b@c!$&'()*+,=[x]~", "/a:b@c!$&'()*+,=[x]~"},
		{"/%00", "/%00"},
		// illegal bytes, one by one, with the escapes beside them untouched
		{"/a%2Fb|c", "/a%2Fb%7Cc"},
		{"/{id}/\"<>\\^`", "/%7Bid%7D/%22%3C%3E%5C%5E%60"},
		{"/caf\xc3\xa9/\xff", "/caf%C3%A9/%FF"},
		{"/a?q={x|y}\xc3\xa9", "/a?q=%7Bx%7Cy%7D%C3%A9"},
		{"/a#b?c#d", "/a%23b?c%23d"},
		{"http://elsewhere.example/p%2Fq?x", "/p%2Fq?x"},
	} {
		res, body := raw(t, f.addr, "GET "+c.sent+" HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
		if res.StatusCode != 200 || body != c.want {
			t.Errorf("%q reached the upstream as %q (%d), want %q", c.sent, body, res.StatusCode, c.want)
		}
	}
	for _, bad := range []string{"/%zz", "/%2", "/a%"} {
		res, _ := raw(t, f.addr, "GET "+bad+" HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
		if res.StatusCode != 400 {
			t.Errorf("a path with the bad escape %q answers %d, want 400", bad, res.StatusCode)
		}
	}
}

func TestHostAndEncodingReachUpstreamAsReceived(t *testing.T) {
	type seen struct {
		Host, AcceptEncoding, UserAgent string
		Has                             bool
	}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, has := r.Header["Accept-Encoding"]
		w.Header().Set("Content-Encoding", "gzip") // not gzip at all: nobody may try to unpack it
		json.NewEncoder(w).Encode(seen{r.Host, r.Header.Get("Accept-Encoding"), r.UserAgent(), has})
	})
	f := start(t, up.URL, setup{})
	for _, c := range []struct {
		head string
		want seen
	}{
		{"Host: Shop.Example:81\r\n", seen{Host: "Shop.Example:81"}},
		{"Host: a\r\nAccept-Encoding: br;q=1, gzip\r\nUser-Agent: x\r\n", seen{"a", "br;q=1, gzip", "x", true}},
		{"Host: [2001:db8::1]:8080\r\n", seen{Host: "[2001:db8::1]:8080"}},
	} {
		res, body := raw(t, f.addr, "GET / HTTP/1.1\r\n"+c.head+"Connection: close\r\n\r\n")
		var got seen
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if got != c.want {
			t.Errorf("%q: upstream saw %+v, want %+v", c.head, got, c.want)
		}
		if res.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%q: the answer's Content-Encoding is lost", c.head)
		}
		if ct, has := res.Header["Content-Type"]; has && ct[0] != "text/plain; charset=utf-8" {
			t.Errorf("%q: Content-Type %q was made up", c.head, ct)
		}
	}
}

func TestNoContentTypeIsInvented(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html>")
	})
	f := start(t, up.URL, setup{})
	res, _ := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if ct, has := res.Header["Content-Type"]; has {
		t.Errorf("the upstream named no type, the client got %q", ct)
	}
}

func TestForgedHeadersDoNotPass(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Header) })
	f := start(t, up.URL, setup{o: proxy.Options{
		ClientAddr: func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.44") },
		Stamp:      func(in *http.Request, out http.Header) { out.Set("Weir-Decision", "exempt") },
	}})
	var forged strings.Builder
	for _, n := range []string{
		"Weir-Decision", "weir_decision", "WEIR-Anything", "Forwarded", "X-Forwarded-For", "x_forwarded_for", "X-Forwarded_Proto",
		"X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Real-IP", "x_real_ip", "True-Client-IP", "CF-Connecting-IP",
		"cf_connecting_ip", "X-Original-URL", "X-Rewrite-URL", "x_rewrite-url",
	} {
		fmt.Fprintf(&forged, "%s: forged\r\n", n)
	}
	_, body := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: shop.example\r\n"+forged.String()+
		"X-Kept: 1\r\nX_Kept: 2\r\nConnection: close, X-Forwarded-For, Weir-Decision, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: s\r\nTE: trailers, deflate\r\n\r\n")
	var got http.Header
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"X-Forwarded-For": "192.0.2.44", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "http",
		"Weir-Decision": "exempt", "X-Kept": "1", "X_kept": "2", "Te": "trailers",
	}
	for n, v := range want {
		if len(got[n]) != 1 || got[n][0] != v {
			t.Errorf("%s reached the upstream as %q, want %q", n, got[n], v)
		}
		delete(got, n)
	}
	if len(got) > 0 {
		t.Errorf("these should not have reached the upstream: %v", got)
	}
}

func TestClientAddressIsThePeerByDefault(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-For")) })
	f := start(t, up.URL, setup{})
	_, body := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.9.8.7\r\nConnection: close\r\n\r\n")
	if body != "127.0.0.1" {
		t.Errorf("X-Forwarded-For is %q, want the socket's peer", body)
	}
}

func TestConnectAndTraceAre405(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the upstream", r.Method) })
	f := start(t, up.URL, setup{})
	for _, line := range []string{"CONNECT shop.example:443", "TRACE /"} {
		res, body := raw(t, f.addr, line+" HTTP/1.1\r\nHost: shop.example:443\r\nConnection: close\r\n\r\n")
		if res.StatusCode != 405 || res.Header.Get("Allow") == "" || !strings.Contains(body, `"error":"method_not_allowed"`) {
			t.Errorf("%s answers %d %v %s", line, res.StatusCode, res.Header, body)
		}
	}
}

func TestSmuggling(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s cl=%d te=%v %q", r.Method, r.RequestURI, r.ContentLength, r.TransferEncoding, b))
	})
	f := start(t, up.URL, setup{})
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, c := range []struct {
		name, request string
		status        int
		want          string
	}{
		{"both lengths: chunked counts, and is what goes on", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, `POST /1 cl=-1 te=[chunked] "hello"`},
		{"two different lengths", "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello" + hidden, 400, ""},
		{"a space before the colon", "POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, 400, ""},
		{"an encoding that is not chunked", "POST /4 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, ""},
		{"two encodings", "POST /5 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501, ""},
		{"a signed length", "POST /6 HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400, ""},
		{"a folded header", "GET /7 HTTP/1.1\r\nHost: a\r\nX: 1\r\n Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", 200, `GET /7 cl=0 te=[] ""`},
		{"no Host", "GET /8 HTTP/1.1\r\n\r\n", 400, ""},
		{"two Hosts", "GET /9 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, ""},
		{"a line break in a header", "GET /10 HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400, ""},
		{"Connection names Content-Length", "POST /11 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close, Content-Length\r\n\r\nhello", 200, `POST /11 cl=5 te=[] "hello"`},
		{"a length beside a trailer's length", "POST /12 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 40\r\n\r\n", 200, `POST /12 cl=-1 te=[chunked] "hi"`},
	} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		res, _ := raw(t, f.addr, c.request)
		if res.StatusCode != c.status {
			t.Errorf("%s: answered %d, want %d", c.name, res.StatusCode, c.status)
		}
		mu.Lock()
		got := strings.Join(seen, "; ")
		mu.Unlock()
		if got != c.want {
			t.Errorf("%s: the upstream saw %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBrokenBodyIsTheClientsFault(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	f := start(t, up.URL, setup{o: proxy.Options{UpstreamFailed: func(*http.Request, int, error) { t.Error("a broken chunk counted as an upstream failure") }}})
	res, body := raw(t, f.addr, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n")
	if res.StatusCode != 400 || !strings.Contains(body, `"error":"bad_request"`) {
		t.Errorf("a broken chunk answers %d %s, want 400", res.StatusCode, body)
	}
}

func TestUpstreamDown(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := "http://" + ln.Addr().String()
	ln.Close()
	hangup, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangup.Close()
	go func() {
		for {
			c, err := hangup.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for _, target := range []string{down, "http://" + hangup.Addr().String()} {
		var failures []int
		f := start(t, target, setup{o: proxy.Options{UpstreamFailed: func(_ *http.Request, status int, _ error) { failures = append(failures, status) }}})
		res, body := raw(t, f.addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		if res.StatusCode != 502 || !strings.Contains(body, `"error":"upstream_unavailable"`) || res.Header.Get("Cache-Control") != "no-store" || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %v %s", target, res.StatusCode, res.Header, body)
		}
		if fmt.Sprint(failures) != "[502]" {
			t.Errorf("%s: UpstreamFailed heard of %v, want one 502", target, failures)
		}
		if strings.Contains(body, "127.0.0.1") || strings.Contains(body, "dial") {
			t.Errorf("%s: the answer tells the client of the inside: %s", target, body)
		}
	}
}

func TestUpstreamTooSlow(t *testing.T) {
	release := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	defer close(release)
	var failures []int
	f := start(t, up.URL, setup{o: proxy.Options{
		HeaderTimeout:  20 * time.Millisecond,
		UpstreamFailed: func(_ *http.Request, status int, _ error) { failures = append(failures, status) },
	}})
	res, body := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if res.StatusCode != 504 || !strings.Contains(body, `"error":"upstream_timeout"`) {
		t.Errorf("a silent upstream answers %d %s, want 504", res.StatusCode, body)
	}
	if fmt.Sprint(failures) != "[504]" {
		t.Errorf("UpstreamFailed heard of %v, want one 504", failures)
	}
	if proxy.DefaultHeaderTimeout != 60*time.Second {
		t.Errorf("the default is %s, want 60 s", proxy.DefaultHeaderTimeout)
	}
}

func TestServerLimits(t *testing.T) {
	s := proxy.NewServer(http.NotFoundHandler(), false, nil)
	if s.ReadHeaderTimeout != 10*time.Second || s.IdleTimeout != 120*time.Second || s.MaxHeaderBytes != 64<<10 || s.ReadTimeout != 0 || s.WriteTimeout != 0 {
		t.Errorf("limits %+v", s)
	}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {})
	f := start(t, up.URL, setup{})
	for size, want := range map[int]int{60 << 10: 200, 80 << 10: 431} {
		res, _ := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n")
		if res.StatusCode != want {
			t.Errorf("a header of %d bytes answers %d, want %d", size, res.StatusCode, want)
		}
	}
}

func TestHTTPSUpstreamAndForwardedProto(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	defer up.Close()
	f := start(t, up.URL, setup{tls: true, o: proxy.Options{TLS: up.Client().Transport.(*http.Transport).TLSClientConfig}})
	res, err := client("HTTP/2 over TLS").Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(b) != "https" {
		t.Errorf("X-Forwarded-Proto %q, want https", b)
	}
}

func TestParseTargetNamesTheFix(t *testing.T) {
	for _, bad := range []string{"", "localhost:3000", "ftp://a", "http://", "http://a/base", "http://a?x=1", "http://u:secret@a", "http://a/#f", ":"} {
		_, err := proxy.ParseTarget(bad)
		if err == nil || !strings.Contains(err.Error(), "http://localhost:3000") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := proxy.New(proxy.Options{}); err == nil {
		t.Error("no target at all is accepted")
	}
	if _, err := proxy.New(proxy.Options{Target: &url.URL{Scheme: "h2c", Host: "a:1"}}); err != nil {
		t.Error(err)
	}
}

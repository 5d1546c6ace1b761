package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlabs/weir/httplimit"
)

// pathsPolicy has a rule of each kind that patterns lead to.
const pathsPolicy = `weir: 1
exempt: [{name: hooks, path: /hooks/*}]
edge: [{name: login, path: /api/auth/*, by: ip, limit: 1000000/s}]
auth: {api_keys: {header: X-Api-Key, file: keys.txt}}
gateway:
  match: "/partner/{rest...}"
  plans: {partner: 1000000/s}
application:
  plans: {free: {tree: 1000000/s}}
  operations: {tree: {match: "/tree/{a}/{b}/{rest...}"}}
  limits:
    - {name: files, match: "/files/{rest...}", by: ip, limit: 1000000/s}
    - {name: orders, match: "/orders/{id}", by: ip, limit: 1000000/s}
    - {name: seats, match: "/events/{event}/seats", by: ip, limit: 1000000/s}
    - {name: dear, match: /dear/, by: ip, limit: 1000000/s}
`

// pathsRules are the patterns of handlers, each with the rule that it is under. Without
// a key, which no request has, no request gets to the gateway's.
var pathsRules = map[string]string{
	"/api/auth/": "login", "/files/{rest...}": "files", "/orders/{id}": "orders", "/events/{event}/seats": "seats", "/dear/": "dear",
	"/tree/{a}/{b}/{rest...}": "tree", "/partner/{rest...}": "partner", "/hooks/{rest...}": "",
}

// segmentsOf are the segments of a path by which a router chooses: a ServeMux's are
// those of the path that is sent, after it sends whoever writes literal dot segments
// elsewhere; many routers' are those of the path that is sent, or of the decoded one.
type segmentsOf func(*http.Request) []string

// router serves patterns of ServeMux's form by segments, of which it resolves none.
func router(segments segmentsOf, handlers map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := segments(r)
	next:
		for p := range pathsRules {
			want := strings.Split(p[1:], "/")
			last := len(want) - 1
			if all := want[last] == "" || strings.HasSuffix(want[last], "...}"); all {
				if len(got) < len(want) {
					continue
				}
				want = want[:last]
			} else if len(got) != len(want) {
				continue
			}
			for i, s := range want {
				if got[i] != s && (!strings.HasPrefix(s, "{") || got[i] == "") {
					continue next
				}
			}
			handlers[p].ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// Whatever way a path is written, it reaches no handler unlimited: neither through a
// ServeMux, for which a dot segment with an escape is a segment like any other, nor
// through routers that take every segment as it is sent, nor through servers that
// resolve dot segments, of the decoded path or as browsers do.
func TestNoSpellingReachesAHandlerUnlimited(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte("the report"), 0o600); err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int64
	handlers := map[string]http.Handler{}
	for p, rule := range pathsRules {
		var serve http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		if rule == "files" {
			serve = http.StripPrefix("/files/", http.FileServer(http.Dir(dir)))
		}
		handlers[p] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached.Add(1)
			o, n := httplimit.Outcome(r.Context()), 0
			for i := range o.Verdicts {
				if o.Verdicts[i].Rule.Name == rule {
					n++
				}
			}
			if rule != "" && (n != 1 || o.Exempt != "") {
				t.Errorf("%s reaches %s as %s, where %s is asked %d times, exempt is %q", r.RequestURI, p, r.URL.Path, rule, n, o.Exempt)
			}
			serve.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	for p, h := range handlers {
		mux.Handle(p, h)
	}
	for name, next := range map[string]http.Handler{
		"ServeMux": mux,
		"the path as sent, decoded by segment": router(func(r *http.Request) []string {
			path, _, _ := strings.Cut(r.RequestURI, "?")
			parts := strings.Split(path[1:], "/")
			for i, part := range parts {
				parts[i], _ = url.PathUnescape(part)
			}
			return parts
		}, handlers),
		"the path as sent":          router(func(r *http.Request) []string { return strings.Split(r.URL.EscapedPath()[1:], "/") }, handlers),
		"the decoded path":          router(func(r *http.Request) []string { return strings.Split(r.URL.Path[1:], "/") }, handlers),
		"the decoded path, cleaned": router(func(r *http.Request) []string { return strings.Split(path.Clean(r.URL.Path)[1:], "/") }, handlers),
		"the path of a browser's URL": router(func(r *http.Request) []string {
			sent, _, _ := strings.Cut(r.RequestURI, "?")
			sent = strings.NewReplacer("%2e", ".", "%2E", ".", `\`, "/").Replace(sent)
			at := new(url.URL).ResolveReference(&url.URL{Path: "/", RawPath: "/"}) // and not of this path: it may begin with two slashes
			parts := strings.Split(at.ResolveReference(&url.URL{Path: sent}).Path[1:], "/")
			for i, part := range parts {
				parts[i], _ = url.PathUnescape(part)
			}
			return parts
		}, handlers),
		"without parameters, decoded, cleaned": router(func(r *http.Request) []string {
			sent, _, _ := strings.Cut(r.RequestURI, "?")
			parts := strings.Split(sent[1:], "/")
			for i, part := range parts {
				part, _, _ = strings.Cut(part, ";")
				parts[i], _ = url.PathUnescape(part)
			}
			return strings.Split(path.Clean("/" + strings.Join(parts, "/"))[1:], "/")
		}, handlers),
	} {
		t.Run(name, func(t *testing.T) {
			reached.Store(0)
			g := newGate(t, pathsPolicy, next)
			sv := httptest.NewUnstartedServer(g)
			sv.Config.ErrorLog = log.New(io.Discard, "", 0)
			sv.Start()
			defer sv.Close()
			c := &rawClient{t: t, addr: sv.Listener.Addr().String()}
			defer c.close()
			for _, target := range dottedTargets {
				c.get(target)
			}
			rnd := rand.New(rand.NewPCG(seed, 0))
			const random = 12_000
			for range random {
				c.get(dottedTarget(rnd))
			}
			if n := reached.Load(); n < random/20 {
				t.Errorf("only %d of %d requests reach a handler", n, random)
			} else {
				t.Logf("%d of %d requests reach a handler", n, random)
			}
		})
	}
}

// A proxy behind the middleware would send on, as "http://host/path", what net/http takes
// for an opaque URL without a path. No limit could see that.
func TestOpaqueTargetsReachNobody(t *testing.T) {
	reached := make(chan string, 8)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.RequestURI }))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newGate(t, pathsPolicy, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}))
	defer server.Close()
	for target, want := range map[string]int{"x:http://up/orders/7": 400, "x:orders/7": 400, "http:orders/7": 400, "http://up/orders/7": 200} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n", target); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", target, res.Status)
		}
	}
	if len(reached) != 1 {
		t.Errorf("%d requests reached the server", len(reached))
	}
}

// dottedTargets are those by which limits were once passed.
var dottedTargets = []string{
	"/files/%2e%2e/report.txt", "/files/../report.txt", "/files/.%2E/report.txt", "/files%2f..%2freport.txt", "/files/%2e%2e", "/files/..;/report.txt", "/files/..%5creport.txt",
	"/orders/%2e%2e", "/orders/%2e", "/orders/..", "/events/%2e%2e/seats", "/events/./seats", "/dear/%2e%2e/", "/dear/../", "/api/auth/%2e%2e/login", "/api/auth/../login",
	"/partner/%2e%2e/data", "/partner/../data", "/tree/%2e%2e/%2e/x", "/orders/../hooks/x", "/orders/%2e%2e/%2e%2e/hooks/x", "/files/%2e%2e/hooks/x", "/tree/../../hooks",
	"/orders//../7", "/orders//%2e%2e/7", `/orders%2fa%252fb"`, "/orders%2fa%255cb^", `/events%2fa\b/seats`, "/dear/x/a%252fb/..;",
	"/files/x%2fa%5cb%2f..%2f..%2fdear%2fr.txt", "/x%2fa%252fb%2f..%2f..%2fdear%2fr.txt", "/files/dear%2f;%2f..%2fr.txt",
}

// dottedTarget writes the path of some handler with dot segments, literal and escaped.
func dottedTarget(rnd *rand.Rand) string {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	dot := func() string { return one(".", "%2e", "%2E", "%252e") }
	slash := func() string { return one("/", "/", "/", "/", "/", "/", "%2f", "%2F", "//") }
	dots := func() string {
		return one(dot(), dot()+dot(), dot()+dot(), dot()+dot()+one(";", ";x=1", `\`, "%5c", "%25", "%2f"))
	}
	path := one("/files/report.txt", "/files/a/b", "/orders/7", "/events/e/seats", "/dear/", "/dear/x", "/api/auth/login", "/partner/data", "/tree/a/b/c", "/hooks/x")
	parts := strings.Split(path[1:], "/")
	for range 1 + rnd.IntN(3) {
		at := rnd.IntN(len(parts) + 1)
		switch rnd.IntN(5) {
		case 0, 1:
			parts = slices.Insert(parts, at, dots())
		case 2:
			if at < len(parts) && at > 0 {
				parts[at] = dots()
			}
		case 3:
			parts = slices.Insert(parts, at, one("hooks", "files", "x", "", ";a", `a\b`, "a%5cb", "a%2fb", "a%252fb", `"`, "^"), dots())
		case 4:
			if at < len(parts) && parts[at] != "" && parts[at][0] >= 'a' {
				parts[at] = fmt.Sprintf("%%%02x", parts[at][0]) + parts[at][1:]
			}
		}
	}
	target := "/" + parts[0]
	for _, part := range parts[1:] {
		target += slash() + part
	}
	return target
}

// rawClient sends targets as they are, one connection for many.
type rawClient struct {
	t    *testing.T
	addr string
	conn net.Conn
	from *bufio.Reader
}

func (c *rawClient) get(target string) {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			c.t.Fatal(err)
		}
		c.conn, c.from = conn, bufio.NewReader(conn)
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: shop.example\r\n\r\n", target); err != nil {
		c.t.Fatal(target, err)
	}
	res, err := http.ReadResponse(c.from, nil)
	if err != nil {
		c.t.Fatal(target, err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		c.t.Fatal(target, err)
	}
	res.Body.Close()
	if res.Close { // as after a path that is not one
		c.close()
	}
}

func (c *rawClient) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

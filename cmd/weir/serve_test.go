package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const testSecret = "the secret of these tests, of 32 bytes and more"

func token(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	s, err := signed(claims)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(claims jwt.MapClaims) (string, error) {
	if _, has := claims["exp"]; !has {
		claims["exp"] = time.Now().Add(time.Hour).Unix()
	}
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(testSecret))
	return "Bearer " + s, err
}

// recorder is a service that keeps what reached it.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newRecorder(t *testing.T, h http.HandlerFunc) *recorder {
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, req)
		r.mu.Unlock()
		if h != nil {
			h(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) last() *http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		return &http.Request{Header: http.Header{}}
	}
	return r.seen[len(r.seen)-1]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// proxied runs weir proxy in this process with a policy.
func proxied(t *testing.T, policyText, target string, args ...string) string {
	t.Helper()
	t.Setenv("TEST_SECRET", testSecret)
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), policyText)
	url, stop, err := inProcess(append([]string{"proxy", "-q", "--to", target, "-c", file, "--listen", "127.0.0.1:0", "--store", "memory:"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

func do(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

const accounts = `weir: 1
auth:
  jwt: {hs256_secret_env: TEST_SECRET}
callers: {account: jwt.sub, ip: client_ip}
trusted_proxies: [127.0.0.1/32]
exempt:
  - {name: health, path: /healthz, because: "a probe"}
edge:
  - {name: rate-all, limit: sliding 30/5m, by: ip}
application:
  limits:
    - {name: seats, match: POST /seats, by: [account, ip], limit: quota 3/hour, anonymous: quota 1/hour}
`

func TestUpstreamDownGivesBack(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	url := proxied(t, accounts, gone.URL)
	who := token(t, jwt.MapClaims{"sub": "a"})
	for range 10 {
		res, body := do(t, "POST", url+"/seats", "Authorization", who)
		if res.StatusCode != 502 || !strings.Contains(body, "upstream_unavailable") {
			t.Fatalf("%d %s, want 502 each time: a quota of 3 is not touched", res.StatusCode, body)
		}
	}
	if used := usage3(t, url, who); used != 0 {
		t.Errorf("used %v after ten calls that never arrived", used)
	}
}

// usage3 is what a caller has used of seats.
func usage3(t *testing.T, url, who string) float64 {
	t.Helper()
	res, body := do(t, "GET", url+"/.weir/usage", "Authorization", who)
	var doc struct {
		SchemaVersion int `json:"schema_version"`
		Limits        []map[string]any
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil || res.StatusCode != 200 || doc.SchemaVersion != 1 || res.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("usage: %d %v %s", res.StatusCode, res.Header, body)
	}
	for _, l := range doc.Limits {
		if l["name"] == "seats" {
			return l["used"].(float64)
		}
	}
	t.Fatalf("usage does not list seats: %s", body)
	return 0
}

func TestIdentityThroughTheProxy(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL)
	for _, c := range []struct {
		what, method, path string
		header             []string
		want               int
	}{
		{"a bad token where nothing applies", "GET", "/anything", []string{"Authorization", "Bearer bad"}, 200},
		{"a bad token at an exempt path", "GET", "/healthz", []string{"Authorization", "Bearer bad"}, 200},
		{"a bad token at a limit", "POST", "/seats", []string{"Authorization", "Bearer bad"}, 401},
		{"an expired token at a limit", "POST", "/seats", []string{"Authorization", token(t, jwt.MapClaims{"sub": "a", "exp": 1})}, 401},
		{"two tokens at a limit", "POST", "/seats", []string{"Authorization", token(t, jwt.MapClaims{"sub": "a"}), "Authorization", token(t, jwt.MapClaims{"sub": "b"})}, 400},
		{"nobody", "POST", "/seats", nil, 200},
		{"nobody once more: the address is the caller", "POST", "/seats", nil, 429},
		{"an empty sub is nobody too", "POST", "/seats", []string{"Authorization", token(t, jwt.MapClaims{"sub": ""})}, 429},
		{"somebody", "POST", "/seats", []string{"Authorization", token(t, jwt.MapClaims{"sub": "a"})}, 200},
		{"an account named like the address", "POST", "/seats", []string{"Authorization", token(t, jwt.MapClaims{"sub": "127.0.0.1"})}, 200},
		{"usage without a token", "GET", "/.weir/usage", nil, 401},
		{"usage with a bad token", "GET", "/.weir/usage", []string{"Authorization", "Bearer bad"}, 401},
		{"usage is read", "POST", "/.weir/usage", nil, 405},
	} {
		res, body := do(t, c.method, url+c.path, c.header...)
		if res.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", c.what, res.StatusCode, body, c.want)
		}
	}
}

func TestUpstreamLearnsTheDecisionAndTheClient(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL)
	from := "198.51.100.9"
	do(t, "POST", url+"/seats", "X-Forwarded-For", "10.6.6.6, "+from, "Weir-Decision", "exempt", "X_Forwarded_For", "10.1.1.1")
	h := up.last().Header
	if got := h.Get("X-Forwarded-For"); got != from {
		t.Errorf("X-Forwarded-For %q, want the address that the trusted proxy reported", got)
	}
	if got := h.Values("Weir-Decision"); len(got) != 1 || !regexp.MustCompile(`^allowed;limit="seats";r=0$`).MatchString(got[0]) {
		t.Errorf("Weir-Decision %q", got)
	}
	if len(h["X_forwarded_for"]) > 0 {
		t.Errorf("a forged spelling passed: %v", h)
	}
	do(t, "GET", url+"/healthz", "X-Forwarded-For", from)
	if got := up.last().Header.Get("Weir-Decision"); got != "exempt" {
		t.Errorf("Weir-Decision of an exempt path %q", got)
	}
	if got := up.last().Header.Get("X-Forwarded-For"); got != from {
		t.Errorf("X-Forwarded-For of an exempt path %q", got)
	}
}

func TestOwnPathsAreNeverForwarded(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL)
	for path, want := range map[string]int{
		"/.weir/healthz": 200, "/.WEIR/Healthz": 200, "/%2eweir/healthz": 200, "/.weir%2fhealthz": 200, "/a/../.weir/healthz": 200,
		"/.weir/healthz;x=1": 200, "//.weir//healthz": 200, "/.weir/usage": 401, "/.weir%252fusage": 401, "/.weir/": 404, "/.weir/other": 404, "/.weir/healthz/more": 404,
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
		b, _ := io.ReadAll(c)
		c.Close()
		if !bytes.HasPrefix(b, fmt.Appendf(nil, "HTTP/1.0 %d ", want)) {
			t.Errorf("%s: %.40q, want %d", path, b, want)
		}
	}
	if n := up.count(); n != 0 {
		t.Errorf("%d of weir's own paths reached the service, the last %s", n, up.last().RequestURI)
	}
	do(t, "GET", url+"/.weirdness")
	if up.count() != 1 {
		t.Error("/.weirdness belongs to the service and did not reach it")
	}
}

func TestCase_B100_WrongCredentialsAreCounted(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL)
	got := map[int]int{}
	for i := range 40 {
		res, _ := do(t, "POST", url+"/seats", "Authorization", fmt.Sprintf("Bearer guess-%d", i), "X-Forwarded-For", "198.51.100.10")
		got[res.StatusCode]++
	}
	if got[401] != 30 || got[429] != 10 || up.count() != 0 {
		t.Errorf("40 guesses under sliding 30/5m: %v, %d forwarded", got, up.count())
	}
}

func TestCase_B101_HealthProbesAreNeverRefused(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL)
	for range 100 { // all from one address
		for _, path := range []string{"/healthz", "/.weir/healthz"} {
			if res, _ := do(t, "GET", url+path); res.StatusCode != 200 {
				t.Fatalf("%s: %d", path, res.StatusCode)
			}
		}
	}
}

func TestCase_B245_ARefusedUpgradeIsAValidAnswer(t *testing.T) {
	up := newRecorder(t, nil)
	url := proxied(t, strings.ReplaceAll(accounts, "POST /seats", "GET /chat"), up.URL)
	do(t, "GET", url+"/chat") // the anonymous one of the hour
	res, body := do(t, "GET", url+"/chat", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "a2V5")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || res.ContentLength != int64(len(body)) || !json.Valid([]byte(body)) {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, body)
	}
}

func TestStreamsPassThroughTheWholeProxy(t *testing.T) {
	release := make(chan struct{})
	up := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	url := proxied(t, strings.ReplaceAll(accounts, "POST /seats", "GET /stream"), up.URL)
	res, err := http.Get(url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 9)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "data: 1\n\n" {
		t.Errorf("first event %q, %v", buf, err)
	}
	if res.Header.Get("RateLimit") == "" {
		t.Errorf("a stream under a limit has no RateLimit: %v", res.Header)
	}
}

func TestShadowRefusesNothing(t *testing.T) {
	up := newRecorder(t, nil)
	log := filepath.Join(t.TempDir(), "decisions.log")
	url := proxied(t, accounts, up.URL, "--shadow", "--decision-log", log)
	for range 5 {
		if res, _ := do(t, "POST", url+"/seats"); res.StatusCode != 200 {
			t.Fatalf("--shadow refused with %d", res.StatusCode)
		}
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), `"allowed":false,"shadow":true`); n != 4 {
		t.Errorf("%d shadow refusals in the log, want 4:\n%s", n, b)
	}
}

func TestDecisionLog(t *testing.T) {
	up := newRecorder(t, nil)
	log := filepath.Join(t.TempDir(), "decisions.log")
	url := proxied(t, accounts, up.URL, "--decision-log", log, "--decision-log-allowed", "1")
	who := token(t, jwt.MapClaims{"sub": "secret-name"})
	for range 4 {
		do(t, "POST", url+"/seats", "Authorization", who)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var refusals, allowed int
	for line := range strings.Lines(string(b)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, field := range []string{"time", "layer", "limit", "operation", "plan", "key_hash", "allowed", "shadow", "reason", "cost", "remaining", "retry_after_seconds", "degraded", "denial_id", "weight"} {
			if _, has := r[field]; !has {
				t.Errorf("a line has no %s: %s", field, line)
			}
		}
		if r["limit"] != "seats" {
			continue
		}
		if r["allowed"] == true {
			allowed++
		} else {
			refusals++
		}
	}
	if allowed != 3 || refusals != 1 {
		t.Errorf("%d allowed and %d refused in the log, want 3 and 1", allowed, refusals)
	}
	if strings.Contains(string(b), "secret-name") {
		t.Error("the log holds a caller's name")
	}
}

func TestProxySpeaksTLSAndHTTP2(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert := writeFile(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	keyFile := writeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	up := newRecorder(t, nil)
	url := proxied(t, accounts, up.URL, "--tls-cert", cert, "--tls-key", keyFile)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFile(t, cert)))
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	res, err := client.Get(url + "/x")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if !strings.HasPrefix(url, "https://") || res.ProtoMajor != 2 || up.last().Header.Get("X-Forwarded-Proto") != "https" {
		t.Errorf("%s: %s, forwarded as %q", url, res.Proto, up.last().Header.Get("X-Forwarded-Proto"))
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

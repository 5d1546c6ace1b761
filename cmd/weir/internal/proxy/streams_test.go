package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/proxy"
)

func TestTrailersBothWays(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
		w.Header().Set("X-Sum", fmt.Sprint(len(b)))
		got, _ := json.Marshal(r.Trailer)
		w.Header().Set(http.TrailerPrefix+"X-Seen", string(got))
	})
	for _, fields := range []string{"", "Trailer: X-Check, X-Forwarded-For\r\n", "Upgrade: other\r\n"} { // the last of a request that is changed
		f := start(t, up.URL, setup{})
		head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
		res, body := raw(t, f.addr, head+fields+"\r\n5\r\nhello\r\n0\r\nX-Check: abc\r\nX-Forwarded-For: 10.0.0.1\r\nweir_decision: x\r\n\r\n")
		if body != "hello" || res.Trailer.Get("X-Sum") != "5" {
			t.Errorf("%q: body %q, trailer %v", fields, body, res.Trailer)
		}
		if got := res.Trailer.Get("X-Seen"); got != `{"X-Check":["abc"]}` {
			t.Errorf("%q: the upstream saw the trailers %s", fields, got)
		}
	}
}

func TestCase_B244_StreamsArriveBeforeTheirEnd(t *testing.T) {
	release := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-release
		io.WriteString(w, "data: 2\n\n")
	})
	for name, s := range map[string]setup{"HTTP/1.1": {}, "HTTP/2 over TLS": {tls: true}, "h2c": {h2c: true}} {
		release = make(chan struct{})
		f := start(t, up.URL, s)
		res, err := client(name).Get(f.url)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := res.Proto; (name == "HTTP/1.1") != (got == "HTTP/1.1") {
			t.Errorf("%s: the client spoke %s", name, got)
		}
		buf := make([]byte, 9)
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "data: 1\n\n" {
			t.Fatalf("%s: first event %q, %v", name, buf, err)
		}
		close(release)
		rest, err := io.ReadAll(res.Body)
		if err != nil || string(rest) != "data: 2\n\n" {
			t.Errorf("%s: rest %q, %v", name, rest, err)
		}
		res.Body.Close()
	}
}

func client(proto string) *http.Client {
	p := new(http.Protocols)
	switch proto {
	case "h2c":
		p.SetUnencryptedHTTP2(true)
	case "HTTP/2 over TLS":
		p.SetHTTP2(true)
	default:
		p.SetHTTP1(true)
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		Protocols: p, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

func TestBothDirectionsAtOnce(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		w.WriteHeader(200)
		rc.Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "echo "+line)
			rc.Flush()
		}
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	up := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	up.Config.Protocols = p
	up.Start()
	defer up.Close()
	for _, target := range []string{up.URL, strings.Replace(up.URL, "http:", "h2c:", 1)} {
		for name, s := range map[string]setup{"HTTP/1.1": {}, "HTTP/2 over TLS": {tls: true}, "h2c": {h2c: true}} {
			f := start(t, target, s)
			pr, pw := io.Pipe()
			res, err := client(name).Post(f.url, "text/plain", pr)
			if err != nil {
				t.Fatalf("%s to %s: %v", name, target, err)
			}
			out := bufio.NewReader(res.Body)
			for i := range 3 {
				fmt.Fprintf(pw, "line %d\n", i)
				got, err := out.ReadString('\n')
				if want := fmt.Sprintf("echo line %d\n", i); err != nil || got != want {
					t.Fatalf("%s to %s: %q, %v, want %q", name, target, got, err, want)
				}
			}
			pw.Close()
			if _, err := io.ReadAll(out); err != nil {
				t.Errorf("%s to %s: the end: %v", name, target, err)
			}
			res.Body.Close()
		}
	}
}

// webSocket answers a handshake as a WebSocket server does, and echoes bytes.
func webSocket(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", r.Header.Get("Sec-Websocket-Key"))
	rw.Flush()
	io.Copy(c, rw)
}

func TestCase_B244_WebSocket(t *testing.T) {
	up := upstream(t, webSocket)
	for _, target := range []string{up.URL, strings.Replace(up.URL, "http:", "h2c:", 1)} {
		f := start(t, target, setup{})
		c := dial(t, f.addr)
		io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n\r\n")
		br := bufio.NewReader(c)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 101 || res.Header.Get("Sec-Websocket-Accept") != "a2V5" {
			t.Fatalf("%s: handshake %v, %v", target, res, err)
		}
		for _, frame := range []string{"\x81\x85abcd12345", "\x00\xff binary"} {
			io.WriteString(c, frame)
			got := make([]byte, len(frame))
			if _, err := io.ReadFull(br, got); err != nil || string(got) != frame {
				t.Fatalf("%s: echo %q, %v", target, got, err)
			}
		}
	}
}

func TestOnlyWebSocketUpgradesPass(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode([]string{r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("Http2-Settings")})
	})
	f := start(t, up.URL, setup{})
	for _, u := range []string{"h2c", "h2c, websocket", "websocket\r\nUpgrade: h2c", "TLS/1.0", "\x80"} {
		res, body := raw(t, f.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade, HTTP2-Settings\r\nUpgrade: "+u+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		if res.StatusCode != 200 || body != "[\"\",\"\",\"\"]\n" {
			t.Errorf("Upgrade: %q: %d, the upstream saw %s", u, res.StatusCode, body)
		}
	}
}

func TestInterimAnswers(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	f := start(t, up.URL, setup{})
	var interim []int
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") == "" {
				t.Error("the early hint lost its Link")
			}
			interim = append(interim, code)
			return nil
		},
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", f.url, nil)
	res, err := client("").Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	if len(interim) != 1 || interim[0] != 103 || res.Header.Get("Link") != "" {
		t.Errorf("interim answers %v, final Link %q", interim, res.Header.Get("Link"))
	}
}

func TestExpectContinue(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusForbidden) // without reading: no 100 is sent
			return
		}
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	f := start(t, up.URL, setup{})
	c := dial(t, f.addr)
	io.WriteString(c, "POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 100 {
		t.Fatalf("before the body: %v, %v", res, err)
	}
	io.WriteString(c, "hello")
	res, err = http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("after the body: %v, %v", res, err)
	}
	if b, _ := io.ReadAll(res.Body); string(b) != "hello" {
		t.Errorf("body %q", b)
	}
	res, _ = raw(t, f.addr, "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if res.StatusCode != 403 {
		t.Errorf("an upstream that declines the body: %d, want its 403", res.StatusCode)
	}
}

func TestClientAbortCancelsUpstream(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/midway" {
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
		}
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	for name, s := range map[string]setup{"HTTP/1.1": {}, "HTTP/2 over TLS": {tls: true}} {
		for _, path := range []string{"/early", "/midway"} {
			began, ended = make(chan struct{}), make(chan struct{})
			failed := false
			s.o.UpstreamFailed = func(*http.Request, int, error) { failed = true }
			f := start(t, up.URL, s)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				req, _ := http.NewRequestWithContext(ctx, "GET", f.url+path, nil)
				res, err := client(name).Do(req)
				if err == nil {
					io.ReadAll(res.Body)
					res.Body.Close()
				}
			}()
			within(t, "the upstream call", began)
			cancel()
			within(t, name+path+": the upstream's cancellation", ended)
			within(t, "the client's return", done)
			if failed {
				t.Errorf("%s %s: a client that left counted as an upstream failure", name, path)
			}
			if l := f.logs.String(); strings.Contains(l, "panic") || strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR") {
				t.Errorf("%s %s: logged %s", name, path, l)
			}
		}
	}
}

func TestAbortedUpload(t *testing.T) {
	ended := make(chan error, 1)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	})
	for _, head := range []string{"Content-Length: 1000\r\n\r\npart", "Transfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"} {
		f := start(t, up.URL, setup{o: proxy.Options{UpstreamFailed: func(*http.Request, int, error) { t.Error("an aborted upload counted as an upstream failure") }}})
		c := dial(t, f.addr)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+head)
		c.Close()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%q: the upstream took the half body for a whole one", head)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the upstream was never told")
		}
		if l := f.logs.String(); strings.Contains(l, "panic") || strings.Contains(l, "level=WARN") {
			t.Errorf("logged %s", l)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// echoing is a service that answers WebSockets with what they say.
func echoing(t *testing.T) *recorder {
	return newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
	})
}

// chat is a WebSocket.
type chat struct {
	net.Conn
	r        *bufio.Reader
	response *http.Response
}

func openChat(t *testing.T, url string) *chat {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("handshake: %v, %v", res, err)
	}
	return &chat{c, r, res}
}

func (c *chat) echo(t *testing.T) {
	t.Helper()
	io.WriteString(c, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(c.r, got); err != nil || string(got) != "hello" {
		t.Errorf("echo %q, %v", got, err)
	}
}

func TestWebSocketThroughTheWholeProxy(t *testing.T) {
	up := echoing(t)
	url := proxied(t, strings.ReplaceAll(accounts, "POST /seats", "GET /chat"), up.URL)
	c := openChat(t, url)
	defer c.Close()
	if c.response.Header.Get("RateLimit") == "" {
		t.Errorf("handshake: %v", c.response.Header)
	}
	c.echo(t)
	// One handshake is one call, however much is said after it.
	if res, _ := do(t, "GET", url+"/chat"); res.StatusCode != 429 {
		t.Errorf("a second call of an anonymous limit of one: %d", res.StatusCode)
	}
}

// A WebSocket may end by itself after a SIGTERM, as a request may.
func TestTermLetsWebSocketsEnd(t *testing.T) {
	up := echoing(t)
	p := startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "100/s", "--listen", "127.0.0.1:0")
	a, b := openChat(t, p.url), openChat(t, p.url)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.line("draining")
	a.echo(t)
	a.Close()
	b.echo(t)
	b.Close()
	for range p.lines {
	}
	p.ended = true
	if err := p.cmd.Wait(); err != nil || strings.Contains(p.log(), "in time") {
		t.Errorf("SIGTERM: %v, want exit 0\n%s", err, p.log())
	}

	// A second signal ends at once.
	p = startWeir(t, nil, "proxy", "--to", up.URL, "--limit", "100/s", "--listen", "127.0.0.1:0")
	openChat(t, p.url).echo(t)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.line("draining")
	if code := p.end(syscall.SIGTERM); code != -1 {
		t.Errorf("a second SIGTERM: exit %d, want an end by the signal", code)
	}
}

// One that does not end is cut when the time is over, and what it used is free.
func TestDrainCutsWebSocketsInTheEnd(t *testing.T) {
	up := echoing(t)
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.FromLimit("100/s", "ip")
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	s, err := newServer(t.Context(), serverOptions{
		policy: p, store: memstore.New(memstore.Options{}), target: target, listen: "127.0.0.1:0", replicas: 1,
		drain: 50 * time.Millisecond, log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.serve(ctx) }()
	c := openChat(t, s.url())
	c.echo(t)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := c.r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the WebSocket is still open: %d, %v", n, err)
	}
	if !strings.Contains(said.String(), "not every WebSocket ended in time") || !strings.Contains(said.String(), "cut=1") {
		t.Errorf("log: %s", said.String())
	}
}

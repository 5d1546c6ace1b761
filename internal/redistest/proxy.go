package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy stands between a client and a server and loses replies.
type Proxy struct {
	// Addr is where a client connects.
	Addr string

	server string
	lose   atomic.Pointer[string]
	lost   atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// NewProxy starts a proxy before a server.
func NewProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: s.Addr, conns: map[net.Conn]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c) })
		}
	})
	tb.Cleanup(func() {
		l.Close()
		p.Break()
		running.Wait()
	})
	return p
}

// LoseReply makes the proxy lose the reply to the next command of a name, such
// as "EVALSHA": the server has done what was asked, and the connection breaks.
// Commands must come one at a time.
func (p *Proxy) LoseReply(command string) { p.lose.Store(&command) }

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

// Break ends all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
		client.Close()
		server.Close()
	}()
	var losing atomic.Bool
	go func() {
		defer server.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := client.Read(buf)
			if name := p.lose.Load(); name != nil && bytes.Contains(buf[:n], []byte(*name)) && p.lose.CompareAndSwap(name, nil) {
				losing.Store(true)
			}
			if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if n > 0 && losing.Load() {
			p.lost.Add(1)
			return
		}
		if _, failed := client.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

package redistest

import (
	"io"
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
	lose   atomic.Bool
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

// LoseNext makes the proxy lose the next reply: the server has done what was
// asked, and the connection breaks.
func (p *Proxy) LoseNext() { p.lose.Store(true) }

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
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			if p.lose.CompareAndSwap(true, false) {
				p.lost.Add(1)
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

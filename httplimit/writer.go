package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/weirlabs/weir/engine/answer"
)

// The response writers below differ only in the optional interfaces that the
// server's own writer has. Each is one pointer, so that none costs memory.

type (
	plain    struct{ c *call }
	pusher   struct{ plain } // as of http.TimeoutHandler
	flusher  struct{ plain }
	hijacker struct{ flusher }
	http1    struct{ hijacker }
	http2    struct{ flusher }
)

var (
	_ io.StringWriter = plain{}
	_ http.Flusher    = flusher{}
	_ http.Hijacker   = hijacker{}
	_ io.ReaderFrom   = http1{}
	_ http.Pusher     = http2{}
	_ http.Pusher     = pusher{}
)

// writer picks the one that can do what the server's can.
func (c *call) writer() http.ResponseWriter {
	p := plain{c}
	switch c.w.(type) {
	case interface {
		http.Flusher
		http.Hijacker
		io.ReaderFrom
	}:
		return http1{hijacker{flusher{p}}}
	case interface {
		http.Flusher
		http.Hijacker
	}:
		return hijacker{flusher{p}}
	case interface {
		http.Flusher
		http.Pusher
	}:
		return http2{flusher{p}}
	case http.Flusher:
		return flusher{p}
	case http.Pusher:
		return pusher{p}
	}
	return p
}

// Unwrap serves http.ResponseController.
func (w plain) Unwrap() http.ResponseWriter { return w.c.w }

func (w plain) Header() http.Header { return w.c.w.Header() }

func (w plain) WriteHeader(status int) {
	// Informational answers come before the status; 101 is one of its own.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.c.commit(status)
	}
	w.c.w.WriteHeader(status)
}

func (w plain) Write(b []byte) (int, error) {
	w.c.commit(http.StatusOK)
	return w.c.w.Write(b)
}

func (w plain) WriteString(s string) (int, error) {
	w.c.commit(http.StatusOK)
	return io.WriteString(w.c.w, s)
}

// FlushError serves http.ResponseController, which would otherwise flush the
// server's writer without the limit fields.
func (w plain) FlushError() error {
	if w.canFlush() {
		w.c.commit(http.StatusOK)
	}
	return http.NewResponseController(w.c.w).Flush()
}

// canFlush reports whether http.ResponseController finds what flushes.
func (w plain) canFlush() bool {
	for in := w.c.w; ; {
		switch t := in.(type) {
		case interface{ canFlush() bool }: // of another Middleware
			return t.canFlush()
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			in = t.Unwrap()
		default:
			return false
		}
	}
}

func (w flusher) Flush() {
	w.c.commit(http.StatusOK)
	w.c.w.(http.Flusher).Flush()
}

// CloseNotify is http.CloseNotifier's, which is deprecated and still asked for by
// frameworks when they stream. Where nobody can tell, the channel stays silent.
func (w flusher) CloseNotify() <-chan bool {
	if n, ok := w.c.w.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}

// Hijack hands over the connection. Nobody can say any more whether the call
// succeeded, so it stays counted. The limit fields are set for a reverse proxy,
// which writes the header of a switch of protocols from this map.
func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.c.w.(http.Hijacker).Hijack()
	if err == nil && !w.c.committed {
		w.c.committed = true
		w.c.m.writer.Fields(w.c.w.Header(), &w.c.outcome, w.c.values[:0])
	}
	return conn, rw, err
}

// ReadFrom leaves the first bytes to Write, and sends them before it reads on, as the
// server does where it has no TLS to do: of a source that has none nothing is written,
// and the status is still to come.
func (w http1) ReadFrom(src io.Reader) (n int64, err error) {
	if !w.c.committed {
		const sniffed = 512 // by the server, for Content-Type
		switch n, err = io.CopyN(w.plain, src, sniffed); err {
		case nil:
			if w.c.request.TLS == nil {
				w.Flush()
			}
		case io.EOF:
			return n, nil
		default:
			return n, err
		}
	}
	rest, err := w.c.w.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

func (w http2) Push(target string, o *http.PushOptions) error { return pusher{w.plain}.Push(target, o) }

func (w pusher) Push(target string, o *http.PushOptions) error {
	return w.c.w.(http.Pusher).Push(target, o)
}

// commit is where the response header is decided: limits that count success
// are settled, and the limit fields are set. It comes before the header goes
// out, so that a client which sees a failure finds what it was given back.
func (c *call) commit(status int) {
	if c.committed {
		return
	}
	c.committed = true
	h := c.w.Header()
	if c.outcome.MustSettle() {
		c.judge(h, status)
	}
	c.m.writer.Fields(h, &c.outcome, c.values[:0])
}

func (c *call) judge(h http.Header, status int) {
	if status == http.StatusOK && answer.IsGRPC(h.Get("Content-Type")) {
		code := h.Get("Grpc-Status")
		if code == "" {
			c.late = int32(status) // it comes as a trailer
			return
		}
		status = answer.StatusOfGRPC(code)
	}
	if c.outcome.AwaitsCost(status, h.Get) {
		c.late = int32(status)
		return
	}
	// An error is logged by the engine: the answer is the service's either way.
	_ = c.outcome.SettleBy(c.Context, status, h.Get)
}

// finish ends a call whose handler returned.
func (c *call) finish() {
	c.commit(http.StatusOK) // a handler that writes nothing answers 200
	if c.late == 0 {
		return
	}
	h := c.w.Header()
	trailer := func(name string) string {
		if v := h.Get(name); v != "" {
			return v
		}
		return h.Get(http.TrailerPrefix + name)
	}
	status := int(c.late)
	if answer.IsGRPC(h.Get("Content-Type")) {
		code := trailer("Grpc-Status")
		if code == "" {
			return // a stream that broke stays counted
		}
		status = answer.StatusOfGRPC(code)
	}
	_ = c.outcome.SettleBy(c.Context, status, trailer)
}

package proxy

import (
	"log/slog"
	"net/http"
	"time"
)

// The limits that [NewServer] sets on clients.
const (
	ReadHeaderTimeout = 10 * time.Second
	IdleTimeout       = 120 * time.Second
	MaxHeaderBytes    = 64 << 10
)

// NewServer returns a server for a handler of [New], with the limits above: a
// client that is slow with its header, sends too long a one (431) or sits idle
// is cut off. Bodies have no limit and no deadline, because streams and uploads
// may rightly last. It speaks HTTP/1.1 and, over TLS, HTTP/2; h2c adds HTTP/2
// without TLS.
func NewServer(h http.Handler, h2c bool, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.Default()
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(h2c)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: ReadHeaderTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		Protocols:         p,
		// What the server has to say is of single connections: broken
		// handshakes, clients that left.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

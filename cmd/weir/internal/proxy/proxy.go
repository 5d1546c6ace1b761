// Package proxy forwards HTTP requests to one upstream, byte for byte where
// HTTP allows it.
//
// It is net/http/httputil.ReverseProxy with its habits put right. As it comes,
// that type decodes and cleans queries, can turn %2F into a slash, tunnels
// `Upgrade: h2c`, forwards CONNECT and TRACE, drops request trailers, and asks
// for gzip on its own. Here the path, the query, Host, Accept-Encoding and the
// body reach the upstream as the client sent them, so that a signature over
// them still holds; bytes that a URL may not hold are percent-encoded, one by
// one.
//
// What a client could use to pose as somebody else does not pass: Weir-*,
// Forwarded, X-Forwarded-* and the other headers of [Forged] are removed in
// every spelling, in the header and in trailers, before weir's own are set.
//
// Streams are flushed at once in both directions. WebSockets, trailers, 1xx
// answers and HTTP/2 pass through. A client that leaves cancels the upstream
// call.
//
// The package knows nothing of limits. The limits' middleware stands in front
// of the handler that [New] returns.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// DefaultHeaderTimeout is how long an upstream may take from the end of the
// request to the header of its answer.
const DefaultHeaderTimeout = 60 * time.Second

// Options says where requests go. Target is required; everything else has a
// default that is right for production.
type Options struct {
	// Target is http://HOST[:PORT], https://HOST[:PORT] or h2c://HOST[:PORT]
	// (HTTP/2 without TLS). It has no path, query or user: the request's own
	// path is forwarded unchanged.
	Target *url.URL

	// ClientAddr tells the address that X-Forwarded-For carries: the caller
	// that the policy found behind trusted proxies. An invalid address leaves
	// the header out. Default: the socket's peer.
	ClientAddr func(*http.Request) netip.Addr

	// Stamp may add headers to the upstream request, after everything that a
	// client could forge was removed. in must not be changed.
	Stamp func(in *http.Request, out http.Header)

	// UpstreamFailed hears of every request that the upstream did not answer,
	// before the status is written: 502 when it could not be reached or hung
	// up, 504 when it took the request and kept silent. It is not called when
	// the client left or sent a broken body.
	UpstreamFailed func(in *http.Request, status int, err error)

	// Tunnels, when set, holds the WebSockets that are open.
	Tunnels *Tunnels

	// HeaderTimeout defaults to [DefaultHeaderTimeout]. Negative: none.
	HeaderTimeout time.Duration

	// TLS is used for https upstreams. Default: the system's roots.
	TLS *tls.Config

	// Log hears of upstream failures at warn level and of broken connections
	// at debug level. Default: slog.Default().
	Log *slog.Logger
}

// New returns a handler that forwards to o.Target. It holds idle connections
// of its own; make one per target, not one per request.
func New(o Options) (http.Handler, error) {
	if err := checkTarget(o.Target); err != nil {
		return nil, err
	}
	if o.HeaderTimeout == 0 {
		o.HeaderTimeout = DefaultHeaderTimeout
	}
	if o.ClientAddr == nil {
		o.ClientAddr = peer
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	f := &forwarder{o: o, scheme: o.Target.Scheme, host: o.Target.Host}
	if f.scheme == "h2c" {
		f.scheme = "http"
	}
	f.rp = httputil.ReverseProxy{
		Rewrite:       f.rewrite,
		Transport:     newTransport(o),
		FlushInterval: -1,
		BufferPool:    &bufferPool{},
		ErrorLog:      slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ErrorHandler:  f.fail,
	}
	return f, nil
}

// ParseTarget reads the upstream of a command line: a URL as in
// [Options.Target].
func ParseTarget(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("upstream %q is not a URL: write it as http://localhost:3000", text)
	}
	return u, checkTarget(u)
}

func checkTarget(u *url.URL) error {
	const form = "write it as http://localhost:3000, https://api.example.com or h2c://localhost:3000"
	switch {
	case u == nil:
		return errors.New("no upstream is named: " + form)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return fmt.Errorf("upstream %q has the scheme %q: %s", u.Redacted(), u.Scheme, form)
	case u.Hostname() == "":
		return fmt.Errorf("upstream %q names no host: %s", u.Redacted(), form)
	case u.User != nil:
		return fmt.Errorf("upstream %q holds a user: credentials belong into the request, not into the upstream's URL; %s", u.Redacted(), form)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return fmt.Errorf("upstream %q has a path or a query: requests are forwarded with their own path unchanged; %s", u.Redacted(), form)
	}
	return nil
}

func newTransport(o Options) http.RoundTripper {
	base := func() *http.Transport {
		t := &http.Transport{
			Proxy:                  nil, // the upstream is ours; HTTP_PROXY is for other people's servers
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:        o.TLS,
			TLSHandshakeTimeout:    10 * time.Second,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    256,
			IdleConnTimeout:        90 * time.Second,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 1 << 20,
			Protocols:              new(http.Protocols),
		}
		if o.HeaderTimeout > 0 {
			t.ResponseHeaderTimeout = o.HeaderTimeout
		}
		return t
	}
	plain := base()
	plain.Protocols.SetHTTP1(true)
	if o.Target.Scheme == "https" {
		plain.Protocols.SetHTTP2(true)
	}
	if o.Target.Scheme != "h2c" {
		return plain
	}
	h2c := base()
	h2c.Protocols.SetUnencryptedHTTP2(true)
	return byUpgrade{upgrade: plain, rest: h2c}
}

// byUpgrade sends upgrades over HTTP/1.1 also where the upstream otherwise
// speaks HTTP/2, which has no Upgrade header.
type byUpgrade struct{ upgrade, rest http.RoundTripper }

func (b byUpgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return b.upgrade.RoundTrip(r)
	}
	return b.rest.RoundTrip(r)
}

type forwarder struct {
	o            Options
	scheme, host string
	rp           httputil.ReverseProxy
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if Refused(w, r) {
		return
	}
	ctx := r.Context()
	body := &inbound{in: r, rc: r.Body} // r itself: trailers are not written to a copy
	if up := r.Header.Values("Upgrade"); len(up) > 0 && !isWebSocket(up) {
		r = r.WithContext(ctx)
		r.Header = r.Header.Clone()
		r.Header.Del("Upgrade")
	} else if len(up) > 0 && f.o.Tunnels != nil {
		var end func()
		ctx, end = f.o.Tunnels.begin(ctx)
		defer end()
	}
	ctx = context.WithValue(ctx, inboundKey{}, body)
	out := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = body
		if r.ProtoMajor == 1 && r.ContentLength < 0 {
			// A stream of unknown length may be one half of a conversation.
			// Without this the server reads it to the end before it answers.
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
	}
	// Present and empty: the server then guesses no type when the upstream
	// named none.
	if _, set := w.Header()["Content-Type"]; !set {
		w.Header()["Content-Type"] = nil
	}
	f.rp.ServeHTTP(w, out)
}

// Refused answers 405 to CONNECT and TRACE, which weir never forwards, and
// reports whether it did. [New]'s handler calls it; who puts limits in front
// of that handler calls it first, so that such a request takes nothing.
func Refused(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodConnect && r.Method != http.MethodTrace {
		return false
	}
	w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	answer(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "The method "+r.Method+" is not forwarded.")
	return true
}

func isWebSocket(upgrade []string) bool {
	return len(upgrade) == 1 && strings.EqualFold(strings.TrimSpace(upgrade[0]), "websocket")
}

func (f *forwarder) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL = &url.URL{
		Scheme:     f.scheme,
		Host:       f.host,
		Path:       in.URL.Path,
		RawPath:    encodeIllegal(in.URL.EscapedPath(), in.URL.RawPath),
		RawQuery:   encodeIllegal(in.URL.RawQuery, in.URL.RawQuery),
		ForceQuery: in.URL.ForceQuery,
	}
	out.Host = in.Host

	for name := range out.Header {
		if Forged(name) {
			delete(out.Header, name)
		}
	}
	if addr := f.o.ClientAddr(in); addr.IsValid() {
		out.Header.Set("X-Forwarded-For", addr.String())
	}
	if in.Host != "" {
		out.Header.Set("X-Forwarded-Host", in.Host)
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	out.Header.Set("X-Forwarded-Proto", proto)
	if f.o.Stamp != nil {
		f.o.Stamp(in, out.Header)
	}

	// ReverseProxy hands on a copy of the announced names; the values arrive
	// after the body, in the server's own request.
	body := in.Context().Value(inboundKey{}).(*inbound)
	out.Trailer = nil
	if in.ContentLength < 0 {
		out.Trailer = make(http.Header)
		for name := range in.Trailer {
			if trailerPasses(name) {
				out.Trailer[name] = nil
			}
		}
		body.trailer = out.Trailer
	}
}

// inbound is the client's body. It remembers how reading ended, which tells a
// broken upload from a broken upstream, and carries the trailers over.
type inbound struct {
	in      *http.Request
	rc      io.ReadCloser
	trailer http.Header

	mu  sync.Mutex
	err error // the client's; nil and io.EOF are fine
}

type inboundKey struct{}

func (b *inbound) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	switch {
	case err == io.EOF && b.trailer != nil:
		for name, values := range b.in.Trailer {
			if values != nil && trailerPasses(name) {
				b.trailer[name] = values
			}
		}
	case err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.mu.Lock()
		b.err = err
		b.mu.Unlock()
	}
	return n, err
}

func (b *inbound) Close() error { return b.rc.Close() }

func (b *inbound) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// fail answers for an upstream that did not.
func (f *forwarder) fail(w http.ResponseWriter, out *http.Request, err error) {
	body, _ := out.Context().Value(inboundKey{}).(*inbound)
	if out.Context().Err() != nil {
		// Nobody is there to read an answer. The panic is net/http's own way
		// to end a connection: it is not logged.
		panic(http.ErrAbortHandler)
	}
	if body != nil {
		if cause := body.failure(); cause != nil {
			f.o.Log.Debug("request body is broken", "err", cause)
			if errors.Is(cause, io.ErrUnexpectedEOF) || out.ProtoMajor > 1 {
				panic(http.ErrAbortHandler) // the client hung up in mid-upload
			}
			w.Header().Set("Connection", "close")
			answer(w, out, http.StatusBadRequest, "bad_request", "The request body could not be read.")
			return
		}
	}
	in := out
	if body != nil {
		in = body.in
	}
	status, code, message, what := http.StatusBadGateway, "upstream_unavailable", "The service behind this address cannot be reached.", "upstream cannot be reached"
	if timedOut(err) {
		status, code, message, what = http.StatusGatewayTimeout, "upstream_timeout", "The service behind this address took too long to answer.", "upstream sent no answer in time"
	}
	if f.o.UpstreamFailed != nil {
		f.o.UpstreamFailed(in, status, err)
	}
	f.o.Log.Warn(what, "upstream", f.host, "err", err)
	answer(w, out, status, code, message)
}

// timedOut tells an upstream that accepted the request and then kept silent
// from one that could not be reached at all.
func timedOut(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// answer writes one of the proxy's own answers. None of them may be cached.
func answer(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	body := fmt.Sprintf("{\"error\":%q,\"message\":%q}\n", code, message)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body)
	}
}

func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // a unix socket has no address
	}
	return ap.Addr().Unmap().WithZone("")
}

// bufferPool spares an allocation of 32 KiB per request.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(p []byte) { b.pool.Put(&p) }

var _ http.Handler = (*forwarder)(nil)

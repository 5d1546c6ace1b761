package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/cmd/weir/internal/proxy"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/policy"
)

// drainTime is how long requests under way, and WebSockets, may take to end at a
// shutdown.
const drainTime = 30 * time.Second

// server is weir in front of one service: what `weir proxy` runs, and
// `weir demo` too.
type server struct {
	o        serverOptions
	engine   *engine.Engine
	verifier atomic.Pointer[auth.Verifier]
	draining atomic.Bool
	listener net.Listener
	http     *http.Server
	tunnels  proxy.Tunnels
	metrics  *metrics
}

// proxyDeadline is the deadline of weir proxy: the engine's default. The tests give
// it more, as they must hold on a machine that is busy with others.
var proxyDeadline time.Duration

type serverOptions struct {
	load   func() (*policy.Policy, error) // the policy, read anew
	files  func() []string                // that it was read from; nil: there are none to watch
	policy *policy.Policy                 // as load gave it first
	store  weir.Store
	url    storeURL // of store
	auth   auth.Options

	verifier *auth.Verifier // of policy; nil: it is made of auth

	storeOf func(*policy.Policy) string // that a policy would be served with; nil: always the same

	target      *url.URL
	listen      string
	tls         *tls.Config // nil: plain HTTP
	h2c         bool
	replicas    int
	shadow      bool
	keepDenials bool          // in the store's records, for weir why
	drain       time.Duration // at a shutdown; 0: drainTime
	deadline    time.Duration // of one decision of the store; 0: the engine's default

	decisions    func(engine.Record)
	allowedShare float64
	metrics      *metrics
	decided      func(context.Context, *engine.Outcome) // in place of metrics
	observer     *weir.Observer
	log          *slog.Logger
}

// newServer makes everything ready and then listens, so that a port that
// accepts is one that decides.
func newServer(ctx context.Context, o serverOptions) (*server, error) {
	var err error
	if o.verifier == nil {
		if o.verifier, err = verifierOf(ctx, o.policy.Auth(), o.auth); err != nil {
			return nil, err
		}
	}
	s := &server{o: o, metrics: o.metrics}
	s.verifier.Store(o.verifier)
	eo := engine.Options{
		Policy: o.policy, Store: o.store, Deadline: o.deadline, Replicas: o.replicas, CanGiveBack: true, KeepDenials: o.keepDenials, Shadow: o.shadow,
		Identify: identifyBy(o.verifier), Logger: o.log, LogKey: []byte(os.Getenv("WEIR_LOG_KEY")),
		Decisions: o.decisions, AllowedShare: o.allowedShare, Observer: o.observer,
	}
	if eo.Decided = o.decided; o.metrics != nil {
		eo.Decided, eo.Noticed = o.metrics.decided, o.metrics.quotas.noticed
	}
	if s.engine, err = engine.New(eo); err != nil {
		return nil, errUsage{err}
	}
	if s.metrics != nil {
		s.metrics.of(s.engine, o.store)
	}
	h, err := s.handler()
	if err != nil {
		return nil, err
	}
	s.http = proxy.NewServer(h, o.h2c, o.log)
	s.http.TLSConfig = o.tls
	s.listener, err = listen("--listen", o.listen)
	return s, err
}

// identifyBy lets a verifier say who calls.
func identifyBy(v *auth.Verifier) func(context.Context, *policy.Attributes) (policy.Identity, error) {
	return func(ctx context.Context, a *policy.Attributes) (policy.Identity, error) {
		return v.Identify(ctx, a.Header)
	}
}

// listen opens the address of a flag. One that is none is a usage error.
func listen(flag, addr string) (net.Listener, error) {
	if err := checkAddr(flag, addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		err = fmt.Errorf("%s %s cannot be listened on: %w", flag, addr, err)
		var unknown *net.DNSError
		if errors.As(err, &unknown) && unknown.IsNotFound {
			err = errUsage{err}
		}
		return nil, errHint{fmt.Errorf("%w; port 0 picks a free one", err), flag + " 127.0.0.1:0"}
	}
	return l, nil
}

// checkAddr refuses what cannot be an address, before anything else is done.
func checkAddr(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usage(flag+" 127.0.0.1:8080", "%s %q is not an address to listen on: it is HOST:PORT, or :PORT for every address of this machine", flag, addr)
	}
	return nil
}

// verifierOf makes the verifier of a policy. A key set may be slow to come up,
// as a store may.
func verifierOf(ctx context.Context, a policy.Auth, o auth.Options) (*auth.Verifier, error) {
	ctx, cancel := context.WithTimeout(ctx, slowStart)
	defer cancel()
	for {
		v, err := auth.New(ctx, a, o)
		if err == nil {
			return v, nil
		}
		if !errors.Is(err, auth.ErrUnreachable) {
			return nil, errUsage{err}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return nil, errInterrupted
			}
			return nil, err
		}
	}
}

// url is the address that people type.
func (s *server) url() string {
	scheme := "http"
	if s.o.tls != nil {
		scheme = "https"
	}
	addr := s.listener.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, fmt.Sprint(addr.Port))
}

// handler is the way of a request: weir's own paths, then the limits, then the
// service.
func (s *server) handler() (http.Handler, error) {
	limits := httplimit.New(s.engine)
	forward, err := proxy.New(proxy.Options{
		Target:  s.o.target,
		Log:     s.o.log,
		Tunnels: &s.tunnels,
		ClientAddr: func(r *http.Request) netip.Addr {
			if o := httplimit.Outcome(r.Context()); o != nil {
				return o.Client
			}
			return netip.Addr{}
		},
		Stamp: func(in *http.Request, out http.Header) {
			if d := limits.DecisionField(in.Context()); d != "" {
				out.Set("Weir-Decision", d)
			}
		},
		UpstreamFailed: func(in *http.Request, status int, _ error) {
			// A service that took the request and kept silent may have done
			// the work: that stays counted.
			if o := httplimit.Outcome(in.Context()); o != nil && status == http.StatusBadGateway {
				_ = o.GiveBack(in.Context()) // the engine logs what fails
			}
		},
	})
	if err != nil {
		return nil, errUsage{err}
	}
	own, err := newOwnPaths()
	if err != nil {
		return nil, err
	}
	counted, usage := limits.Handler(forward), limits.Usage()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if proxy.Refused(w, r) {
			return
		}
		switch own.find(r) {
		case "":
			counted.ServeHTTP(w, r)
		case "healthz":
			s.health(w)
		case "usage":
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				own.answer(w, http.StatusMethodNotAllowed, `{"error":"method_not_allowed","message":"Usage is read with GET."}`)
				return
			}
			usage.ServeHTTP(w, r)
		default:
			own.answer(w, http.StatusNotFound, `{"error":"not_found","message":"weir has no such page; there are /.weir/healthz and /.weir/usage."}`)
		}
	}), nil
}

// health says whether requests are answered. They are while the store fails, as
// their limits' on_store_error says: that is no reason to take them elsewhere.
func (s *server) health(w http.ResponseWriter) {
	var own ownPaths
	switch {
	case s.draining.Load():
		own.answer(w, http.StatusServiceUnavailable, `{"ok":false,"draining":true}`)
	case s.engine.Stats().Open:
		own.answer(w, http.StatusOK, `{"ok":true,"store":"failing"}`)
	default:
		own.answer(w, http.StatusOK, `{"ok":true}`)
	}
}

// ownPaths finds the requests that weir answers itself. They are told by the
// reading of paths that limits go by: what the limits take for /.weir/usage
// must not reach the service under another spelling.
type ownPaths struct{ all, healthz, usage policy.Path }

func newOwnPaths() (p ownPaths, err error) {
	for text, to := range map[string]*policy.Path{"/.weir/*": &p.all, "/.weir/healthz": &p.healthz, "/.weir/usage": &p.usage} {
		if *to, err = policy.ParsePath(text); err != nil {
			return p, err
		}
	}
	return p, nil
}

// find gives the name of weir's own page, or "".
func (p ownPaths) find(r *http.Request) string {
	path := r.URL.EscapedPath()
	switch {
	case !p.all.Matches(path):
		return ""
	case p.healthz.Matches(path):
		return "healthz"
	case p.usage.Matches(path):
		return "usage"
	}
	return "other"
}

func (ownPaths) answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body+"\n")
}

// serve answers until ctx ends, and then lets requests under way end.
func (s *server) serve(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		if s.o.tls != nil {
			failed <- s.http.ServeTLS(s.listener, "", "")
		} else {
			failed <- s.http.Serve(s.listener)
		}
	}()
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("the listener is lost: %w", err), s.engine.Close())
	case <-ctx.Done():
	}
	s.draining.Store(true)
	within := cmp.Or(s.o.drain, drainTime)
	// These run once the port is closed, so the line says the truth.
	s.http.RegisterOnShutdown(func() {
		s.o.log.Info("draining: no new connections, requests under way and WebSockets may end", "within", within)
	})
	drain, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := s.http.Shutdown(drain); err != nil {
		s.o.log.Warn("not every request ended in time", "after", within)
		_ = s.http.Close()
	}
	if cut := s.tunnels.Shutdown(drain); cut > 0 {
		s.o.log.Warn("not every WebSocket ended in time", "after", within, "cut", cut)
	}
	<-failed // ErrServerClosed
	return s.engine.Close()
}

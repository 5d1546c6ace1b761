package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/cmd/weir/internal/proxy"
	"github.com/weirlabs/weir/policy"
)

type proxyFlags struct {
	limit, by    string
	to           string
	listen       string
	replicas     int
	decisions    string
	allowedShare float64
	metrics      string
	shadow       bool
	cert, key    string
	h2c          bool
}

func newProxy(c *common) *cobra.Command {
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy --to URL",
		Short: "Enforce the policy in front of a service",
		Long: `Listen for HTTP, enforce the policy, and forward what may pass.

The first line on stderr is "weir: listening on http://HOST:PORT"; the port
accepts only when policy and store are ready. The policy is read again when its file,
or one that it names, is another one and rests, and at SIGHUP; one with mistakes is
reported, and the one in force stays. SIGTERM lets requests under way and WebSockets end, for 30 seconds; a second one
ends at once. Paths below /.weir/ are weir's own: /.weir/healthz, and /.weir/usage
for what a caller has used.
` + fmt.Sprintf(exitHelp, "is not used"),
		Example: `  weir proxy --to http://localhost:3000
  weir proxy --to http://localhost:3000 --limit 10/s --by ip
  weir proxy --to h2c://localhost:3000 --store 'dynamodb:little-stage?region=eu-central-1'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runProxy(cmd, c, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "", "the service: http://, https:// or h2c:// `URL`")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`ADDR` to listen on; port 0 picks a free one")
	fl.StringVar(&f.limit, "limit", "", "enforce one `LIMIT`, such as 10/s, without a policy file")
	fl.StringVar(&f.by, "by", "ip", "with --limit: whom it counts (`CALLER`)")
	fl.IntVar(&f.replicas, "replicas", 1, "processes that share the traffic; edge rules are divided by it (`N`)")
	fl.StringVar(&f.decisions, "decision-log", "", "append decisions as JSON lines to `FILE`")
	fl.Float64Var(&f.allowedShare, "decision-log-allowed", 0.01, "`SHARE` of allowed decisions to log, 0 to 1")
	fl.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics on `ADDR`")
	fl.BoolVar(&f.shadow, "shadow", false, "watch only: count and log, refuse nothing")
	fl.StringVar(&f.cert, "tls-cert", "", "serve HTTPS with the certificate in `FILE`")
	fl.StringVar(&f.key, "tls-key", "", "the certificate's private key in `FILE`")
	fl.BoolVar(&f.h2c, "h2c", false, "accept HTTP/2 without TLS, too")
	return cmd
}

func runProxy(cmd *cobra.Command, c *common, f *proxyFlags) (err error) {
	// Who reads the log may end; the service goes on.
	signal.Ignore(syscall.SIGPIPE)
	term, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
	defer stop()
	// A second SIGTERM ends at once. Draining begins, and is said, only when that
	// is so: who reads the line may send it.
	ctx, drain := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer drain()
	context.AfterFunc(term, func() {
		stop()
		drain()
	})

	if f.to == "" {
		return usage("weir proxy --to http://localhost:3000", "no service to forward to is named")
	}
	target, err := proxy.ParseTarget(f.to)
	if err != nil {
		return usage("weir proxy --to http://localhost:3000", "%w", err)
	}
	if f.replicas < 1 {
		return usage("weir proxy --to "+shellWord(f.to)+" --replicas 2", "--replicas %d: there is at least one process", f.replicas)
	}
	if f.allowedShare < 0 || f.allowedShare > 1 {
		return usage("weir proxy --to "+shellWord(f.to)+" --decision-log-allowed 0.01", "--decision-log-allowed %v is not a share from 0 to 1", f.allowedShare)
	}
	if err := checkAddr("--listen", f.listen); err != nil {
		return err
	}
	if f.metrics != "" {
		if err := checkAddr("--metrics", f.metrics); err != nil {
			return err
		}
	}
	load, files, equivalent, err := policySource(cmd, c, f)
	if err != nil {
		return err
	}
	p, err := load()
	if err != nil {
		return err
	}
	cert, err := certificate(f)
	if err != nil {
		return err
	}

	// The first line on stderr is the address, so logs wait for it.
	held := &heldWriter{to: c.stderr}
	defer held.release()
	log := c.logger(held)
	o := serverOptions{
		load: load, files: files, policy: p, auth: auth.Options{Log: log}, target: target, listen: f.listen, tls: cert, h2c: f.h2c,
		replicas: f.replicas, shadow: f.shadow, keepDenials: true, allowedShare: f.allowedShare, log: log,
		deadline: proxyDeadline,
	}
	// A start that fails for want of a secret makes no file.
	if o.verifier, err = verifierOf(ctx, p.Auth(), o.auth); err != nil {
		return err
	}
	var watch weir.Observer
	hints := []string{}
	if f.metrics != "" {
		o.metrics = newMetrics()
		watch.Trip = o.metrics.trip
		at, err := o.metrics.serve(ctx, f.metrics, log)
		if err != nil {
			return err
		}
		hints = append(hints, "metrics on "+at)
	}
	if f.decisions != "" {
		d, err := openDecisionLog(f.decisions, log)
		if err != nil {
			return err
		}
		defer d.Close()
		o.decisions = d.write
	} else {
		o.allowedShare = 0
	}
	text, because := c.storeOf(p)
	store, err := openStore(ctx, text, storeOptions{observer: &watch, log: log})
	if err != nil {
		return err
	}
	defer func() {
		// What a file's store could not write is lost: that is no good end.
		if lost := store.Close(); lost != nil && (err == nil || errors.Is(err, errInterrupted)) {
			err = lost
		}
	}()
	if err := readsAccounts(ctx, store.Store); err != nil {
		return err
	}
	o.store, o.url = store.Store, store.url
	o.storeOf = func(p *policy.Policy) string { text, _ := c.storeOf(p); return text }
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}

	if equivalent != nil {
		if _, err := c.stdout.Write(equivalent); err != nil && !errors.Is(err, syscall.EPIPE) {
			return fmt.Errorf("the equivalent policy cannot be written: %w", err)
		}
	}
	fmt.Fprintln(c.stderr, "weir: listening on "+s.url())
	held.release()
	for _, w := range p.Warnings() {
		log.Warn("policy: "+w.Message, "at", placeOf(w))
	}
	for _, w := range store.warnings {
		log.Warn(w)
	}
	if f.shadow {
		log.Warn("--shadow: every limit watches only, nothing is refused")
	}
	c.say("forwarding to %s, counting on %s", f.to, store.url.String())
	if !because.IsZero() {
		c.say("no store is named, and the limit %s (%s) has a long period: its counts are kept in weir.db, in this folder, and outlast a restart; processes that share limits need one store, as in --store redis://HOST:6379", because.Name(), because)
	}
	if l, slow := slowBucket(p.Limits()); slow && c.store == "" && p.Store() == "" && store.url.scheme == "memory" {
		c.say("no store is named, and the limit %s (%s) takes %s to fill again: its counts are kept in memory, and a restart gives everybody the whole burst; they outlast it with --store bolt:weir.db", l.Name(), l, l.Horizon().Round(time.Minute))
	}
	for _, h := range hints {
		c.say("%s", h)
	}
	c.say("try: for i in $(seq %d); do curl -s -o /dev/null -w '%%{http_code}\\n' %s/; done", tries(p), s.url())
	stopReload := s.followPolicy(ctx)
	err = s.serve(ctx)
	stopReload()
	if err == nil && cmd.Context().Err() != nil {
		return errInterrupted
	}
	return err
}

// tries is how many requests show a refusal by the smallest limit of a policy, where
// that can be tried by hand: some more than it holds, since it refills meanwhile.
func tries(p *policy.Policy) int64 {
	n := int64(60)
	for _, r := range p.Rules() {
		n = min(n, 2*r.Limit.Max()+2)
	}
	return max(n, 12)
}

// policySource says where the policy comes from: --limit or the file.
func policySource(cmd *cobra.Command, c *common, f *proxyFlags) (load func() (*policy.Policy, error), files func() []string, equivalent []byte, err error) {
	if f.limit == "" {
		if cmd.Flags().Changed("by") {
			return nil, nil, nil, usage("weir proxy --to "+shellWord(f.to)+" --limit 10/s --by "+shellWord(f.by), "--by without --limit says whom to count, but not how many")
		}
		if _, err := os.Stat(c.config); errors.Is(err, os.ErrNotExist) {
			return nil, nil, nil, usage("weir proxy --to "+shellWord(f.to)+" --limit 10/s --by ip", "there is no policy file %s", c.config)
		}
		s := &sources{path: c.config, options: policy.Options{OnlyAuth: true, Environment: c.environment}}
		return s.load, s.files, nil, nil
	}
	if cmd.Flags().Changed("config") {
		return nil, nil, nil, usage("weir proxy --to "+shellWord(f.to)+" -c "+shellWord(c.config), "--limit stands in for a policy file; use it or -c, not both")
	}
	p, text, err := policy.FromLimit(f.limit, f.by)
	return func() (*policy.Policy, error) { return p, nil }, nil, text, err
}

// storeOf is the URL of the store: of the command line, the policy, or the
// default, with the limit that made it a file.
func (c *common) storeOf(p *policy.Policy) (text string, because weir.Limit) {
	switch {
	case c.store != "":
		return c.store, weir.Limit{}
	case p.Store() != "":
		return p.Store(), weir.Limit{}
	}
	return defaultStore(p.Limits())
}

func certificate(f *proxyFlags) (*tls.Config, error) {
	if f.cert == "" && f.key == "" {
		return nil, nil
	}
	if f.cert == "" || f.key == "" {
		return nil, usage("weir proxy --to "+shellWord(f.to)+" --tls-cert cert.pem --tls-key key.pem", "--tls-cert and --tls-key go together")
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("the certificate cannot be used: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// heldWriter keeps what is written until it is released.
type heldWriter struct {
	mu   sync.Mutex
	to   io.Writer
	held bytes.Buffer
	open bool
}

func (h *heldWriter) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		return h.to.Write(p)
	}
	return h.held.Write(p)
}

func (h *heldWriter) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		h.open = true
		_, _ = h.held.WriteTo(h.to)
	}
}

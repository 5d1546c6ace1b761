package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/cmd/weir/internal/shop"
	"github.com/weirlabs/weir/engine"
	littlestage "github.com/weirlabs/weir/examples/little-stage"
	"github.com/weirlabs/weir/policy"
	"github.com/weirlabs/weir/policy/expression"
)

// exampleFile is where the demo's policy lies in the repository.
const exampleFile = "examples/little-stage/weir.yaml"

func newDemo(c *common) *cobra.Command {
	var once bool
	var listen, config, store string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a ticket shop behind weir, over real HTTP",
		Long: `Start the Little Stage, a small ticket shop, put the real proxy with the policy
` + exampleFile + ` in front of it, play scenarios over HTTP on this
machine, and show how many calls were allowed and what the first refusal said.
The figures follow the policy: edit its limits and play again. Then the demo
keeps serving until Ctrl-C, and prints what to try.
` + fmt.Sprintf(exitHelp, "a scenario differs from its figures"),
		Example: `  weir demo
  weir demo --once --json
  weir demo --store 'dynamodb:little-stage?region=us-east-1&endpoint=http://127.0.0.1:8000&create=true'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.config, c.store = config, store
			return demo(cmd.Context(), c, config != "", listen, once)
		},
	}
	// The common flags, with defaults that are the demo's own.
	cmd.Flags().StringVarP(&config, "config", "c", "", "policy `FILE` (default "+exampleFile+", or the copy of it in the program)")
	cmd.Flags().StringVar(&store, "store", "", storeUsage+"memory:)")
	cmd.Flags().BoolVar(&once, "once", false, "end after the table")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`ADDR` of the proxy; port 0 picks a free one")
	return cmd
}

func demo(ctx context.Context, c *common, chosen bool, listen string, once bool) error {
	if err := checkAddr("--listen", listen); err != nil {
		return err
	}
	d, err := newStage(c, chosen)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended, err := d.start(ctx, c, listen)
	if err != nil {
		return err
	}
	defer func() {
		stop()
		<-ended
		d.close()
	}()
	c.say("The Little Stage is behind weir on %s; policy %s, counters on %s.", d.server.url(), d.name, d.open.url.String())

	results, err := d.playAll(ctx, c)
	if err != nil {
		return err
	}
	if err := writeResults(c, results); err != nil {
		return err
	}
	if once {
		for _, r := range results {
			if !r.OK {
				return errNo{fmt.Errorf("scenario %s differs from its figures: %s", r.Name, r.Differs), false}
			}
		}
		return nil
	}
	d.invite(c)
	select {
	case <-ctx.Done():
		return errInterrupted
	case err := <-ended:
		ended <- err // for the deferred wait
		if ctx.Err() != nil {
			return errInterrupted // which ends the server as well
		}
		return err
	}
}

// stage is all that the demo runs: the shop, the proxy, and credentials that
// were made for this run only, so that it begins with full limits whatever the
// store holds.
type stage struct {
	name   string // of the policy, for people
	files  demoFiles
	policy *policy.Policy
	secret string
	apiKey string
	tag    string // makes this run's callers fresh
	store  string
	server *server

	shop  *http.Server
	open  *opened
	trips atomic.Int64 // to a store outside this process
	takes atomic.Int64 // requests for which gateway or application limits were asked

	seen map[string]bool // items that scenarios have used

	degraded atomic.Int64 // requests that a failure mode decided
}

func newStage(c *common, chosen bool) (*stage, error) {
	d := &stage{seen: map[string]bool{}, tag: randomHex(4), secret: randomHex(32), apiKey: randomHex(16)}
	switch _, err := os.Stat(exampleFile); {
	case chosen:
		d.name = c.config
		d.files = demoFiles{base: folder(filepath.Dir(c.config)), policy: filepath.Base(c.config)}
		if _, err := os.Stat(c.config); errors.Is(err, fs.ErrNotExist) {
			return nil, usage("weir demo", "there is no policy file %s", c.config)
		}
	case err == nil:
		d.name = exampleFile
		d.files = demoFiles{base: folder(filepath.Dir(exampleFile)), policy: filepath.Base(exampleFile)}
	default:
		d.name = "little-stage (built in)"
		d.files = demoFiles{base: littlestage.Files, policy: "weir.yaml"}
	}
	p, err := d.load()
	if err != nil {
		return nil, err
	}
	for _, r := range p.Rules() {
		if r.Layer == policy.Gateway && d.files.keyLine == "" {
			d.files.keyLine = fmt.Sprintf("demo-%s %s %x", d.tag, r.Plan, sha256.Sum256([]byte(d.apiKey)))
		}
	}
	if d.policy, err = d.load(); err != nil {
		return nil, err
	}
	if j := d.policy.Auth().JWT; j != nil && j.SecretEnv == "" {
		return nil, usage("weir demo", "the demo signs tokens itself, so its policy needs auth.jwt.hs256_secret_env")
	}
	d.store = c.store
	if d.store == "" {
		d.store = "memory:"
	}
	return d, nil
}

func (d *stage) load() (*policy.Policy, error) {
	return policy.Load(d.files, d.files.policy, policy.Options{
		File: d.name, CheckStore: checkStore, Expressions: expression.Compile, OnlyAuth: true,
		// So that scenarios can come from many addresses. No file should say so.
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
}

// start opens the store, the shop and the proxy. The channel gets the proxy's
// end.
func (d *stage) start(ctx context.Context, c *common, listen string) (ended chan error, err error) {
	log := slog.New(slog.DiscardHandler) // the table tells of refusals
	if c.verbose {
		log = c.logger(c.stderr)
	}
	d.open, err = openStore(ctx, d.store, storeOptions{
		observer: &weir.Observer{Trip: func(context.Context, weir.Trip) { d.trips.Add(1) }},
	})
	if err != nil {
		return nil, err
	}
	for _, w := range d.open.warnings {
		c.say("warning: %s", w)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the shop has no port: %w", err)
	}
	d.shop = &http.Server{Handler: shop.New(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = d.shop.Serve(at) }() // ends by Close
	d.server, err = newServer(ctx, serverOptions{
		load: d.load, policy: d.policy, store: d.open.Store,
		auth:   auth.Options{Getenv: func(string) string { return d.secret }, Log: log},
		target: &url.URL{Scheme: "http", Host: at.Addr().String()},
		listen: listen, replicas: 1, log: log, deadline: patience,
		decided: func(_ context.Context, o *engine.Outcome) {
			if o.Degraded {
				d.degraded.Add(1)
			}
			for i := range o.Verdicts {
				if o.Verdicts[i].Rule.Layer != policy.Edge {
					d.takes.Add(1)
					return
				}
			}
		},
	})
	if err != nil {
		d.close()
		return nil, err
	}
	ended = make(chan error, 1)
	go func() { ended <- d.server.serve(ctx) }()
	return ended, nil
}

func (d *stage) close() {
	_ = d.shop.Close()
	_ = d.open.Close()
}

// patience is how long a decision may take. The demo explains limits and is no
// test of a store's speed: what on_store_error says on a busy machine would hide
// what it shows.
const patience = 5 * time.Second

// storeCalls counts how often the store was asked: trips to a remote one,
// decisions on one in this process.
func (d *stage) storeCalls() int64 {
	if !d.open.url.remote() {
		return d.takes.Load()
	}
	return d.trips.Load()
}

// atOnce is how many calls are under way at a time: fewer where a small test
// server would be at the end of a long queue.
func (d *stage) atOnce() int {
	if !d.open.url.remote() {
		return mostAtOnce
	}
	return 8
}

// token signs in as somebody whom no store has seen before.
func (d *stage) token(who string, more jwt.MapClaims) http.Header {
	j := d.policy.Auth().JWT
	if j == nil {
		return nil
	}
	claims := jwt.MapClaims{"sub": who + "-" + d.tag, "exp": time.Now().Add(12 * time.Hour).Unix()}
	if j.Issuer != "" {
		claims["iss"] = j.Issuer
	}
	if j.Audience != "" {
		claims["aud"] = j.Audience
	}
	for k, v := range more {
		claims[k] = v
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(d.secret))
	if err != nil {
		return nil // cannot happen: the key is bytes and the claims are text and numbers
	}
	return http.Header{"Authorization": {"Bearer " + text}}
}

// partner is the credentials of a partner.
func (d *stage) partner() http.Header {
	keys := d.policy.Auth().APIKeys
	if keys == nil {
		return nil
	}
	return http.Header{http.CanonicalHeaderKey(keys.Header): {d.apiKey}}
}

// address is a network that no scenario of any run has used: the last 64 bits
// do not count, and of the first there are enough.
func (d *stage) address() netip.Addr {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0xf0}
	rand.Read(a[5:8])
	a[15] = 1
	return netip.AddrFrom16(a)
}

// office is the example's range that the edge leaves out.
var office = netip.MustParseAddr("203.0.113.7")

func (d *stage) scenarios(ctx context.Context) ([]scenario, error) {
	call := func(method, path, body string, status, calls int, who http.Header) part {
		return part{from: d.address(), header: who, method: method, path: path, body: body, status: status, calls: calls}
	}
	book := func(who http.Header) part {
		return call("POST", "/reservations", `{"event":"the-seagull"}`, 201, 12, who)
	}
	login := func(from netip.Addr) part {
		p := call("POST", "/API/Auth/login", `{"user":"maya","password":"guess"}`, 401, 150, nil)
		p.from = from
		return p
	}
	list := []scenario{
		{name: "reservations", layer: "application", parts: []part{book(d.token("maya", nil))}},
		{name: "two-accounts", layer: "application", parts: []part{book(d.token("noah", nil)), book(d.token("olga", nil))}},
		{name: "anonymous", layer: "application", parts: []part{book(nil)}},
		{name: "auth-flood", layer: "edge", parts: []part{login(d.address())}},
		{name: "office", layer: "edge", parts: []part{login(office)}},
		{name: "partner-burst", layer: "gateway", parts: []part{call("GET", "/partner/events", "", 200, 40, d.partner())}},
		{name: "orders", layer: "application", inTurn: true, parts: []part{
			call("POST", "/orders", `{"reservation":"r-1"}`, 201, 51, d.token("pia", jwt.MapClaims{"plans": []string{"free"}}))}},
		{name: "webhooks", layer: "exempt", free: true, parts: []part{call("POST", "/webhooks/payments", `{"event":"paid"}`, 202, 300, nil)}},
		{name: "health", layer: "exempt", free: true, parts: []part{call("GET", "/healthz", "", 200, 50, nil)}},
		{name: "agent", layer: "application", parts: []part{
			call("POST", "/assistant/search", `{"q":"seagull"}`, 200, 20, d.token("quinn", jwt.MapClaims{"agent": "concierge-" + d.tag})),
			call("POST", "/assistant/search", `{"q":"jazz"}`, 200, 3, d.token("quinn", nil))}},
	}
	// Whoever raises a limit in the file sees more calls, so that there still
	// is a refusal to show.
	for i := range list {
		if list[i].free || list[i].name == "office" {
			continue
		}
		p := &list[i].parts[0]
		n, limited, err := capacity(ctx, d.server, p)
		if err != nil {
			return nil, err
		}
		if limited {
			p.calls = max(p.calls, int(min(n+1, 5000)))
		}
		for j := 1; j < len(list[i].parts) && list[i].name == "two-accounts"; j++ {
			list[i].parts[j].calls = p.calls
		}
	}
	return list, nil
}

func (d *stage) playAll(ctx context.Context, c *common) ([]result, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: mostAtOnce, DisableCompression: true}}
	defer client.CloseIdleConnections()
	list, err := d.scenarios(ctx)
	if err != nil {
		return nil, err
	}
	var results []result
	for i := range list {
		r, err := d.play(ctx, client, &list[i])
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func writeResults(c *common, results []result) error {
	if c.format == "json" {
		return writeJSON(c.stdout, struct {
			SchemaVersion int      `json:"schema_version"`
			Scenarios     []result `json:"scenarios"`
		}{1, results})
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tlayer\tsent\tallowed\tdenied\tstore calls\t\tfirst denial\t")
	for _, r := range results {
		mark, first := c.paint(green, "as the policy says"), "-"
		switch {
		case !r.OK:
			mark = c.paint(red, "DIFFERS: "+r.Differs)
		case r.Expected.outer != "":
			mark = c.paint(green, "as the policy says: "+r.Expected.outer+" comes first")
		}
		if f := r.FirstDenial; f != nil {
			var body struct{ Message string }
			_ = json.Unmarshal(f.Body, &body) // play has read it
			first = fmt.Sprintf("%d, Retry-After: %s, %s", f.Status, f.Headers["Retry-After"], body.Message)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n", r.Name, r.Layer, r.Sent, r.Allowed, r.Denied, r.StoreCalls, mark, first)
	}
	return w.Flush()
}

// invite prints what to try.
func (d *stage) invite(c *common) {
	base := d.server.url()
	auth := func(h http.Header) string {
		for name, v := range h {
			return fmt.Sprintf(" -H '%s: %s'", name, v[0])
		}
		return ""
	}
	c.say("\nStill serving. Try, and try again at once; Ctrl-C ends it:\n")
	c.say("  # your own bucket, and what is left of it")
	c.say("  curl -i -X POST %s/reservations%s", base, auth(d.token("you", jwt.MapClaims{"plans": []string{"free"}})))
	c.say("  curl -s %s/.weir/usage%s", base, auth(d.token("you", jwt.MapClaims{"plans": []string{"free"}})))
	c.say("  # nobody: a tighter limit, by address")
	c.say("  curl -i -X POST %s/reservations", base)
	if h := d.partner(); h != nil {
		c.say("  # a partner")
		c.say("  curl -i %s/partner/events%s", base, auth(h))
	}
	c.say("  # never limited")
	c.say("  curl -i -X POST %s/webhooks/payments -d '{}'", base)
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/cmd/weir/internal/curl"
	"github.com/weirlabs/weir/lambdalimit"
	"github.com/weirlabs/weir/policy"
)

// question is one request that a command is asked about.
type question struct {
	attributes policy.Attributes
	claims     map[string]any   // said to be signed: --token '{"sub": ...}'
	known      *policy.Identity // of an event: the gateway has verified it
	balancer   bool             // an event that says no address which is believed
}

// questionFlags say what the request is.
type questionFlags struct {
	method, path, fromIP, token string
	header                      []string
	curl, event                 string
}

func (f *questionFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.method, "method", "GET", "the request's `METHOD`")
	fl.StringVar(&f.path, "path", "/", "its `PATH`, with a query if it has one, or a whole URL")
	fl.StringVar(&f.fromIP, "from-ip", "192.0.2.1", "the `ADDRESS` that it comes from: the socket's peer")
	fl.StringVar(&f.token, "token", "", "its token; or claims to take as verified, '{\"sub\":\"maya\"}' (`TOKEN`)")
	fl.StringArrayVar(&f.header, "header", nil, "a header `'NAME: VALUE'`; may be repeated")
	fl.StringVar(&f.curl, "curl", "", "the request of a curl command `LINE`")
	fl.StringVar(&f.event, "event", "", "the request of a Lambda event in `JSON`, or in a file")
}

// question reads the flags.
func (f *questionFlags) question(cmd *cobra.Command, p *policy.Policy) (*question, error) {
	set := cmd.Flags().Changed
	q := &question{}
	switch {
	case f.event != "" && (f.curl != "" || set("method") || set("path") || set("from-ip") || len(f.header) > 0):
		return nil, usage(cmd.CommandPath()+" --event event.json", "--event says all of the request; leave the other flags out")
	case f.curl != "" && (set("method") || set("path")):
		return nil, usage(cmd.CommandPath()+" --curl 'curl -X POST http://localhost:8080/orders'", "--curl says the method and the path; leave --method and --path out")
	case f.event != "":
		if err := q.ofEvent(f.event, p); err != nil {
			return nil, err
		}
	default:
		if err := f.ofHTTP(q); err != nil {
			return nil, err
		}
	}
	return q, f.ofToken(q)
}

func (f *questionFlags) ofHTTP(q *question) error {
	a := &q.attributes
	a.Header = http.Header{}
	method, target := f.method, f.path
	if f.curl != "" {
		r, err := curl.Parse(f.curl)
		if err != nil {
			return usage(`weir explain --curl 'curl -X POST http://localhost:8080/orders -H "X-Api-Key: KEY"'`, "--curl: %w", err)
		}
		method, target, a.Header = r.Method, r.URL.String(), r.Header
	}
	if !curl.Token(method) {
		return usage("weir explain --method POST --path /orders", "--method %q is not a method", method)
	}
	a.Method = strings.ToUpper(method)
	if scheme, rest, whole := strings.Cut(target, "://"); whole && !strings.ContainsAny(scheme, "/?") {
		if _, err := url.Parse(target); err != nil {
			return usage("weir explain --path /orders", "--path %s is not a URL", target)
		}
		at := strings.IndexAny(rest, "/?#")
		if at < 0 {
			at, rest = len(rest), rest+"/"
		}
		a.Host, target = rest[:at], rest[at:]
		if a.Host = a.Host[strings.LastIndexByte(a.Host, '@')+1:]; target[0] != '/' {
			target = "/" + target
		}
	}
	target, _, _ = strings.Cut(target, "#")
	a.Path, a.RawQuery, _ = strings.Cut(target, "?")
	if !strings.HasPrefix(a.Path, "/") {
		return usage("weir explain --path /"+a.Path, "--path %q does not begin with a slash", f.path)
	}
	peer, err := netip.ParseAddr(f.fromIP)
	if err != nil {
		return usage("weir explain --from-ip 192.0.2.44", "--from-ip %q is not an address", f.fromIP)
	}
	a.Peer = peer
	for _, line := range f.header {
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || !curl.Token(name) {
			return usage("weir explain --header 'X-Api-Key: KEY'", "--header %q is not NAME: VALUE", line)
		}
		http.Header(a.Header).Add(name, strings.TrimSpace(value))
	}
	if host := http.Header(a.Header).Get("Host"); host != "" {
		a.Host = host
		delete(a.Header, "Host") // where net/http puts it
	}
	return nil
}

// maxEvent is as large as Lambda lets an event be.
const maxEvent = 6 << 20

func (q *question) ofEvent(text string, p *policy.Policy) error {
	const try = "weir explain --event event.json"
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		f, err := os.Open(text)
		if err != nil {
			return fmt.Errorf("--event: the file cannot be read: %w", err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxEvent))
		if err != nil {
			return fmt.Errorf("--event: the file cannot be read: %w", err)
		}
		text = string(b)
	}
	a, id, err := lambdalimit.Read([]byte(text), p, lambdalimit.Options{})
	var unknown *lambdalimit.UnknownEvent
	if errors.As(err, &unknown) {
		return usage(try, "--event: %s", unknown.Reason)
	} else if err != nil {
		return usage(try, "--event: %w", err)
	}
	q.attributes, q.known, q.balancer = a, &id, !a.Peer.IsValid()
	return nil
}

// ofToken takes claims as they are; anything else is a token to verify.
func (f *questionFlags) ofToken(q *question) error {
	switch text := strings.TrimSpace(f.token); {
	case text == "":
	case text[0] == '{':
		if err := json.Unmarshal([]byte(text), &q.claims); err != nil {
			return usage(`weir explain --token '{"sub":"maya"}'`, "--token is neither a token nor claims in JSON: %w", err)
		}
		if q.known != nil { // verified by the gateway, in its own way
			q.known.Claims, _ = auth.Claims(nil, time.Time{}, q.claims)
		}
		delete(q.attributes.Header, "Authorization")
	case q.known != nil:
		return usage(`weir explain --event event.json --token '{"sub":"maya"}'`, "an event carries claims that are verified; give --token as claims, to take others")
	default:
		http.Header(q.attributes.Header).Set("Authorization", "Bearer "+text)
	}
	return nil
}

// who finds out who calls, as the proxy does. Keys and secrets are needed only
// for what the request has.
func (q *question) who(ctx context.Context, p *policy.Policy) (policy.Identity, error) {
	if q.known != nil {
		return *q.known, nil
	}
	a := p.Auth()
	claims := q.claims
	if claims != nil {
		var err error
		if claims, err = auth.Claims(a.JWT, time.Now(), claims); err != nil {
			return policy.Identity{}, err
		}
	}
	if len(q.attributes.Header["Authorization"]) == 0 {
		a.JWT = nil
	}
	v, err := verifierOf(ctx, a, auth.Options{})
	if err != nil {
		return policy.Identity{}, errHint{fmt.Errorf("%w; claims in place of a token are taken as verified", err), `weir explain --token '{"sub":"maya"}'`}
	}
	id, err := v.Identify(ctx, q.attributes.Header)
	if err == nil && claims != nil {
		id.Claims = claims
	}
	return id, err
}

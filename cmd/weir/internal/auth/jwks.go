package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"
)

const (
	jwksMax     = 1 << 20          // bytes
	jwksEvery   = time.Minute      // the shortest time between two attempts
	jwksFresh   = 15 * time.Minute // after that a request renews the set, in the background
	jwksTimeout = 5 * time.Second
)

// jwks is a key set that lives at a URL. It is fetched once at the start, when
// a token names a key that is not in it, and when it is old; never more than
// once a minute, whatever tokens arrive. A failed attempt keeps the last good
// set.
type jwks struct {
	url    string
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex
	keys    []key
	fetched time.Time     // of keys
	tried   time.Time     // the last attempt, good or bad
	flight  chan struct{} // closed when the attempt under way is over
}

func newJWKS(ctx context.Context, at string, o Options) (*jwks, error) {
	if err := checkJWKSURL(at); err != nil {
		return nil, err
	}
	s := &jwks{url: at, now: o.Now, log: o.Log, client: &http.Client{
		Transport: o.Client,
		Timeout:   jwksTimeout,
		// A redirect would let the target choose another server, or plain
		// http. The last answer then stands, and is not a 200.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	keys, err := s.fetch(ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	s.keys, s.fetched, s.tried = keys, now, now
	return s, nil
}

func checkJWKSURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return fmt.Errorf("auth.jwt.jwks_url: %q is not a URL such as https://issuer.example.com/.well-known/jwks.json", text)
	}
	if u.Scheme == "https" {
		return nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && addr.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("auth.jwt.jwks_url: %q is not https: whoever can change the answer could sign tokens (http is allowed on loopback only)", text)
}

func (s *jwks) fetch(ctx context.Context) ([]key, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("auth.jwt.jwks_url %w: %w", ErrUnreachable, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("auth.jwt.jwks_url %s %w: it answers %s (redirects are not followed)", s.url, ErrUnreachable, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, jwksMax+1))
	if err != nil {
		return nil, fmt.Errorf("auth.jwt.jwks_url %s %w: %w", s.url, ErrUnreachable, err)
	}
	if len(text) > jwksMax {
		return nil, fmt.Errorf("auth.jwt.jwks_url %s: the key set is longer than 1 MiB", s.url)
	}
	keys, err := parseJWKS(text)
	if err != nil {
		return nil, fmt.Errorf("auth.jwt.jwks_url %s: %w", s.url, err)
	}
	return keys, nil
}

// find looks a kid up; a token without one may be of any key that fits.
func (s *jwks) find(ctx context.Context, alg, kid string, hasKid bool) ([]key, error) {
	s.mu.Lock()
	keys, age := s.keys, s.now().Sub(s.fetched)
	s.mu.Unlock()
	if age > jwksFresh {
		s.renew()
	}
	if !hasKid {
		return fitting(keys, alg), nil
	}
	if found := byID(keys, kid); found != nil {
		return fitting(found, alg), nil
	}
	// Perhaps the issuer has a new key.
	if done := s.renew(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	keys = s.keys
	s.mu.Unlock()
	return fitting(byID(keys, kid), alg), nil
}

func byID(keys []key, kid string) []key {
	var out []key
	for _, k := range keys {
		if k.id == kid {
			out = append(out, k)
		}
	}
	return out
}

// renew starts an attempt unless one was made in the last minute. The channel
// is closed when the attempt under way is over; nil when there is none.
func (s *jwks) renew() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight
	}
	now := s.now()
	if now.Sub(s.tried) < jwksEvery {
		return nil
	}
	s.tried = now
	done := make(chan struct{})
	s.flight = done
	go func() {
		// Not the request's context: a client that leaves must not spoil the
		// one attempt of this minute.
		keys, err := s.fetch(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.keys, s.fetched = keys, now
		} else {
			s.log.Warn("the key set could not be renewed; the last good one stays in use", "err", err, "age", now.Sub(s.fetched).Round(time.Second))
		}
		s.flight = nil
		close(done)
	}()
	return done
}

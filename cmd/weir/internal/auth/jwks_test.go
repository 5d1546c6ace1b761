package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/cmd/weir/internal/auth"
)

func jwk(kid string, pub crypto.PublicKey) map[string]any {
	m := map[string]any{"use": "sig"}
	if kid != "" {
		m["kid"] = kid
	}
	switch p := pub.(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(p.N.Bytes()), b64(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		raw, err := p.Bytes()
		check(err)
		half := (len(raw) - 1) / 2
		m["kty"], m["crv"], m["x"], m["y"] = "EC", p.Curve.Params().Name, b64(raw[1:1+half]), b64(raw[1+half:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(p)
	}
	return m
}

// issuer is a key server that counts its calls and can be changed.
type issuer struct {
	*httptest.Server
	calls  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t *testing.T, tls bool) *issuer {
	i := &issuer{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.calls.Add(1)
		(*i.answer.Load())(w, r)
	})
	if tls {
		i.Server = httptest.NewTLSServer(h)
	} else {
		i.Server = httptest.NewServer(h)
	}
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) set(h http.HandlerFunc) { i.answer.Store(&h) }

func (i *issuer) keys(keys ...map[string]any) {
	i.set(func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(map[string]any{"keys": keys}) })
}

func TestJWKSKinds(t *testing.T) {
	iss := newIssuer(t, true)
	var all []map[string]any
	for _, p := range pairs() {
		all = append(all, jwk(p.name, p.public))
	}
	enc := jwk("enc", pairs()[0].public)
	enc["use"] = "enc"
	all = append(all, enc, map[string]any{"kty": "oct", "kid": "oct", "k": b64(secret)}, map[string]any{"kty": "EC", "crv": "P-256", "kid": "off", "x": b64(make([]byte, 32)), "y": b64(make([]byte, 32))}, map[string]any{"kty": "future"})
	iss.keys(all...)
	v := verifier(t, byURL(iss.URL), auth.Options{Client: iss.Client().Transport})
	claims := jwt.MapClaims{"sub": "a", "exp": in(time.Hour)}
	for _, p := range pairs() {
		for what, header := range map[string]map[string]any{"its kid": {"kid": p.name}, "no kid": nil} {
			if _, err := v.Identify(context.Background(), bearer(sign(t, p.method, p.private, header, claims))); err != nil {
				t.Errorf("%s with %s: %v", p.name, what, err)
			}
		}
		if _, err := v.Identify(context.Background(), bearer(sign(t, p.method, p.private, map[string]any{"kid": "enc"}, claims))); status(t, err) != 401 {
			t.Errorf("%s under the kid of an encryption key: %v", p.name, err)
		}
	}
	if _, err := v.Identify(context.Background(), bearer(sign(t, jwt.SigningMethodHS256, secret, map[string]any{"kid": "oct"}, claims))); status(t, err) != 401 {
		t.Errorf("a symmetric key from a key set verifies: %v", err)
	}
	if got := iss.calls.Load(); got != 1 {
		t.Errorf("%d fetches, want the first only: the clock stands still", got)
	}
}

func TestJWKSRenewal(t *testing.T) {
	var now atomic.Int64
	now.Store(start.Unix())
	old, new_ := pairs()[1], pairs()[2]
	iss := newIssuer(t, false) // http is allowed on loopback
	iss.keys(jwk("old", old.public))
	v := verifier(t, byURL(iss.URL), auth.Options{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	claims := jwt.MapClaims{"sub": "a", "exp": in(24 * time.Hour)}
	newToken := bearer(sign(t, new_.method, new_.private, map[string]any{"kid": "new"}, claims))
	oldToken := bearer(sign(t, old.method, old.private, map[string]any{"kid": "old"}, claims))
	expect := func(what string, header map[string][]string, want int, calls int64) {
		t.Helper()
		_, err := v.Identify(context.Background(), header)
		if got := status(t, err); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
		if got := iss.calls.Load(); got != calls {
			t.Errorf("%s: %d fetches so far, want %d", what, got, calls)
		}
	}
	expect("the key of the start", oldToken, 200, 1)
	iss.keys(jwk("old", old.public), jwk("new", new_.public))
	expect("a new kid, less than a minute later", newToken, 401, 1)
	now.Add(59)
	expect("a new kid after 59 s", newToken, 401, 1)
	now.Add(1)
	expect("a new kid after a minute", newToken, 200, 2)

	for _, bad := range []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) },
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, iss.URL+"/elsewhere", http.StatusFound)
		},
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"keys":[]}`) },
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `<html>`) },
		func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"keys":[],"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		},
	} {
		iss.set(bad)
		before := iss.calls.Load()
		now.Add(60)
		flood := bearer(sign(t, old.method, old.private, map[string]any{"kid": "unknown"}, claims))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := v.Identify(context.Background(), flood); status(t, err) != 401 {
					t.Errorf("an unknown kid: %v", err)
				}
			})
		}
		wg.Wait()
		if got := iss.calls.Load() - before; got != 1 {
			t.Errorf("20 unknown kids made %d fetches, want 1", got)
		}
		expect("the last good set after a failed fetch", newToken, 200, before+1)
	}

	iss.keys(jwk("new", new_.public)) // old is withdrawn
	now.Add(16 * 60)
	before := iss.calls.Load()
	if _, err := v.Identify(context.Background(), newToken); err != nil { // starts the renewal, does not wait for it
		t.Error(err)
	}
	for range 1000 { // an unknown kid waits for the attempt under way
		if _, err := v.Identify(context.Background(), bearer(sign(t, old.method, old.private, map[string]any{"kid": "x"}, claims))); status(t, err) != 401 {
			t.Fatal(err)
		}
		if iss.calls.Load() == before+1 {
			break
		}
	}
	expect("a key that the issuer withdrew", oldToken, 401, before+1)
}

func TestJWKSAtTheStart(t *testing.T) {
	for _, bad := range []string{"http://issuer.example.com/jwks", "ftp://127.0.0.1/", "file:///etc/passwd", "https://u:p@a/", "issuer", "http://127.0.0.1.example.com/"} {
		_, err := auth.New(context.Background(), byURL(bad), auth.Options{})
		if err == nil || errors.Is(err, auth.ErrUnreachable) {
			t.Errorf("%s: %v, want an error that names the URL's fault", bad, err)
		}
	}
	iss := newIssuer(t, false)
	iss.set(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) })
	_, err := auth.New(context.Background(), byURL(iss.URL), auth.Options{})
	if !errors.Is(err, auth.ErrUnreachable) || iss.calls.Load() != 1 {
		t.Errorf("a redirect: %v after %d calls, want unreachable after 1", err, iss.calls.Load())
	}
	iss.Close()
	if _, err := auth.New(context.Background(), byURL(iss.URL), auth.Options{}); !errors.Is(err, auth.ErrUnreachable) {
		t.Errorf("a server that is down: %v, want unreachable", err)
	}
}

package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/policy"
)

var bySecret = policy.Auth{JWT: &policy.JWT{SecretEnv: "SECRET"}}

func byURL(u string) policy.Auth { return policy.Auth{JWT: &policy.JWT{JWKS: u}} }

var (
	secret = []byte("a secret of the example, 32 bytes")
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	quiet  = slog.New(slog.NewTextHandler(io.Discard, nil))
)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// sign makes a token with a header of the test's choosing.
func sign(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, claims jwt.MapClaims) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, claims)
	for k, v := range header {
		tok.Header[k] = v
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func verifier(t *testing.T, a policy.Auth, o auth.Options) *auth.Verifier {
	t.Helper()
	o.Getenv = func(name string) string { return map[string]string{"SECRET": string(secret)}[name] }
	if o.Now == nil {
		o.Now = at(start)
	}
	o.Log = quiet
	v, err := auth.New(context.Background(), a, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// status is 200 for an identity or an anonymous caller, else the refusal's.
func status(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 200
	}
	var re *policy.RequestError
	if !errors.As(err, &re) || re.Code == "" || re.Reason == "" {
		t.Fatalf("the error %v (%T) is not a complete *policy.RequestError", err, err)
	}
	return re.Status
}

func bearer(tok string) map[string][]string {
	return map[string][]string{"Authorization": {"Bearer " + tok}}
}

func in(d time.Duration) int64 { return start.Add(d).Unix() }

func TestClaims(t *testing.T) {
	v := verifier(t, policy.Auth{JWT: &policy.JWT{SecretEnv: "SECRET", Issuer: "https://issuer.example", Audience: "little-stage"}}, auth.Options{})
	base := func(change jwt.MapClaims) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "customer-42", "iss": "https://issuer.example", "aud": "little-stage", "exp": in(time.Hour)}
		for k, val := range change {
			if val == nil {
				delete(c, k)
			} else {
				c[k] = val
			}
		}
		return c
	}
	for _, c := range []struct {
		name   string
		header map[string]any
		claims jwt.MapClaims
		want   int
		sub    any
	}{
		{"good", nil, nil, 200, "customer-42"},
		{"exp is required", nil, jwt.MapClaims{"exp": nil}, 401, nil},
		{"expired within the leeway", nil, jwt.MapClaims{"exp": in(-59 * time.Second)}, 200, "customer-42"},
		{"expired at the leeway", nil, jwt.MapClaims{"exp": in(-60 * time.Second)}, 401, nil},
		{"exp is text", nil, jwt.MapClaims{"exp": fmt.Sprint(in(time.Hour))}, 401, nil},
		{"exp beyond all time", nil, jwt.MapClaims{"exp": 1e300}, 401, nil},
		{"exp beyond all clocks", nil, jwt.MapClaims{"exp": 1e30}, 401, nil},
		{"exp in milliseconds", nil, jwt.MapClaims{"exp": in(time.Hour) * 1000}, 200, "customer-42"},
		{"nbf beyond all clocks", nil, jwt.MapClaims{"nbf": 1e30}, 401, nil},
		{"nbf before all clocks", nil, jwt.MapClaims{"nbf": -1e30}, 401, nil},
		{"iat beyond all clocks", nil, jwt.MapClaims{"iat": 1e30}, 401, nil},
		{"exp below zero", nil, jwt.MapClaims{"exp": -1}, 401, nil},
		{"nbf within the leeway", nil, jwt.MapClaims{"nbf": in(60 * time.Second)}, 200, "customer-42"},
		{"nbf beyond the leeway", nil, jwt.MapClaims{"nbf": in(61 * time.Second)}, 401, nil},
		{"nbf is text", nil, jwt.MapClaims{"nbf": "now"}, 401, nil},
		{"iss differs", nil, jwt.MapClaims{"iss": "https://issuer.example/"}, 401, nil},
		{"iss is missing", nil, jwt.MapClaims{"iss": nil}, 401, nil},
		{"aud is a list", nil, jwt.MapClaims{"aud": []string{"other", "little-stage"}}, 200, "customer-42"},
		{"aud is another", nil, jwt.MapClaims{"aud": "other"}, 401, nil},
		{"aud is an empty list", nil, jwt.MapClaims{"aud": []string{}}, 401, nil},
		{"aud is missing", nil, jwt.MapClaims{"aud": nil}, 401, nil},
		{"aud is a number", nil, jwt.MapClaims{"aud": 7}, 401, nil},
		{"sub is empty: a missing one", nil, jwt.MapClaims{"sub": ""}, 200, nil},
		{"sub is missing", nil, jwt.MapClaims{"sub": nil}, 200, nil},
		{"sub is a number", nil, jwt.MapClaims{"sub": 42}, 401, nil},
		{"sub is a list", nil, jwt.MapClaims{"sub": []string{"a"}}, 401, nil},
		{"sub of 256 bytes", nil, jwt.MapClaims{"sub": strings.Repeat("s", 256)}, 200, strings.Repeat("s", 256)},
		{"sub of 257 bytes", nil, jwt.MapClaims{"sub": strings.Repeat("s", 257)}, 401, nil},
		{"unknown crit", map[string]any{"crit": []string{"exp"}}, nil, 401, nil},
		{"empty crit", map[string]any{"crit": []string{}}, nil, 401, nil},
		{"kid plays no part with one key", map[string]any{"kid": "../../etc/passwd"}, nil, 200, "customer-42"},
		{"kid is a number", map[string]any{"kid": 7}, nil, 401, nil},
		{"jku, x5u and jwk are ignored", map[string]any{"jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/", "jwk": map[string]string{"kty": "oct", "k": "AAAA"}}, nil, 200, "customer-42"},
	} {
		id, err := v.Identify(context.Background(), bearer(sign(t, jwt.SigningMethodHS256, secret, c.header, base(c.claims))))
		if got := status(t, err); got != c.want {
			t.Errorf("%s: %d (%v), want %d", c.name, got, err, c.want)
		}
		if id.Claims["sub"] != c.sub {
			t.Errorf("%s: sub %v, want %v", c.name, id.Claims["sub"], c.sub)
		}
		if c.want != 200 && (id.Claims != nil || id.KeyOwner != "") {
			t.Errorf("%s: a refused token still gives %+v", c.name, id)
		}
	}
}

func TestAuthorizationField(t *testing.T) {
	v := verifier(t, bySecret, auth.Options{})
	good := sign(t, jwt.SigningMethodHS256, secret, nil, jwt.MapClaims{"sub": "a", "exp": in(time.Hour)})
	part := strings.Split(good, ".")
	for _, c := range []struct {
		name   string
		fields []string
		want   int
		known  bool
	}{
		{"none", nil, 200, false},
		{"bearer", []string{"Bearer " + good}, 200, true},
		{"lower case and spaces", []string{" bearer   " + good + " "}, 200, true},
		{"another scheme", []string{"Basic dTpw"}, 200, false},
		{"a scheme that begins alike", []string{"BearerX " + good}, 200, false},
		{"two fields", []string{"Bearer " + good, "Bearer " + good}, 400, false},
		{"two fields of two schemes", []string{"Basic dTpw", "Bearer " + good}, 400, false},
		{"a comma", []string{"Bearer " + good + ", Bearer " + good}, 400, false},
		{"a comma after another scheme", []string{"Basic dTpw, Bearer " + good}, 400, false},
		{"no token", []string{"Bearer"}, 401, false},
		{"not a token", []string{"Bearer abc"}, 401, false},
		{"two tokens", []string{"Bearer " + good + " " + good}, 401, false},
		{"four parts", []string{"Bearer " + good + ".x"}, 401, false},
		{"no signature", []string{"Bearer " + part[0] + "." + part[1] + "."}, 401, false},
		{"another payload", []string{"Bearer " + part[0] + "." + part[1][:len(part[1])-2] + "AA." + part[2]}, 401, false},
		{"a padded signature", []string{"Bearer " + good + "="}, 401, false},
	} {
		id, err := v.Identify(context.Background(), map[string][]string{"Authorization": c.fields})
		if got := status(t, err); got != c.want || (id.Claims != nil) != c.known {
			t.Errorf("%s: %d (%v), known %v; want %d, %v", c.name, got, err, id.Claims != nil, c.want, c.known)
		}
		if err != nil && strings.Contains(err.Error(), part[2]) {
			t.Errorf("%s: the error repeats the token", c.name)
		}
	}
}

type pair struct {
	name    string
	private any
	public  crypto.PublicKey
	method  jwt.SigningMethod
}

var pairs = sync.OnceValue(func() []pair {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	e256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	e384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	check(err)
	pub, ed, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	return []pair{
		{"RS256", r, &r.PublicKey, jwt.SigningMethodRS256},
		{"ES256", e256, &e256.PublicKey, jwt.SigningMethodES256},
		{"ES384", e384, &e384.PublicKey, jwt.SigningMethodES384},
		{"EdDSA", ed, pub, jwt.SigningMethodEdDSA},
	}
})

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func toPEM(pub crypto.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(pub)
	check(err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestPublicKeysAndAlgorithmConfusion(t *testing.T) {
	claims := jwt.MapClaims{"sub": "a", "exp": in(time.Hour)}
	for i, p := range pairs() {
		text := toPEM(p.public)
		v := verifier(t, policy.Auth{JWT: &policy.JWT{PublicKey: p.public}}, auth.Options{})
		try := func(what, token string, want int) {
			t.Helper()
			_, err := v.Identify(context.Background(), bearer(token))
			if got := status(t, err); got != want {
				t.Errorf("%s key, %s: %d (%v), want %d", p.name, what, got, err, want)
			}
		}
		try("its own token", sign(t, p.method, p.private, nil, claims), 200)
		try("none", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, claims), 401)
		for _, alg := range []string{"None", "NONE", "nOnE", ""} {
			head, _ := json.Marshal(map[string]string{"alg": alg, "typ": "JWT"})
			body, _ := json.Marshal(claims)
			try("alg "+alg, b64(head)+"."+b64(body)+".", 401)
		}
		// HS256 with what everybody may know: the public key in its forms.
		der, _ := pem.Decode(text)
		for _, k := range [][]byte{text, []byte(strings.TrimSpace(string(text))), der.Bytes} {
			try("HS256 signed with the public key", sign(t, jwt.SigningMethodHS256, k, nil, claims), 401)
			try("HS512 signed with the public key", sign(t, jwt.SigningMethodHS512, k, nil, claims), 401)
		}
		other := pairs()[(i+1)%len(pairs())]
		try("a token of another kind", sign(t, other.method, other.private, nil, claims), 401)
		try("a token that brings its own key", sign(t, other.method, other.private, map[string]any{"jwk": jwk("", other.public), "alg": other.method.Alg()}, claims), 401)
		try("another algorithm's name over its own signature", rename(sign(t, p.method, p.private, nil, claims), "HS256"), 401)
	}
	r := pairs()[0]
	v := verifier(t, bySecret, auth.Options{})
	for what, token := range map[string]string{
		"RS256 where a secret is configured": sign(t, r.method, r.private, nil, claims),
		"HS512 with the right secret":        sign(t, jwt.SigningMethodHS512, secret, nil, claims),
		"HS256 with another secret":          sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), nil, claims),
		"none":                               sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, claims),
	} {
		_, err := v.Identify(context.Background(), bearer(token))
		if got := status(t, err); got != 401 {
			t.Errorf("%s: %d, want 401", what, got)
		}
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func rename(token, alg string) string {
	_, rest, _ := strings.Cut(token, ".")
	head, _ := json.Marshal(map[string]string{"alg": alg, "typ": "JWT"})
	return b64(head) + "." + rest
}

func TestBadKeys(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SHORT": strings.Repeat("x", 31)}
	for what, j := range map[string]policy.JWT{
		"a short secret":   {SecretEnv: "SHORT"},
		"an unset secret":  {SecretEnv: "UNSET"},
		"a private key":    {PublicKey: pairs()[1].private},
		"a weak RSA key":   {PublicKey: &weak.PublicKey},
		"an unknown curve": {PublicKey: &p224.PublicKey},
		"no key":           {},
	} {
		_, err := auth.New(context.Background(), policy.Auth{JWT: &j}, auth.Options{Getenv: func(n string) string { return env[n] }})
		if err == nil || !strings.HasPrefix(err.Error(), "auth.jwt: ") || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: %v, want an error of auth.jwt", what, err)
		}
	}
}

func TestCase_B091_APIKeysAreWholeAndHashed(t *testing.T) {
	hash := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	v := verifier(t, keyFile(t, "acme partner-basic "+hash("tess_live_AAAAAAAAAAAAAAAA")+"\nglobex - "+hash("tess_live_BBBBBBBBBBBBBBBB")+"\n"), auth.Options{})
	for _, c := range []struct {
		name   string
		fields []string
		want   int
		owner  string
		plan   string
	}{
		{"one", []string{"tess_live_AAAAAAAAAAAAAAAA"}, 200, "acme", "partner-basic"},
		{"another with the same beginning", []string{"tess_live_BBBBBBBBBBBBBBBB"}, 200, "globex", ""},
		{"none", nil, 200, "", ""},
		{"empty", []string{""}, 200, "", ""},
		{"unknown", []string{"tess_live_A"}, 401, "", ""},
		{"longer", []string{"tess_live_AAAAAAAAAAAAAAAAx"}, 401, "", ""},
		{"the hash itself", []string{hash("tess_live_AAAAAAAAAAAAAAAA")}, 401, "", ""},
		{"two", []string{"tess_live_AAAAAAAAAAAAAAAA", "tess_live_BBBBBBBBBBBBBBBB"}, 400, "", ""},
	} {
		id, err := v.Identify(context.Background(), map[string][]string{"X-Api-Key": c.fields, "Authorization": {"Bearer not-looked-at"}})
		if got := status(t, err); got != c.want || id.KeyOwner != c.owner || id.KeyPlan != c.plan {
			t.Errorf("%s: %d, %+v; want %d, %s, %s", c.name, got, id, c.want, c.owner, c.plan)
		}
	}
	empty := verifier(t, keyFile(t, "# nobody yet\n"), auth.Options{})
	if _, err := empty.Identify(context.Background(), map[string][]string{"X-Api-Key": {"a"}}); status(t, err) != 401 {
		t.Errorf("a file without keys accepts one: %v", err)
	}
}

// keyFile loads a policy whose file of API keys has this text.
func keyFile(t *testing.T, lines string) policy.Auth {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{
		"keys": {Data: []byte(lines)},
		"weir.yaml": {Data: []byte(`weir: 1
name: keys
callers: {partner: api_key.owner, ip: client_ip}
auth:
  api_keys: {header: x-api-key, file: keys}
gateway:
  plans:
    partner-basic: [10/s burst 20]
`)},
	}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Auth()
}

func TestTokenAndKeyTogether(t *testing.T) {
	v := verifier(t, policy.Auth{JWT: bySecret.JWT, APIKeys: keyFile(t, fmt.Sprintf("acme partner-basic %x\n", sha256.Sum256([]byte("k")))).APIKeys}, auth.Options{})
	good := sign(t, jwt.SigningMethodHS256, secret, nil, jwt.MapClaims{"sub": "a", "exp": in(time.Hour)})
	id, err := v.Identify(context.Background(), map[string][]string{"Authorization": {"Bearer " + good}, "X-Api-Key": {"k"}})
	if err != nil || id.Claims["sub"] != "a" || id.KeyOwner != "acme" || id.KeyPlan != "partner-basic" {
		t.Errorf("%+v, %v", id, err)
	}
	for _, h := range []map[string][]string{
		{"Authorization": {"Bearer " + good}, "X-Api-Key": {"wrong"}},
		{"Authorization": {"Bearer wrong"}, "X-Api-Key": {"k"}},
	} {
		if id, err := v.Identify(context.Background(), h); status(t, err) != 401 || id.KeyOwner != "" || id.Claims != nil {
			t.Errorf("half wrong: %+v, %v", id, err)
		}
	}
}

// What is wrong is said of a token only whose signature holds.
func TestTimesThatNoClockShows(t *testing.T) {
	v := verifier(t, bySecret, auth.Options{})
	for _, name := range []string{"exp", "nbf", "iat"} {
		claims := jwt.MapClaims{"sub": "customer-42", "exp": in(time.Hour)}
		claims[name] = 1e30
		for key, want := range map[string]string{string(secret): "The " + name + " of the token is out of range.", "another secret of the example, 32": "The token is not valid."} {
			_, err := v.Identify(context.Background(), bearer(sign(t, jwt.SigningMethodHS256, []byte(key), nil, claims)))
			var re *policy.RequestError
			if !errors.As(err, &re) || re.Status != 401 || re.Reason != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}

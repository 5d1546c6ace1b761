// Package auth finds out who is calling, from what can be verified: a JSON Web
// Token in `Authorization: Bearer`, and an API key.
//
// It answers one of three things. Somebody who proves who they are gets a
// [policy.Identity] that says so. Somebody who claims nothing is anonymous: the
// zero Identity, and no error. Somebody who claims what they cannot prove gets
// a 401, and a request that could be read in two ways gets a 400; both are
// [policy.RequestError], and say nothing that helps an attacker.
//
// The algorithm of a token is fixed by the kind of the key that weir was
// given, never by the token:
//
//	a secret          HS256
//	RSA               RS256, RS384, RS512, PS256, PS384, PS512
//	ECDSA on P-256    ES256; on P-384 ES384; on P-521 ES512
//	Ed25519           EdDSA
//
// A key of a JWKS that names its own alg accepts that one only. So with a public
// key no HS256 token verifies, and `none` never does. Keys that a token brings
// along (jwk, jku, x5u) are ignored.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/policy"
)

// Leeway is how far the clocks of issuer and verifier may differ.
const Leeway = 60 * time.Second

// MaxSubject is the longest `sub` that is accepted, in bytes.
const MaxSubject = 256

// MinSecret is the shortest HS256 secret that is accepted, in bytes: as long as
// the hash, as RFC 7518 asks.
const MinSecret = 32

// Options holds what a policy does not: the surroundings. The zero value is
// right for production.
type Options struct {
	Getenv func(string) string // for hs256_secret_env; default os.Getenv
	Now    func() time.Time    // default time.Now
	Client http.RoundTripper   // for the key set; default http.DefaultTransport
	Log    *slog.Logger        // hears of a key set that cannot be renewed; default slog.Default()
}

// ErrUnreachable is wrapped by errors of [New] that may pass by themselves: the
// JWKS could not be fetched.
var ErrUnreachable = errors.New("cannot be reached")

// Verifier verifies. It is safe for concurrent use.
type Verifier struct {
	keys    keySource       // nil: tokens are not looked at
	parser  *jwt.Parser     // of form and signature
	judge   judge           // of claims
	apiKeys *policy.APIKeys // nil: API keys are not looked at
}

// keySource gives the keys that may have signed a token, and only those that
// fit its algorithm.
type keySource interface {
	find(ctx context.Context, alg, kid string, hasKid bool) ([]key, error)
}

// New makes the verifier of a policy. With a JWKS it fetches the set once, so
// that a Verifier that exists can verify.
func New(ctx context.Context, a policy.Auth, o Options) (*Verifier, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	v := &Verifier{apiKeys: a.APIKeys}
	if a.JWT == nil {
		return v, nil
	}
	switch j := a.JWT; {
	case j.SecretEnv != "":
		secret := o.Getenv(j.SecretEnv)
		switch {
		case secret == "":
			return nil, fmt.Errorf("auth.jwt: the environment variable %s is not set: export %s=$(openssl rand -hex 32), or the secret of your issuer", j.SecretEnv, j.SecretEnv)
		case len(secret) < MinSecret:
			return nil, fmt.Errorf("auth.jwt: the HS256 secret in %s has %d bytes, it needs %d or more: make one with openssl rand -hex 32", j.SecretEnv, len(secret), MinSecret)
		}
		v.keys = fixed{{algs: []string{"HS256"}, public: []byte(secret)}}
	case j.PublicKey != nil:
		k, err := publicKey(j.PublicKey)
		if err != nil {
			return nil, fmt.Errorf("auth.jwt: %w", err)
		}
		v.keys = fixed{k}
	case j.JWKS != "":
		s, err := newJWKS(ctx, j.JWKS, o)
		if err != nil {
			return nil, err
		}
		v.keys = s
	default:
		return nil, errors.New("auth.jwt: no key is named: give hs256_secret_env, public_key_file or jwks_url")
	}
	v.judge = newJudge(a.JWT, o.Now)
	v.parser = jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation(),
		jwt.WithValidMethods([]string{"HS256", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}))
	return v, nil
}

// Identify reads the credentials of a request's header. The zero Identity is
// an anonymous caller. An error is a *policy.RequestError.
func (v *Verifier) Identify(ctx context.Context, header map[string][]string) (policy.Identity, error) {
	var id policy.Identity
	if v.keys != nil {
		token, err := bearer(header["Authorization"])
		if err != nil {
			return policy.Identity{}, err
		}
		if token != nil {
			if id.Claims, err = v.claims(ctx, *token); err != nil {
				return policy.Identity{}, err
			}
		}
	}
	if v.apiKeys != nil {
		k, err := v.apiKey(header[v.apiKeys.Header])
		if err != nil {
			return policy.Identity{}, err
		}
		id.KeyOwner, id.KeyPlan = k.Owner, k.Plan
	}
	return id, nil
}

// bearer gives the token of the only Authorization field; nil when there is
// none. Two fields, or a list of two in one, could be read differently by the
// upstream: then weir would count one caller and the upstream serve another.
func bearer(fields []string) (*string, error) {
	switch {
	case len(fields) == 0:
		return nil, nil
	case len(fields) > 1 || strings.Contains(fields[0], ","):
		return nil, &policy.RequestError{Status: http.StatusBadRequest, Code: "bad_request", Reason: "Send one Authorization header with one credential."}
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(fields[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, nil
	}
	token = strings.TrimLeft(token, " ")
	return &token, nil
}

func unauthorized(reason string) error {
	return &policy.RequestError{Status: http.StatusUnauthorized, Code: "unauthorized", Reason: reason}
}

func (v *Verifier) claims(ctx context.Context, token string) (map[string]any, error) {
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		// RFC 7515: who does not understand an extension that is marked as
		// critical must refuse the token. weir understands none.
		if _, marked := t.Header["crit"]; marked {
			return nil, errors.New("critical extension")
		}
		kid, isText := t.Header["kid"].(string)
		if _, has := t.Header["kid"]; has && !isText {
			return nil, errors.New("kid is not a string")
		}
		keys, err := v.keys.find(ctx, t.Method.Alg(), kid, isText)
		if err != nil {
			return nil, err
		}
		set := jwt.VerificationKeySet{}
		for _, k := range keys {
			set.Keys = append(set.Keys, k.public)
		}
		if len(set.Keys) == 0 {
			return nil, errors.New("no key fits")
		}
		return set, nil
	})
	if err != nil {
		return nil, unauthorized("The token is not valid.")
	}
	if err := v.judge.accepts(claims); err != nil {
		return nil, err
	}
	return present(claims), nil
}

func (v *Verifier) apiKey(fields []string) (policy.APIKey, error) {
	switch {
	case len(fields) == 0 || len(fields) == 1 && fields[0] == "":
		return policy.APIKey{}, nil
	case len(fields) > 1:
		return policy.APIKey{}, &policy.RequestError{Status: http.StatusBadRequest, Code: "bad_request", Reason: "Send one " + v.apiKeys.Header + " header."}
	}
	k, known := v.apiKeys.Lookup(fields[0])
	if !known {
		return policy.APIKey{}, unauthorized("The API key is not known.")
	}
	return k, nil
}

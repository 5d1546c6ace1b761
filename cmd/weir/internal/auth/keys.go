package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// key is one verification key with the algorithms that its kind allows.
type key struct {
	id     string
	algs   []string
	public any // what golang-jwt takes for these algorithms
}

// fixed is a set that never changes; a token's kid plays no part in it.
type fixed []key

func (f fixed) find(_ context.Context, alg, _ string, _ bool) ([]key, error) {
	return fitting(f, alg), nil
}

func fitting(keys []key, alg string) []key {
	var out []key
	for _, k := range keys {
		if slices.Contains(k.algs, alg) {
			out = append(out, k)
		}
	}
	return out
}

// publicKey binds a key to its algorithms. RSA allows several, none of which
// can be confused with another; each curve allows one.
func publicKey(pub any) (key, error) {
	switch p := pub.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < 2048 {
			return key{}, fmt.Errorf("the RSA key has %d bits, it needs 2048 or more", p.N.BitLen())
		}
		return key{algs: []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, public: p}, nil
	case *ecdsa.PublicKey:
		alg := map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512"}[p.Curve]
		if alg == "" {
			return key{}, errors.New("the ECDSA key is on a curve that JWT does not use; P-256, P-384 and P-521 are")
		}
		return key{algs: []string{alg}, public: p}, nil
	case ed25519.PublicKey:
		return key{algs: []string{"EdDSA"}, public: p}, nil
	}
	return key{}, fmt.Errorf("a key of type %T does not sign tokens; RSA, ECDSA and Ed25519 do", pub)
}

// parseJWKS reads a key set (RFC 7517). Keys that are not for signatures, are
// symmetric or of an unknown kind are passed over, as the RFC asks; a set
// without one usable key is an error.
func parseJWKS(text []byte) ([]key, error) {
	var set struct {
		Keys []struct {
			Kty, Use, Kid, Alg, Crv string
			N, E, X, Y              string
			KeyOps                  []string `json:"key_ops"`
		}
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("the key set is not JSON: %w", err)
	}
	var keys []key
	for _, j := range set.Keys {
		if j.Use != "" && j.Use != "sig" || j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify") {
			continue
		}
		var pub any
		switch j.Kty {
		case "RSA":
			n, e := number(j.N), number(j.E)
			if n == nil || e == nil || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
				continue
			}
			pub = &rsa.PublicKey{N: n, E: int(e.Int64())}
		case "EC":
			curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[j.Crv]
			if curve == nil {
				continue
			}
			size := (curve.Params().BitSize + 7) / 8
			x, y := octets(j.X), octets(j.Y)
			if len(x) != size || len(y) != size {
				continue
			}
			p, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
			if err != nil {
				continue // not on the curve
			}
			pub = p
		case "OKP":
			x := octets(j.X)
			if j.Crv != "Ed25519" || len(x) != ed25519.PublicKeySize {
				continue
			}
			pub = ed25519.PublicKey(x)
		default:
			continue
		}
		k, err := publicKey(pub)
		if err != nil {
			continue
		}
		if j.Alg != "" {
			if !slices.Contains(k.algs, j.Alg) {
				continue
			}
			k.algs = []string{j.Alg}
		}
		k.id = j.Kid
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set holds no usable key (RSA of 2048 bits or more, ECDSA or Ed25519)")
	}
	return keys, nil
}

func octets(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func number(text string) *big.Int {
	b := octets(text)
	if len(b) == 0 || len(b) > 2048 {
		return nil
	}
	return new(big.Int).SetBytes(b)
}

package policy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Auth says how callers prove who they are. Nil fields are not configured.
type Auth struct {
	JWT     *JWT
	APIKeys *APIKeys
}

// JWT says how tokens are verified. Exactly one of SecretEnv, PublicKey and
// JWKS is set. The kind of a key says which alg it accepts, never the token: a
// secret HS256, an RSA key RS256 to RS512 and PS256 to PS512, an ECDSA key the ES
// of its curve, Ed25519 EdDSA.
type JWT struct {
	SecretEnv string           // environment variable with the HS256 secret
	PublicKey crypto.PublicKey // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
	JWKS      string           // URL of a key set: https, or http on loopback
	Issuer    string           // "" accepts any
	Audience  string           // "" accepts any
}

// APIKeys are the keys that a policy knows, by the hash of each.
type APIKeys struct {
	Header string // in canonical MIME form
	keys   map[keyIndex][]storedKey
	all    []APIKey
}

// digest is the SHA-256 of a key, and keyIndex the part of it by which it is
// found.
type (
	digest   [sha256.Size]byte
	keyIndex [8]byte
)

func (d *digest) index() keyIndex { return keyIndex(d[:len(keyIndex{})]) }

type storedKey struct {
	digest digest
	APIKey
}

// APIKey is what is known of one key.
type APIKey struct {
	Owner string // the caller
	Plan  string // "" for none
}

// Lookup finds a key as it was sent.
//
// The time that it takes helps nobody to find one: the look-up by a part of the
// digest can tell at most how that part compares, and whoever can only send keys
// cannot choose their digests; the full digests are then compared in constant
// time, so that not even their equal beginnings show.
func (k *APIKeys) Lookup(sent string) (APIKey, bool) {
	sum := digest(sha256.Sum256([]byte(sent)))
	var found APIKey
	known := false
	alike := k.keys[sum.index()] // one at most, but for a coincidence of 1 in 2^64
	for i := range alike {
		if subtle.ConstantTimeCompare(alike[i].digest[:], sum[:]) == 1 {
			found, known = alike[i].APIKey, true
		}
	}
	return found, known
}

// Len is the number of keys.
func (k *APIKeys) Len() int { return len(k.all) }

// All is what is known of every key, in the order of the file, without the keys.
func (k *APIKeys) All() []APIKey { return slices.Clone(k.all) }

// Same reports whether two files hold the same keys, of the same owners and plans.
func (k *APIKeys) Same(o *APIKeys) bool {
	if len(k.all) != len(o.all) {
		return false
	}
	known := map[storedKey]bool{}
	for _, keys := range k.keys {
		for _, key := range keys {
			known[key] = true
		}
	}
	for _, keys := range o.keys {
		for _, key := range keys {
			if !known[key] {
				return false
			}
		}
	}
	return true
}

func (k *APIKeys) add(sum digest, key APIKey) {
	if k.keys == nil {
		k.keys = map[keyIndex][]storedKey{}
	}
	k.keys[sum.index()] = append(k.keys[sum.index()], storedKey{sum, key})
	k.all = append(k.all, key)
}

// readFile reads a file that the policy names, relative to the policy itself.
// The problem, if any, is reported where the name stands.
func (l *loader) readFile(n *node) []byte {
	name := n.text
	if !slices.Contains(l.files, name) {
		l.files = append(l.files, name)
	}
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(l.name), name)
	}
	text, err := readAtMost(l.fsys, name, maxKeyFile+1)
	switch {
	case err != nil:
		l.wrong(n, codeFile, "file names are relative to the policy file", "%s cannot be read: %v", show(n.text), err)
	case len(text) > maxKeyFile:
		l.wrong(n, codeFile, "", "%s is larger than %d bytes", show(n.text), maxKeyFile)
	default:
		return text
	}
	return nil
}

const maxKeyFile = 64 << 20

// publicKey reads a PEM file with one public key or certificate.
func (l *loader) publicKey(n *node) crypto.PublicKey {
	text := l.readFile(n)
	if text == nil {
		return nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		l.wrong(n, codePublicKey, "the file begins with -----BEGIN PUBLIC KEY-----", "%s holds no PEM block", show(n.text))
		return nil
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		hint := ""
		if strings.Contains(block.Type, "PRIVATE") {
			hint = "keep the private key away from here; openssl pkey -in KEY -pubout writes the public one"
		}
		l.wrong(n, codePublicKey, hint, "%s holds a %s, not a public key", show(n.text), strings.ToLower(block.Type))
		return nil
	}
	if err != nil {
		l.wrong(n, codePublicKey, "", "%s: %v", show(n.text), err)
		return nil
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 {
			l.wrong(n, codePublicKey, "use a key of 2,048 bits or more", "%s holds an RSA key of %d bits", show(n.text), k.N.BitLen())
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		l.wrong(n, codePublicKey, "use RSA, ECDSA or Ed25519", "%s holds a key of another kind", show(n.text))
	}
	return key
}

// jwksURL checks where a key set is fetched from.
func (l *loader) jwksURL(n *node) string {
	u, err := url.Parse(n.text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		l.wrong(n, codeKeySet, "write a full URL such as https://issuer.example/.well-known/jwks.json", "%s is not the URL of a key set", show(n.text))
	case u.Scheme == "https":
	case u.Scheme == "http" && isLoopback(u.Hostname()):
	default:
		l.wrong(n, codeKeySet, "use https; http is for loopback addresses only", "keys fetched by %s could be anybody's", u.Scheme)
	}
	return n.text
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

package auth

import (
	"errors"
	"maps"
	"math"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir/policy"
)

// judge decides about the claims of a token whose signature is good.
type judge struct{ validator *jwt.Validator }

func newJudge(j *policy.JWT, now func() time.Time) judge {
	o := []jwt.ParserOption{jwt.WithLeeway(Leeway), jwt.WithTimeFunc(now), jwt.WithExpirationRequired()}
	if j.Issuer != "" {
		o = append(o, jwt.WithIssuer(j.Issuer))
	}
	if j.Audience != "" {
		o = append(o, jwt.WithAudience(j.Audience))
	}
	return judge{jwt.NewValidator(o...)}
}

// accepts says why claims are not accepted: a *policy.RequestError, or nil.
func (g judge) accepts(claims jwt.MapClaims) error {
	err := g.validator.Validate(claims)
	switch {
	case outOfRange(claims) != "":
		return unauthorized("The " + outOfRange(claims) + " of the token is out of range.")
	case errors.Is(err, jwt.ErrTokenExpired):
		return unauthorized("The token has expired.")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return unauthorized("The token is not valid yet.")
	case err != nil:
		return unauthorized("The token is not valid.")
	}
	if sub, has := claims["sub"]; has {
		if text, isText := sub.(string); !isText || len(text) > MaxSubject {
			return unauthorized("The token is not valid.")
		}
	}
	return nil
}

// outOfRange names a time of the token that no clock will ever show, or is "".
// The validator would take it for whatever its conversion to an integer makes of
// it, which differs between processors.
func outOfRange(claims jwt.MapClaims) string {
	for _, name := range []string{"exp", "nbf", "iat"} {
		if at, ok := claims[name].(float64); ok && math.Abs(at) > 1<<53 {
			return name
		}
	}
	return ""
}

// present drops an empty `sub`, which counts as missing.
func present(claims map[string]any) map[string]any {
	if claims["sub"] == "" {
		delete(claims, "sub")
	}
	return claims
}

// Claims judges claims that somebody says are those of a token with a good
// signature, as encoding/json decodes them: what a [Verifier] makes of that token.
// It is for those who ask what would be. What every accepted token has and they
// leave out is taken as right: exp, and iss and aud where the policy names them.
//
// A nil j is a policy that verifies no tokens. Its claims come from an edge that
// has verified them in its own way, so they are not judged.
func Claims(j *policy.JWT, now time.Time, claims map[string]any) (map[string]any, error) {
	said := maps.Clone(claims)
	if j == nil {
		return present(said), nil
	}
	whole := jwt.MapClaims{"exp": float64(now.Add(time.Hour).Unix())}
	if j.Issuer != "" {
		whole["iss"] = j.Issuer
	}
	if j.Audience != "" {
		whole["aud"] = j.Audience
	}
	maps.Copy(whole, said)
	if err := newJudge(j, func() time.Time { return now }).accepts(whole); err != nil {
		return nil, err
	}
	return present(said), nil
}

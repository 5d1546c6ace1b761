package lambdalimit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// identity is who calls, as the service in front of the function vouches for
// it. A zero identity is an anonymous caller. lists are the claims that may hold
// a list as "a,b".
func (e *event) identity(lists []string) policy.Identity {
	var id policy.Identity
	rc := &e.RequestContext
	switch e.shape {
	case httpV2:
		id.Claims = claimsV2(rc.Authorizer)
	case httpV1:
		id.Claims = claimsV1(rc)
		if e.Version == "" { // a key that an HTTP API passes on has been verified by nobody
			id.KeyOwner = rc.Identity.APIKeyID
		}
	case appSync:
		id.Claims = claimsAppSync(e.Identity)
		if e.Identity == nil {
			id.KeyOwner = keyHash(header(e.Request.Headers, nil)["X-Api-Key"])
		}
	}
	id.Claims = withLists(id.Claims, lists)
	return id
}

func claimsV2(authorizer map[string]any) map[string]any {
	if jwt := object(authorizer["jwt"]); jwt != nil {
		return object(jwt["claims"])
	}
	if context := object(authorizer["lambda"]); context != nil {
		return withSub(context, text(context["principalId"]))
	}
	iam := object(authorizer["iam"])
	if iam == nil {
		return nil
	}
	sub := principal(text(iam["userId"]), text(iam["callerId"]))
	if cognito := object(iam["cognitoIdentity"]); cognito != nil {
		sub = cmp.Or(text(cognito["identityId"]), sub)
		if methods, ok := cognito["amr"].([]any); ok && slices.Contains(methods, any("unauthenticated")) {
			return nil
		}
	}
	return iamClaims(sub, text(iam["accountId"]), text(iam["userArn"]))
}

func claimsV1(rc *requestContext) map[string]any {
	if claims := object(rc.Authorizer["claims"]); claims != nil {
		return claims
	}
	if len(rc.Authorizer) > 0 {
		return withSub(rc.Authorizer, text(rc.Authorizer["principalId"]))
	}
	id := rc.Identity
	sub := principal(id.User, id.Caller)
	if id.CognitoID != "" {
		sub = id.CognitoID
		if id.CognitoType == "unauthenticated" {
			return nil
		}
	}
	return iamClaims(sub, id.AccountID, id.UserARN)
}

func claimsAppSync(identity map[string]any) map[string]any {
	if context := object(identity["resolverContext"]); context != nil {
		return context
	}
	if claims := object(identity["claims"]); claims != nil || text(identity["sub"]) != "" {
		return withSub(claims, text(identity["sub"]))
	}
	sub := principal(text(identity["username"]), text(identity["userArn"]))
	if cognito := text(identity["cognitoIdentityId"]); cognito != "" {
		sub = cognito
		if text(identity["cognitoIdentityAuthType"]) == "unauthenticated" {
			return nil
		}
	}
	return iamClaims(sub, text(identity["accountId"]), text(identity["userArn"]))
}

// iamClaims are those of a signed request. Guests of a Cognito pool are nobody:
// whoever wants a new identity there gets one.
func iamClaims(sub, account, arn string) map[string]any {
	if sub == "" {
		return nil
	}
	return map[string]any{"sub": sub, "accountId": account, "userArn": arn}
}

// principal is the id of a user or role: what follows its colon is the name of a
// session, which the holder of the role chooses.
func principal(ids ...string) string {
	for _, id := range ids {
		if id == "" {
			continue
		}
		if !strings.HasPrefix(id, "arn:") {
			id, _, _ = strings.Cut(id, ":")
		} else if parts := strings.Split(id, "/"); strings.Contains(id, ":assumed-role/") && len(parts) > 2 {
			id = strings.Join(parts[:len(parts)-1], "/")
		}
		return id
	}
	return ""
}

func withSub(claims map[string]any, sub string) map[string]any {
	if sub == "" || text(claims["sub"]) != "" {
		return claims
	}
	all := maps.Clone(claims)
	if all == nil {
		all = map[string]any{}
	}
	all["sub"] = sub
	return all
}

// withLists makes lists of claims that a gateway has flattened to text. The
// subject is never one: it is chosen by others.
func withLists(claims map[string]any, names []string) map[string]any {
	cloned := false
	for name, value := range claims {
		s, ok := value.(string)
		if !ok || name == "sub" {
			continue
		}
		list := listOf(s, slices.Contains(names, name))
		if list == nil {
			continue
		}
		if !cloned {
			claims, cloned = maps.Clone(claims), true
		}
		claims[name] = list
	}
	return claims
}

// listOf reads a JSON list, [a b] and, where a list is expected, a,b.
func listOf(s string, expected bool) []string {
	trimmed := strings.TrimSpace(s)
	if strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]") {
		var list []string
		if json.Unmarshal([]byte(trimmed), &list) == nil {
			return list
		}
		return strings.FieldsFunc(trimmed[1:len(trimmed)-1], func(r rune) bool { return r == ' ' || r == ',' })
	}
	if !expected || !strings.Contains(s, ",") {
		return nil
	}
	var list []string
	for part := range strings.SplitSeq(s, ",") {
		list = append(list, strings.TrimSpace(part))
	}
	return list
}

// keyHash names an API key that the service has verified without telling its
// id: the key itself must be neither stored nor logged.
func keyHash(keys []string) string {
	if len(keys) != 1 || keys[0] == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(keys[0]))
	return hex.EncodeToString(sum[:16])
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

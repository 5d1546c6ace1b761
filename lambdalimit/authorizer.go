package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

// authorization is the answer of an authorizer, in the union of its forms.
type authorization struct {
	PrincipalID        string         `json:"principalId"`
	PolicyDocument     *document      `json:"policyDocument"`
	Context            map[string]any `json:"context"`
	UsageIdentifierKey string         `json:"usageIdentifierKey"`

	IsAuthorized    *bool          `json:"isAuthorized"`
	ResolverContext map[string]any `json:"resolverContext"`
}

type document struct {
	Version   string      `json:"Version"`
	Statement []statement `json:"Statement"`
}

type statement struct {
	Action   any    `json:"Action"`
	Effect   string `json:"Effect"`
	Resource any    `json:"Resource"`
}

// WrapAuthorizer puts the policy behind an authorizer: of a REST API (token or
// request), of an HTTP API (simple or with a policy document), of AppSync. The
// handler says who calls, by principalId and context; who is authorized and over
// a limit is denied, and the context of the denial says why. REST answers 403 by
// itself; give ACCESS_DENIED a response of status 429 to have it otherwise, or
// limit behind the authorizer with [Wrap].
//
// Edge rules are asked before the handler: tokens are not tried at its expense.
// api_key.owner is the hash of usageIdentifierKey. A token authorizer's event
// has no address. AppSync's knows no fields: its path is POST /graphql. That of a
// WebSocket API, which asks once for a connection, is an [UnknownEvent].
//
// What the service caches is not counted, see the package comment. AppSync is
// told not to cache, whatever the handler says.
func WrapAuthorizer[In, Out any](handler func(context.Context, In) (Out, error), e *engine.Engine, o Options) Func {
	m := newMiddleware(e, o)
	next := decoding(handler)
	return func(ctx context.Context, payload json.RawMessage) (any, error) {
		e, err := read(payload)
		if err == nil && !e.shape.isAuthorizer() {
			err = &UnknownEvent{"it is no request for an authorization: use Wrap"}
		}
		if err != nil {
			if o.PassUnknown {
				return next(ctx, payload)
			}
			return nil, err
		}
		return m.authorize(ctx, e, next)
	}
}

func (m *middleware) authorize(ctx context.Context, e *event, next nextFunc) (any, error) {
	c := m.begin(ctx, e)
	defer c.release()
	var said verdict
	c.whoCalls = func(ctx context.Context) (policy.Identity, error) {
		said.ask(ctx, e, next)
		if !said.allows() {
			return policy.Identity{}, &policy.RequestError{Status: http.StatusForbidden, Code: "forbidden", Reason: "The authorizer does not allow this request."}
		}
		return said.identity(m.listClaims()), nil
	}
	if err := c.decide(); err != nil {
		return nil, err
	}
	refused := !c.outcome.Served()
	if !refused && !said.asked { // no limit wants to know who calls
		said.ask(c.ctx, e, next)
	}
	switch {
	case said.err != nil:
		return nil, said.err
	case refused && (!said.asked || said.allows()):
		return c.denial(&said), nil
	}
	if e.shape == authorizerAppSync {
		return uncached(said.text)
	}
	return said.text, nil
}

// verdict is what the authorizer itself says.
type verdict struct {
	asked bool
	err   error
	text  json.RawMessage
	authorization
}

func (v *verdict) ask(ctx context.Context, e *event, next nextFunc) {
	v.asked = true
	var out any
	if out, v.err = next(ctx, e.payload); v.err != nil {
		return
	}
	if v.text, v.err = textOf(out); v.err != nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(v.text))
	d.UseNumber()
	v.err = d.Decode(&v.authorization)
}

func (v *verdict) allows() bool {
	if v.err != nil {
		return false
	}
	if v.IsAuthorized != nil {
		return *v.IsAuthorized
	}
	if v.PolicyDocument == nil {
		return false
	}
	for _, s := range v.PolicyDocument.Statement {
		if s.Effect == "Allow" {
			return true
		}
	}
	return false
}

func (v *verdict) identity(lists []string) policy.Identity {
	claims := v.Context
	if v.ResolverContext != nil {
		claims = v.ResolverContext
	}
	id := policy.Identity{Claims: withLists(withSub(claims, v.PrincipalID), lists)}
	if v.UsageIdentifierKey != "" {
		id.KeyOwner = keyHash([]string{v.UsageIdentifierKey})
	}
	return id
}

// denial is an authorizer's no, with the reason in its context. REST allows
// nothing but texts, numbers and booleans there.
func (c *call) denial(said *verdict) any {
	why := map[string]any{"message": c.message()}
	if said.Context != nil || said.ResolverContext != nil {
		maps.Copy(why, said.Context)
		maps.Copy(why, said.ResolverContext)
		why["message"] = c.message()
	}
	why["error"] = typeLimitExceeded
	if c.outcome.Err != nil {
		why["error"] = c.outcome.Err.Code
	}
	if v := c.outcome.Speaks(); v != nil && c.outcome.Err == nil {
		why["limit"] = v.Rule.Name
		if seconds, ok := answer.RetryAfter(&v.Decision); ok {
			why["retryAfterSeconds"] = strconv.FormatInt(seconds, 10)
		}
	}
	switch {
	case c.event.shape == authorizerAppSync:
		return map[string]any{"isAuthorized": false, "resolverContext": why, "ttlOverride": 0}
	case c.event.shape == authorizerV2 && said.PolicyDocument == nil:
		return map[string]any{"isAuthorized": false, "context": why}
	}
	resource := c.event.MethodARN
	if resource == "" {
		resource = c.event.RouteARN
	}
	principal := said.PrincipalID
	if principal == "" {
		principal = "anonymous"
	}
	no := map[string]any{
		"principalId":    principal,
		"policyDocument": document{"2012-10-17", []statement{{"execute-api:Invoke", "Deny", []string{resource}}}},
		"context":        why,
	}
	if said.UsageIdentifierKey != "" {
		no["usageIdentifierKey"] = said.UsageIdentifierKey
	}
	return no
}

// uncached tells AppSync to ask again for every request.
func uncached(text json.RawMessage) (any, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return text, nil // the service says what is wrong with it
	}
	fields["ttlOverride"] = json.RawMessage("0")
	out, err := marshal(fields)
	if err != nil {
		return nil, err
	}
	return out, nil
}

package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

const authorizerPolicy = `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner}
application:
  limits:
    - {name: calls, match: "/{path...}", by: [account, partner], limit: quota 1/h}
`

func allow(principal string) events.APIGatewayCustomAuthorizerResponse {
	return events.APIGatewayCustomAuthorizerResponse{
		PrincipalID: principal, UsageIdentifierKey: "plan-key", Context: map[string]any{"tier": "gold"},
		PolicyDocument: events.APIGatewayCustomAuthorizerPolicy{Version: "2012-10-17", Statement: []events.IAMPolicyStatement{{
			Action: []string{"execute-api:Invoke"}, Effect: "Allow", Resource: []string{"*"}}}},
	}
}

func fixture(t *testing.T, name string) json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures(t), "events", "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSpec_B10_AnAuthorizerDeniesInItsOwnForm(t *testing.T) {
	simple := func(context.Context, json.RawMessage) (any, error) {
		return events.APIGatewayV2CustomAuthorizerSimpleResponse{IsAuthorized: true, Context: map[string]any{"sub": "a"}}, nil
	}
	rest := func(context.Context, json.RawMessage) (any, error) { return allow("a"), nil }
	const why = `"error":"LimitExceeded","limit":"calls","message":"Your plan allows 1 call per hour. Try again in 3600 seconds.","retryAfterSeconds":"3600"`
	deny := func(arn string) string {
		return `{"context":{` + why + `,"tier":"gold"},"policyDocument":{"Version":"2012-10-17","Statement":[{"Action":"execute-api:Invoke","Effect":"Deny","Resource":["` +
			arn + `"]}]},"principalId":"a","usageIdentifierKey":"plan-key"}`
	}
	const arn = "arn:aws:execute-api:us-east-1:123456789012:"
	for _, c := range []struct {
		fixture       string
		handler       func(context.Context, json.RawMessage) (any, error)
		allows, denys string
	}{
		{"apigw-custom-auth-request-type-request", rest, `"Effect":"Allow"`, deny(arn + "s4x3opwd6i/test/GET/request")},
		{"apigw-v2-custom-authorizer-v1-request", rest, `"Effect":"Allow"`, deny(arn + "abcdef123/test/GET/request")},
		{"apigw-v2-custom-authorizer-v2-request", rest, `"Effect":"Allow"`, deny(arn + "abcdef123/test/GET/request")},
		{"apigw-v2-custom-authorizer-v2-request", simple, `{"isAuthorized":true,"context":{"sub":"a"}}`, `{"context":{` + why + `,"sub":"a"},"isAuthorized":false}`},
		{"appsync-lambda-auth-request", func(context.Context, json.RawMessage) (any, error) {
			ttl := 300
			return events.AppSyncLambdaAuthorizerResponse{IsAuthorized: true, ResolverContext: map[string]any{"sub": "a"}, TTLOverride: &ttl}, nil
		}, `"ttlOverride":0`, `{"isAuthorized":false,"resolverContext":{` + why + `,"sub":"a"},"ttlOverride":0}`},
	} {
		f := WrapAuthorizer(c.handler, newEngine(t, authorizerPolicy), Options{})
		out, err := f(context.Background(), fixture(t, c.fixture))
		if got := jsonOf(t, out, err); !strings.Contains(got, c.allows) || strings.Contains(got, "LimitExceeded") {
			t.Errorf("%s allowed: %s", c.fixture, got)
		}
		out, err = f(context.Background(), fixture(t, c.fixture))
		if got := jsonOf(t, out, err); got != c.denys {
			t.Errorf("%s denied:\n%s\nwant\n%s", c.fixture, got, c.denys)
		}
	}
}

// A token authorizer's event has neither address nor fields: its path is in the ARN.
func TestATokenAuthorizerIsMatchedByItsARN(t *testing.T) {
	payload := `{"type":"TOKEN","authorizationToken":"t","methodArn":"arn:aws:execute-api:eu:1:api/prod/post/orders/7"}`
	e, err := read([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	if a := e.attributes(&Options{}); a.Method != "POST" || a.Path != "/orders/7" {
		t.Errorf("%+v", a)
	}
	f := WrapAuthorizer(func(context.Context, any) (any, error) { return allow(""), nil }, newEngine(t, authorizerPolicy), Options{})
	for _, want := range []string{"Allow", "Deny"} { // by the usage key, since there is no principal
		out, err := f(context.Background(), json.RawMessage(payload))
		if got := jsonOf(t, out, err); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	nobody := WrapAuthorizer(func(context.Context, any) (any, error) {
		return map[string]any{"isAuthorized": true}, nil
	}, newEngine(t, authorizerPolicy), Options{})
	var no *NoCaller
	if _, err := nobody(context.Background(), json.RawMessage(payload)); !errors.As(err, &no) {
		t.Error(err)
	}
}

func TestWhoeverIsNotAuthorizedCountsNothing(t *testing.T) {
	calls := 0
	for name, handler := range map[string]func(context.Context, any) (any, error){
		"no":      func(context.Context, any) (any, error) { calls++; return map[string]any{"isAuthorized": false}, nil },
		"error":   func(context.Context, any) (any, error) { calls++; return nil, errors.New("Unauthorized") },
		"nothing": func(context.Context, any) (any, error) { calls++; return nil, nil },
		"broken":  func(context.Context, any) (any, error) { calls++; return map[string]any{"isAuthorized": 1}, nil },
		"deny": func(context.Context, any) (any, error) {
			calls++
			r := allow("a")
			r.PolicyDocument.Statement[0].Effect = "Deny"
			return r, nil
		},
	} {
		calls = 0
		f := WrapAuthorizer(handler, newEngine(t, authorizerPolicy), Options{})
		first := ""
		for i := range 3 {
			out, err := f(context.Background(), fixture(t, "apigw-v2-custom-authorizer-v2-request"))
			got := jsonOf(t, out, err)
			if i == 0 {
				first = got
			}
			if got != first || strings.Contains(got, "LimitExceeded") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if calls != 3 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

func TestEdgeRulesComeBeforeTheAuthorizer(t *testing.T) {
	calls := 0
	e := newEngine(t, "weir: 1\nedge:\n  - {name: all, limit: sliding 1/5m, by: ip}\n")
	f := WrapAuthorizer(func(context.Context, any) (any, error) { calls++; return map[string]any{"isAuthorized": true}, nil }, e, Options{})
	payload := bytes.Replace(fixture(t, "apigw-v2-custom-authorizer-v2-request"), []byte(`"IP"`), []byte(`"192.0.2.1"`), 1)
	for i, want := range []string{`{"isAuthorized":true}`, `"isAuthorized":false`, `"isAuthorized":false`} {
		out, err := f(context.Background(), payload)
		if got := jsonOf(t, out, err); !strings.Contains(got, want) {
			t.Errorf("call %d: %s", i, got)
		}
	}
	if calls != 1 {
		t.Errorf("the authorizer was asked %d times", calls)
	}
	if _, err := f(context.Background(), httpEvent("GET", "/", "")); err == nil || !strings.Contains(err.Error(), "use Wrap;") {
		t.Error(err)
	}
}

// AppSync names the fields of the request otherwise than its other events do.
func TestAnAppSyncAuthorizerIsGivenTheRequestsFields(t *testing.T) {
	payload := `{"authorizationToken":"t","requestContext":{"apiId":"x","queryString":"query {a}"},"requestHeaders":{"host":"api.example.com","x-tenant":"t1"}}`
	e, err := read([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	if a := e.attributes(&Options{}); a.Host != "api.example.com" || len(a.Header["X-Tenant"]) != 1 || a.Header["X-Tenant"][0] != "t1" || a.Peer.IsValid() {
		t.Errorf("%+v", a)
	}
}

// A connection is no call: it has no method, and is authorized once for all its
// messages.
func TestAWebSocketsAuthorizerIsAClearError(t *testing.T) {
	for _, payload := range []string{
		`{"type":"REQUEST","methodArn":"arn:aws:execute-api:eu:1:api/prod/$connect","headers":{},"requestContext":{"routeKey":"$connect","eventType":"CONNECT","connectionId":"c","stage":"prod","apiId":"api","identity":{"sourceIp":"192.0.2.9"}}}`,
		`{"headers":{},"requestContext":{"routeKey":"$connect","eventType":"CONNECT","connectionId":"c","stage":"prod","apiId":"api","identity":{"sourceIp":"192.0.2.9"}}}`,
		`{"type":"REQUEST","httpMethod":"GET","methodArn":"arn:aws:execute-api:eu:1:api/prod/$connect","requestContext":{"connectionId":"c","identity":{"sourceIp":"192.0.2.9"}}}`,
	} {
		f := WrapAuthorizer(func(context.Context, any) (any, error) {
			t.Error("the handler is called")
			return allow("a"), nil
		}, newEngine(t, authorizerPolicy), Options{})
		var unknown *UnknownEvent
		if _, err := f(context.Background(), json.RawMessage(payload)); !errors.As(err, &unknown) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// A header that a client can set names nobody where the service knows who calls,
// nor where it vouches for no key.
func TestAKeyThatNobodyVerifiedIsNobodys(t *testing.T) {
	const appSync = `{"identity":%s,"request":{"headers":{"x-api-key":"da2-forged"}},"info":{"fieldName":"f","parentTypeName":"Query"}}`
	const rest = `{%s"httpMethod":"GET","path":"/","headers":{"x-api-key":"forged"},"requestContext":{"identity":{"apiKeyId":%q,"apiKey":"forged","sourceIp":"192.0.2.1"}}}`
	for payload, want := range map[string]string{
		fmt.Sprintf(appSync, `{"sub":"a","claims":{"sub":"a"}}`):                      "",
		fmt.Sprintf(appSync, `{"resolverContext":{}}`):                                "",
		fmt.Sprintf(appSync, `{"username":"AIDA","userArn":"arn:aws:iam::1:user/a"}`): "",
		fmt.Sprintf(appSync, `{}`):                                                    "",
		fmt.Sprintf(appSync, `null`):                                                  keyHash([]string{"da2-forged"}), // the mode in which AppSync has verified it
		fmt.Sprintf(rest, "", ""):                                                     "",
		fmt.Sprintf(rest, "", "id7"):                                                  "id7",
		fmt.Sprintf(rest, `"version":"1.0",`, "id7"):                                  "",
		strings.Replace(string(httpEvent("GET", "/", "a")), `"headers":{`, `"headers":{"x-api-key":"forged",`, 1): "",
	} {
		e, err := read([]byte(payload))
		if err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		if id := e.identity(nil); id.KeyOwner != want {
			t.Errorf("%s: owner %q, want %q", payload, id.KeyOwner, want)
		}
	}
}

// Only HTTP APIs leave the stage in the path, and $default is none.
func TestTheStageIsTakenOffWhereItIsLeft(t *testing.T) {
	const v2 = `{"version":"2.0","rawPath":%q,"requestContext":{"stage":%q,"http":{"method":"GET","sourceIp":"192.0.2.1"}}}`
	const v1 = `{%s"httpMethod":"GET","path":%q,"requestContext":{"stage":%q,"identity":{"sourceIp":"192.0.2.1"}}}`
	for payload, want := range map[string]string{
		fmt.Sprintf(v2, "/prod/orders", "prod"):                        "/orders",
		fmt.Sprintf(v2, "/prod", "prod"):                               "/",
		fmt.Sprintf(v2, "/production/orders", "prod"):                  "/production/orders",
		fmt.Sprintf(v2, "/orders", "$default"):                         "/orders",
		fmt.Sprintf(v2, "/$default/orders", "$default"):                "/$default/orders",
		fmt.Sprintf(v2, "/prod/prod/orders", "prod"):                   "/prod/orders",
		fmt.Sprintf(v1, `"version":"1.0",`, "/prod/orders", "prod"):    "/orders",
		fmt.Sprintf(v1, ``, "/prod/orders", "prod"):                    "/prod/orders", // a REST API's own resource
		fmt.Sprintf(v1, `"version":"1.0",`, "/%70rod/orders", "prod"):  "/%70rod/orders",
		fmt.Sprintf(v1, `"version":"1.0",`, "//prod/orders", "prod"):   "//prod/orders",
		fmt.Sprintf(v1, `"version":"1.0",`, "/prod%2forders", "prod"):  "/prod%2forders",
		fmt.Sprintf(v1, `"version":"1.0",`, "/prod/../orders", "prod"): "/../orders",
	} {
		e, err := read([]byte(payload))
		if err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		if a := e.attributes(&Options{}); a.Path != want {
			t.Errorf("%s: %s, want %s", payload, a.Path, want)
		}
	}
}

// All instances of a function hash a caller in the same way, under the key of the
// environment.
func TestTheEnvironmentsKeyHashesCallers(t *testing.T) {
	hash := func(key string) string {
		t.Helper()
		t.Setenv("WEIR_LOG_KEY", key)
		var metrics bytes.Buffer
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil },
			newEngine(t, simple, func(o *engine.Options) { o.LogKey = nil }), Options{Metrics: &metrics})
		if _, err := f(context.Background(), httpEvent("POST", "/", "customer-42")); err != nil {
			t.Fatal(err)
		}
		key, _ = lines(t, &metrics)[0]["key"].(string)
		if len(key) != 24 {
			t.Fatalf("key %q", key)
		}
		return key
	}
	if a, b, other, random := hash("one"), hash("one"), hash("two"), hash(""); a != b || a == other || random == hash("") {
		t.Errorf("%s %s under one key, %s under another, %s under none", a, b, other, random)
	}
}

// WrapHTTP makes of an event what net/http's server makes of the request, and
// cannot pass on what is no request.
func TestWrapHTTPKnowsRequestsOnly(t *testing.T) {
	var got *http.Request
	f := WrapHTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }), newEngine(t, simple), Options{PassUnknown: true})
	for _, payload := range []string{`{"Records":[]}`, `null`, `{"requestContext":{"connectionId":"c"}}`} {
		var unknown *UnknownEvent
		if _, err := f(context.Background(), json.RawMessage(payload)); !errors.As(err, &unknown) || got != nil {
			t.Errorf("%s: %v, %v", payload, err, got)
		}
	}
	payload := `{"httpMethod":"GET","path":"/a","headers":{"Host":"shop.example","X-A":"1"},"requestContext":{"identity":{"sourceIp":"192.0.2.1"}}}`
	if _, err := f(context.Background(), json.RawMessage(payload)); err != nil {
		t.Fatal(err)
	}
	if got.Host != "shop.example" || got.Header["Host"] != nil || !slices.Equal(got.Header["X-A"], []string{"1"}) {
		t.Errorf("host %q, header %v", got.Host, got.Header)
	}
}

// Callers without an address share no counter either where it also belongs to a
// part of the request.
func TestNobodysCounterIsNotSharedByPart(t *testing.T) {
	e := newEngine(t, strings.Replace(simple, `match: "/{path...}", by: [account, ip]`, `match: "/events/{event}", by: account+path.event`, 1))
	f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, e, Options{})
	var no *NoCaller
	out, err := f(context.Background(), json.RawMessage(`{"httpMethod":"GET","path":"/events/7","headers":{"x-forwarded-for":"192.0.2.1"},"requestContext":{"elb":{}}}`))
	if !errors.As(err, &no) || no.Limit != "things" {
		t.Errorf("%s %v", out, err)
	}
}

// Several calls at once in one environment: every one has its own decision, line
// and request id.
func TestConcurrentInvocationsKeepTheirOwn(t *testing.T) {
	const callers, calls = 24, 3
	var mu sync.Mutex
	var metrics bytes.Buffer
	e := newEngine(t, strings.Replace(simple, "weir: 1", "weir: 1\nlog_keys: plain", 1))
	f := Wrap(func(ctx context.Context, _ any) (any, error) {
		d, _ := weir.FromContext(ctx)
		return map[string]any{"statusCode": 200, "body": fmt.Sprint(d.Remaining)}, nil
	}, e, Options{Metrics: &metrics})
	served := map[string]string{} // remaining, by caller
	var all sync.WaitGroup
	for i := range callers * calls {
		all.Go(func() {
			who := fmt.Sprintf("caller-%d", i%callers)
			out, err := f(withRequest("of-"+who), httpEvent("GET", "/", who))
			text, _ := marshal(out)
			var r struct {
				StatusCode int
				Body       string
			}
			if err != nil || json.Unmarshal(text, &r) != nil {
				t.Errorf("%s: %s %v", who, text, err)
			}
			if r.StatusCode == 200 {
				mu.Lock()
				served[who] += r.Body
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i := range callers { // two an hour
		who := fmt.Sprintf("caller-%d", i)
		if got := served[who]; got != "01" && got != "10" {
			t.Errorf("%s was served with %q left", who, got)
		}
	}
	cold := 0.0
	told := lines(t, &metrics)
	for _, line := range told {
		cold += line["ColdStart"].(float64)
		if "of-"+strings.TrimPrefix(line["key"].(string), "account#") != line["request_id"] {
			t.Errorf("line %v", line)
		}
	}
	if len(told) != callers*calls || cold != 1 {
		t.Errorf("%d lines, %v cold starts", len(told), cold)
	}
}

// The package comment's advice for custom domains: both paths are named, and
// count together.
func TestABasePathIsPartOfThePath(t *testing.T) {
	const both = `
weir: 1
callers: {ip: client_ip}
application: {limits: [{name: things, match: [POST /things, POST /v1/things], by: ip, limit: quota 1/h}]}
`
	for name, event := range map[string]string{
		"HTTP API": `{"version":"2.0","rawPath":%q,"requestContext":{"stage":"$default","domainName":"api.example.com","http":{"method":"POST","sourceIp":"192.0.2.1"}}}`,
		"stage":    `{"version":"2.0","rawPath":"/prod%s","requestContext":{"stage":"prod","http":{"method":"POST","sourceIp":"192.0.2.1"}}}`,
		"REST API": `{"resource":"/things","httpMethod":"POST","path":%q,"requestContext":{"stage":"prod","identity":{"sourceIp":"192.0.2.1"}}}`,
	} {
		for text, want := range map[string]string{both: "200 429", strings.Replace(both, ", POST /v1/things", "", 1): "200 200"} {
			f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, newEngine(t, text), Options{})
			var got []string
			for _, path := range []string{"/v1/things", "/things"} {
				out, err := f(context.Background(), json.RawMessage(fmt.Sprintf(event, path)))
				got = append(got, fmt.Sprint(answerOf(t, out, err).StatusCode))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v, want %s under%s", name, got, want, text)
			}
		}
	}
}

// Who signed a request is told in several fields, any of which may be empty.
func TestASignerIsKnownByWhatIsThere(t *testing.T) {
	for iam, want := range map[string]any{
		`{"userId":"AROA:s","cognitoIdentity":null}`:                                                "AROA",
		`{"userId":"AROA:s","cognitoIdentity":{}}`:                                                  "AROA",
		`{"userId":"AROA:s","cognitoIdentity":{"amr":null,"identityId":""}}`:                        "AROA",
		`{"callerId":"AROA:s","cognitoIdentity":{"amr":["authenticated"],"identityId":null}}`:       "AROA",
		`{"userId":"AROA:s","cognitoIdentity":{"amr":["authenticated"],"identityId":"eu:7"}}`:       "eu:7",
		`{"userId":"AROA:s","cognitoIdentity":{"amr":["unauthenticated"],"identityId":"eu:guest"}}`: nil,
		`{"userId":"AROA:s","cognitoIdentity":{"amr":["unauthenticated"]}}`:                         nil,
		`{"cognitoIdentity":{}}`: nil,
	} {
		e, err := read([]byte(`{"version":"2.0","rawPath":"/","requestContext":{"authorizer":{"iam":` + iam + `},"http":{"method":"GET","sourceIp":"192.0.2.1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.identity(nil).Claims["sub"]; got != want {
			t.Errorf("%s: %v, want %v", iam, got, want)
		}
	}
}

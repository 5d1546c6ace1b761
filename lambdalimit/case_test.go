package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func attributesOf(t *testing.T, payload string, o Options) (a struct {
	Header map[string][]string
	Peer   netip.Addr
	Shape  shape
}) {
	t.Helper()
	e, err := read([]byte(payload))
	if err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	at := e.attributes(&o)
	a.Header, a.Peer, a.Shape = at.Header, at.Peer, e.shape
	return a
}

// B211, the whole kind: events are told apart by what they have, and a field that
// one kind lacks is never asked for.
func TestCase_B211_ABalancersEventHasNoIdentity(t *testing.T) {
	const event = `{"requestContext":{"elb":{}},"httpMethod":"GET","path":"/","headers":{"x-forwarded-for":%q}}`
	for forwarded, want := range map[string]string{
		"192.0.2.1":                     "192.0.2.1",
		"203.0.113.9, 192.0.2.1":        "192.0.2.1", // the client began the list
		"203.0.113.9,192.0.2.1:4711":    "192.0.2.1",
		"192.0.2.1, [2001:db8::1]:4711": "2001:db8::1",
		"192.0.2.1, 2001:db8::1":        "2001:db8::1",
		"192.0.2.1, ":                   "invalid IP",
		"192.0.2.1, unknown":            "invalid IP",
		"":                              "invalid IP",
	} {
		if got := attributesOf(t, fmt.Sprintf(event, forwarded), Options{TrustForwardedFor: true}); got.Peer.String() != want || got.Shape != balancer {
			t.Errorf("%q: %v, want %s", forwarded, got.Peer, want)
		}
		if got := attributesOf(t, fmt.Sprintf(event, forwarded), Options{}); got.Peer.IsValid() {
			t.Errorf("%q is believed without being told: %v", forwarded, got.Peer)
		}
	}
	// Without an address a limit by address says so.
	f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, newEngine(t, simple), Options{})
	var no *NoCaller
	if _, err := f(context.Background(), json.RawMessage(fmt.Sprintf(event, "192.0.2.1"))); !errors.As(err, &no) || no.Limit != "things" {
		t.Error(err)
	}
}

func TestCase_B212_FieldsComeInEitherForm(t *testing.T) {
	for payload, want := range map[string]map[string][]string{
		`"headers":{"x-a":"1","X-B":"2"}`:                                       {"X-A": {"1"}, "X-B": {"2"}},
		`"multiValueHeaders":{"x-a":["1","2"]}`:                                 {"X-A": {"1", "2"}},
		`"headers":{"x-a":"2","x-b":"3"},"multiValueHeaders":{"X-A":["1","2"]}`: {"X-A": {"1", "2"}, "X-B": {"3"}},
		`"headers":{"x-a":"1","X-A":"2"}`:                                       {"X-A": {"2", "1"}}, // two spellings of one field
		`"headers":null,"multiValueHeaders":null`:                               {},
		`"headers":{},"multiValueHeaders":{"x-a":null,"x-b":[]}`:                {"X-A": nil, "X-B": nil},
	} {
		for _, kind := range []string{`{"elb":{}}`, `{"identity":{"sourceIp":"192.0.2.1"}}`} {
			got := attributesOf(t, `{"httpMethod":"GET","path":"/","requestContext":`+kind+`,`+payload+`}`, Options{})
			if len(got.Header) != len(want) {
				t.Errorf("%s: %v", payload, got.Header)
			}
			for name, values := range want {
				if fmt.Sprint(got.Header[name]) != fmt.Sprint(values) {
					t.Errorf("%s: %s is %v, want %v", payload, name, got.Header[name], values)
				}
			}
		}
	}
}

func TestCase_B214_AnAddressMayHaveAPort(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:443": "192.0.2.1", "2001:db8::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"[2001:db8::1]:443": "2001:db8::1", " 192.0.2.1 ": "192.0.2.1", "::ffff:192.0.2.1": "::ffff:192.0.2.1", "fe80::1%eth0": "fe80::1%eth0",
		"": "invalid IP", "test-invoke-source-ip": "invalid IP", "192.0.2": "invalid IP", "[": "invalid IP", "192.0.2.1:port": "invalid IP", "0x7f.1": "invalid IP",
	} {
		for _, event := range []string{
			`{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"GET","sourceIp":%q}}}`,
			`{"httpMethod":"GET","path":"/","requestContext":{"identity":{"sourceIp":%q}}}`,
			`{"info":{"fieldName":"f","parentTypeName":"Query"},"identity":{"sourceIp":[%q]}}`,
		} {
			if got := attributesOf(t, fmt.Sprintf(event, text), Options{}); got.Peer.String() != want {
				t.Errorf("%q: %v, want %s", text, got.Peer, want)
			}
		}
	}
}

func TestCase_B215_SourceIPOfAppSyncIsNullATextOrAList(t *testing.T) {
	for ip, want := range map[string]struct{ peer, forwarded string }{
		`null`: {"invalid IP", "[]"}, `"192.0.2.1"`: {"192.0.2.1", "[]"}, `["192.0.2.1"]`: {"192.0.2.1", "[]"}, `[]`: {"invalid IP", "[]"},
		`["203.0.113.9","192.0.2.1"]`: {"192.0.2.1", "[203.0.113.9]"}, // the first is the client's own claim
		`["203.0.113.9",null]`:        {"invalid IP", "[203.0.113.9]"}, `{}`: {"invalid IP", "[]"}, `7`: {"invalid IP", "[]"},
	} {
		got := attributesOf(t, `{"info":{"fieldName":"f","parentTypeName":"Query"},"identity":{"sub":"a","sourceIp":`+ip+`},"request":{"headers":{"x-forwarded-for":"198.51.100.1"}}}`, Options{})
		if got.Peer.String() != want.peer || fmt.Sprint(got.Header["X-Forwarded-For"]) != want.forwarded {
			t.Errorf("%s: %v, forwarded for %v", ip, got.Peer, got.Header["X-Forwarded-For"])
		}
	}
}

func TestListsThatAGatewayFlattened(t *testing.T) {
	for text, want := range map[string][]string{
		"[a b]": {"a", "b"}, `["a","b c"]`: {"a", "b c"}, "[a, b]": {"a", "b"}, "[]": {}, "[a]": {"a"}, " [a b] ": {"a", "b"}, "[1 2]": {"1", "2"},
		"a,b": nil, "a": nil, "": nil, "[a": nil,
	} {
		if got := listOf(text, false); !reflect.DeepEqual(got, want) && (len(got) > 0 || len(want) > 0) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := listOf("a, b", true); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
	claims := map[string]any{"sub": "[x]", "plans": "a,b", "tenant": "Foo, Inc."}
	got := withLists(claims, []string{"plans"})
	if got["sub"] != "[x]" || got["tenant"] != "Foo, Inc." || fmt.Sprint(got["plans"]) != "[a b]" || claims["plans"] != "a,b" {
		t.Errorf("%v of %v", got, claims)
	}
}

func TestWhoSignedARequestIsHisRoleAndNotHisSession(t *testing.T) {
	for id, want := range map[string]string{
		"AIDAEXAMPLE": "AIDAEXAMPLE", "AROAEXAMPLE:session": "AROAEXAMPLE", "": "",
		"arn:aws:sts::1:assumed-role/r/session": "arn:aws:sts::1:assumed-role/r", "arn:aws:iam::1:user/path/u": "arn:aws:iam::1:user/path/u",
	} {
		if got := principal("", id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

// Which claim may be a list is said once, in the policy.
func TestThePolicySaysWhichClaimHoldsPlans(t *testing.T) {
	const text = `
weir: 1
header_styles: [x]
application:
  plans: {from: jwt.roles, order: [free, pro], free: {things: quota 1/h}, pro: {things: quota 7/h}}
  operations: {things: {match: [GET /things, POST /Query/things]}}
`
	for claims, want := range map[string]string{
		`"roles":"reader,pro"`: "7", `"roles":"[reader pro]"`: "7", `"roles":"pro"`: "7", `"plans":"x,pro"`: "1", `"roles":"reader, prof"`: "1",
	} {
		e := newEngine(t, text)
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, e, Options{})
		out, err := f(context.Background(), json.RawMessage(`{"version":"2.0","rawPath":"/things","requestContext":{"http":{"method":"GET","sourceIp":"192.0.2.1"},"authorizer":{"jwt":{"claims":{"sub":"a",`+claims+`}}}}}`))
		if r := answerOf(t, out, err); r.Headers["x-ratelimit-limit"] != want {
			t.Errorf("%s: %+v, want the limit %s", claims, r, want)
		}
	}
}

// B113, the whole kind: a refusal has the same fields in every event's shape and
// from every layer.
func TestCase_B113_RefusalsOfEveryShapeHaveTheSameFields(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
header_styles: [ietf, draft6, x]
edge: [{name: edge, path: /edge, limit: quota 1/h, by: ip}]
application:
  plans: {order: [free], free: {planned: quota 1/h}}
  operations: {planned: {match: GET /planned}}
  limits:
    - {name: bucket, match: GET /bucket, by: ip, limit: 1/h}
    - {name: sliding, match: GET /sliding, by: ip, limit: sliding 1/h}
    - {name: calendar, match: GET /calendar, by: everyone, limit: quota 1/year calendar}
`
	shapes := map[string]string{
		"HTTP API":   `{"version":"2.0","routeKey":"$default","rawPath":%q,"requestContext":{"http":{"method":"GET","sourceIp":"192.0.2.1"}}}`,
		"URL":        `{"version":"2.0","rawPath":%q,"requestContext":{"domainName":"x.lambda-url.eu-central-1.on.aws","http":{"method":"GET","sourceIp":"192.0.2.1"}}}`,
		"REST API":   `{"httpMethod":"GET","path":%q,"requestContext":{"identity":{"sourceIp":"192.0.2.1"}}}`,
		"ALB":        `{"httpMethod":"GET","path":%q,"headers":{"x-forwarded-for":"192.0.2.1"},"requestContext":{"elb":{}}}`,
		"ALB, multi": `{"httpMethod":"GET","path":%q,"multiValueHeaders":{"x-forwarded-for":["192.0.2.1"]},"requestContext":{"elb":{}}}`,
	}
	const want = "cache-control content-type ratelimit ratelimit-limit ratelimit-policy ratelimit-remaining ratelimit-reset retry-after x-ratelimit-limit x-ratelimit-remaining"
	for name, event := range shapes {
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, newEngine(t, text), Options{TrustForwardedFor: true})
		for _, path := range []string{"/edge", "/planned", "/bucket", "/sliding", "/calendar"} {
			for i, status := range []int{200, 429} {
				out, err := f(context.Background(), json.RawMessage(fmt.Sprintf(event, path)))
				r := answerOf(t, out, err)
				if r.StatusCode != status {
					t.Errorf("%s, %s, call %d: %+v", name, path, i, r)
				}
				if status == 200 {
					continue
				}
				var fields []string
				for field := range r.Headers {
					fields = append(fields, field)
				}
				for field := range r.MultiValueHeaders {
					fields = append(fields, field)
				}
				slices.Sort(fields)
				if got := strings.Join(fields, " "); got != want {
					t.Errorf("%s, %s: %s, want %s", name, path, got, want)
				}
			}
		}
	}
}

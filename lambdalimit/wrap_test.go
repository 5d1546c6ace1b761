package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
)

const simple = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
header_styles: [x]
application:
  limits:
    - {name: things, match: "/{path...}", by: [account, ip], limit: quota 2/h}
`

const onSuccess = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
header_styles: [x]
application:
  plans: {order: [free], free: {things: quota 2/h}}
  operations: {things: {match: "/{path...}", count: on_success}}
`

// httpEvent is a call of an HTTP API by an account, or "" for nobody.
func httpEvent(method, path, sub string) json.RawMessage {
	auth := ""
	if sub != "" {
		auth = fmt.Sprintf(`,"authorizer":{"jwt":{"claims":{"sub":%q}}}`, sub)
	}
	return json.RawMessage(fmt.Sprintf(`{"version":"2.0","rawPath":%q,"headers":{"content-type":"text/plain"},"body":"ping","requestContext":{"http":{"method":%q,"sourceIp":"198.51.100.7"}%s}}`, path, method, auth))
}

func fieldEvent(field, sub string) string {
	return fmt.Sprintf(`{"arguments":null,"identity":{"sub":%q,"claims":{"sub":%q}},"request":{"headers":{}},"info":{"fieldName":%q,"parentTypeName":"Query"}}`, sub, sub, field)
}

// answer is what a function returned, as the service reads it.
func answerOf(t *testing.T, out any, err error) (r struct {
	StatusCode        int
	StatusDescription string
	Headers           map[string]string
	MultiValueHeaders map[string][]string
	Cookies           []string
	Body              string
	IsBase64Encoded   bool
}) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func jsonOf(t *testing.T, out any, err error) string {
	t.Helper()
	if err != nil {
		return "error " + typeName(err) + ": " + err.Error()
	}
	text, err := marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAHandlerFindsTheDecisionAndTheEventAsItCame(t *testing.T) {
	f := Wrap(func(ctx context.Context, in json.RawMessage) (events.APIGatewayV2HTTPResponse, error) {
		d, ok := weir.FromContext(ctx)
		if !ok || !d.Allowed || d.Remaining != 1 {
			t.Errorf("decision %+v, %v", d, ok)
		}
		if !bytes.Contains(in, []byte(`"sourceIp":"198.51.100.7"`)) {
			t.Errorf("event %s", in)
		}
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"X-RateLimit-Limit": "999", "X-Mine": "1"}, Body: "<&>"}, nil
	}, newEngine(t, simple), Options{})
	out, err := f(context.Background(), httpEvent("POST", "/", "a"))
	want := `{"body":"<&>","cookies":null,"headers":{"X-Mine":"1","x-ratelimit-limit":"2","x-ratelimit-remaining":"1"},"multiValueHeaders":null,"statusCode":201}`
	if got := jsonOf(t, out, err); strings.Replace(got, `"multiValueHeaders":{}`, `"multiValueHeaders":null`, 1) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Payload 2.0 lets a function return what it likes; the limit fields need a whole
// answer, which must be the one that the service would have made.
func TestAnAnswerWithoutAStatusIsWhatTheServiceMakesOfIt(t *testing.T) {
	for out, want := range map[any]string{
		"hello":                      "hello",
		json.Number("3"):             "3",
		struct{ A int }{1}:           `{"A":1}`,
		struct{ Body string }{"own"}: `{"Body":"own"}`,
	} {
		f := Wrap(func(context.Context, json.RawMessage) (any, error) { return out, nil }, newEngine(t, simple), Options{})
		got, err := f(context.Background(), httpEvent("GET", "/", "a"))
		r := answerOf(t, got, err)
		if r.StatusCode != 200 || r.Body != want || r.Headers["content-type"] != "application/json" || r.Headers["x-ratelimit-remaining"] != "1" {
			t.Errorf("%v: %+v", out, r)
		}
	}
}

func TestOnlySuccessCounts(t *testing.T) {
	fails := errors.New("no room")
	for name, handler := range map[string]func(context.Context, json.RawMessage) (any, error){
		"status 500": func(context.Context, json.RawMessage) (any, error) { return map[string]any{"statusCode": 500}, nil },
		"status text": func(context.Context, json.RawMessage) (any, error) {
			return map[string]any{"statusCode": "404"}, nil
		},
		"no status": func(context.Context, json.RawMessage) (any, error) {
			return map[string]any{"statusCode": "none"}, nil
		},
		"error":        func(context.Context, json.RawMessage) (any, error) { return nil, fails },
		"unencodable":  func(context.Context, json.RawMessage) (any, error) { return func() {}, nil },
		"typed stream": stream(503),
	} {
		e := newEngine(t, onSuccess)
		f := Wrap(handler, e, Options{})
		for range 5 {
			out, err := f(context.Background(), httpEvent("GET", "/", "a"))
			if refused, ok := out.(json.RawMessage); ok && err == nil && bytes.Contains(refused, []byte("429")) {
				t.Errorf("%s counts", name)
			}
		}
		ok := Wrap(func(context.Context, json.RawMessage) (any, error) { return map[string]any{"statusCode": 200}, nil }, e, Options{})
		for i, want := range []int{200, 200, 429} {
			out, err := ok(context.Background(), httpEvent("GET", "/", "a"))
			if r := answerOf(t, out, err); r.StatusCode != want {
				t.Errorf("%s, then success %d: %d", name, i, r.StatusCode)
			}
		}
	}
}

func TestAPanicGoesOnAndCountsNothing(t *testing.T) {
	e := newEngine(t, onSuccess)
	f := Wrap(func(context.Context, json.RawMessage) (any, error) { panic("boom") }, e, Options{})
	batch := WrapBatch(func(context.Context, []json.RawMessage) ([]any, error) { panic("boom") }, e, Options{})
	for i, call := range []func(){
		func() { f(context.Background(), httpEvent("GET", "/", "a")) },
		func() { f(context.Background(), httpEvent("GET", "/", "a")) },
		func() {
			batch(context.Background(), json.RawMessage("["+fieldEvent("x", "a")+","+fieldEvent("x", "a")+"]"))
		},
		func() { f(context.Background(), httpEvent("GET", "/", "a")) },
	} {
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("call %d: recovered %v", i, r)
				}
			}()
			call()
		}()
	}
}

func TestACallThatTimesOutIsGivenBackBefore(t *testing.T) {
	for _, c := range []struct{ timeout, margin time.Duration }{
		{time.Minute, 500 * time.Millisecond}, // 500 ms are less than a tenth
		{time.Second, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, onSuccess)
			left := func() (n int64) { // to the caller, who looks with a call that counts nothing
				_, err := Wrap(func(ctx context.Context, _ json.RawMessage) (any, error) {
					d, _ := weir.FromContext(ctx)
					n = d.Remaining
					return map[string]any{"statusCode": 500}, nil
				}, e, Options{})(context.Background(), httpEvent("GET", "/", "a"))
				if err != nil {
					t.Error(err)
				}
				return n
			}
			ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
			defer cancel()
			began := time.Now()
			f := Wrap(func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-time.After(c.timeout - c.margin - time.Millisecond)
				if got := left(); got != 0 {
					t.Errorf("before the margin: %d left", got)
				}
				<-time.After(2 * time.Millisecond)
				if got := left(); got != 1 {
					t.Errorf("within the margin: %d left", got)
				}
				return map[string]any{"statusCode": 200}, nil // too late to count
			}, e, Options{})
			if _, err := f(ctx, httpEvent("GET", "/", "a")); err != nil {
				t.Error(err)
			}
			if got := left(); got != 1 || time.Since(began) >= c.timeout {
				t.Errorf("afterwards: %d left after %v", got, time.Since(began))
			}
		})
	}
}

// B217, the whole kind: what no type of a library knows must reach the handler.
func TestCase_B217_UnknownMembersSurvive(t *testing.T) {
	type in struct {
		Extra struct{ Deep []int } `json:"extra"`
	}
	f := Wrap(func(_ context.Context, e in) (any, error) {
		return map[string]any{"statusCode": 200, "body": fmt.Sprint(e.Extra.Deep)}, nil
	}, newEngine(t, simple), Options{})
	payload := bytes.Replace(httpEvent("GET", "/", ""), []byte("{"), []byte(`{"extra":{"deep":[1,2]},`), 1)
	out, err := f(context.Background(), payload)
	if r := answerOf(t, out, err); r.Body != "[1 2]" {
		t.Errorf("%+v", r)
	}
}

func TestCase_B218_AnEventThatIsNotKnownIsAClearError(t *testing.T) {
	called := false
	handler := func(context.Context, any) (any, error) { called = true; return "served", nil }
	e := newEngine(t, simple)
	for _, payload := range []string{`{"Records":[]}`, `{"version":"3.0"}`, `null`, `7`, `"x"`, `{"version":2}`, `[1]`, `[{"Records":[]}]`, `{"requestContext":{"connectionId":"c","routeKey":"$connect"}}`} {
		_, err := Wrap(handler, e, Options{})(context.Background(), json.RawMessage(payload))
		var unknown *UnknownEvent
		if !errors.As(err, &unknown) || called || !strings.Contains(err.Error(), "PassUnknown") {
			t.Errorf("%s: %v, called %v", payload, err, called)
		}
		out, err := Wrap(handler, e, Options{PassUnknown: true})(context.Background(), json.RawMessage(payload))
		if out != "served" || err != nil {
			t.Errorf("%s passed: %v, %v", payload, out, err)
		}
		called = false
	}
}

func TestAnEngineThatAsksNobodyIsFound(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	e, err := engine.New(engine.Options{Policy: load(t, simple), Store: store, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Wrap(func(context.Context, any) (any, error) { return nil, nil }, e, Options{})(context.Background(), httpEvent("GET", "/", "a"))
	if !errors.Is(err, errNotWired) {
		t.Error(err)
	}
}

func TestEdgeRulesNeedAnAddressToo(t *testing.T) {
	e := newEngine(t, "weir: 1\nedge:\n  - {name: all, limit: sliding 1/5m, by: ip}\n")
	f := Wrap(func(context.Context, any) (any, error) { return "ok", nil }, e, Options{})
	var no *NoCaller
	if _, err := f(context.Background(), json.RawMessage(fieldEvent("x", "a"))); !errors.As(err, &no) || no.Limit != "all" {
		t.Error(err)
	}
	for i, want := range []int{200, 429} {
		out, err := f(context.Background(), httpEvent("GET", "/", ""))
		if r := answerOf(t, out, err); r.StatusCode != want {
			t.Errorf("call %d: %+v", i, r)
		}
	}
}

func TestSpec_B07_ARefusalIsATypedErrorForAppSync(t *testing.T) {
	e := newEngine(t, onSuccess)
	f := Wrap(func(context.Context, json.RawMessage) (any, error) { return 7, nil }, e, Options{ReturnErrors: true})
	payload := json.RawMessage(fieldEvent("generate", "a"))
	for range 2 {
		out, err := f(context.Background(), payload)
		if got := jsonOf(t, out, err); got != "7" {
			t.Fatal(got)
		}
	}
	_, err := f(context.Background(), payload)
	var refused *LimitExceeded
	if !errors.As(err, &refused) || !reflect.DeepEqual(*refused, LimitExceeded{
		Operation: "things", Limit: 2, Used: 2, RetryAfterSeconds: 3600, ResetsAt: time.Unix(0, noon).Add(time.Hour).UTC(),
		Message: "Your plan allows 2 things per hour. Try again in 3600 seconds.",
	}) {
		t.Errorf("%+v", refused)
	}
	// The runtime tells AppSync the type by its name.
	_, err = lambda.NewHandler(f).Invoke(context.Background(), payload)
	if typeName(err) != "LimitExceeded" {
		t.Error(typeName(err))
	}
}

func TestSpec_B08_AResolverThatFailsCountsNothing(t *testing.T) {
	e := newEngine(t, onSuccess)
	failing := Wrap(func(context.Context, json.RawMessage) (Result, error) {
		return Result{ErrorMessage: "no such model", ErrorType: "NotFound"}, nil
	}, e, Options{})
	pointer := Wrap(func(context.Context, json.RawMessage) (*Result, error) { return &Result{ErrorMessage: "no"}, nil }, e, Options{})
	for range 3 {
		out, err := failing(context.Background(), json.RawMessage(fieldEvent("x", "a")))
		if got := jsonOf(t, out, err); got != `{"data":null,"errorMessage":"no such model","errorType":"NotFound"}` {
			t.Error(got)
		}
		out, err = pointer(context.Background(), json.RawMessage(fieldEvent("x", "a")))
		if got := jsonOf(t, out, err); got != `{"data":null,"errorMessage":"no","errorType":"Error"}` {
			t.Error(got)
		}
	}
}

func TestSpec_B05_UsageAsksWithoutTaking(t *testing.T) {
	e := newEngine(t, strings.Replace(simple, `"/{path...}"`, "POST /Query/generate", 1))
	f := Wrap(func(ctx context.Context, in struct{ Info struct{ FieldName string } }) (any, error) {
		if in.Info.FieldName == "usage" {
			report, err := Usage(ctx)
			return json.RawMessage(report), err
		}
		return 1, nil
	}, e, Options{})
	if _, err := f(context.Background(), json.RawMessage(fieldEvent("generate", "a"))); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		out, err := f(context.Background(), json.RawMessage(fieldEvent("usage", "a")))
		if got := jsonOf(t, out, err); !strings.Contains(got, `"name":"things","operation":"","plan":"","limit":2,"used":1,"remaining":1,"period":"hour","reset_at":"2026-11-30T13:00:00Z"`) {
			t.Error(got)
		}
	}
	if _, err := Usage(context.Background()); err == nil || !strings.Contains(err.Error(), "Wrap") {
		t.Error(err)
	}
}

func TestANetHTTPHandlerServesEvents(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /things/{id}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d, _ := weir.FromContext(r.Context())
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		w.Header().Set("X-RateLimit-Limit", "forged")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Late", "1")
		fmt.Fprintf(w, "%s %s %s %s %s %d", r.Method, r.PathValue("id"), r.URL.RawQuery, r.RemoteAddr, body, d.Remaining)
	})
	mux.HandleFunc("GET /image", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte{0xff, 0xd8, 0xff}) })
	f := WrapHTTP(mux, newEngine(t, simple), Options{})

	payload := bytes.Replace(httpEvent("POST", "/things/7", "a"), []byte(`"version"`), []byte(`"rawQueryString":"q=1","version"`), 1)
	out, err := f(context.Background(), payload)
	r := answerOf(t, out, err)
	if r.StatusCode != 201 || r.Body != "POST 7 q=1 198.51.100.7:0 ping 1" || len(r.Cookies) != 2 || r.Headers["x-ratelimit-limit"] != "2" ||
		r.Headers["x-late"] != "" || !strings.HasPrefix(r.Headers["content-type"], "text/plain") {
		t.Errorf("%+v", r)
	}
	out, err = f(context.Background(), httpEvent("GET", "/image", "b"))
	if r := answerOf(t, out, err); !r.IsBase64Encoded || r.Body != "/9j/" || r.StatusCode != 200 {
		t.Errorf("%+v", r)
	}
	out, err = f(context.Background(), httpEvent("GET", "/none", "b"))
	if r := answerOf(t, out, err); r.StatusCode != 404 {
		t.Errorf("%+v", r)
	}
	bad := bytes.Replace(httpEvent("POST", "/things/7", "c"), []byte(`"body":"ping"`), []byte(`"body":"!","isBase64Encoded":true`), 1)
	out, err = f(context.Background(), bad)
	if r := answerOf(t, out, err); r.StatusCode != 400 {
		t.Errorf("%+v", r)
	}
	if _, err := f(context.Background(), json.RawMessage(fieldEvent("x", "d"))); err == nil || !strings.Contains(err.Error(), "net/http") {
		t.Error(err)
	}
	// REST has two lists of fields, a balancer one of either kind.
	rest := `{"httpMethod":"POST","path":"/things/8","headers":{},"requestContext":{"identity":{"sourceIp":"192.0.2.1"}}}`
	out, err = f(context.Background(), json.RawMessage(rest))
	if r := answerOf(t, out, err); r.StatusCode != 201 || len(r.MultiValueHeaders["set-cookie"]) != 2 || r.Headers["x-ratelimit-limit"] != "2" {
		t.Errorf("%+v", r)
	}
}

// Two cookies in one field are none. A balancer with single headers has no other.
func TestSeveralCookiesNeedABalancerThatTakesThem(t *testing.T) {
	const event = `{"httpMethod":"GET","path":"/",%s,"requestContext":{"elb":{}}}`
	for n, want := range map[int]string{1: "", 2: "lambda.multi_value_headers.enabled=true"} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				http.SetCookie(w, &http.Cookie{Name: fmt.Sprint("c", i), Value: "1", Expires: time.Unix(noon/1e9, 0)})
			}
			w.Header()["Vary"] = []string{"Origin", "Accept"} // a list that may be joined
		})
		e := newEngine(t, onSuccess)
		f := WrapHTTP(h, e, Options{TrustForwardedFor: true})
		out, err := f(context.Background(), json.RawMessage(fmt.Sprintf(event, `"headers":{"x-forwarded-for":"198.51.100.7"}`)))
		if want == "" {
			if r := answerOf(t, out, err); r.StatusCode != 200 || r.Headers["set-cookie"] == "" || r.Headers["vary"] != "Origin, Accept" {
				t.Errorf("%+v", r)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || left(t, e, "") != 2 {
			t.Errorf("%v %v, %d left", out, err, left(t, e, ""))
		}
		out, err = f(context.Background(), json.RawMessage(fmt.Sprintf(event, `"multiValueHeaders":{"x-forwarded-for":["198.51.100.7"]}`)))
		if r := answerOf(t, out, err); r.StatusCode != 200 || len(r.MultiValueHeaders["set-cookie"]) != n {
			t.Errorf("%+v", r)
		}
	}
}

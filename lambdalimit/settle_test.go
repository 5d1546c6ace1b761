package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlabs/weir/engine"
)

const byTokens = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
header_styles: [x]
application:
  plans: {order: [free], free: {things: quota 1000/d}}
  operations: {things: {match: "POST /{path...}", cost: 100, settle: header.X-Tokens-Used, debt: 50, count: on_success}}
`

// usedOf is what a caller has used, as the engine says without taking anything.
func usedOf(t *testing.T, e *engine.Engine, sub string) int64 {
	t.Helper()
	var body []byte
	_, err := Wrap(func(ctx context.Context, _ json.RawMessage) (any, error) {
		var err error
		body, err = Usage(ctx)
		return map[string]any{"statusCode": 200}, err
	}, e, Options{})(context.Background(), httpEvent("GET", "/", sub))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Limits []struct{ Used int64 } }
	if err := json.Unmarshal(body, &doc); err != nil || len(doc.Limits) != 1 {
		t.Fatalf("%s: %v", body, err)
	}
	return doc.Limits[0].Used
}

// Whatever the form of an answer over HTTP, its field says what the call cost.
func TestSpec_B08_AFunctionsAnswerSaysWhatACallCost(t *testing.T) {
	type out = func(context.Context, json.RawMessage) (any, error)
	header := func(cost any, status int) out {
		return func(context.Context, json.RawMessage) (any, error) {
			return map[string]any{"statusCode": status, "headers": map[string]any{"x-tokens-used": cost}}, nil
		}
	}
	for name, c := range map[string]struct {
		serve out
		want  int64
	}{
		"a text":           {header("40", 200), 40},
		"a number":         {header(40, 200), 40},
		"more":             {header("350", 200), 350},
		"nothing":          {header("0", 200), 0},
		"down to its debt": {header("9000", 200), 1050},
		"no number":        {header("many", 200), 100},
		"below zero":       {header("-1", 200), 100},
		"a failure":        {header("40", 500), 0},
		"no field":         {func(context.Context, json.RawMessage) (any, error) { return "hello", nil }, 100},
		"a typed answer": {func(context.Context, json.RawMessage) (any, error) {
			return events.APIGatewayV2HTTPResponse{StatusCode: 200, Headers: map[string]string{"X-Tokens-Used": "41"}}, nil
		}, 41},
		"several values": {func(context.Context, json.RawMessage) (any, error) {
			return events.APIGatewayProxyResponse{StatusCode: 200, MultiValueHeaders: map[string][]string{"X-Tokens-Used": {"42"}}}, nil
		}, 42},
		"a stream": {func(context.Context, json.RawMessage) (any, error) {
			return &events.LambdaFunctionURLStreamingResponse{StatusCode: 200, Headers: map[string]string{"X-Tokens-Used": "43"}, Body: strings.NewReader("long")}, nil
		}, 43},
		"an error": {func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("no room") }, 0},
	} {
		e := newEngine(t, byTokens)
		_, _ = Wrap(c.serve, e, Options{})(context.Background(), httpEvent("POST", "/", "a"))
		if n := usedOf(t, e, "a"); n != c.want {
			t.Errorf("%s: %d used, want %d", name, n, c.want)
		}
	}
	e := newEngine(t, byTokens)
	served := WrapHTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Tokens-Used", "44") }), e, Options{})
	if _, err := served(context.Background(), httpEvent("POST", "/", "a")); err != nil {
		t.Fatal(err)
	}
	if n := usedOf(t, e, "a"); n != 44 {
		t.Errorf("a net/http handler: %d used", n)
	}
}

// A resolver has no header: it says what its call cost beside its result, alone or
// for each element of a batch. What AppSync gets does not show it.
func TestSpec_B08_AResolverSaysWhatItsCallCost(t *testing.T) {
	costs := func(n int64) map[string]int64 { return map[string]int64{"x-tokens-used": n} }
	for name, c := range map[string]struct {
		out     any
		err     error
		options Options
		want    int64
		sent    string
	}{
		"less":              {Result{Data: 1, Costs: costs(40)}, nil, Options{}, 40, `{"data":1}`},
		"a pointer":         {&Result{Data: 1, Costs: costs(41)}, nil, Options{}, 41, `{"data":1}`},
		"more":              {Result{Data: 1, Costs: costs(350)}, nil, Options{}, 350, `{"data":1}`},
		"below zero":        {Result{Data: 1, Costs: costs(-3)}, nil, Options{}, 100, `{"data":1}`},
		"another field":     {Result{Data: 1, Costs: map[string]int64{"X-Other": 3}}, nil, Options{}, 100, `{"data":1}`},
		"says nothing":      {1, nil, Options{}, 100, `{"data":1}`},
		"has failed":        {Result{ErrorMessage: "no", Costs: costs(40)}, nil, Options{}, 0, `{"data":null,"errorMessage":"no","errorType":"Error"}`},
		"an error":          {nil, errors.New("no room"), Options{}, 0, "error errorString: no room"},
		"plain results":     {Result{Data: 1, Costs: costs(42)}, nil, Options{ReturnErrors: true}, 42, "1"},
		"plain, own result": {Result{Data: 1}, nil, Options{ReturnErrors: true}, 100, `{"data":1}`},
	} {
		e := newEngine(t, byTokens)
		out, err := Wrap(func(context.Context, json.RawMessage) (any, error) { return c.out, c.err }, e, c.options)(context.Background(), json.RawMessage(fieldEvent("complete", "a")))
		if got := jsonOf(t, out, err); got != c.sent {
			t.Errorf("%s: sent %s, want %s", name, got, c.sent)
		}
		if n := usedOf(t, e, "a"); n != c.want {
			t.Errorf("%s: %d used, want %d", name, n, c.want)
		}
	}
	e := newEngine(t, byTokens)
	out, err := WrapBatch(func(_ context.Context, in []json.RawMessage) ([]Result, error) {
		return []Result{{Data: 1, Costs: costs(10)}, {Data: 2, Costs: costs(20)}, {ErrorMessage: "no", Costs: costs(30)}}, nil
	}, e, Options{})(context.Background(), list("a", "b", "a"))
	if got := jsonOf(t, out, err); !strings.HasPrefix(got, `[{"data":1},{"data":2},{"data":null,"errorMessage":"no"`) {
		t.Error(got)
	}
	if a, b := usedOf(t, e, "a"), usedOf(t, e, "b"); a != 10 || b != 20 {
		t.Errorf("%d and %d used, want 10 and 20", a, b)
	}
}

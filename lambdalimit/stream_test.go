package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func stream(status int) func(context.Context, json.RawMessage) (any, error) {
	return func(context.Context, json.RawMessage) (any, error) {
		return &events.LambdaFunctionURLStreamingResponse{StatusCode: status, Headers: map[string]string{"X-Mine": "1"}, Body: strings.NewReader("long")}, nil
	}
}

func TestAStreamPassesWithItsFields(t *testing.T) {
	f := Wrap(stream(200), newEngine(t, simple), Options{})
	out, err := lambda.NewHandler(f).Invoke(context.Background(), httpEvent("GET", "/", "a"))
	if err != nil || !bytes.Contains(out, []byte(`"x-ratelimit-remaining":"1"`)) || !bytes.HasSuffix(out, []byte("long")) {
		t.Errorf("%q %v", out, err)
	}
}

// closing is a stream that must be closed.
type closing struct {
	r      io.Reader
	closed *int
}

func (c closing) Read(b []byte) (int, error) { return c.r.Read(b) }
func (c closing) Close() error               { *c.closed++; return nil }

// noJSON is a stream with a field that has no JSON.
type noJSON struct {
	io.Reader
	C chan int
}

// Package lambda sends what a reader reads. Behind a limit it comes out alike,
// whatever the reader's JSON would be.
func TestAReaderIsSentAsItIs(t *testing.T) {
	closed := 0
	for name, reader := range map[string]func(text string) any{
		"strings":  func(text string) any { return strings.NewReader(text) },
		"buffer":   func(text string) any { return bytes.NewBufferString(text) },
		"multi":    func(text string) any { return io.MultiReader(strings.NewReader(text)) },
		"no JSON":  func(text string) any { return noJSON{strings.NewReader(text), nil} },
		"closing":  func(text string) any { return closing{r: strings.NewReader(text), closed: &closed} },
		"with one": func(text string) any { return io.LimitReader(strings.NewReader(text), 1<<20) }, // whose JSON has fields
		"nil":      func(string) any { return (*strings.Reader)(nil) },
		"nil URL":  func(string) any { return (*events.LambdaFunctionURLStreamingResponse)(nil) },
		"nil REST": func(string) any { return (*events.APIGatewayProxyStreamingResponse)(nil) },
	} {
		for _, policy := range []string{simple, strings.Replace(simple, `"/{path...}"`, "/other", 1), onSuccess} {
			for _, text := range []string{"a long stream", `{"statusCode":201,"body":"{}"}`, ""} {
				e := newEngine(t, policy)
				handler := func(context.Context, json.RawMessage) (any, error) { return reader(text), nil }
				payload := []byte(`{"httpMethod":"GET","path":"/","requestContext":{"identity":{"sourceIp":"192.0.2.1"}}}`)
				want, err := lambda.NewHandler(handler).Invoke(context.Background(), payload)
				if err != nil {
					t.Fatal(err)
				}
				got, err := lambda.NewHandler(Wrap(handler, e, Options{})).Invoke(context.Background(), payload)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %q: %q %v, want %q", name, text, got, err, want)
				}
			}
		}
	}
	if closed != 2*3*3 {
		t.Errorf("closed %d times", closed)
	}
}

// What AppSync and API Gateway want of a resolver or authorizer is JSON, which
// may come from a reader too.
func TestAReaderOfAResolverOrAuthorizerHoldsItsJSON(t *testing.T) {
	reading := func(text string) func(context.Context, json.RawMessage) (any, error) {
		return func(context.Context, json.RawMessage) (any, error) { return strings.NewReader(text), nil }
	}
	for text, want := range map[string]string{`{"a": 1}`: `{"data":{"a":1}}`, `7`: `{"data":7}`} {
		out, err := Wrap(reading(text), newEngine(t, simple), Options{})(context.Background(), json.RawMessage(fieldEvent("x", "a")))
		if got := jsonOf(t, out, err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		out, err = Wrap(reading(text), newEngine(t, simple), Options{ReturnErrors: true})(context.Background(), json.RawMessage(fieldEvent("x", "a")))
		if got := `{"data":` + jsonOf(t, out, err) + "}"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	f := WrapAuthorizer(reading(`{"isAuthorized": true, "context": {"sub": "a"}}`), newEngine(t, authorizerPolicy), Options{})
	for _, want := range []string{`"isAuthorized":true`, `"isAuthorized":false`} {
		out, err := f(context.Background(), fixture(t, "apigw-v2-custom-authorizer-v2-request"))
		if got := jsonOf(t, out, err); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// explodes is a result whose encoding is the program's own code.
type explodes struct{}

func (explodes) MarshalJSON() ([]byte, error) { panic("boom") }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("torn") }

// A result that cannot be sent reaches nobody, and costs nobody anything.
func TestAnAnswerThatCannotBeSentCountsNothing(t *testing.T) {
	const field = "field"
	for name, out := range map[string]any{
		"func": func() {}, "channel": map[string]any{"a": make(chan int)}, "panic": explodes{},
		field + " info":    Result{ErrorInfo: func() {}},
		field + " data":    &Result{Data: func() {}},
		field + " reader":  failing{},
		field + " no JSON": strings.NewReader("{"),
		field + " empty":   strings.NewReader(""),
	} {
		for _, o := range []Options{{}, {ReturnErrors: true}} {
			for _, payload := range []json.RawMessage{httpEvent("GET", "/", "a"), json.RawMessage(fieldEvent("x", "a")), list("a")} {
				if strings.HasPrefix(name, field) && bytes.HasPrefix(payload, []byte(`{"version"`)) {
					continue // which is no mistake of an HTTP answer
				}
				e := newEngine(t, onSuccess)
				func() {
					defer func() {
						if r := recover(); r != nil && (r != "boom" || name != "panic") {
							t.Errorf("%s: recovered %v", name, r)
						}
					}()
					got, err := Wrap(func(context.Context, json.RawMessage) (any, error) { return out, nil }, e, o)(context.Background(), payload)
					if results, batch := got.([]Result); err == nil && !(batch && results[0].ErrorMessage != "") {
						t.Errorf("%s of %.20s: %v", name, payload, got)
					}
				}()
				if n := left(t, e, "a"); n != 2 {
					t.Errorf("%s of %.20s: %d left, want 2", name, payload, n)
				}
			}
		}
	}
}

package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// left is what a caller has left, by a call that counts nothing.
func left(t *testing.T, e *engine.Engine, sub string) (n int64) {
	t.Helper()
	_, err := Wrap(func(ctx context.Context, _ json.RawMessage) (any, error) {
		d, _ := weir.FromContext(ctx)
		n = d.Remaining + 1
		return map[string]any{"statusCode": 500}, nil
	}, e, Options{})(context.Background(), httpEvent("GET", "/", sub))
	if err != nil {
		t.Error(err)
	}
	return n
}

// list is a batch of one field for each caller.
func list(subs ...string) json.RawMessage {
	var b []string
	for i, s := range subs {
		b = append(b, fieldEvent(fmt.Sprintf("f%d", i), s))
	}
	return json.RawMessage("[" + strings.Join(b, ",") + "]")
}

func TestCase_B220_EveryElementOfABatchIsACall(t *testing.T) {
	type element struct {
		Info     struct{ FieldName string }
		Identity struct{ Sub string }
	}
	for name, wrap := range map[string]func(*engine.Engine) Func{
		"one by one": func(e *engine.Engine) Func {
			return Wrap(func(_ context.Context, in element) (string, error) { return in.Identity.Sub + in.Info.FieldName, nil }, e, Options{ReturnErrors: true})
		},
		"together": func(e *engine.Engine) Func {
			return WrapBatch(func(_ context.Context, in []element) ([]string, error) {
				var out []string
				for _, one := range in {
					out = append(out, one.Identity.Sub+one.Info.FieldName)
				}
				return out, nil
			}, e, Options{})
		},
	} {
		f := wrap(newEngine(t, simple))
		// a has four elements and two calls: any two of them pass. b and c pass.
		out, err := f(context.Background(), list("a", "b", "a", "a", "c", "a"))
		results, ok := out.([]Result)
		if err != nil || !ok || len(results) != 6 {
			t.Fatalf("%s: %v %v", name, out, err)
		}
		passed := 0
		for i, sub := range []string{"a", "b", "a", "a", "c", "a"} {
			r := results[i]
			switch {
			case fmt.Sprintf("%s", r.Data) == fmt.Sprintf("%q", fmt.Sprintf("%sf%d", sub, i)) && r.ErrorType == "":
				if sub == "a" {
					passed++
				}
			case sub != "a" || r.Data != nil || r.ErrorType != "LimitExceeded":
				t.Errorf("%s: element %d: %+v", name, i, r)
			}
		}
		if passed != 2 {
			t.Errorf("%s: %d of a's elements passed", name, passed)
		}
		// All refused: the resolver is not called at all.
		out, err = f(context.Background(), list("a"))
		if results, ok := out.([]Result); err != nil || !ok || results[0].ErrorType != "LimitExceeded" {
			t.Errorf("%s: %v %v", name, out, err)
		}
		if out, err := f(context.Background(), json.RawMessage("[]")); err != nil || jsonOf(t, out, err) != "[]" {
			t.Errorf("%s: empty: %v %v", name, out, err)
		}
	}
}

func TestABatchResolverAnswersSingleCallsAndItsOwnMistakes(t *testing.T) {
	e := newEngine(t, onSuccess)
	f := WrapBatch(func(_ context.Context, in []map[string]any) ([]any, error) { return make([]any, len(in)), nil }, e, Options{})
	out, err := f(context.Background(), json.RawMessage(fieldEvent("x", "single")))
	if got := jsonOf(t, out, err); got != `{"data":null}` {
		t.Error(got)
	}
	for want, handler := range map[string]func(context.Context, []any) ([]any, error){
		"given 2 elements and returned 1": func(context.Context, []any) ([]any, error) { return []any{1}, nil },
		"broken":                          func(context.Context, []any) ([]any, error) { return nil, errors.New("broken") },
	} {
		for range 4 { // nothing of it counts
			_, err := WrapBatch(handler, e, Options{})(context.Background(), json.RawMessage("["+fieldEvent("x", "a")+","+fieldEvent("y", "a")+"]"))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	// One by one, an element's error is its own.
	each := Wrap(func(_ context.Context, in struct{ Info struct{ FieldName string } }) (any, error) {
		if in.Info.FieldName == "x" {
			return nil, &UnknownEvent{"x"}
		}
		return 1, nil
	}, e, Options{})
	out, err = each(context.Background(), json.RawMessage("["+fieldEvent("x", "b")+","+fieldEvent("y", "b")+"]"))
	if r, ok := out.([]Result); err != nil || !ok || r[0].ErrorType != "UnknownEvent" || fmt.Sprintf("%s", r[1].Data) != "1" {
		t.Errorf("%v %v", out, err)
	}
}

// B221: one query asks for the same field under two names.
func TestCase_B221_AliasesOfOneQueryCannotSlipThrough(t *testing.T) {
	e := newEngine(t, strings.ReplaceAll(simple, "2/h", "1/h"))
	f := Wrap(func(context.Context, any) (any, error) { return 1, nil }, e, Options{})
	const aliases = 16
	passed := make(chan bool, aliases)
	for range aliases {
		go func() {
			out, _ := f(context.Background(), json.RawMessage(fieldEvent("test", "a")))
			r, _ := out.(Result)
			passed <- r.ErrorType == ""
		}()
	}
	n := 0
	for range aliases {
		if <-passed {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of %d passed, want 1", n, aliases)
	}
}

// Both ways to serve a batch: a handler of one call, and one of all.
func bothBatches(e *engine.Engine, element func(context.Context, json.RawMessage) (any, error)) map[string]Func {
	return map[string]Func{
		"one by one": Wrap(element, e, Options{}),
		"together": WrapBatch(func(ctx context.Context, in []json.RawMessage) (out []any, err error) {
			for _, one := range in {
				r, err := element(ctx, one)
				if err != nil {
					return nil, err
				}
				out = append(out, r)
			}
			return out, nil
		}, e, Options{}),
	}
}

// Whatever ends the function on the way, no element has an answer: those that
// were served, the one that breaks, and those that never ran.
func TestABatchThatBreaksCountsNothing(t *testing.T) {
	for element := range 3 {
		e := newEngine(t, strings.Replace(onSuccess, "2/h", "10/h", 1))
		for name, f := range bothBatches(e, func(_ context.Context, in json.RawMessage) (any, error) {
			if strings.Contains(string(in), fmt.Sprintf(`"f%d"`, element)) {
				panic("boom")
			}
			return 1, nil
		}) {
			func() {
				defer func() {
					if r := recover(); r != "boom" {
						t.Errorf("%s: recovered %v", name, r)
					}
				}()
				f(context.Background(), list("a", "b", "a"))
			}()
			if a, b := left(t, e, "a"), left(t, e, "b"); a != 10 || b != 10 {
				t.Errorf("%s, a panic in element %d: a has %d left and b %d, want 10", name, element, a, b)
			}
		}
	}
}

func TestABatchThatTimesOutIsGivenBackBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, strings.Replace(onSuccess, "2/h", "10/h", 1))
		for name, f := range bothBatches(e, func(_ context.Context, in json.RawMessage) (any, error) {
			if strings.Contains(string(in), `"f1"`) { // the second of three takes too long
				<-time.After(9400 * time.Millisecond)
				if n := left(t, e, "a"); n != 7 {
					t.Errorf("before the margin: %d left", n)
				}
				<-time.After(200 * time.Millisecond)
				if n := left(t, e, "a"); n != 10 {
					t.Errorf("within the margin: %d left", n)
				}
			}
			return 1, nil
		}) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if _, err := f(ctx, list("a", "a", "a")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if n := left(t, e, "a"); n != 10 {
				t.Errorf("%s: %d left afterwards", name, n)
			}
		}
	})
}

// An element that cannot be read, or whose result cannot be sent, fails by itself.
func TestABrokenElementFailsByItself(t *testing.T) {
	for _, broken := range []string{`null`, `7`, `{"Records":[]}`, `{"info":{"fieldName":"x"}}`, string(httpEvent("GET", "/", "a")), fieldEvent("func", "a")} {
		e := newEngine(t, strings.Replace(onSuccess, "2/h", "10/h", 1))
		for name, f := range bothBatches(e, func(_ context.Context, in json.RawMessage) (any, error) {
			if strings.Contains(string(in), `"func"`) {
				return func() {}, nil
			}
			return 1, nil
		}) {
			before := left(t, e, "a")
			out, err := f(context.Background(), json.RawMessage("["+fieldEvent("x", "a")+","+broken+","+fieldEvent("y", "a")+"]"))
			r, ok := out.([]Result)
			if err != nil || !ok || len(r) != 3 || r[0].ErrorType != "" || r[2].ErrorType != "" || r[1].ErrorMessage == "" ||
				r[1].ErrorType != "UnknownEvent" && r[1].ErrorType != "UnsupportedTypeError" {
				t.Errorf("%s, %s: %v %v", broken, name, out, err)
			}
			if n := left(t, e, "a"); n != before-2 {
				t.Errorf("%s, %s: %d of %d left", broken, name, n, before)
			}
		}
	}
	// One that a batch resolver cannot decode is its own too.
	type field struct{ Arguments struct{ N int } }
	f := WrapBatch(func(_ context.Context, in []field) ([]int, error) {
		if len(in) != 1 || in[0].Arguments.N != 1 {
			t.Errorf("the handler is given %v", in)
		}
		return []int{1}, nil
	}, newEngine(t, simple), Options{})
	n := func(n string) string {
		return strings.Replace(fieldEvent("x", "b"), `"arguments":null`, `"arguments":{"n":`+n+`}`, 1)
	}
	out, err := f(context.Background(), json.RawMessage("["+n(`"one"`)+","+n("1")+"]"))
	if r, ok := out.([]Result); err != nil || !ok || r[0].ErrorType != "UnmarshalTypeError" || r[1].ErrorType != "" {
		t.Errorf("%v %v", out, err)
	}
}

// Package lambda lets a handler name the type of its error; so does a batch.
func TestAnElementsErrorHasTheTypeThatTheHandlerNames(t *testing.T) {
	own := messages.InvokeResponse_Error{Type: "NotFound", Message: "no such model"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{own, `"errorMessage":"no such model","errorType":"NotFound"`},
		{&own, `"errorMessage":"no such model","errorType":"NotFound"`},
		{fmt.Errorf("generate: %w", own), `"errorMessage":"no such model","errorType":"NotFound"`},
		{messages.InvokeResponse_Error{}, `"errorMessage":"Error","errorType":"Error"`},
		{errors.New("broken"), `"errorMessage":"broken","errorType":"errorString"`},
		{errors.New(""), `"errorMessage":"errorString","errorType":"errorString"`},
		{&NoCaller{Limit: "x"}, `"errorType":"NoCaller"`},
	} {
		f := Wrap(func(context.Context, json.RawMessage) (any, error) { return nil, c.err }, newEngine(t, simple), Options{})
		out, err := f(context.Background(), list("a"))
		if got := jsonOf(t, out, err); !strings.Contains(got, c.want) {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// due is a context whose deadline is now and which goes on nevertheless.
type due struct{ context.Context }

func (due) Deadline() (time.Time, bool) { return time.Now(), true }

// The race detector watches: a call may be given back from the moment on in which
// its handler is called.
func TestACallThatIsDueIsGivenBackBesideItsHandler(t *testing.T) {
	e := newEngine(t, strings.Replace(onSuccess, "2/h", "10/h", 1))
	handler := func(ctx context.Context, _ json.RawMessage) (any, error) {
		if d, ok := weir.FromContext(ctx); !ok || d.Remaining > 9 {
			t.Errorf("decision %+v, %v", d, ok)
		}
		for left(t, e, "a") < 10 {
			runtime.Gosched()
		}
		return map[string]any{"statusCode": 200}, nil
	}
	for range 20 {
		for _, payload := range []json.RawMessage{httpEvent("GET", "/", "a"), json.RawMessage(fieldEvent("x", "a")), list("a", "a")} {
			if _, err := Wrap(handler, e, Options{})(due{context.Background()}, payload); err != nil {
				t.Fatal(err)
			}
		}
	}
}

package lambdalimit

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/internal/everystore"
)

// twoEngines are those of two instances of a function, on the clock of the
// machine.
func twoEngines(t *testing.T, s *everystore.Stores, text string) (two [2]*engine.Engine) {
	t.Helper()
	for i := range two {
		two[i] = newEngine(t, text, func(o *engine.Options) {
			o.Store, o.Now, o.Deadline = s.Open(t), nil, time.Minute
		})
	}
	return two
}

// Whichever instance refuses, the error carries the operation, the limit, what
// was used in all of them, and one and the same instant.
func TestSpec_B07_OnEveryStoreTheErrorIsTheSameFromEveryInstance(t *testing.T) {
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		two := twoEngines(t, s, strings.Replace(onSuccess, "2/h", "4/h", 1))
		payload := json.RawMessage(fieldEvent("generate", "a"))
		ask := func(e *engine.Engine) error {
			_, err := Wrap(func(context.Context, json.RawMessage) (any, error) { return 7, nil }, e, Options{ReturnErrors: true})(t.Context(), payload)
			return err
		}
		began := time.Now()
		for i := range 4 {
			if err := ask(two[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		counted := time.Now()
		var told [2]*LimitExceeded
		for i := range told {
			if err := ask(two[i]); !errors.As(err, &told[i]) {
				t.Fatalf("%v", err)
			}
			e := told[i]
			if e.Operation != "things" || e.Limit != 4 || e.Used != 4 || e.RetryAfterSeconds < 1 || e.RetryAfterSeconds > 3600 {
				t.Errorf("%+v", e)
			}
			// An instant is told in whole seconds, rounded up.
			if least, most := began.Add(time.Hour-time.Second), counted.Add(time.Hour+time.Second); e.ResetsAt.Before(least) || e.ResetsAt.After(most) {
				t.Errorf("resets at %v, and the window began between %v and %v", e.ResetsAt, began, counted)
			}
		}
		if !told[0].ResetsAt.Equal(told[1].ResetsAt) {
			t.Errorf("resets at %v and at %v", told[0].ResetsAt, told[1].ResetsAt)
		}
	})
}

// An instance has one client, which every invocation uses: what one counted the
// next finds, and hardly any connects to the store again. A few may, since a
// record is read in the background, and a server may end a connection.
func TestSpec_B09_InvocationsShareOneClient(t *testing.T) {
	const warm, more = 20, 100
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		two := twoEngines(t, s, strings.Replace(simple, "2/h", "1000/h", 1))
		invoke := func(n int) (last string) {
			for i := range n {
				f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 200}, nil }, two[i%2], Options{})
				out, err := f(t.Context(), httpEvent("GET", "/", "a"))
				r := answerOf(t, out, err)
				if r.StatusCode != 200 {
					t.Fatalf("invocation %d: %d", i, r.StatusCode)
				}
				last = r.Headers["x-ratelimit-remaining"]
			}
			return last
		}
		invoke(warm)
		before := s.Connections()
		if left := invoke(more); left != "880" {
			t.Errorf("%s left of 1000 after 120", left)
		}
		if after := s.Connections(); after-before > more/4 || s.Remote && before == 0 {
			t.Errorf("%d connections before %d invocations, %d after", before, more, after)
		}
	})
}

// A limit is counted once across authorizers of several instances, and an
// allowance that was counted may be kept by nobody.
func TestSpec_B10_AuthorizersCountEachCallOnce(t *testing.T) {
	text := strings.Replace(authorizerPolicy, "1/h", "3/h", 1)
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		two := twoEngines(t, s, text)
		ttl := 300
		appsync := func(context.Context, json.RawMessage) (any, error) {
			return events.AppSyncLambdaAuthorizerResponse{IsAuthorized: true, ResolverContext: map[string]any{"sub": "a"}, TTLOverride: &ttl}, nil
		}
		gateway := func(context.Context, json.RawMessage) (any, error) {
			return events.APIGatewayV2CustomAuthorizerSimpleResponse{IsAuthorized: true, Context: map[string]any{"sub": "b"}}, nil
		}
		for i, allowed := range []bool{true, true, true, false, false} {
			out, err := WrapAuthorizer(appsync, two[i%2], Options{})(t.Context(), fixture(t, "appsync-lambda-auth-request"))
			var a struct {
				IsAuthorized bool
				TTLOverride  *int
			}
			if text := jsonOf(t, out, err); json.Unmarshal([]byte(text), &a) != nil || a.IsAuthorized != allowed || a.TTLOverride == nil || *a.TTLOverride != 0 {
				t.Errorf("AppSync, call %d: %s", i, text)
			}
			out, err = WrapAuthorizer(gateway, two[(i+1)%2], Options{})(t.Context(), fixture(t, "apigw-v2-custom-authorizer-v2-request"))
			if text := jsonOf(t, out, err); strings.Contains(text, `"isAuthorized":true`) != allowed || strings.Contains(text, "LimitExceeded") == allowed {
				t.Errorf("gateway, call %d: %s", i, text)
			}
		}
	})
}

package lambdalimit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/internal/dynalite"
	"github.com/weirlabs/weir/policy"
)

// gone is a store that nobody can reach.
type gone struct{}

func (gone) Caps() weir.Caps { return weir.Caps{} }
func (gone) Apply(context.Context, weir.Key, []weir.Write, *weir.Cells) (int, int64, error) {
	return -1, 0, errors.Join(weir.ErrUnreachable, errors.New("connection refused"))
}
func (gone) Close() error { return nil }

func withRequest(id string) context.Context {
	return lambdacontext.NewContext(context.Background(), &lambdacontext.LambdaContext{AwsRequestID: id})
}

func lines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, text := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if text == "" {
			continue
		}
		m := map[string]any{}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, m)
	}
	return all
}

func TestSpec_A09_WhatALambdaLogs(t *testing.T) {
	var log, metrics bytes.Buffer
	logger := func(o *engine.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) }
	f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil },
		newEngine(t, strings.Replace(simple, "2/h", "1/h", 1), logger), Options{Metrics: &metrics, Service: "booking"})
	for _, id := range []string{"r1", "r2"} {
		if _, err := f(withRequest(id), httpEvent("POST", "/", "customer-42")); err != nil {
			t.Fatal(err)
		}
	}
	got := lines(t, &log)
	if len(got) != 1 {
		t.Fatalf("%d lines:\n%s", len(got), log.String())
	}
	for name, want := range map[string]any{
		"level": "WARN", "msg": "rate limited", "request_id": "r2", "limit": "things", "layer": "application", "allowed": false,
		"degraded": false, "remaining": 0.0, "retry_after_seconds": 3600.0, "store_ms": 0.0, "cold_start": nil,
	} {
		if got[0][name] != want {
			t.Errorf("%s is %v, want %v", name, got[0][name], want)
		}
	}
	if key, _ := got[0]["key"].(string); len(key) != 24 || strings.Contains(log.String()+metrics.String(), "customer-42") {
		t.Errorf("key %q; the caller must not be named:\n%s%s", key, log.String(), metrics.String())
	}
	emf := lines(t, &metrics)
	if len(emf) != 2 {
		t.Fatalf("%d metric lines:\n%s", len(emf), metrics.String())
	}
	for i, want := range []map[string]any{
		{"Service": "booking", "Limit": "things", "Allowed": 1.0, "Denied": 0.0, "Degraded": 0.0, "ColdStart": 1.0, "request_id": "r1", "remaining": 0.0, "layer": "application", "key": got[0]["key"]},
		{"Service": "booking", "Limit": "things", "Allowed": 0.0, "Denied": 1.0, "Degraded": 0.0, "ColdStart": 0.0, "request_id": "r2", "reason": "limit"},
	} {
		for name, value := range want {
			if emf[i][name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, emf[i][name], value)
			}
		}
	}
	// The embedded metric format: every metric and every dimension is a member.
	var declared struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		} `json:"_aws"`
	}
	first, _, _ := strings.Cut(metrics.String(), "\n")
	if err := json.Unmarshal([]byte(first), &declared); err != nil || declared.AWS.Timestamp != noon/1e6 || len(declared.AWS.CloudWatchMetrics) != 1 {
		t.Fatalf("%+v %v", declared, err)
	}
	set := declared.AWS.CloudWatchMetrics[0]
	if set.Namespace != "weir" || len(set.Dimensions) != 2 || strings.Join(set.Dimensions[0], " ") != "Service" || strings.Join(set.Dimensions[1], " ") != "Service Limit" {
		t.Errorf("%+v", set)
	}
	for _, m := range set.Metrics {
		if _, is := emf[0][m.Name].(float64); !is || m.Unit == "" {
			t.Errorf("metric %+v is no number of the line", m)
		}
	}
}

func TestSpec_A09_AStoreThatIsGone(t *testing.T) {
	for mode, want := range map[string]struct {
		status  int
		allowed bool
	}{"allow": {201, true}, "deny": {503, false}} {
		var log, metrics bytes.Buffer
		e := newEngine(t, strings.Replace(simple, "limit: quota 2/h", "limit: quota 2/h, on_store_error: "+mode, 1), func(o *engine.Options) {
			o.Store, o.Logger = gone{}, slog.New(slog.NewJSONHandler(&log, nil))
		})
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil }, e, Options{Metrics: &metrics})
		out, err := f(withRequest("r1"), httpEvent("POST", "/", "customer-42"))
		r := answerOf(t, out, err)
		if _, there := r.Headers["x-ratelimit-remaining"]; r.StatusCode != want.status || there || r.Headers["x-ratelimit-limit"] != "2" {
			t.Errorf("%s: %+v", mode, r)
		}
		got := lines(t, &log)
		if len(got) != 1 || got[0]["msg"] != "rate limiter failed" || got[0]["level"] != "ERROR" || got[0]["allowed"] != want.allowed || got[0]["degraded"] != true ||
			got[0]["request_id"] != "r1" || got[0]["cold_start"] != true || got[0]["on_store_error"] != mode || !strings.Contains(got[0]["cause"].(string), "connection refused") {
			t.Errorf("%s: %s", mode, log.String())
		}
		if emf := lines(t, &metrics); emf[0]["Degraded"] != 1.0 || emf[0]["remaining"] != nil {
			t.Errorf("%s: %s", mode, metrics.String())
		}
	}
	// AppSync says so with a type of its own.
	e := newEngine(t, onSuccess, func(o *engine.Options) { o.Store = gone{} })
	f := Wrap(func(context.Context, any) (any, error) { return 1, nil }, e, Options{})
	out, err := f(context.Background(), json.RawMessage(fieldEvent("x", "a")))
	if r, ok := out.(Result); err != nil || !ok || r.ErrorType != "LimitUnavailable" {
		t.Errorf("%v %v", out, err)
	}
}

func TestAnEngineKeepsWhatItIsGiven(t *testing.T) {
	decided := 0
	e := newEngine(t, simple, func(o *engine.Options) {
		o.Observer = &weir.Observer{Decided: func(context.Context, weir.Op, weir.Decision) { decided++ }}
		o.Identify = func(_ context.Context, a *policy.Attributes) (policy.Identity, error) {
			if a.Header["Authorization"] == nil {
				return policy.Identity{}, &policy.RequestError{Status: 401, Code: "unauthorized", Reason: "a token is missing"}
			}
			return policy.Identity{Claims: map[string]any{"sub": "own"}}, nil
		}
	})
	f := Wrap(func(context.Context, any) (any, error) { return "ok", nil }, e, Options{})
	out, err := f(context.Background(), httpEvent("GET", "/", "")) // the event knows nobody: ours is asked
	if r := answerOf(t, out, err); r.StatusCode != 401 {
		t.Errorf("%+v", r)
	}
	out, err = f(context.Background(), httpEvent("GET", "/", "a"))
	if r := answerOf(t, out, err); r.StatusCode != 200 || decided != 1 {
		t.Errorf("%+v, %d decided", r, decided)
	}
}

// A line of metrics names the caller as the policy allows, and never as a
// dimension.
func TestALineOfMetricsHasTheKeyThatThePolicyAllows(t *testing.T) {
	for logKeys, want := range map[string]any{"plain": "account#customer-42", "none": nil} {
		var metrics bytes.Buffer
		f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil },
			newEngine(t, strings.Replace(simple, "weir: 1", "weir: 1\nlog_keys: "+logKeys, 1)), Options{Metrics: &metrics})
		if _, err := f(withRequest("r1"), httpEvent("POST", "/", "customer-42")); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, &metrics); len(got) != 1 || got[0]["key"] != want {
			t.Errorf("%s: %s", logKeys, metrics.String())
		}
	}
}

// An environment is told of once, although its first call met no limit.
func TestAColdStartIsMarkedByTheFirstLine(t *testing.T) {
	var metrics bytes.Buffer
	f := Wrap(func(context.Context, any) (any, error) { return map[string]any{"statusCode": 201}, nil },
		newEngine(t, strings.Replace(simple, `"/{path...}"`, "/things", 1)), Options{Metrics: &metrics})
	for _, path := range []string{"/free", "/things", "/free", "/things"} {
		if _, err := f(withRequest("r"), httpEvent("POST", path, "a")); err != nil {
			t.Fatal(err)
		}
	}
	got := lines(t, &metrics)
	if len(got) != 2 || got[0]["ColdStart"] != 1.0 || got[1]["ColdStart"] != 0.0 {
		t.Errorf("%s", metrics.String())
	}
}

func TestWarmAsksOnceAndTellsWhatItFound(t *testing.T) {
	server := dynalite.Start(t, dynalite.Options{})
	client, err := dynamostore.NewClient(context.Background(), "us-east-1", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	store, err := dynamostore.New(client, dynamostore.Options{Table: "limits"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Warm(context.Background(), store); err == nil || !strings.Contains(err.Error(), "limits") {
		t.Errorf("without a table: %v", err)
	}
	if err := store.Create(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := Warm(context.Background(), store); err != nil {
		t.Error(err)
	}
	items, err := client.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("limits")})
	if err != nil || len(items.Items) != 0 {
		t.Errorf("%v %v", items, err)
	}
	if err := Warm(context.Background(), gone{}); !errors.Is(err, weir.ErrUnreachable) {
		t.Error(err)
	}
}

// keeps is a store that loses its connection when it is told to.
type keeps struct {
	weir.Store
	lost bool
}

func (s *keeps) Apply(ctx context.Context, k weir.Key, w []weir.Write, c *weir.Cells) (int, int64, error) {
	if s.lost {
		return gone{}.Apply(ctx, k, w, c)
	}
	return s.Store.Apply(ctx, k, w, c)
}

// What could not be given back is found by the call and by the caller.
func TestALineOfWhatStaysCountedNamesTheCall(t *testing.T) {
	var log bytes.Buffer
	store := &keeps{}
	e := newEngine(t, onSuccess, func(o *engine.Options) {
		store.Store, o.Store = o.Store, store
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	})
	f := Wrap(func(context.Context, any) (any, error) { store.lost = true; return nil, errors.New("broken") }, e, Options{})
	if _, err := f(withRequest("r7"), httpEvent("GET", "/", "customer-42")); err == nil {
		t.Fatal("the handler's error is lost")
	}
	got := lines(t, &log)
	if len(got) != 1 || got[0]["request_id"] != "r7" || got[0]["operation"] != "things" || len(got[0]["key"].(string)) != 24 ||
		!strings.Contains(got[0]["msg"].(string), "could not give back") || strings.Contains(log.String(), "customer-42") {
		t.Errorf("%s", log.String())
	}
}

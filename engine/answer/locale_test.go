package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// refused is the second call of a limit of one, at 12:34:50 UTC on 14 March 2027.
func refused(t *testing.T, limit, denied string, header map[string][]string, claims map[string]any) (*engine.Outcome, *policy.Attributes) {
	t.Helper()
	at := time.Date(2027, 3, 14, 12, 34, 50, 0, time.UTC).UnixNano()
	now := func() int64 { return at }
	text := "weir: 1\napplication:\n  plans: {order: [free], free: {render: " + limit + "}}\n  operations: {render: {match: POST /render, denied: " + denied + "}}\n"
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{Now: now})
	t.Cleanup(func() { store.Close() })
	all := map[string]any{"sub": "a"}
	for k, v := range claims {
		all[k] = v
	}
	e, err := engine.New(engine.Options{Policy: p, Store: store, Now: now, Logger: slog.New(slog.DiscardHandler),
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) {
			return policy.Identity{Claims: all}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	a := &policy.Attributes{Method: "POST", Path: "/render", Header: header, Peer: netip.MustParseAddr("192.0.2.1")}
	for {
		o := new(engine.Outcome)
		if e.Decide(context.Background(), a, o); !o.Served() {
			return o, a
		}
	}
}

func TestSpec_C04_TryAgainAtTheCallersClock(t *testing.T) {
	for _, c := range []struct {
		limit, zone string
		header      map[string][]string
		claims      map[string]any
		want        string
	}{
		{"quota 1/hour", "", nil, nil, "13:35"},
		{"quota 1/hour", ", zone: America/New_York", nil, nil, "09:35"},
		{"quota 1/hour", ", zone: jwt.zoneinfo", nil, map[string]any{"zoneinfo": "Asia/Kolkata"}, "19:05"},
		{"quota 1/hour", ", zone: jwt.zoneinfo", nil, map[string]any{"zoneinfo": "Mars/Olympus"}, "13:35"},
		{"quota 1/hour", ", zone: jwt.zoneinfo", nil, map[string]any{"zoneinfo": 7}, "13:35"},
		{"quota 1/hour", ", zone: header.Time-Zone", map[string][]string{"Time-Zone": {"Asia/Tokyo"}}, nil, "22:35"},
		{"quota 1/hour", ", zone: header.Time-Zone", map[string][]string{"Time-Zone": {"../../etc/passwd"}}, nil, "13:35"},
		{"quota 1/day calendar Europe/Berlin", "", nil, nil, "00:00 on 15 March 2027"},
	} {
		var w answer.Writer
		o, a := refused(t, c.limit, `{message: "at {{.At}}"`+c.zone+`}`, c.header, c.claims)
		var body struct{ Message string }
		if err := json.Unmarshal(w.Refusal(http.Header{}, o, a).Body, &body); err != nil || body.Message != "at "+c.want {
			t.Errorf("%s%s: %q, want %q", c.limit, c.zone, body.Message, c.want)
		}
	}
}

func TestSpec_C04_InTheCallersLanguage(t *testing.T) {
	const denied = `{message: "in {{.Wait}}", locales: {de: "in {{.Wait}} pro {{.Unit}}", pt-BR: "em {{.Wait}}", fi: "{{.Wait}}"}}`
	for _, c := range []struct {
		limit, accept, want, language string
	}{
		{"quota 1/hour", "", "in 3600 seconds", ""},
		{"quota 1/hour", "de", "in 3600 Sekunden pro Stunde", "de"},
		{"quota 1/hour", "de-AT, en;q=0.5", "in 3600 Sekunden pro Stunde", "de"},
		{"quota 1/hour", "sv, en;q=0.9, de;q=0.8", "in 3600 seconds", ""},
		{"quota 1/hour", "sv, de;q=0.8", "in 3600 Sekunden pro Stunde", "de"},
		{"quota 1/hour", "de;q=0, sv", "in 3600 seconds", ""},
		{"quota 1/hour", "de;q=many", "in 3600 seconds", ""},
		{"quota 1/hour", "pt-br", "em 3600 segundos", "pt-br"},
		{"quota 1/hour", "pt", "in 3600 seconds", ""},
		{"quota 1/hour", "fi", "3600 s", "fi"},
		{"quota 1/90m", "fi", "1 h 30 min", "fi"},
		{"quota 1/90m", "de", "in 1 Stunde 30 Minuten pro 90 Minuten", "de"},
		{"quota 1/hour", strings.Repeat("x,", 5000) + "de", "in 3600 seconds", ""},
	} {
		var w answer.Writer
		o, a := refused(t, c.limit, denied, map[string][]string{"Accept-Language": {c.accept}}, nil)
		r := w.Refusal(http.Header{}, o, a)
		var body struct{ Message string }
		if err := json.Unmarshal(r.Body, &body); err != nil || body.Message != c.want {
			t.Errorf("%s, %.40q: %q, want %q", c.limit, c.accept, body.Message, c.want)
		}
		if got := r.Header.Get("Content-Language"); got != c.language || r.Header.Get("Vary") != "Accept-Language" {
			t.Errorf("%.40q: Content-Language %q, Vary %q", c.accept, got, r.Header.Get("Vary"))
		}
	}
}

func TestSpec_C04_ABodyOfItsOwn(t *testing.T) {
	var w answer.Writer
	o, a := refused(t, "quota 1/hour", `{message: 'a "word" & <more>', body: '<p>{{.Message}} {{.Code}} {{.DenialID}}</p>', content_type: text/html; charset=utf-8}`, nil, nil)
	r := w.Refusal(http.Header{}, o, a)
	if got, want := string(r.Body), "<p>a &#34;word&#34; &amp; &lt;more&gt; rate_limited "+o.DenialID()+"</p>"; got != want || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || r.Status != 429 {
		t.Errorf("%d %s %q, want %q", r.Status, r.Header.Get("Content-Type"), got, want)
	}
	o, a = refused(t, "quota 1/hour", `{message: 'a "word"', body: '{"said": "{{.Message}}", "used": {{.Used}}}', content_type: application/vnd.shop+json}`, nil, nil)
	var body struct {
		Said string
		Used int
	}
	if err := json.Unmarshal(w.Refusal(http.Header{}, o, a).Body, &body); err != nil || body.Said != `a "word"` || body.Used != 1 {
		t.Errorf("%+v, %v", body, err)
	}
	o, a = refused(t, "quota 1/hour", `{body: '{{.At}}', content_type: text/plain}`, nil, nil)
	if got := string(w.Refusal(http.Header{}, o, a).Body); got != "13:35" {
		t.Errorf("a body alone says %q", got)
	}
	a.Method = "HEAD"
	if r := w.Refusal(http.Header{}, o, a); r.Body != nil || r.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD has the body %q", r.Body)
	}
}

func TestSpec_B07_ARefusalIsATypedError(t *testing.T) {
	var w answer.Writer
	o, a := refused(t, "quota 2/hour", `{upgrade_url: /billing}`, nil, nil)
	var e *answer.LimitExceeded
	if err := w.Exceeded(o, a); !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	if e.Operation != "render" || e.Limit != 2 || e.Used != 2 || e.RetryAfterSeconds != 3600 ||
		e.Error() != "Your plan allows 2 render per hour. Try again in 3600 seconds, or upgrade to remove this limit." {
		t.Errorf("%+v", e)
	}
	text, err := json.Marshal(e)
	if want := `{"operation":"render","limit":2,"used":2,"resetsAt":"2027-03-14T13:34:50Z","retryAfterSeconds":3600}`; err != nil || string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	if e.Message = ""; e.Error() != "render: 2 of 2 used; resets at 2027-03-14T13:34:50Z" {
		t.Errorf("without a message: %s", e.Error())
	}
	if err := w.Exceeded(&engine.Outcome{}, a); err != nil {
		t.Errorf("a served call: %v", err)
	}
}

package httplimit_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
)

// styled is one limit in all styles, each at a path of its own.
func styled(limit string) string {
	var b strings.Builder
	b.WriteString("weir: 1\ncallers: {account: jwt.sub, ip: client_ip}\napplication:\n  limits:\n")
	for _, s := range []string{"ietf", "draft6", "x", "github", "openai", "none"} {
		fmt.Fprintf(&b, "    - {name: %s-limit, match: /%s, by: account, limit: %s, header_styles: [%s]}\n", s, s, limit, s)
	}
	return b.String()
}

// limitFields are all fields of an answer that speak of limits.
func limitFields(r *http.Response) string {
	var out []string
	for name, values := range r.Header {
		if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
			out = append(out, name+": "+strings.Join(values, " | "))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// The bubble's clock starts at 2000-01-01T00:00:00Z, which is 946684800.
func TestFieldsOfEveryStyle(t *testing.T) {
	for _, tt := range []struct {
		style, allowed, refused string
	}{
		{"ietf",
			"Ratelimit-Policy: \"ietf-limit\";q=2;w=40\nRatelimit: \"ietf-limit\";r=1;t=20",
			"Ratelimit-Policy: \"ietf-limit\";q=2;w=40\nRatelimit: \"ietf-limit\";r=0;t=20\nRetry-After: 20"},
		{"draft6",
			"Ratelimit-Limit: 2\nRatelimit-Remaining: 1\nRatelimit-Reset: 20",
			"Ratelimit-Limit: 2\nRatelimit-Remaining: 0\nRatelimit-Reset: 20\nRetry-After: 20"},
		{"x",
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1",
			"Retry-After: 20\nX-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 0"},
		{"github",
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 946684820\nX-Ratelimit-Resource: github-limit\nX-Ratelimit-Used: 1",
			"Retry-After: 20\nX-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 946684820\nX-Ratelimit-Resource: github-limit\nX-Ratelimit-Used: 2"},
		{"openai",
			"X-Ratelimit-Limit-Requests: 2\nX-Ratelimit-Remaining-Requests: 1\nX-Ratelimit-Reset-Requests: 20s",
			"Retry-After: 20\nX-Ratelimit-Limit-Requests: 2\nX-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 20s"},
		{"none", "", "Retry-After: 20"},
	} {
		t.Run(tt.style, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, styled("3/m burst 2"), status(200))
				if got := limitFields(g.send("GET", "/"+tt.style, "Test-Sub", "a")); got != tt.allowed {
					t.Errorf("allowed:\n%s\nwant\n%s", got, tt.allowed)
				}
				g.send("GET", "/"+tt.style, "Test-Sub", "a")
				r := g.send("GET", "/"+tt.style, "Test-Sub", "a")
				if got := limitFields(r); r.StatusCode != 429 || got != tt.refused {
					t.Errorf("refused with %d:\n%s\nwant\n%s", r.StatusCode, got, tt.refused)
				}
			})
		})
	}
}

// A parser of structured fields reads what was written by hand, for all kinds
// of limits, served and refused.
func TestFieldsAreStructuredFields(t *testing.T) {
	for _, limit := range []string{"0.5/s burst 10", "1000000/s burst 1000000000000", "quota 3/hour", "sliding 4/5m",
		"quota 5/month calendar Europe/Berlin", "0.000001/s", "quota 1000000000000000/year"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, styled(limit), status(200))
			for range 12 {
				r := g.send("GET", "/ietf", "Test-Sub", "a")
				checkList(t, limit, r.Header.Values("RateLimit-Policy"), "q", "w")
				checkList(t, limit, r.Header.Values("RateLimit"), "r", "t")
				wait(70 * time.Millisecond)
			}
		})
	}
}

func checkList(t *testing.T, limit string, field []string, params ...string) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(field)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q: %v", limit, field, err)
	}
	item, ok := list[0].(httpsfv.Item)
	if !ok || item.Value != "ietf-limit" {
		t.Errorf("%s: item %v", limit, list[0])
	}
	for _, p := range params {
		v, ok := item.Params.Get(p)
		if n, isInt := v.(int64); !ok || !isInt || n < 0 {
			t.Errorf("%s: %q: %s is %v", limit, field, p, v)
		}
	}
	// Written again by the library it is the same, so it was canonical.
	again, err := httpsfv.Marshal(list)
	if err != nil || again != strings.Join(field, ", ") {
		t.Errorf("%s: %q becomes %q (%v)", limit, field, again, err)
	}
}

func TestFieldsReplaceThoseOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, styled("3/m burst 2"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "X-RateLimit-Limit"} {
				w.Header().Add(name, "the service's")
			}
		}))
		r := g.send("GET", "/ietf", "Test-Sub", "a")
		want(t, r, "RateLimit", `"ietf-limit";r=1;t=20`, "RateLimit-Policy", `"ietf-limit";q=2;w=40`,
			"X-RateLimit-Limit", "the service's")
		want(t, g.send("GET", "/none", "Test-Sub", "a"), "RateLimit", "the service's")

		// What is not known does not let the service's figure stand.
		g = newGate(t, styled("3/m burst 2"), g.Handler, onBrokenStore)
		want(t, g.send("GET", "/draft6", "Test-Sub", "b"), "RateLimit-Limit", "2", "RateLimit-Remaining", "")
	})
}

func TestAddingToAFieldDoesNotReachAnotherResponse(t *testing.T) {
	g := newGate(t, styled("3/m burst 2"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(nil)
		w.Header().Add("RateLimit", "appended")
		w.Header().Add("RateLimit-Policy", "appended")
	}))
	r := g.send("GET", "/ietf", "Test-Sub", "a")
	if got := r.Header.Get("RateLimit-Policy"); got != `"ietf-limit";q=2;w=40` {
		t.Errorf("policy %q", got)
	}
}

func TestWeirDecisionField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		var g *gate
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = g.mw.DecisionField(r.Context()) })
		g = newGate(t, shop, next)
		for _, tt := range []struct{ method, target, want string }{
			{"POST", "/reservations", `allowed;limit="reservations";r=9`},
			{"POST", "/webhooks/x", "exempt"},
			{"GET", "/seats", `allowed;limit="rate-all";r=1998`},
		} {
			if g.send(tt.method, tt.target, "Test-Sub", "a"); got != tt.want {
				t.Errorf("%s %s: %s, want %s", tt.method, tt.target, got, tt.want)
			}
		}
		g = newGate(t, shop, next, onBrokenStore)
		if g.send("POST", "/reservations", "Test-Sub", "a"); got != "degraded" {
			t.Errorf("without the store: %s", got)
		}
	})
}

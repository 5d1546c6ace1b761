package httplimit_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var denial = regexp.MustCompile(`"denialId":"[0-9a-v]{13}"`)

// masked is a body with its random part replaced.
func masked(t *testing.T, r *http.Response) string {
	t.Helper()
	b := body(t, r)
	if !denial.MatchString(b) {
		t.Errorf("no denialId in %s", b)
	}
	return strings.TrimSuffix(denial.ReplaceAllString(b, `"denialId":"ID"`), "\n")
}

func TestRefusalBodies(t *testing.T) {
	const jsonBody = `{"error":"quota_exhausted","message":"Your plan allows 1 thing per day. Try again in 24 hours, or upgrade to remove this limit.","upgradeUrl":"/billing?a=1&b=2","limit":"things","retryAfterSeconds":86400,"denialId":"ID"}`
	const problemBody = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"Your plan allows 1 thing per day. Try again in 24 hours, or upgrade to remove this limit.","violated-policies":["things"],"error":"quota_exhausted","upgradeUrl":"/billing?a=1&b=2","limit":"things","retryAfterSeconds":86400,"denialId":"ID"}`
	for _, tt := range []struct{ accept, kind, body string }{
		{"", "application/json", jsonBody},
		{"*/*", "application/json", jsonBody},
		{"application/json", "application/json", jsonBody},
		{"application/problem+json", "application/problem+json", problemBody},
		{"text/html, Application/Problem+JSON;q=0.5", "application/problem+json", problemBody},
		{"application/problem+json, application/json", "application/problem+json", problemBody},
		{"application/problem+json;q=0.2, application/json", "application/json", jsonBody},
		{"application/problem+json; q=0", "application/json", jsonBody},
		{"application/problem+json;q=x;charset=utf-8", "application/problem+json", problemBody},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one("quota 1/day", `, denied: {upgrade_url: "/billing?a=1&b=2"}`), status(200))
			g.send("GET", "/", "Test-Sub", "a")
			r := g.send("GET", "/", "Test-Sub", "a", "Accept", tt.accept)
			want(t, r, "Content-Type", tt.kind)
			if got := masked(t, r); got != tt.body {
				t.Errorf("Accept %q:\n%s\nwant\n%s", tt.accept, got, tt.body)
			}
		})
	}
}

func TestARefusalOfHEADHasFieldsAndNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("1/h"), status(200))
		g.send("HEAD", "/", "Test-Sub", "a")
		get := g.send("GET", "/", "Test-Sub", "a")
		r := g.send("HEAD", "/", "Test-Sub", "a")
		if b := body(t, r); r.StatusCode != 429 || b != "" {
			t.Errorf("%d with body %q", r.StatusCode, b)
		}
		want(t, r, "Retry-After", "3600", "Content-Type", "application/json", "Content-Length", get.Header.Get("Content-Length"))
	})
}

// The kinds that machines read.
func TestQuotaExhaustedOrRateLimited(t *testing.T) {
	for limit, kind := range map[string]string{
		"1/day": "rate_limited", "sliding 1/day": "rate_limited", "quota 1/hour": "rate_limited", "quota 1/23h": "rate_limited",
		"quota 1/24h": "quota_exhausted", "quota 1/day": "quota_exhausted", "quota 1/month": "quota_exhausted",
		"quota 1/hour calendar": "quota_exhausted", "quota 1/month calendar Europe/Berlin": "quota_exhausted",
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(limit), status(200))
			g.send("GET", "/", "Test-Sub", "a")
			if got := object(t, g.send("GET", "/", "Test-Sub", "a"))["error"]; got != kind {
				t.Errorf("%s: %v, want %s", limit, got, kind)
			}
		})
	}
}

func TestTheSentenceForEveryLimit(t *testing.T) {
	for _, tt := range []struct{ limit, want string }{
		{"0.5/s burst 1", "Your plan allows 30 things per minute. Try again in 2 seconds."},
		{"0.25/s burst 1", "Your plan allows 15 things per minute. Try again in 4 seconds."},
		{"0.01/s burst 1", "Your plan allows 36 things per hour. Try again in 100 seconds."},
		{"1/s", "Your plan allows 1 thing per second. Try again in 1 second."},
		{"1.5/m burst 1", "Your plan allows 90 things per hour. Try again in 40 seconds."},
		{"0.333/day burst 1", "Your plan allows 1 thing per 73 hours. Try again in 3 days 1 hour."},
		{"0.5/day burst 1", "Your plan allows 1 thing per 2 days. Try again in 48 hours."},
		{"0.5/5m burst 1", "Your plan allows 1 thing per 10 minutes. Try again in 600 seconds."},
		{"quota 1/hour", "Your plan allows 1 thing per hour. Try again in 3600 seconds."},
		{"quota 1/3601s", "Your plan allows 1 thing per 3601 seconds. Try again in 1 hour 1 minute."},
		{"quota 1/5m", "Your plan allows 1 thing per 5 minutes. Try again in 300 seconds."},
		{"quota 1/2h", "Your plan allows 1 thing per 2 hours. Try again in 2 hours."},
		{"quota 1/month", "Your plan allows 1 thing per month. Try again in 30 days."},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(tt.limit), status(200))
			g.send("GET", "/", "Test-Sub", "a")
			if got := object(t, g.send("GET", "/", "Test-Sub", "a"))["message"]; got != tt.want {
				t.Errorf("%s:\n%v\nwant\n%s", tt.limit, got, tt.want)
			}
		})
	}
}

func TestSpec_C04_TemplatesKnowWhatTheSentenceKnows(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    from: jwt.plans
    order: [free, advanced]
    free: {render: quota 1/5m}
  operations:
    render:
      match: POST /render
      denied:
        message: "{{.Plan}}/{{.Operation}}/{{.Name}}: {{.Count}} per {{.Unit}} ({{.Limit}}), in {{.Wait}}, at {{.At}}: {{.UpgradeURL}}"
        upgrade_url: /billing
`
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, text, status(200))
		wait(14*time.Hour + 54*time.Minute + 30*time.Second)
		g.send("POST", "/render", "Test-Sub", "a")
		r := g.send("POST", "/render", "Test-Sub", "a")
		const want = "free/render/render: 1 per 5 minutes (quota 1/5m), in 300 seconds, at 15:00: /billing"
		if got := object(t, r)["message"]; got != want {
			t.Errorf("%v\nwant\n%s", got, want)
		}
		// The same hour of another day is another instant.
		wait(9*time.Hour + 4*time.Minute)
		g.send("POST", "/render", "Test-Sub", "b")
		got := fmt.Sprint(object(t, g.send("POST", "/render", "Test-Sub", "b"))["message"])
		if !strings.Contains(got, "at 00:04 on 2 January 2000") {
			t.Errorf("across midnight: %s", got)
		}
	})
}

func TestPagesOfListedOriginsCanReadARefusal(t *testing.T) {
	text := "cors: {origins: ['https://shop.example']}\n" + strings.TrimPrefix(one("1/h"), "weir: 1\n")
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "weir: 1\n"+text, status(200))
		want(t, g.send("GET", "/", "Test-Sub", "a", "Origin", "https://shop.example"), "Access-Control-Allow-Origin", "")
		r := g.send("GET", "/", "Test-Sub", "a", "Origin", "https://shop.example")
		want(t, r, "Access-Control-Allow-Origin", "https://shop.example", "Vary", "Origin")
		exposed := r.Header.Get("Access-Control-Expose-Headers")
		for name := range r.Header {
			if strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit") || name == "Retry-After" {
				if !strings.Contains(strings.ToLower(exposed), strings.ToLower(name)) {
					t.Errorf("%s is not exposed: %s", name, exposed)
				}
			}
		}
		for _, other := range []string{"https://evil.example", "null", ""} {
			want(t, g.send("GET", "/", "Test-Sub", "a", "Origin", other),
				"Access-Control-Allow-Origin", "", "Access-Control-Expose-Headers", "")
		}
	})
}

// A refusal adds to what stands in front of it has said of the answer, and takes the
// place of what concerns only the answer that the service would have given.
func TestARefusalKeepsTheFieldsOfWhatStandsInFront(t *testing.T) {
	text := "weir: 1\ncors: {origins: ['https://shop.example']}\n" + strings.TrimPrefix(one("1/h"), "weir: 1\n")
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, text, status(200))
		inner := g.Handler
		vary := make([]string, 1, 4) // shared by all answers, with room
		vary[0] = "Accept-Encoding"
		g.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h["Vary"] = vary
			h.Set("X-Frame-Options", "DENY")
			h.Set("Content-Type", "text/html")
			h.Set("Ratelimit", "theirs")
			inner.ServeHTTP(w, r)
		})
		g.send("GET", "/", "Test-Sub", "a", "Origin", "https://shop.example")
		r := g.send("GET", "/", "Test-Sub", "a", "Origin", "https://shop.example")
		if r.StatusCode != 429 || !slices.Equal(r.Header["Vary"], []string{"Accept-Encoding", "Origin"}) {
			t.Errorf("%d, Vary: %q", r.StatusCode, r.Header["Vary"])
		}
		if of := vary[:2]; of[1] != "" {
			t.Errorf("the room of a shared slice was written to: %q", of)
		}
		want(t, r, "X-Frame-Options", "DENY", "Content-Type", "application/json")
		if left := r.Header["Ratelimit"]; len(left) != 1 || !strings.Contains(left[0], "r=0") {
			t.Errorf("RateLimit: %q", left)
		}
	})
}

// Answers of weir's own that are no refusals by a limit.
func TestRequestErrors(t *testing.T) {
	g := newGate(t, shop, status(200))
	for _, tt := range []struct {
		method, target string
		fields         []string
		status         int
		code           string
		field, value   string
	}{
		{"TRACE", "/reservations", nil, 405, "method_not_allowed", "Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
		{"POST", "/reservations", []string{"Test-Broken", "1"}, 401, "unauthorized", "Www-Authenticate", "Bearer"},
		{"GET", "/%00", nil, 400, "bad_request", "Cache-Control", "no-store"},
	} {
		r := g.send(tt.method, tt.target, tt.fields...)
		if r.StatusCode != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.target, r.StatusCode, tt.status)
		}
		want(t, r, tt.field, tt.value, "Retry-After", "")
		m := object(t, r)
		if m["error"] != tt.code {
			t.Errorf("%s %s: %v", tt.method, tt.target, m)
		}
		if s := fmt.Sprint(m["message"]); s[:1] != strings.ToUpper(s[:1]) || !strings.HasSuffix(s, ".") {
			t.Errorf("%s %s: %q is not a sentence", tt.method, tt.target, s)
		}
	}
	// Where no limit applies nobody is identified, and a bad token passes.
	if r := g.send("GET", "/seats", "Test-Broken", "1"); r.StatusCode != 200 {
		t.Errorf("a bad token where none is needed: %d", r.StatusCode)
	}
	r := g.send("POST", "/reservations", "Test-Broken", "1", "Accept", "application/problem+json")
	if m := object(t, r); m["type"] != "about:blank" || m["title"] != "Unauthorized" || m["detail"] != "The token is not valid." {
		t.Errorf("problem: %v", m)
	}
	for code, grpc := range map[string]string{"Test-Broken": "16"} {
		want(t, g.send("POST", "/reservations", code, "1", "Content-Type", "application/grpc"), "Grpc-Status", grpc, "Grpc-Message", "The token is not valid.")
	}
}

func TestAMethodInSmallLettersIsTheSameMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(200))
		g.count(6, "POST", "/reservations", "Test-Sub", "a")
		want(t, g.send("post", "/reservations", "Test-Sub", "a"), "X-RateLimit-Remaining", strconv.Itoa(3))
	})
}

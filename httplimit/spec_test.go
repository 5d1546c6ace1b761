package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
)

func TestSpec_A02_A08_TheEleventhCallIsToldWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(201))
		for i := range 10 {
			r := g.send("POST", "/reservations", "Test-Sub", "customer-42")
			if r.StatusCode != 201 {
				t.Fatalf("call %d: %d", i+1, r.StatusCode)
			}
			want(t, r, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", fmt.Sprint(9-i), "Retry-After", "")
		}
		r := g.send("POST", "/reservations", "Test-Sub", "customer-42")
		if r.StatusCode != 429 {
			t.Fatalf("the eleventh call: %d", r.StatusCode)
		}
		want(t, r,
			"Retry-After", "2",
			"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0",
			"RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "2",
			"RateLimit-Policy", `"rate-all";q=2000;w=300, "reservations";q=10;w=20`,
			"RateLimit", `"rate-all";r=1989;t=`+edgeReset(t, r)+`, "reservations";r=0;t=2`,
			"Content-Type", "application/json", "Cache-Control", "no-store")
		m := object(t, r)
		if m["error"] != "rate_limited" || m["limit"] != "reservations" || m["retryAfterSeconds"] != 2.0 ||
			m["message"] != "Your plan allows 30 reservations per minute. Try again in 2 seconds." || m["denialId"] == "" {
			t.Errorf("body: %v", m)
		}
		wait(2 * time.Second)
		if r := g.send("POST", "/reservations", "Test-Sub", "customer-42"); r.StatusCode != 201 {
			t.Errorf("after the wait: %d", r.StatusCode)
		}
	})
}

// edgeReset reads what the sliding edge rule says of its reset, which depends
// on where in its window the test began.
func edgeReset(t *testing.T, r *http.Response) string {
	t.Helper()
	_, rest, ok := strings.Cut(r.Header.Get("RateLimit"), `"rate-all";r=1989;t=`)
	reset, _, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 {
		t.Fatalf("RateLimit: %q", r.Header.Get("RateLimit"))
	}
	return reset
}

func TestSpec_A07_TheCallerIsTheAccountElseTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(201))
		for _, sub := range []string{"one", "two"} {
			if got := g.count(12, "POST", "/reservations", "Test-Sub", sub); got[201] != 10 || got[429] != 2 {
				t.Errorf("account %s: %v", sub, got)
			}
		}
		// Anonymous callers have another limit, and each address its own.
		for _, from := range []string{"192.0.2.1", "192.0.2.2"} {
			if got := g.count(4, "POST", "/reservations", "Test-From", from); got[201] != 2 || got[429] != 2 {
				t.Errorf("address %s: %v", from, got)
			}
		}
		// No field that a client can set makes it another caller.
		got := g.count(2, "POST", "/reservations", "Test-From", "192.0.2.1",
			"X-Forwarded-For", "198.51.100.7", "X-Real-Ip", "198.51.100.7", "Forwarded", "for=198.51.100.7")
		if got[429] != 2 {
			t.Errorf("a forged address was believed: %v", got)
		}
	})
}

// brokenStore fails as a store does that nobody can reach.
type brokenStore struct{}

var errRefused = errors.New("dial tcp 127.0.0.1:8000: connect: connection refused")

func (brokenStore) Caps() weir.Caps { return weir.Caps{} }
func (brokenStore) Apply(context.Context, weir.Key, []weir.Write, *weir.Cells) (int, int64, error) {
	return -1, 0, errRefused
}
func (brokenStore) Close() error { return nil }

func onBrokenStore(o *engine.Options) { o.Store = brokenStore{} }

func TestSpec_A09_AllowServesWithoutTheStoreAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen weir.Decision
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, _ = weir.FromContext(r.Context())
			w.WriteHeader(201)
		})
		g := newGate(t, shop, next, onBrokenStore)
		r := g.send("POST", "/reservations", "Test-Sub", "customer-42")
		if r.StatusCode != 201 {
			t.Fatalf("status %d", r.StatusCode)
		}
		want(t, r, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "", "RateLimit-Limit", "10",
			"RateLimit-Remaining", "", "RateLimit-Reset", "",
			"RateLimit-Policy", `"rate-all";q=2000;w=300, "reservations";q=10;w=20`)
		if strings.Contains(r.Header.Get("RateLimit"), "reservations") {
			t.Errorf("what is left was invented: %s", r.Header.Get("RateLimit"))
		}
		if !seen.Degraded || !seen.Unknown || !seen.Allowed {
			t.Errorf("the handler saw %+v", seen)
		}
		lines := g.lines("ERROR")
		if len(lines) != 1 {
			t.Fatalf("%d error lines, want 1:\n%s", len(lines), g.log)
		}
		l := lines[0]
		key, _ := l["key"].(string)
		if l["limit"] != "reservations" || l["on_store_error"] != "allow" || len(key) != 24 ||
			!strings.Contains(fmt.Sprint(l["cause"]), "connection refused") {
			t.Errorf("line: %v", l)
		}
		if strings.Contains(g.log.String(), "customer-42") {
			t.Error("the log holds the key itself")
		}
		// Then once a minute, with the count.
		for range 20 {
			g.send("POST", "/reservations", "Test-Sub", "customer-42")
		}
		if n := len(g.lines("ERROR")); n != 1 {
			t.Errorf("%d error lines within the minute, want 1", n)
		}
		wait(time.Minute)
		g.send("POST", "/reservations", "Test-Sub", "customer-42")
		lines = g.lines("ERROR")
		if len(lines) != 2 || lines[1]["decisions"] != 21.0 {
			t.Errorf("after a minute: %v", lines)
		}
	})
}

func TestSpec_A09_DenyAnswers503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, strings.Replace(shop, "limit: 0.5/s burst 10", "limit: 0.5/s burst 10\n      on_store_error: deny", 1),
			status(201), onBrokenStore)
		r := g.send("POST", "/reservations", "Test-Sub", "customer-42")
		if r.StatusCode != 503 {
			t.Fatalf("status %d, want 503 and never a false 429", r.StatusCode)
		}
		want(t, r, "Retry-After", "1", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "", "Cache-Control", "no-store")
		if m := object(t, r); m["error"] != "temporary_reduced_capacity" || m["limit"] != "reservations" {
			t.Errorf("body: %v", m)
		}
		lines := g.lines("ERROR")
		if len(lines) != 1 || lines[0]["on_store_error"] != "deny" ||
			!strings.Contains(fmt.Sprint(lines[0]["cause"]), "connection refused") {
			t.Errorf("lines: %v", lines)
		}
		if len(g.records) == 0 || g.records[len(g.records)-1].Reason != "unavailable" || !g.records[len(g.records)-1].Degraded {
			t.Errorf("records: %+v", g.records)
		}
		// Pages that no limit of the store covers go on.
		if r := g.send("GET", "/seats"); r.StatusCode != 201 {
			t.Errorf("an unlimited page: %d", r.StatusCode)
		}
	})
}

func TestSpec_A09_ARefusalIsLoggedWithTheKeyHashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(201))
		g.count(1000, "POST", "/reservations", "Test-Sub", "customer-42")
		lines := g.lines("WARN")
		if len(lines) != 5 {
			t.Fatalf("%d warn lines of 990 refusals in a second, want 5", len(lines))
		}
		l := lines[0]
		if l["limit"] != "reservations" || l["layer"] != "application" || l["reason"] != "limit" || l["retry_after_seconds"] != 2.0 {
			t.Errorf("line: %v", l)
		}
		wait(time.Second)
		g.count(1, "POST", "/reservations", "Test-Sub", "customer-42")
		lines = g.lines("WARN")
		if last := lines[len(lines)-1]; last["refusals_not_logged"] != 985.0 {
			t.Errorf("the next second does not tell what was held back: %v", last)
		}
		if strings.Contains(g.log.String(), "customer-42") {
			t.Error("the log holds the key itself")
		}
		// The body names the line.
		m := object(t, g.send("POST", "/reservations", "Test-Sub", "customer-42"))
		if !strings.Contains(g.log.String(), fmt.Sprint(m["denialId"])) {
			t.Errorf("denial %v is in no line", m["denialId"])
		}
	})
}

func TestSpec_B08_CountOnSuccessGivesBackWhatFailed(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    from: jwt.plans
    order: [free]
    free: {render: quota 3/hour}
  operations:
    render: {match: POST /render, count: on_success}
`
	synctest.Test(t, func(t *testing.T) {
		answer := 500
		g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
		if got := g.count(20, "POST", "/render", "Test-Sub", "a"); got[500] != 20 {
			t.Errorf("failures were counted: %v", got)
		}
		answer = 200
		if got := g.count(5, "POST", "/render", "Test-Sub", "a"); got[200] != 3 || got[429] != 2 {
			t.Errorf("successes: %v, want 3 and then 429", got)
		}
	})
}

func TestSpec_B08_TheLimitIsHardForConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := newGate(t, onSuccess, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(200)
		}))
		got := make(chan int, 10)
		for range 10 {
			go func() { got <- g.send("POST", "/render", "Test-Sub", "a").StatusCode }()
		}
		synctest.Wait() // all have been decided: three wait in the handler
		close(release)
		seen := map[int]int{}
		for range 10 {
			seen[<-got]++
		}
		if seen[200] != 3 || seen[429] != 7 {
			t.Errorf("%v, want 3 served", seen)
		}
	})
}

const onSuccess = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: render, match: POST /render, by: account, limit: quota 3/hour, count: on_success}
`

func TestSpec_C01_EdgeRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(200))
		if got := g.count(150, "POST", "/API/Auth/login", "Test-From", "192.0.2.9"); got[200] != 100 || got[429] != 50 {
			t.Errorf("one address: %v", got)
		}
		if got := g.count(150, "POST", "/api/auth/login", "Test-From", "203.0.113.5"); got[200] != 150 {
			t.Errorf("the office: %v", got)
		}
		r := g.send("POST", "/api/auth/login", "Test-From", "192.0.2.9")
		m := object(t, r)
		if want := "Too many requests. Try again in " + r.Header.Get("Retry-After") + " seconds."; m["message"] != want {
			t.Errorf("message %q, want %q", m["message"], want)
		}
		if m["limit"] != "rate-auth" || m["upgradeUrl"] != nil {
			t.Errorf("body: %v", m)
		}
	})
}

func TestSpec_C01_ReplicasShareTheEdgeRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(200), func(o *engine.Options) { o.Replicas = 3 })
		if got := g.count(60, "POST", "/api/auth/login"); got[200] != 34 {
			t.Errorf("%v, want 34 = 100/3 rounded up", got)
		}
	})
}

const c4Sentence = "Your plan allows 50 orders per hour. Try again in %s seconds, or upgrade to remove this limit."

func TestSpec_C04_ADenialThatAProductCanShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(201))
		g.count(50, "POST", "/orders", "Test-Sub", "a")
		wait(time.Hour - 6*time.Second)
		r := g.send("POST", "/orders", "Test-Sub", "a")
		if r.StatusCode != 429 {
			t.Fatalf("status %d", r.StatusCode)
		}
		want(t, r, "Retry-After", "6", "RateLimit-Limit", "50", "RateLimit-Remaining", "0", "RateLimit-Reset", "6")
		m := object(t, r)
		if m["error"] != "rate_limited" || m["message"] != fmt.Sprintf(c4Sentence, "6") || m["upgradeUrl"] != "/billing" {
			t.Errorf("body: %v", m)
		}
	})
}

func TestSpec_C05_ExemptPathsAskNobody(t *testing.T) {
	g := newGate(t, shop, status(200), onBrokenStore)
	for _, target := range []string{"/webhooks/stripe", "/healthz"} {
		// A broken token is none of an exemption's business.
		if got := g.count(300, "POST", target, "Test-Broken", "1"); got[200] != 300 {
			t.Errorf("%s: %v", target, got)
		}
	}
	if g.asked != 0 || len(g.records) != 0 || g.log.Len() != 0 {
		t.Errorf("asked %d ops, wrote %d records, log %q", g.asked, len(g.records), g.log)
	}
	// Beside the exemption, the rules hold.
	g.send("POST", "/webhooks")
	if g.asked == 0 {
		t.Error("/webhooks is not below /webhooks/, but was exempt")
	}
}

func TestSpec_B11_APeriodThatTheStoreCannotKeepIsRefused(t *testing.T) {
	p := load(t, shop)
	_, err := engine.New(engine.Options{Policy: p, Store: forgetful{}})
	if err == nil || !strings.Contains(err.Error(), "orders") {
		t.Fatalf("error %v, want one that names the limit", err)
	}
}

// forgetful keeps items for a minute.
type forgetful struct{ brokenStore }

func (forgetful) Caps() weir.Caps { return weir.Caps{MaxKeep: time.Minute} }

func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, shop, status(201))
		g.count(3, "POST", "/orders", "Test-Sub", "a")
		usage := &gate{t: t, Handler: g.mw.Usage()}
		r := usage.send("GET", "/.weir/usage", "Test-Sub", "a")
		want(t, r, "Cache-Control", "no-store", "Content-Type", "application/json")
		var doc struct {
			SchemaVersion int `json:"schema_version"`
			Limits        []map[string]any
		}
		if err := json.Unmarshal([]byte(body(t, r)), &doc); err != nil || doc.SchemaVersion != 1 {
			t.Fatalf("%v %+v", err, doc)
		}
		found := false
		for _, l := range doc.Limits {
			if l["name"] != "orders" {
				continue
			}
			found = true
			if l["layer"] != "application" || l["limit"] != 50.0 || l["used"] != 3.0 || l["remaining"] != 47.0 ||
				l["period"] != "hour" || l["reset_at"] != time.Now().Add(time.Hour).UTC().Format(time.RFC3339) {
				t.Errorf("orders: %v", l)
			}
			for _, field := range []string{"operation", "plan", "override"} {
				if _, ok := l[field]; !ok {
					t.Errorf("no field %s", field)
				}
			}
		}
		if !found {
			t.Errorf("no orders in %v", doc.Limits)
		}
		// Nothing was taken by looking.
		if got := g.count(48, "POST", "/orders", "Test-Sub", "a"); got[201] != 47 {
			t.Errorf("after looking: %v", got)
		}
	})
}

func TestUsageAsksTheStoreOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memstore.New(memstore.Options{})}
		g := newGate(t, shop, status(201), func(o *engine.Options) { o.Store = store })
		usage := &gate{t: t, Handler: g.mw.Usage()}
		usage.count(50, "GET", "/.weir/usage", "Test-Sub", "a")
		once := store.locks
		if once == 0 {
			t.Fatal("the store was not asked at all")
		}
		wait(999 * time.Millisecond)
		usage.count(50, "GET", "/.weir/usage", "Test-Sub", "a")
		if store.locks != once {
			t.Errorf("asked again within the second: %d, then %d", once, store.locks)
		}
		wait(time.Millisecond)
		usage.count(50, "GET", "/.weir/usage", "Test-Sub", "a")
		if store.locks != 2*once {
			t.Errorf("%d reads after a second, want %d", store.locks, 2*once)
		}
	})
}

// counting is a memory store that counts how often an item is locked.
type counting struct {
	*memstore.Store
	locks int
}

func (c *counting) Lock(item weir.Key) (*weir.Cells, int64) {
	c.locks++
	return c.Store.Lock(item)
}

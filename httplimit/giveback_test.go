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
	"github.com/weirlabs/weir/httplimit"
)

// A refusal names one wait: whatever the cost and the style, the limit that
// speaks resets when Retry-After says.
func TestSpec_C04_ARefusalNamesOneWait(t *testing.T) {
	for _, limit := range []string{"1/h burst 4", "0.5/s burst 10", "3/m burst 4", "7/s burst 5", "quota 4/h", "quota 4/month calendar", "sliding 4/5m"} {
		for _, cost := range []string{"1", "2", "3", "4"} {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, one("9/s burst 50", "}\n    - {name: spoken, match: /, by: account, limit: "+limit+
					", cost: header.Units, header_styles: [ietf, draft6, github, openai]"), status(200))
				r := g.send("GET", "/", "Test-Sub", "a", "Units", cost)
				for range 12 {
					if r.StatusCode == 429 {
						break
					}
					r = g.send("GET", "/", "Test-Sub", "a", "Units", cost)
				}
				told := retryAfter(t, r)
				seconds := fmt.Sprint(int64(told / time.Second))
				want(t, r, "RateLimit-Reset", seconds, "X-RateLimit-Reset-Requests", told.String(),
					"X-RateLimit-Reset", fmt.Sprint(time.Now().Add(told).Unix()))
				if f := r.Header.Get("RateLimit"); !strings.HasSuffix(f, `"spoken";r=`+r.Header.Get("RateLimit-Remaining")+";t="+seconds) {
					t.Errorf("%s at cost %s: Retry-After %s, but RateLimit: %s", limit, cost, seconds, f)
				}
				if m := object(t, r); m["retryAfterSeconds"] != told.Seconds() {
					t.Errorf("body: %v", m)
				}
			})
		}
	}
}

// remaining asks what usage shows of each limit.
func (g *gate) remaining() map[string]int64 {
	g.t.Helper()
	var doc struct {
		Limits []struct {
			Name      string
			Remaining int64
		}
	}
	if err := json.Unmarshal([]byte(body(g.t, (&gate{t: g.t, Handler: g.mw.Usage()}).send("GET", "/.weir/usage", "Test-Sub", "a"))), &doc); err != nil {
		g.t.Fatal(err)
	}
	left := map[string]int64{}
	for _, l := range doc.Limits {
		left[l.Name] = l.Remaining
	}
	return left
}

// What is given back before the header is written is there again for whoever
// reads the header.
func TestFieldsShowWhatIsLeftAfterAGiveBack(t *testing.T) {
	for _, tt := range []struct {
		limit string
		took  time.Duration // by the service
		again string        // what the field says of the time, with everything given back
	}{
		{"quota 3/h", time.Second, ""},
		{"quota 3/h", 2 * time.Hour, ";t=3600"}, // nothing is given back to a window that is over
		{"quota 3/d calendar", time.Second, ";t=86400"},
		{"1/h burst 3", time.Second, ""},
		{"3/m burst 3", 0, ""},
		{"1/s burst 3", time.Hour, ""}, // it is full again by itself
		{"7/s burst 3", 0, ""},
		{"1000000/s burst 3", 0, ""},
	} {
		for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
			"a failure is not counted": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			"the service is away": func(w http.ResponseWriter, r *http.Request) {
				_ = httplimit.Outcome(r.Context()).GiveBack(r.Context())
				w.WriteHeader(502)
			},
		} {
			t.Run(tt.limit+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGate(t, one(tt.limit, ", count: on_success, cost: 2"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						wait(tt.took)
						fail(w, r)
					}), canGiveBack)
					r := g.send("GET", "/", "Test-Sub", "a")
					left := "3"
					if tt.took > time.Hour {
						left = "1"
					}
					want(t, r, "RateLimit", `"things";r=`+left+tt.again, "RateLimit-Remaining", left, "X-RateLimit-Remaining", left)
					if now := g.remaining()["things"]; now != 3 {
						t.Errorf("usage: %d", now)
					}
				})
			})
		}
	}
}

// Of several limits each shows its own, and the one with the least left speaks.
func TestAfterAGiveBackAnotherLimitMaySpeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const styles = ", header_styles: [ietf, draft6, github]}\n"
		g := newGate(t, `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
edge: [{name: rate, limit: quota 5/h, by: ip}]
application:
  limits:
    - {name: tries, match: /, by: account, limit: quota 4/h`+styles+`
    - {name: works, match: /, by: account, limit: quota 2/h, count: on_success`+styles+`
    - {name: event, match: "/{event}", by: account+path.event, limit: 1/h burst 2, count: on_success`+styles+`
    - {name: seen, match: /, by: account, limit: quota 1/h, mode: shadow, count: on_success`+styles,
			status(404), canGiveBack)
		for i, want := range []string{
			`"rate";r=4;t=3600, "event";r=2, "tries";r=3;t=3600, "works";r=2`,
			`"rate";r=3;t=3600, "event";r=2, "tries";r=2;t=3600, "works";r=2`,
		} {
			r := g.send("GET", "/e", "Test-Sub", "a")
			if got := r.Header.Get("RateLimit"); got != want {
				t.Errorf("call %d: %s, want %s", i+1, got, want)
			}
			if r.Header.Get("RateLimit-Limit") == "2" || r.Header.Get("X-RateLimit-Reset") != "946688400" {
				t.Errorf("call %d: a limit speaks of which everything is left: %s", i+1, limitFields(r))
			}
		}
		if left := g.remaining(); left["tries"] != 2 || left["works"] != 2 {
			t.Errorf("usage: %v", left)
		}
	})
}

// lateStore takes, and can't be reached when something is to be given back.
type lateStore struct {
	weir.Store
	away bool
}

func (s *lateStore) Apply(ctx context.Context, key weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if s.away {
		return -1, 0, errors.New("the store is away")
	}
	return s.Store.Apply(ctx, key, tries, state)
}

func TestWhatCouldNotBeGivenBackIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *lateStore
		g := newGate(t, one("quota 3/h", ", count: on_success"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s.away = true
			w.WriteHeader(500)
		}), func(o *engine.Options) { s = &lateStore{Store: o.Store}; o.Store = s })
		want(t, g.send("GET", "/", "Test-Sub", "a"), "RateLimit", `"things";r=2;t=3600`, "X-RateLimit-Remaining", "2")
	})
}

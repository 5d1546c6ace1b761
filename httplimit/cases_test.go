package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// one is a policy with one limit, or several, on everything of an account.
func one(limit string, more ...string) string {
	return fmt.Sprintf("weir: 1\ncallers: {account: jwt.sub, ip: client_ip}\napplication:\n  limits:\n"+
		"    - {name: things, match: /, by: account, limit: %s, header_styles: [ietf, draft6, x]%s}\n", limit, strings.Join(more, ""))
}

// retryAfter is the field as the whole seconds that it must be.
func retryAfter(t *testing.T, r *http.Response) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || n < 1 {
		t.Fatalf("Retry-After %q: want whole seconds, at least 1", r.Header.Get("Retry-After"))
	}
	return time.Duration(n) * time.Second
}

// B103, B104, B112: whoever waits as told is served, and is never told 0.
func TestCase_B103_B104_B112_WaitingAsToldIsEnough(t *testing.T) {
	for _, limit := range []string{"0.5/s burst 10", "1000/s burst 3", "7/m", "0.3/s burst 2", "quota 3/10s", "quota 3/m calendar",
		"sliding 5/7s", "sliding 100/5m", "11/h burst 2", "quota 2/day"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, one(limit), status(200))
				wait(1234567 * time.Microsecond) // not on a whole second
				for refused := 0; refused < 5; {
					r := g.send("GET", "/", "Test-Sub", "a")
					if r.StatusCode == 200 {
						wait(77 * time.Microsecond)
						continue
					}
					refused++
					wait(retryAfter(t, r))
					if r := g.send("GET", "/", "Test-Sub", "a"); r.StatusCode != 200 {
						t.Fatalf("refused again after the wait, now told %s", r.Header.Get("Retry-After"))
					}
				}
			})
		})
	}
}

func TestCase_B104_AWaitIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("0.5/s burst 1"), status(200))
		g.send("GET", "/", "Test-Sub", "a")
		wait(100 * time.Millisecond) // 1.9 s left
		want(t, g.send("GET", "/", "Test-Sub", "a"), "Retry-After", "2", "RateLimit-Reset", "2", "RateLimit", `"things";r=0;t=2`)
	})
}

func TestCase_B106_ResetShowsTheTimeLeft(t *testing.T) {
	for _, limit := range []string{"quota 2/60s", "2/60s", "sliding 2/60s"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(limit), status(200))
			for range 3 {
				r := g.send("GET", "/", "Test-Sub", "a")
				if n, err := strconv.Atoi(r.Header.Get("RateLimit-Reset")); err != nil || n <= 0 {
					t.Errorf("%s: RateLimit-Reset %q with RateLimit-Remaining %q", limit, r.Header.Get("RateLimit-Reset"), r.Header.Get("RateLimit-Remaining"))
				}
			}
		})
	}
}

func TestCase_B107_OneMeaningPerStyle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, styled("3/m burst 2"), status(200))
		// Deltas everywhere, but for github, which is an instant by that API's own rules.
		want(t, g.send("GET", "/draft6", "Test-Sub", "a"), "RateLimit-Reset", "20", "X-RateLimit-Reset", "")
		want(t, g.send("GET", "/x", "Test-Sub", "a"), "RateLimit-Reset", "", "X-RateLimit-Reset", "")
		want(t, g.send("GET", "/github", "Test-Sub", "a"), "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+20, 10))
	})
}

// The whole kind: an instant is that of the decision, however long the service
// takes to answer.
func TestCase_B107_AnInstantOfTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(7 * time.Second)
			w.WriteHeader(200)
		})
		g := newGate(t, styled("3/m burst 2"), slow, func(o *engine.Options) { o.Decisions = nil })
		start := time.Now().Unix()
		want(t, g.send("GET", "/github", "Test-Sub", "a"), "X-RateLimit-Reset", strconv.FormatInt(start+20, 10))
	})
}

func TestCase_B110_ADrainedBucketWaitsForItsNextToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("5/5m"), status(200))
		g.count(5, "GET", "/", "Test-Sub", "a")
		wait(59 * time.Second)
		want(t, g.send("GET", "/", "Test-Sub", "a"), "Retry-After", "1")
	})
}

// Every way to be refused by a limit carries the same set of fields.
// A limit that is partly used names the wait until the cost fits: not earlier,
// and not a period later.
func TestCase_B109_TheWaitOfALargeCostIsExact(t *testing.T) {
	for _, limit := range []string{"6/m burst 5", "quota 5/m", "sliding 5/m"} {
		for used := 2; used <= 5; used++ {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, one(limit, ", cost: header.Units"), status(200))
				for range used {
					g.send("GET", "/", "Test-Sub", "a")
					wait(time.Second)
				}
				r := g.send("GET", "/", "Test-Sub", "a", "Units", "4")
				if r.StatusCode == 200 {
					t.Fatalf("%s: 4 of %d served", limit, 5-used)
				}
				told := retryAfter(t, r)
				wait(told - time.Second)
				if r := g.send("GET", "/", "Test-Sub", "a", "Units", "4"); r.StatusCode == 200 {
					t.Errorf("%s with %d used: told %v, but a second less was enough", limit, used, told)
				}
				wait(time.Second)
				if r := g.send("GET", "/", "Test-Sub", "a", "Units", "4"); r.StatusCode != 200 {
					t.Errorf("%s with %d used: refused after the %v told", limit, used, told)
				}
			})
		}
	}
}

func TestCase_B121_LookingTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("quota 10/h"), status(200))
		looking := &gate{t: t, Handler: g.mw.Usage()}
		for range 20 {
			looking.send("GET", "/.weir/usage", "Test-Sub", "a")
			wait(time.Second)
		}
		want(t, g.send("GET", "/", "Test-Sub", "a"), "X-RateLimit-Remaining", "9")
		// A constant 0 does not ask the limit at all, so it neither takes nor shows.
		g = newGate(t, one("quota 10/h", ", cost: 0"), status(200))
		want(t, g.send("GET", "/", "Test-Sub", "a"), "X-RateLimit-Limit", "")
	})
}

func TestCase_B125_TheLargestLimitsAreStillLimits(t *testing.T) {
	for _, limit := range []string{"1000000/s burst 3000000000000000", "quota 1000000000000000/year", "sliding 1000000000000000/day", "1000000000000000/100year"} {
		if _, err := weir.ParseLimit(limit); err != nil {
			continue // refused when it is built, with a reason
		}
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(limit, ", cost: header.Units"), status(200))
			r := g.send("GET", "/", "Test-Sub", "a", "Units", "9223372036854775807")
			if r.StatusCode != 429 {
				t.Errorf("%s: the largest cost got %d", limit, r.StatusCode)
			}
			max := r.Header.Get("X-RateLimit-Limit")
			if r := g.send("GET", "/", "Test-Sub", "a", "Units", max); r.StatusCode != 200 {
				t.Errorf("%s: all of it at once got %d", limit, r.StatusCode)
			}
			if r := g.send("GET", "/", "Test-Sub", "a", "Units", max); r.StatusCode != 429 {
				t.Errorf("%s: all of it twice got %d", limit, r.StatusCode)
			}
		})
	}
}

func TestCase_B113_EveryRefusalHasTheSameFields(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner, ip: client_ip}
auth: {api_keys: {header: x-api-key, file: keys.txt}}
header_styles: [ietf, draft6, x]
edge:
  - {name: floods, limit: sliding 1/5m, by: ip, path: /edge}
gateway:
  match: /gateway
  plans: {partner: [1/h]}
application:
  limits:
    - {name: bucket, match: /bucket, by: account, limit: 1/h}
    - {name: window, match: /window, by: account, limit: quota 1/day}
    - {name: slider, match: /slider, by: account, limit: sliding 1/h}
    - {name: dates, match: /dates, by: account, limit: quota 1/month calendar}
`
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, text, status(200))
		names := ""
		for _, path := range []string{"/edge", "/gateway", "/bucket", "/window", "/slider", "/dates"} {
			g.send("GET", path, "Test-Sub", "a", "Test-Owner", "acme")
			r := g.send("GET", path, "Test-Sub", "a", "Test-Owner", "acme")
			if r.StatusCode != 429 {
				t.Errorf("%s: %d", path, r.StatusCode)
				continue
			}
			retryAfter(t, r)
			var set []string
			for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining",
				"RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "Cache-Control", "Content-Type", "Content-Length"} {
				if r.Header.Get(name) != "" {
					set = append(set, name)
				}
			}
			if got := fmt.Sprint(set); names == "" {
				names = got
			} else if got != names {
				t.Errorf("%s: %s, others %s", path, got, names)
			}
			m := object(t, r)
			for _, field := range []string{"error", "message", "limit", "retryAfterSeconds", "denialId"} {
				if m[field] == nil {
					t.Errorf("%s: no %s in %v", path, field, m)
				}
			}
		}
		if !strings.Contains(names, "Content-Length") {
			t.Errorf("fields %s", names)
		}
	})
}

func TestCase_B115_B188_SeveralLimitsEachSpeakAndTheLongestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("[quota 3/m, quota 5/day]"), status(200))
		for range 5 { // spends the day's
			if r := g.send("GET", "/", "Test-Sub", "a"); r.StatusCode != 200 {
				wait(retryAfter(t, r))
				g.send("GET", "/", "Test-Sub", "a")
			}
		}
		for range 100 { // a client that retries drains nothing
			g.send("GET", "/", "Test-Sub", "a")
		}
		r := g.send("GET", "/", "Test-Sub", "a")
		if r.StatusCode != 429 || object(t, r)["error"] != "quota_exhausted" {
			t.Fatalf("status %d", r.StatusCode)
		}
		list, err := httpsfv.UnmarshalList(r.Header.Values("RateLimit"))
		if err != nil || len(list) != 2 {
			t.Fatalf("RateLimit %q: %v", r.Header.Get("RateLimit"), err)
		}
		left, _ := list[0].(httpsfv.Item).Params.Get("r")
		if left.(int64) == 0 {
			t.Errorf("the minute's quota was drained by calls that the day's refused: %s", r.Header.Get("RateLimit"))
		}
		day, _ := list[1].(httpsfv.Item).Params.Get("t")
		if got := int64(retryAfter(t, r) / time.Second); got < day.(int64) || got < 3600 {
			t.Errorf("Retry-After %d is earlier than the day's t=%d", got, day)
		}
	})
}

func TestCase_B116_B119_ARefusedCostChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("10/h", ", cost: header.Units"), status(200))
		want(t, g.send("GET", "/", "Test-Sub", "a", "Units", "8"), "X-RateLimit-Remaining", "2")
		for range 5 {
			r := g.send("GET", "/", "Test-Sub", "a", "Units", "5")
			if r.StatusCode != 429 {
				t.Fatalf("5 of 2: %d", r.StatusCode)
			}
			want(t, r, "X-RateLimit-Remaining", "2", "Retry-After", "1080") // three tokens at 360 s
		}
		want(t, g.send("GET", "/", "Test-Sub", "a", "Units", "2"), "X-RateLimit-Remaining", "0")
	})
}

func TestCase_B118_ACostThatNeverFitsIsNotToldToWait(t *testing.T) {
	for _, limit := range []string{"10/h", "quota 10/h", "sliding 10/h"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(limit, ", cost: header.Units"), status(200))
			g.send("GET", "/", "Test-Sub", "a", "Units", "4")
			r := g.send("GET", "/", "Test-Sub", "a", "Units", "11")
			if r.StatusCode != 429 {
				t.Fatalf("%s: %d", limit, r.StatusCode)
			}
			want(t, r, "Retry-After", "")
			m := object(t, r)
			if _, ok := m["retryAfterSeconds"]; ok || strings.Contains(fmt.Sprint(m["message"]), "Try again in") {
				t.Errorf("%s: %v", limit, m)
			}
			if last := g.records[len(g.records)-1]; last.Reason != "never" || last.RetryAfterSeconds != 0 {
				t.Errorf("%s: record %+v", limit, last)
			}
			want(t, g.send("GET", "/", "Test-Sub", "a", "Units", "6"), "X-RateLimit-Remaining", "0") // nothing was taken
		})
	}
}

func TestCase_B122_ANegativeCostGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("10/h", ", cost: header.Units"), status(200))
		left := 10
		for _, units := range []string{"-5", "0", "-9223372036854775808", "NaN", "1e400", "9223372036854775808", "", "1.5"} {
			left--
			r := g.send("GET", "/", "Test-Sub", "a", "Units", units)
			if r.StatusCode != 200 || r.Header.Get("X-RateLimit-Remaining") != strconv.Itoa(left) {
				t.Errorf("cost %q: %d, remaining %s, want %d", units, r.StatusCode, r.Header.Get("X-RateLimit-Remaining"), left)
			}
		}
	})
}

func TestCase_B128_AGiveBackStaysInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, answer := make(chan struct{}), 200
		g := newGate(t, one("quota 3/m", ", count: on_success"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-slow
				w.WriteHeader(500)
				return
			}
			w.WriteHeader(answer)
		}))
		done := make(chan int)
		go func() { done <- g.send("GET", "/slow", "Test-Sub", "a").StatusCode }()
		synctest.Wait()
		wait(time.Minute) // the next window
		g.send("GET", "/", "Test-Sub", "a")
		close(slow)
		<-done
		if got := g.count(5, "GET", "/", "Test-Sub", "a"); got[200] != 2 {
			t.Errorf("the second window served %d more, want 2", got[200])
		}
	})
}

func TestCase_B139_B142_B146_AStoreThatIsDownIsNoDenial(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: careful, match: /careful, by: account, limit: 10/h, on_store_error: deny}
    - {name: lenient, match: /lenient, by: account, limit: 10/h}
`
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, text, status(200), onBrokenStore) // it starts without the store
		for path, code := range map[string]int{"/careful": 503, "/lenient": 200, "/free": 200} {
			if r := g.send("GET", path, "Test-Sub", "a"); r.StatusCode != code {
				t.Errorf("%s: %d, want %d", path, r.StatusCode, code)
			}
		}
	})
}

func TestCase_B143_ADenialIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one("quota 2/h", ", on_store_error: allow"), status(200))
		if got := g.count(10, "GET", "/", "Test-Sub", "a"); got[200] != 2 || got[429] != 8 {
			t.Errorf("%v, want 2 served", got)
		}
		if len(g.lines("ERROR")) != 0 {
			t.Errorf("denials were logged as failures: %s", g.log)
		}
	})
}

func TestCase_B187_B190_B191_AllLimitsOrNone(t *testing.T) {
	for _, order := range []string{"[quota 10/m, quota 1/h]", "[quota 1/h, quota 10/m]"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, one(order), status(200))
			if got := g.count(5, "GET", "/", "Test-Sub", "a"); got[200] != 1 || got[429] != 4 {
				t.Errorf("%s: %v, want 1 served", order, got)
			}
			field := g.send("GET", "/", "Test-Sub", "a").Header.Get("RateLimit")
			if !strings.Contains(field, ";r=9;") || !strings.Contains(field, ";r=0;") {
				t.Errorf("%s: calls that the one refused drained the other: %s", order, field)
			}
		})
	}
}

func TestCase_B194_AnyNumberOfLimitsExceeded(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  limits:
    - {name: a, match: /, by: account, limit: quota 2/m, cost: header.A}
    - {name: b, match: /, by: account, limit: quota 2/h, cost: header.B}
    - {name: c, match: /, by: account, limit: quota 2/day, cost: header.C}
`
	for n := range 8 {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t, text, status(200))
			cost := func(bit int) string { return strconv.Itoa(1 + n>>bit&1) } // 2 of the 1 that is left
			g.send("GET", "/", "Test-Sub", "a")
			r := g.send("GET", "/", "Test-Sub", "a", "A", cost(0), "B", cost(1), "C", cost(2))
			if n == 0 {
				if r.StatusCode != 200 {
					t.Errorf("none exceeded: %d", r.StatusCode)
				}
				return
			}
			waits := []string{"60", "60", "3600", "3600", "86400", "86400", "86400", "86400"}
			if r.StatusCode != 429 {
				t.Fatalf("%03b: %d", n, r.StatusCode)
			}
			want(t, r, "Retry-After", waits[n])
			names := []string{"a", "a", "b", "b", "c", "c", "c", "c"}
			if got := object(t, r)["limit"]; got != names[n] {
				t.Errorf("%03b: %v speaks, want %s", n, got, names[n])
			}
		})
	}
}

func TestCase_B227_WhatAShadowWouldRefuseIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, change := range []func(*engine.Options){func(*engine.Options) {}, func(o *engine.Options) { o.Shadow = true }} {
			text := one("quota 1/h", ", mode: shadow")
			g := newGate(t, text, status(200), change)
			if got := g.count(3, "GET", "/", "Test-Sub", "a"); got[200] != 3 {
				t.Errorf("a shadow refused: %v", got)
			}
			want(t, g.send("GET", "/", "Test-Sub", "a"), "RateLimit", "", "X-RateLimit-Limit", "")
			refused := 0
			for _, r := range g.records {
				if !r.Shadow || r.DenialID != "" {
					t.Errorf("record %+v", r)
				}
				if !r.Allowed {
					refused++
				}
			}
			if refused != 3 {
				t.Errorf("%d shadow refusals recorded, want 3", refused)
			}
		}
	})
}

func TestCase_B245_ARefusedUpgradeIsPlainHTTP(t *testing.T) {
	g := newGate(t, one("1/h"), status(200))
	s := httptest.NewServer(g)
	defer s.Close()
	for i, code := range []int{200, 429} {
		r, err := http.NewRequest("GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-Sub", "a")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != code {
			t.Errorf("call %d: %d", i, res.StatusCode)
		}
		if code == 429 {
			retryAfter(t, res)
			if b := body(t, res); res.ContentLength != int64(len(b)) || len(b) == 0 {
				t.Errorf("Content-Length %d of %q", res.ContentLength, b)
			}
		}
		res.Body.Close()
	}
}

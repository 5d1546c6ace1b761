package httpretry_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/httplimit"
	"github.com/weirlabs/weir/httpretry"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// limited is a service behind weir's own middleware, with one limit per address.
func limited(t *testing.T, limit, style string) *server {
	t.Helper()
	p, err := policy.Load(fstest.MapFS{"weir.yaml": {Data: fmt.Appendf(nil, `
weir: 1
callers: {ip: client_ip}
application:
  limits:
    - {name: reservations, match: POST /reservations, by: ip, limit: %s, header_styles: [%s]}
`, limit, style)}}, "weir.yaml", policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	e, err := engine.New(engine.Options{Policy: p, Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return &server{Handler: httplimit.New(e).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "served")
	}))}
}

// A client that is alone and waits as it is told is let in at its second attempt:
// for every kind of limit, and by whichever field it reads.
func TestSpec_A16_WaitingAsToldIsEnough(t *testing.T) {
	limits := []string{"0.5/s burst 2", "3/m burst 2", "7/m burst 3", "100/s burst 1", "quota 3/20s", "quota 5/minute calendar", "sliding 4/10s", "sliding 50/25s"}
	for _, tt := range []struct {
		style, told string // the field that the client has to go by
	}{
		{"ietf", "Retry-After"},
		{"none", "Retry-After"},
		{"ietf", "RateLimit"},
		{"draft6", "RateLimit-Reset"},
	} {
		for _, limit := range limits {
			t.Run(tt.told+" in "+tt.style+" of "+limit, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := limited(t, limit, tt.style)
					base := roundTripper(func(r *http.Request) (*http.Response, error) {
						resp, err := s.RoundTrip(r)
						if tt.told != "Retry-After" {
							resp.Header.Del("Retry-After")
						}
						return resp, err
					})
					rt := httpretry.New(httpretry.Options{Base: base, Rand: noChance, MaxWait: time.Minute})
					retried := 0
					for i := range 200 {
						before := s.sent()
						status, body, took := send(t, rt, request(t, "POST", nil))
						if status != 200 || body != "served" {
							t.Fatalf("request %d: %d %q", i, status, body)
						}
						switch attempts := s.sent() - before; {
						case attempts == 2 && took > 0:
							retried++
						case attempts != 1 || took != 0:
							t.Fatalf("request %d took %v and %d attempts", i, took, attempts)
						}
						<-time.After(time.Duration(i%7) * 100 * time.Millisecond)
					}
					if limit != "100/s burst 1" && retried < 5 || retried == 0 {
						t.Errorf("only %d requests were refused first: the test shows nothing", retried)
					}
				})
			})
		}
	}
}

// A thousand clients that were refused at one instant, with the same wait, come
// back one after another, and none of them early.
func TestSpec_A16_ACrowdDoesNotComeBackAtOnce(t *testing.T) {
	for _, asked := range []time.Duration{time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			back := map[time.Duration]int{} // per hundredth of the spread
			room := max(asked/2, time.Second)
			s := &server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				at := time.Since(start)
				if at == 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(asked.Seconds())))
					w.WriteHeader(429)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if at < asked || at >= asked+room {
					t.Errorf("asked for %v, came after %v", asked, at)
				}
				back[(at-asked)*100/room]++
			})}
			const clients = 1000
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					rt := httpretry.New(httpretry.Options{Base: s}) // each its own, as in different machines
					if resp, err := rt.RoundTrip(request(t, "GET", nil)); err != nil || resp.StatusCode != 200 {
						t.Errorf("%v, %v", resp, err)
					}
				})
			}
			wg.Wait()
			most, total := 0, 0
			for _, n := range back {
				most, total = max(most, n), total+n
			}
			// 10 on average; 50 would happen once in 10^17 runs.
			if total != clients || most >= 50 || len(back) < 90 {
				t.Errorf("asked for %v: %d came back, up to %d in a hundredth of the spread, over %d hundredths", asked, total, most, len(back))
			}
		})
	}
}

// A client that calls far faster than its limit is served what the limit allows,
// and the refusals that it causes are few.
func TestSpec_A16_AFastClientSettlesAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, "2/s burst 2", "ietf")
		rt := httpretry.New(httpretry.Options{Base: s})
		served := 0
		for start := time.Now(); time.Since(start) < 5*time.Minute; {
			if status, _, _ := send(t, rt, request(t, "POST", nil)); status == 200 {
				served++
			}
		}
		if refused := s.sent() - served; refused > served {
			t.Errorf("%d refusals for %d served", refused, served)
		}
		if served < 300 {
			t.Errorf("served %d in 5 min", served)
		}
	})
}

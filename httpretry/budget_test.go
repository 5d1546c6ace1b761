package httpretry_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

// crowd sends n requests at once through one transport and waits for all.
func crowd(t *testing.T, rt http.RoundTripper, n int) (refused int) {
	t.Helper()
	var count atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := rt.RoundTrip(request(t, "GET", nil))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				count.Add(1)
			}
		})
	}
	wg.Wait()
	return int(count.Load())
}

// A service that refuses everything gets a tenth on top, and not four times the
// load, from requests that come at once.
func TestBudgetBoundsACrowd(t *testing.T) {
	for _, tt := range []struct {
		budget         httpretry.Budget
		requests, want int // retries within the first second
	}{
		{httpretry.Budget{}, 1, 1},
		{httpretry.Budget{}, 10, 10},
		// At the start the budget is full, so what requests bring is lost until
		// retries have been taken: of that the order of the crowd decides.
		{httpretry.Budget{}, 1000, 110},
		{httpretry.Budget{Burst: 1, Requests: 1000}, 1000, 2},
		{httpretry.Budget{Burst: 1, Requests: 3}, 300, 101},
		{httpretry.Budget{Burst: 5000}, 1000, 1000},
		{httpretry.Budget{Burst: math.MaxInt}, 1000, 1000},
		{httpretry.Budget{Burst: math.MaxInt, Every: math.MaxInt64, Requests: math.MaxInt}, 1000, 1}, // 292 years
		{httpretry.Budget{Burst: -1, Every: -1, Requests: -1}, 100, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := refusing(always, 429, "Retry-After", "1")
			rt := client(s, func(o *httpretry.Options) { o.Budget, o.MaxAttempts = tt.budget, 2 })
			if refused := crowd(t, rt, tt.requests); refused != tt.requests {
				t.Errorf("%d of %d refused", refused, tt.requests)
			}
			retries := s.sent() - tt.requests
			if retries > tt.want {
				t.Errorf("%+v: %d retries for %d requests, want at most %d", tt.budget, retries, tt.requests, tt.want)
			}
			least := tt.want // where all of it was there at the start
			if tt.requests > 10 && tt.want < tt.requests {
				least = 1
			}
			if retries < least {
				t.Errorf("%+v: %d retries for %d requests, want at least %d", tt.budget, retries, tt.requests, least)
			}
		})
	}
}

// Over any span, retries stay within what the type's comment promises, whatever
// the traffic.
func TestBudgetHoldsOverEverySpan(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			b := httpretry.Budget{Burst: 1 + rnd.IntN(5), Every: time.Duration(1+rnd.IntN(3000)) * time.Millisecond, Requests: 1 + rnd.IntN(20)}
			// When each request was made, and when each retry was paid for: a second
			// before it was sent.
			type event struct {
				at    time.Time
				retry bool
			}
			var mu sync.Mutex
			var events []event
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				attempt := r.Context().Value(attempts{}).(*int)
				if *attempt++; *attempt == 1 {
					events = append(events, event{time.Now(), false})
				} else {
					events = append(events, event{time.Now().Add(-time.Second), true})
				}
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
			})
			rt := httpretry.New(httpretry.Options{Base: base, Rand: noChance, Budget: b, MaxAttempts: 9})
			var wg sync.WaitGroup
			for range 1000 {
				<-time.After(time.Duration(rnd.ExpFloat64() * float64(100*time.Millisecond)))
				wg.Go(func() { rt.RoundTrip(counted(t)) })
			}
			wg.Wait()

			// What a request brings is there for its own retry.
			slices.SortFunc(events, func(a, b event) int {
				if c := a.at.Compare(b.at); c != 0 || a.retry == b.retry {
					return c
				}
				if b.retry {
					return -1
				}
				return 1
			})
			// debt is the most that any span which ends here has spent beyond what
			// its time and its requests brought.
			var debt, most time.Duration
			last := events[0].at
			for _, e := range events {
				debt = max(0, debt-e.at.Sub(last))
				last = e.at
				if e.retry {
					debt += b.Every
				} else {
					debt = max(0, debt-b.Every/time.Duration(b.Requests))
				}
				most = max(most, debt)
			}
			if bound := time.Duration(b.Burst) * b.Every; most > bound || most < bound-b.Every {
				t.Errorf("seed %d, %+v: retries for up to %v at once, want about %v", seed, b, most, bound)
			}
		})
	}
}

type attempts struct{}

// counted is a request that carries its own count of attempts.
func counted(t *testing.T) *http.Request {
	return request(t, "GET", nil).WithContext(context.WithValue(t.Context(), attempts{}, new(int)))
}

// A client that makes one request at a time is held by the waits, and the budget
// never stands in its way.
func TestOneAtATimeNeverMeetsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := 0
		s := &server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if turn++; turn%2 == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(429)
			}
		})}
		rt := client(s)
		for i := range 500 {
			if status, _, _ := send(t, rt, request(t, "GET", nil)); status != 200 {
				t.Fatalf("request %d: %d", i, status)
			}
		}
	})
}

// A budget that was drained once comes back by itself, also when nothing else is
// sent, and no further than its burst.
func TestCase_B155_ADrainedBudgetRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := refusing(always, 503, "Retry-After", "1")
		rt := client(s)
		for range 20 {
			crowd(t, rt, 50)
		}
		<-time.After(24 * time.Hour)
		sent := s.sent()
		s.Handler = refusing(10, 503, "Retry-After", "1").Handler
		if refused := crowd(t, rt, 10); refused != 0 || s.sent()-sent != 20 {
			t.Errorf("after a day of rest %d of 10 were refused, with %d requests", refused, s.sent()-sent)
		}
	})
}

// A flood of refusals that nobody waits for takes nothing: a real blip right
// after it is still retried. (Reliability goal R40, on the client's side.)
func TestRefusalsWithoutRetryCostNothing(t *testing.T) {
	for name, flood := range map[string]*server{
		"no hint":   refusing(always, 429),
		"too long":  refusing(always, 429, "Retry-After", "3600"),
		"forbidden": refusing(always, 403),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{Handler: flood.Handler}
				rt := client(s)
				for range 10_000 {
					resp, err := rt.RoundTrip(request(t, "GET", nil))
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				for range 10 {
					s.Handler = refusing(1, 503).Handler
					if status, _, _ := send(t, rt, request(t, "GET", nil)); status != 200 {
						t.Errorf("the blip was not retried: %d", status)
					}
				}
			})
		})
	}
}

// One transport for many goroutines: each gets its own answer.
func TestSharedByManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := refusing(300, 429, "Retry-After", "1")
		rt := httpretry.New(httpretry.Options{Base: s, Budget: httpretry.Budget{Burst: 1000}})
		if refused := crowd(t, rt, 500); refused != 0 {
			t.Errorf("%d of 500 refused", refused)
		}
		if s.sent() != 800 {
			t.Errorf("%d requests, want 800", s.sent())
		}
	})
}

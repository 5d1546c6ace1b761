package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/internal/everystore"
	"github.com/weirlabs/weir/memstore"
)

// opener opens a store of its own for every engine; all of them hold the same
// items.
type opener func(t *testing.T) weir.Store

// onEveryStore runs a test on memory, DynamoDB and Redis.
func onEveryStore(t *testing.T, test func(t *testing.T, open opener)) {
	t.Helper()
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) { test(t, s.Open) })
}

// patient is a deadline that no busy machine reaches.
func patient(o *engine.Options) { o.Deadline = time.Minute }

func on(s weir.Store) func(*engine.Options) {
	return func(o *engine.Options) { o.Store = s }
}

// twoGates are two engines, as of two processes, in front of one service.
func twoGates(t *testing.T, open opener, text string, next http.Handler, change ...func(*engine.Options)) [2]*gate {
	t.Helper()
	var two [2]*gate
	for i := range two {
		two[i] = newGate(t, text, next, append([]func(*engine.Options){on(open(t)), patient}, change...)...)
	}
	return two
}

// used is what the gates' store holds of a caller's only limit.
func used(t *testing.T, g *gate, sub string) int64 {
	t.Helper()
	p := g.engine.Policy()
	key := weir.NewKey("account", sub)
	lim := weir.NewLimiter(g.store, weir.Options{Limits: p.Limits(), Deadline: time.Minute})
	d, err := lim.Peek(context.Background(), weir.Op{Limit: p.Limits()[0], Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return d[0].Used
}

// 200 callers on a quota of 100, half of whose calls fail in the handler: never
// are more than 100 under way or served with success, and in the end exactly the
// successes are charged.
func TestSpec_B08_TwoHundredCallersHalfOfWhomFail(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 100/day}}
  operations: {render: {match: POST /render, count: on_success}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var held, most, succeeded, failed atomic.Int64
		two := twoGates(t, open, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := held.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			if r.Header.Get("Fail") != "" {
				// The unit comes back before the answer is written, so it is no
				// longer held from here on.
				failed.Add(1)
				held.Add(-1)
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			succeeded.Add(1) // and stays held
			w.WriteHeader(http.StatusCreated)
		}))
		end := time.Now().Add(time.Minute)
		var group sync.WaitGroup
		for i := range 200 {
			g := two[i%2]
			group.Go(func() {
				fields := []string{"Test-Sub", "customer-42"}
				fails := i/2%2 == 0
				if fails {
					fields = append(fields, "Fail", "yes")
				}
				for {
					status := g.send("POST", "/render", fields...).StatusCode
					switch {
					case status != http.StatusTooManyRequests:
						return
					case fails && succeeded.Load() == 100:
						return // nothing is left for it
					case time.Now().After(end):
						t.Errorf("caller %d was not served within a minute: %d succeeded", i, succeeded.Load())
						return
					}
					wait(20 * time.Millisecond)
				}
			})
		}
		group.Wait()
		if most.Load() > 100 {
			t.Errorf("%d calls were under way or successful at once", most.Load())
		}
		if succeeded.Load() != 100 || failed.Load() == 0 {
			t.Errorf("%d succeeded and %d failed; want 100, and some", succeeded.Load(), failed.Load())
		}
		if n := used(t, two[0], "customer-42"); n != succeeded.Load() {
			t.Errorf("%d units are charged for %d successes", n, succeeded.Load())
		}
		t.Logf("at most %d held at once; %d succeeded, %d failed", most.Load(), succeeded.Load(), failed.Load())
	})
}

// A refusal while calls of this process hold what is left says so; another
// process, which does not know, says when the window ends.
func TestSpec_B08_ARefusalWhileCallsAreUnderWay(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 3/day}}
  operations: {render: {match: POST /render, count: on_success}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		began, end := make(chan struct{}), make(chan int)
		two := twoGates(t, open, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Slow") != "" {
				began <- struct{}{}
				w.WriteHeader(<-end)
			}
		}))
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { two[0].send("POST", "/render", "Test-Sub", "a", "Slow", "yes") })
			<-began
		}
		if r := two[0].send("POST", "/render", "Test-Sub", "a"); r.StatusCode != 200 {
			t.Fatalf("the third call: %d", r.StatusCode)
		}
		r := two[0].send("POST", "/render", "Test-Sub", "a")
		if m := object(t, r); r.StatusCode != 429 || m["error"] != "in_flight" || r.Header.Get("Retry-After") != "1" || m["retryAfterSeconds"] != 1.0 {
			t.Errorf("with calls under way: %d %v, Retry-After %q", r.StatusCode, m, r.Header.Get("Retry-After"))
		} else if want := "Your plan allows 3 render per day, and calls under way have taken what is left. Try again in 1 second."; m["message"] != want {
			t.Errorf("message %q", m["message"])
		}
		r = two[1].send("POST", "/render", "Test-Sub", "a")
		if m := object(t, r); r.StatusCode != 429 || m["error"] != "quota_exhausted" {
			t.Errorf("in the other process: %d %v", r.StatusCode, m)
		}
		if r := two[0].send("POST", "/render", "Test-Sub", "b"); r.StatusCode != 200 {
			t.Errorf("somebody else: %d", r.StatusCode)
		}
		end <- 500
		end <- 200
		group.Wait()
		if n := used(t, two[0], "a"); n != 2 {
			t.Errorf("%d used, want 2", n)
		}
		if r := two[0].send("POST", "/render", "Test-Sub", "a"); r.StatusCode != 200 {
			t.Errorf("after one failed: %d", r.StatusCode)
		}
		r = two[0].send("POST", "/render", "Test-Sub", "a")
		if m := object(t, r); m["error"] != "quota_exhausted" || r.Header.Get("Retry-After") == "1" {
			t.Errorf("when all are settled: %v, Retry-After %q", m, r.Header.Get("Retry-After"))
		}
	})
}

// What counts as a success, and what a handler may do instead of answering.
func TestSpec_B08_PanicsAndAborts(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 1/day}}
  operations: {render: {match: POST /render, count: on_success}}
`
	type answer func(w http.ResponseWriter, r *http.Request)
	for i, c := range []struct {
		name    string
		does    answer
		panics  any
		charged int64
	}{
		{"a panic is a failure", func(http.ResponseWriter, *http.Request) { panic("broken") }, "broken", 0},
		{"a panic after the header stays counted", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("late") }, "late", 1},
		{"a panic after a failure's header", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); panic("late") }, "late", 0},
		{"an abort without an answer stays counted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.ErrAbortHandler, 1},
		{"a client that left counts by the answer: a failure", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(503)
		}, nil, 0},
		{"a client that left counts by the answer: a success", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(200)
		}, nil, 1},
		{"a handler that writes nothing has succeeded", func(http.ResponseWriter, *http.Request) {}, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			ctx, leave := context.WithCancel(context.Background())
			g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				leave() // while the call is under way
				c.does(w, r)
			}), on(store))
			sub := fmt.Sprint("caller-", i)
			func() {
				defer func() {
					if v := recover(); v != c.panics {
						t.Errorf("the panic became %v", v)
					}
				}()
				g.sendWith(ctx, "POST", "/render", "Test-Sub", sub)
			}()
			if n := used(t, g, sub); n != c.charged {
				t.Errorf("%d charged, want %d", n, c.charged)
			}
			// Nothing is left open: a refusal says the window's end.
			if c.charged == 1 {
				r := g.send("POST", "/render", "Test-Sub", sub)
				if m := object(t, r); m["error"] != "quota_exhausted" {
					t.Errorf("after it: %v", m)
				}
			}
		})
	}
}

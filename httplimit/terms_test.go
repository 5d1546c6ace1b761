package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// heard collects what the engines of a test tell.
type heard struct {
	mu      sync.Mutex
	notices []engine.Notice
}

func (h *heard) option(o *engine.Options) {
	o.Noticed = func(_ context.Context, n engine.Notice) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.notices = append(h.notices, n)
	}
}

// marks are the percentages that were told of, in order.
func (h *heard) marks() (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.notices {
		if n.Percent != 0 {
			all = append(all, n.Percent)
		}
	}
	slices.Sort(all)
	return all
}

// A quota's marks are told of once per period and account: in the log, in the
// decision log and to whoever counts them, whichever process reaches them.
func TestNoticesOnceAPeriodAndAccount(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 10/day calendar Europe/Berlin}}
  operations: {render: {match: POST /render, notify_at: [80%, 100%]}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var h heard
		two := twoGates(t, open, text, status(200), h.option, func(o *engine.Options) { o.AllowedShare = 0 })
		for i := range 13 {
			want := 200
			if i >= 10 {
				want = 429
			}
			if r := two[i%2].send("POST", "/render", "Test-Sub", "a"); r.StatusCode != want {
				t.Errorf("call %d: %d", i, r.StatusCode)
			}
		}
		two[0].count(9, "POST", "/render", "Test-Sub", "b")
		if got := h.marks(); !slices.Equal(got, []int{80, 80, 100}) {
			t.Errorf("marks %v; want 80 and 100 of a, and 80 of b", got)
		}
		for _, n := range h.notices {
			if n.Max != 10 || n.Used != int64(n.Percent)/10 || n.Rule.Name != "render" || n.ResetAt.IsZero() || n.KeyHash == "" {
				t.Errorf("notice %+v", n)
			}
		}
		lines, records := 0, 0
		for _, g := range two {
			for _, l := range g.lines("INFO") {
				if l["msg"] == "a quota has reached a mark" && l["limit"] == "render" && l["of"] == 10.0 && l["key"] != nil {
					lines++
				}
			}
			for _, r := range g.records {
				if r.Notice != 0 {
					records++
					if line := string(r.AppendJSON(nil)); !r.Allowed || r.Weight != 1 || !strings.Contains(line, fmt.Sprintf(`,"notice":%d`, r.Notice)) {
						t.Errorf("record %s", line)
					}
				}
			}
		}
		if lines != 3 || records != 3 {
			t.Errorf("%d lines in the log and %d in the decision log, want 3 and 3", lines, records)
		}
	})
}

// over: charge lets calls beyond the quota through and counts the excess apart;
// a rate beside it still refuses.
func TestOverChargeCountsTheExcess(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: [quota 5/day, 0.01/s burst 9]}}
  operations: {render: {match: POST /render, over: charge, count: on_success}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var h heard
		answer := 200
		two := twoGates(t, open, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }),
			h.option, func(o *engine.Options) { o.AllowedShare = 0 })
		for i := range 9 {
			r := two[i%2].send("POST", "/render", "Test-Sub", "a")
			if r.StatusCode != 200 {
				t.Fatalf("call %d: %d", i, r.StatusCode)
			}
			if left := r.Header.Get("Ratelimit"); !strings.Contains(left, fmt.Sprintf(`"render";r=%d`, max(4-i, 0))) {
				t.Errorf("call %d: %s", i, left)
			}
		}
		if m := object(t, two[0].send("POST", "/render", "Test-Sub", "a")); m["limit"] != "render.second" {
			t.Errorf("the rate beside it: %v", m)
		}
		if n := used(t, two[0], "a"); n != 9 {
			t.Errorf("%d used, want 9 of 5", n)
		}
		total := func() (told, logged int64) {
			for _, n := range h.notices {
				told += n.Excess
			}
			for _, g := range two {
				for _, r := range g.records {
					logged += r.Excess
				}
			}
			return told, logged
		}
		if told, logged := total(); told != 4 || logged != 4 {
			t.Errorf("the excess is %d as told and %d in the decision log, want 4", told, logged)
		}
		// A failure beyond the quota is taken off again.
		answer = 500
		lim := weir.NewLimiter(two[0].store, weir.Options{Limits: two[0].engine.Policy().Limits()})
		if err := lim.Reset(context.Background(), weir.NewKey("account", "a"), two[0].engine.Policy().Limits()[1]); err != nil {
			t.Fatal(err)
		}
		if r := two[1].send("POST", "/render", "Test-Sub", "a"); r.StatusCode != 500 {
			t.Errorf("after a reset of the rate: %d", r.StatusCode)
		}
		if told, logged := total(); told != 4 || logged != 4 || used(t, two[0], "a") != 9 {
			t.Errorf("after a failure: %d told, %d logged, %d used; want 4, 4 and 9", told, logged, used(t, two[0], "a"))
		}
	})
}

// settle: brings a call to what the service says that it cost, in a field of the
// header or a trailer, down to the declared debt.
func TestSpec_B08_TheServiceSaysWhatACallCost(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {complete: quota 1000/day}}
  operations:
    complete: {match: POST /complete, cost: header.X-Estimate, settle: header.X-Tokens-Used, debt: 200, count: on_success, notify_at: 100}
`
	for _, c := range []struct {
		name     string
		estimate string
		does     func(w http.ResponseWriter)
		want     int64
	}{
		{"less", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "40") }, 40},
		{"more", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "350"); w.Write([]byte("x")) }, 350},
		{"nothing", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "0") }, 0},
		{"into debt, down to its floor", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "9000") }, 1200},
		{"no field: as estimated", "100", func(w http.ResponseWriter) {}, 100},
		{"no number: as estimated", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "many") }, 100},
		{"below zero: as estimated", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "-5") }, 100},
		{"a failure costs nothing", "100", func(w http.ResponseWriter) { w.Header().Set("X-Tokens-Used", "70"); w.WriteHeader(502) }, 0},
		{"a trailer that was announced", "100", func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Tokens-Used")
			w.Write([]byte("stream"))
			w.Header().Set("X-Tokens-Used", "55")
		}, 55},
		{"a trailer that was not", "100", func(w http.ResponseWriter) {
			w.Write([]byte("stream"))
			w.Header().Set(http.TrailerPrefix+"X-Tokens-Used", "56")
		}, 56},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h heard
			g := newGate(t, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.does(w) }), h.option)
			r := g.send("POST", "/complete", "Test-Sub", "a", "X-Estimate", c.estimate)
			if n := used(t, g, "a"); n != c.want {
				t.Errorf("%d used, want %d", n, c.want)
			}
			if left := fmt.Sprint(max(1000-c.want, 0)); !strings.Contains(c.name, "trailer") && !strings.Contains(r.Header.Get("Ratelimit"), ";r="+left) {
				t.Errorf("the answer shows %q, want %s left", r.Header.Get("Ratelimit"), left)
			}
			if got := len(h.marks()); got != 0 != (c.want >= 1000) {
				t.Errorf("%d marks", got)
			}
		})
	}
}

// A request with an id is charged once, in whatever process it is sent again,
// and its repetition is served as it was.
func TestRequestIDsAreChargedOnce(t *testing.T) {
	const text = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 3/day}}
  operations: {render: {match: POST /render, count: on_success, once: header.Idempotency-Key}}
`
	onEveryStore(t, func(t *testing.T, open opener) {
		var answer atomic.Int64
		answer.Store(200)
		two := twoGates(t, open, text, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) }))
		send := func(n int, sub, id string) int {
			t.Helper()
			return two[n].send("POST", "/render", "Test-Sub", sub, "Idempotency-Key", id).StatusCode
		}
		for i := range 5 {
			if got := send(i%2, "a", "one"); got != 200 {
				t.Errorf("repetition %d: %d", i, got)
			}
		}
		if n := used(t, two[0], "a"); n != 1 {
			t.Errorf("%d charged for one id, want 1", n)
		}
		// The second answer shows what the first did, also right after it, when the id
		// is refused from memory.
		for i := range 3 {
			r := two[i%2].send("POST", "/render", "Test-Sub", "a", "Idempotency-Key", "one")
			if left := r.Header.Get("Ratelimit"); !strings.Contains(left, `"render";r=2`) {
				t.Errorf("repetition %d shows %q", i, left)
			}
		}
		// Another caller's id is another id; without one, every call counts.
		send(0, "b", "one")
		two[0].count(2, "POST", "/render", "Test-Sub", "b")
		if n := used(t, two[0], "b"); n != 3 {
			t.Errorf("%d charged, want 3", n)
		}
		// Many at once.
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() { send(i%2, "c", "at once") })
		}
		group.Wait()
		if n := used(t, two[0], "c"); n != 1 {
			t.Errorf("%d charged for one id sent 20 times at once", n)
		}
		// What failed is not charged, and is when it is sent again.
		answer.Store(500)
		send(0, "d", "fails")
		if n := used(t, two[0], "d"); n != 0 {
			t.Errorf("%d charged for a failure", n)
		}
		answer.Store(200)
		send(1, "d", "fails")
		send(0, "d", "fails")
		if n := used(t, two[0], "d"); n != 1 {
			t.Errorf("%d charged once it succeeded, want 1", n)
		}
		// A full quota refuses new ids, and serves those that it was charged for.
		send(0, "e", "first")
		send(0, "e", "second")
		send(0, "e", "third")
		if got := send(1, "e", "fourth"); got != 429 {
			t.Errorf("a new id on a full quota: %d", got)
		}
		for n := range two {
			if got := send(n, "e", "second"); got != 200 {
				t.Errorf("process %d: an id that was charged, on a full quota: %d", n, got)
			}
		}
		if n := used(t, two[0], "e"); n != 3 {
			t.Errorf("%d charged, want 3", n)
		}
	})
}

// Giving back is chosen by a limit for itself: one beside it that counts every
// call refuses a client that always fails.
func TestCase_B133_AClientThatAlwaysFails(t *testing.T) {
	g := newGate(t, `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans: {order: [free], free: {render: quota 3/day}}
  operations: {render: {match: POST /render, count: on_success}}
  limits: [{name: tries, match: POST /render, by: account, limit: 0.01/s burst 20}]
`, status(500))
	if got := g.count(30, "POST", "/render", "Test-Sub", "a"); got[500] != 20 || got[429] != 10 {
		t.Errorf("%v, want 20 failures and then refusals", got)
	}
	if n := used(t, g, "a"); n != 0 {
		t.Errorf("%d of the quota are charged for failures", n)
	}
}

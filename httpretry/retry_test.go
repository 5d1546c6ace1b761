package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

func TestWhatIsSentAgain(t *testing.T) {
	const again, returned = 2, 1
	keyed := http.Header{"Idempotency-Key": {"8e03978e"}}
	xKeyed := http.Header{"X-Idempotency-Key": {"8e03978e"}}
	for _, tt := range []struct {
		method string
		status int
		header http.Header
		want   int
	}{
		{"GET", 429, nil, again},
		{"", 429, nil, again},
		{"POST", 429, nil, again}, // 429 says that nothing was done
		{"PATCH", 429, nil, again},
		{"GET", 503, nil, again},
		{"", 503, nil, again},
		{"HEAD", 503, nil, again},
		{"OPTIONS", 503, nil, again},
		{"TRACE", 503, nil, again},
		{"PUT", 503, nil, again},
		{"DELETE", 503, nil, again},
		{"POST", 503, nil, returned},
		{"PATCH", 503, nil, returned},
		{"CONNECT", 503, nil, returned},
		{"get", 503, nil, returned}, // methods have a case
		{"POST", 503, keyed, again},
		{"POST", 503, xKeyed, again},
		{"GET", 200, nil, returned},
		{"GET", 304, nil, returned},
		{"GET", 403, nil, returned},
		{"GET", 500, nil, returned},
		{"GET", 502, nil, returned},
		{"GET", 504, nil, returned},
	} {
		t.Run(fmt.Sprint(tt.method, tt.status, len(tt.header)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := refusing(1, tt.status, "Retry-After", "2")
				r := request(t, tt.method, nil)
				r.Method = tt.method
				for name := range tt.header {
					r.Header[name] = tt.header[name]
				}
				status, body, took := send(t, client(s), r)
				switch {
				case s.sent() != tt.want:
					t.Errorf("sent %d times, want %d", s.sent(), tt.want)
				case tt.want == again && (status != 200 || body != "served" || took != 2*time.Second):
					t.Errorf("%d %q after %v, want 200 after 2 s", status, body, took)
				case tt.want == returned && (status != tt.status || body != "refused" || took != 0):
					t.Errorf("%d %q after %v, want %d at once", status, body, took, tt.status)
				}
			})
		})
	}
}

func TestBodies(t *testing.T) {
	broken := errors.New("the file is gone")
	for _, tt := range []struct {
		name string
		body func(*http.Request)
		want []string // the bodies that arrive
	}{
		{"none", func(r *http.Request) { r.Body = nil }, []string{"", ""}},
		{"NoBody", func(r *http.Request) { r.Body, r.GetBody = http.NoBody, nil }, []string{"", ""}},
		{"in memory", func(*http.Request) {}, []string{"two tickets", "two tickets"}},
		{"a stream", func(r *http.Request) { r.GetBody = nil }, []string{"two tickets"}},
		{"not there any more", func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, broken }
		}, []string{"two tickets"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := refusing(1, 429, "Retry-After", "1")
				r := request(t, "POST", strings.NewReader("two tickets"))
				tt.body(r)
				before := *r
				status, body, _ := send(t, client(s), r)
				if fmt.Sprint(s.bodies) != fmt.Sprint(tt.want) {
					t.Errorf("arrived: %q, want %q", s.bodies, tt.want)
				}
				if len(tt.want) == 1 && (status != 429 || body != "refused") {
					t.Errorf("%d %q, want the refusal with its body", status, body)
				}
				if r.Body != before.Body || r.Method != before.Method || r.URL != before.URL {
					t.Error("the caller's request was changed")
				}
			})
		})
	}
}

// A retry that fails for want of its body is not paid for.
func TestMissingBodyCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := refusing(21, 429, "Retry-After", "1")
		rt := client(s, func(o *httpretry.Options) { o.Budget.Burst, o.Budget.Requests = 1, 1000 })
		for range 20 {
			r := request(t, "POST", strings.NewReader("two tickets"))
			r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
			if status, _, took := send(t, rt, r); status != 429 || took != 0 {
				t.Errorf("%d after %v, want the refusal at once", status, took)
			}
		}
		if status, _, _ := send(t, rt, request(t, "GET", nil)); status != 200 {
			t.Errorf("%d: the budget was spent on requests that were never sent", status)
		}
	})
}

// Without a Base, net/http's own transport sends.
func TestDefaultBase(t *testing.T) {
	shop := httptest.NewServer(refusing(0, 429))
	defer shop.Close()
	c := &http.Client{Transport: httpretry.New(httpretry.Options{})}
	defer c.CloseIdleConnections()
	resp, err := c.Get(shop.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "served" {
		t.Errorf("%q, %v", b, err)
	}
}

// What is dropped is read to its end and closed; what is returned is neither.
func TestAnswersAreDroppedProperly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := refusing(always, 429, "Retry-After", "1")
		resp, err := client(s).RoundTrip(request(t, "GET", nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.answers) != 4 {
			t.Fatalf("%d answers, want 4", len(s.answers))
		}
		for i, a := range s.answers[:3] {
			if !a.ended || a.closings != 1 {
				t.Errorf("answer %d: read to its end: %v, closed %d times", i, a.ended, a.closings)
			}
		}
		if last := s.answers[3]; last.ended || last.closed || resp.Body != io.ReadCloser(last) {
			t.Error("the answer that is returned was touched")
		}
	})
}

func TestErrorsAreNotRetried(t *testing.T) {
	down := errors.New("connection refused")
	sent := 0
	rt := httpretry.New(httpretry.Options{Base: roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, down
	})})
	if _, err := rt.RoundTrip(request(t, "GET", nil)); !errors.Is(err, down) || sent != 1 {
		t.Errorf("%v after %d requests", err, sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Chance is never below what was asked, and never above its own bound.
func TestJitterOnlyLengthens(t *testing.T) {
	for _, tt := range []struct{ asked, room time.Duration }{
		{0, time.Second},
		{time.Second, time.Second},
		{2 * time.Second, time.Second},
		{5 * time.Second, 2500 * time.Millisecond},
		{30 * time.Second, 15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			least := max(tt.asked, 100*time.Millisecond)
			lowest, highest := time.Duration(always)*time.Second, time.Duration(0)
			for range 400 {
				s := refusing(1, 429, "Retry-After", fmt.Sprint(int(tt.asked.Seconds())))
				_, _, took := send(t, httpretry.New(httpretry.Options{Base: s}), request(t, "GET", nil))
				lowest, highest = min(lowest, took), max(highest, took)
			}
			if lowest < least || highest >= least+tt.room {
				t.Errorf("asked for %v: waits from %v to %v", tt.asked, lowest, highest)
			}
			// 400 draws miss a tenth of the room at either end once in 10^18 runs.
			if lowest > least+tt.room/10 || highest < least+tt.room*9/10 {
				t.Errorf("asked for %v: waits only from %v to %v", tt.asked, lowest, highest)
			}
		})
	}
}

// Without a hint the waits of a 503 may double, between bounds.
func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rand    func(int64) int64
		maxWait time.Duration
		want    string
	}{
		{"least", noChance, 0, "[100ms 100ms 100ms 100ms 100ms 100ms]"},
		{"most", mostChance, 0, "[1.1s 2.1s 4.1s 8.1s 16.1s 30.1s]"},
		{"capped", mostChance, 3 * time.Second, "[1.1s 2.1s 3.1s 3.1s 3.1s 3.1s]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := refusing(always, 503)
			rt := client(s, func(o *httpretry.Options) {
				o.MaxAttempts, o.MaxTotal, o.Rand, o.MaxWait = 7, time.Hour, tt.rand, tt.maxWait
			})
			if status, _, _ := send(t, rt, request(t, "GET", nil)); status != 503 {
				t.Errorf("status %d", status)
			}
			gaps := s.gaps()
			for i := range gaps {
				gaps[i] = gaps[i].Round(time.Microsecond)
			}
			if fmt.Sprint(gaps) != tt.want {
				t.Errorf("%s: waits %v, want %s", tt.name, gaps, tt.want)
			}
		})
	}
	// A long row of attempts does not overflow.
	synctest.Test(t, func(t *testing.T) {
		s := refusing(always, 503)
		rt := client(s, func(o *httpretry.Options) {
			o.MaxAttempts, o.MaxTotal, o.Rand, o.Budget.Burst = 100, 1<<62, mostChance, 1000
		})
		send(t, rt, request(t, "GET", nil))
		for i, gap := range s.gaps() {
			if i >= 5 && gap.Round(time.Microsecond) != 30100*time.Millisecond {
				t.Errorf("wait %d is %v", i, gap)
			}
		}
		if s.sent() != 100 {
			t.Errorf("sent %d times", s.sent())
		}
	})
}

func TestCaps(t *testing.T) {
	for _, tt := range []struct {
		name   string
		asked  string
		change func(*httpretry.Options)
		sent   int
		took   time.Duration
	}{
		{"attempts by default", "2", func(*httpretry.Options) {}, 4, 6 * time.Second},
		{"one attempt", "2", func(o *httpretry.Options) { o.MaxAttempts = 1 }, 1, 0},
		{"ten attempts", "2", func(o *httpretry.Options) { o.MaxAttempts = 10 }, 10, 18 * time.Second},
		{"a negative number is the default", "2", func(o *httpretry.Options) { o.MaxAttempts, o.MaxWait, o.MaxTotal = -1, -1, -1 }, 4, 6 * time.Second},
		{"the longest wait by default", "30", func(o *httpretry.Options) { o.MaxAttempts = 2 }, 2, 30 * time.Second},
		{"longer than that", "31", func(*httpretry.Options) {}, 1, 0},
		{"longer than set", "3", func(o *httpretry.Options) { o.MaxWait = 2 * time.Second }, 1, 0},
		{"the total by default", "20", func(o *httpretry.Options) { o.MaxAttempts = 10 }, 4, time.Minute},
		{"a total that is set", "20", func(o *httpretry.Options) { o.MaxTotal = 59 * time.Second }, 3, 40 * time.Second},
		{"chance counts into the total", "20", func(o *httpretry.Options) { o.Rand = mostChance }, 3, 60*time.Second - 2},
		{"no room for chance", "20", func(o *httpretry.Options) { o.Rand, o.MaxTotal = mostChance, 25*time.Second }, 1, 0},
		{"chance on top of the longest wait", "30", func(o *httpretry.Options) { o.Rand = mostChance }, 2, 45*time.Second - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := refusing(always, 429, "Retry-After", tt.asked)
				status, body, took := send(t, client(s, tt.change), request(t, "GET", nil))
				if status != 429 || body != "refused" || s.sent() != tt.sent || took != tt.took {
					t.Errorf("%d %q after %v and %d requests, want the refusal after %v and %d", status, body, took, s.sent(), tt.took, tt.sent)
				}
			})
		})
	}
}

// A wait that could not end before the deadline is not begun.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct {
		left time.Duration
		want int
	}{
		{500 * time.Millisecond, 429},
		{2 * time.Second, 429}, // at the deadline nobody can answer any more
		{2*time.Second + 1, 200},
		{time.Hour, 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			defer cancel()
			s := refusing(1, 429, "Retry-After", "2")
			status, body, took := send(t, client(s), request(t, "GET", nil).WithContext(ctx))
			if status != tt.want || tt.want == 429 && (took != 0 || body != "refused") {
				t.Errorf("%v left: %d %q after %v", tt.left, status, body, took)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			s := refusing(1, 429, "Retry-After", "2")
			c := &http.Client{Transport: client(s), Timeout: tt.left}
			resp, err := c.Do(request(t, "GET", nil))
			if err != nil {
				t.Fatalf("Timeout %v: %v", tt.left, err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Errorf("Timeout %v: %d", tt.left, resp.StatusCode)
			}
		})
	}
}

// A caller that leaves during the wait gets his reason back at that time,
// nothing is sent for him, and nothing of his stays open or spent.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("the browser has gone")
		s := refusing(always, 429, "Retry-After", "9")
		rt := client(s, func(o *httpretry.Options) { o.Budget = httpretry.Budget{Burst: 1, Every: time.Hour, Requests: 1000} })
		for range 20 {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(reason) })
			r := request(t, "POST", strings.NewReader("two tickets")).WithContext(ctx)
			second := &answerBody{Reader: strings.NewReader("two tickets")}
			r.GetBody = func() (io.ReadCloser, error) { return second, nil }
			start := time.Now()
			resp, err := rt.RoundTrip(r)
			if !errors.Is(err, reason) || resp != nil || time.Since(start) != 3*time.Second {
				t.Fatalf("%v, %v after %v, want the reason after 3 s", resp, err, time.Since(start))
			}
			if !second.closed {
				t.Error("the body for the retry stays open")
			}
		}
		if s.sent() != 20 {
			t.Errorf("%d requests arrived, want 20", s.sent())
		}
		for i, a := range s.answers {
			if !a.closed {
				t.Errorf("answer %d stays open", i)
			}
		}
	})
}

func TestCloseIdleConnections(t *testing.T) {
	closed := 0
	c := &http.Client{Transport: httpretry.New(httpretry.Options{Base: idle{onClose: func() { closed++ }}})}
	c.CloseIdleConnections()
	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
	// A Base without idle connections has nothing to close.
	client(refusing(0, 429)).CloseIdleConnections()
}

type idle struct {
	http.RoundTripper
	onClose func()
}

func (i idle) CloseIdleConnections() { i.onClose() }

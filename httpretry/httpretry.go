// Package httpretry is the client's half of a rate limit: an
// [http.RoundTripper] that waits as long as a refusal says before it sends a
// request again.
//
//	client := &http.Client{Transport: httpretry.New(httpretry.Options{})}
//
// A client that repeats a refused request at once gets the next refusal, costs
// the server a decision each time, and takes turns from the clients that wait.
// A thousand clients that all wait the same second come back as one wave. So
// this transport does five things:
//
//   - It waits for at least what the answer asks: Retry-After, in seconds or as
//     a date, or else the RateLimit fields (below).
//   - It adds chance on top, and never takes any off: up to half of the wait,
//     or up to a second where that is more.
//   - It gives up early. A wait beyond [Options.MaxWait], or one that would
//     outlast [Options.MaxTotal] or the context's deadline ([http.Client.Timeout]
//     sets one), is not begun: the caller gets the refusal at once, unread.
//   - It repeats only what may be repeated. 429 says that nothing was done, so
//     any method will do; 503 does not say so, and only idempotent requests are
//     sent again. A request with a body needs [http.Request.GetBody], which
//     [http.NewRequest] sets for bodies in memory.
//   - It keeps a [Budget], so that a crowd of refused requests does not become
//     twice the crowd.
//
// # Which answers, and which fields
//
// Only 429 and 503 are waited for. A 429 without a usable field is returned at
// once: weir sends one when a call can never be allowed, and no wait helps. A
// 503 without one is tried again after a tenth of a second and a random part of
// one, two, four, ... seconds, at most MaxWait. Errors of the connection are left
// to [http.Transport], which knows whether anything was sent.
//
// Retry-After comes first (RFC 9110, 10.2.3); a date is read against the Date of
// the same answer, so the client's clock may be wrong. Without it, the longest t
// of the exhausted policies (r=0) of a RateLimit field counts, as in
// draft-ietf-httpapi-ratelimit-headers-11; without that, RateLimit-Reset of
// draft 6, in seconds, while RateLimit-Remaining is 0 or missing. A wait of zero
// and a date gone by count as a tenth of a second. X-RateLimit-Reset is not read:
// it is seconds in one API, a time in the next, and a text in a third.
//
// # One transport per service
//
// Share one [Transport] among all callers of a service, and make another for the
// next service: the budget belongs to the transport, and trouble with one service
// should not use up the retries of another. Transports over the same Base share
// its connections. Put the transport at one layer only, or the attempts multiply.
//
// A wait holds back one request and no other: a limit is mostly per caller and
// operation, and the name of the host does not tell which requests share it.
package httpretry

import (
	"cmp"
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	minWait = 100 * time.Millisecond // before any retry, whatever a server says
	spread  = time.Second            // the least room for chance

	// A dropped answer is read to its end so that its connection can be used
	// again; one that is longer or slower than this costs its connection.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// Options are the settings of a [Transport]. The zero value of each field stands
// for its default; negative values do too.
type Options struct {
	// Base sends the requests. Default: [http.DefaultTransport].
	Base http.RoundTripper

	// MaxAttempts is how often one request is sent at most, the first time
	// included; 1 never retries. Default: 4.
	MaxAttempts int

	// MaxWait is the longest wait that a server may ask for. What asks for more
	// is returned at once, and never tried early. Chance comes on top of it: up
	// to a half, or a second. Default: 30 s.
	MaxWait time.Duration

	// MaxTotal is how long after a request was first sent a retry may still
	// begin, chance included. Default: 1 min.
	MaxTotal time.Duration

	// Budget bounds the retries of all requests together.
	Budget Budget

	// Rand returns a number from 0 up to, but not including, n > 0, each equally
	// likely. It is called by several goroutines at once. Default:
	// [rand.Int64N]. Set it in tests.
	Rand func(n int64) int64
}

// Transport is an [http.RoundTripper] that sends refused requests again when
// their time has come. Make it with [New]. It is safe for concurrent use, keeps
// no goroutine, and needs no closing.
type Transport struct {
	base              http.RoundTripper
	attempts          int
	maxWait, maxTotal time.Duration
	budget            *budget
	rand              func(int64) int64
}

var _ http.RoundTripper = (*Transport)(nil)

// New makes a transport with a full budget.
func New(o Options) *Transport {
	t := &Transport{
		base:     o.Base,
		attempts: orDefault(o.MaxAttempts, 4),
		maxWait:  min(orDefault(o.MaxWait, 30*time.Second), math.MaxInt64/2), // room for chance
		maxTotal: orDefault(o.MaxTotal, time.Minute),
		budget:   newBudget(o.Budget),
		rand:     o.Rand,
	}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	if t.rand == nil {
		t.rand = rand.Int64N
	}
	return t
}

func orDefault[T cmp.Ordered](v, byDefault T) T {
	var zero T
	if v > zero {
		return v
	}
	return byDefault
}

// RoundTrip sends the request, and again as the package comment says. It returns
// the last answer, with its body unread, or the error of Base. A context that is
// cancelled during a wait ends it with the context's error; the refusal is gone
// by then.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	t.budget.earn(start)
	next := req
	for attempt := 1; ; attempt++ {
		resp, err := t.base.RoundTrip(next)
		if err != nil || attempt >= t.attempts || !repeatable(req, resp.StatusCode) {
			return resp, err
		}
		now := time.Now()
		wait, ok := t.wait(resp, now, attempt)
		if !ok || !t.inTime(req.Context(), start, now.Add(wait)) || !t.budget.spend(now) {
			return resp, nil
		}
		if next, err = again(req); err != nil {
			t.budget.refund()
			return resp, nil // a refusal says more than a body that is gone
		}
		timer := time.NewTimer(wait) // reading what is left counts as waiting
		discard(resp.Body)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			t.budget.refund()
			if next.Body != nil {
				next.Body.Close()
			}
			return nil, context.Cause(req.Context())
		}
	}
}

// CloseIdleConnections closes those of Base, if it has any. It makes
// [http.Client.CloseIdleConnections] work through the transport.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// wait is how long to wait after the given attempt; not ok when the answer is
// one for the caller.
func (t *Transport) wait(resp *http.Response, now time.Time, attempt int) (time.Duration, bool) {
	asked, ok := hint(resp.Header, now)
	switch {
	case ok && asked > t.maxWait:
		return 0, false // coming earlier would be refused, and later was not allowed
	case ok:
		return max(asked, minWait) + t.chance(max(asked/2, spread)), true
	case resp.StatusCode == http.StatusServiceUnavailable:
		room := t.maxWait
		if doublings := attempt - 1; doublings < 30 { // 2^30 s is 34 years
			room = min(room, spread<<doublings)
		}
		return minWait + t.chance(room), true
	}
	return 0, false
}

func (t *Transport) chance(room time.Duration) time.Duration {
	return time.Duration(t.rand(int64(room)))
}

// inTime reports whether a retry at the given time serves anybody. One at the
// deadline itself does not: it could not be answered.
func (t *Transport) inTime(ctx context.Context, start, at time.Time) bool {
	deadline, ok := ctx.Deadline()
	return at.Sub(start) <= t.maxTotal && (!ok || at.Before(deadline))
}

// repeatable reports whether a request that was answered so may be sent again.
func repeatable(req *http.Request, status int) bool {
	if hasBody(req) && req.GetBody == nil {
		return false
	}
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return idempotent(req)
	}
	return false
}

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

// idempotent is RFC 9110, 9.2.2, and the fields that net/http goes by too.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// again is the request with its body from the start. The caller's own request
// is never changed, as [http.RoundTripper] demands.
func again(req *http.Request) (*http.Request, error) {
	next := req.WithContext(req.Context())
	if hasBody(req) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// discard reads a short rest and closes. A server that trickles its refusal must
// not hold the caller: the close ends the read.
func discard(body io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { body.Close() })
	io.CopyN(io.Discard, body, drainBytes)
	late.Stop()
	body.Close()
}

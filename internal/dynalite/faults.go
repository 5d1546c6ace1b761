package dynalite

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
)

// Transport is an http.RoundTripper between a DynamoDB client and its server
// that does to each request what its script says. Safe for concurrent use.
type Transport struct {
	base http.RoundTripper

	mu     sync.Mutex
	script map[string][]Fault
	always map[string]Fault
	calls  map[string]int
}

// Fault is what happens to one request. next sends it to the server, and may be
// called more than once.
type Fault func(r *http.Request, next func() (*http.Response, error)) (*http.Response, error)

// NewTransport makes a Transport that lets everything pass. A nil base is a
// transport of its own.
func NewTransport(base http.RoundTripper) *Transport {
	if base == nil {
		base = &http.Transport{MaxIdleConnsPerHost: 256}
	}
	return &Transport{base: base, script: map[string][]Fault{}, always: map[string]Fault{}, calls: map[string]int{}}
}

// Script appends faults for the coming requests of one operation, such as
// "UpdateItem": each takes the next one, and nil lets it pass.
func (t *Transport) Script(operation string, faults ...Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.script[operation] = append(t.script[operation], faults...)
}

// Always sets what happens to requests of an operation beyond the script; nil
// lets them pass.
func (t *Transport) Always(operation string, f Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.always[operation] = f
}

// Clear forgets every script: all requests pass again.
func (t *Transport) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.script)
	clear(t.always)
}

// Calls is how often an operation was asked for, whatever became of it.
func (t *Transport) Calls(operation string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[operation]
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	next := func() (*http.Response, error) {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		again.ContentLength = int64(len(body))
		return t.base.RoundTrip(again)
	}
	f := t.fault(operation)
	if f == nil {
		return next()
	}
	return f(r, next)
}

func (t *Transport) fault(operation string) Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[operation]++
	if queue := t.script[operation]; len(queue) > 0 {
		t.script[operation] = queue[1:]
		return queue[0]
	}
	return t.always[operation]
}

// DropBefore loses the request: the connection breaks and the server never
// hears of it.
func DropBefore(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
	return nil, syscall.ECONNRESET
}

// DropAfter loses the reply: the server has done what was asked.
func DropAfter(_ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
	resp, err := next()
	if err != nil {
		return nil, err
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return nil, syscall.ECONNRESET
}

// Duplicate sends the request twice and gives the second reply, as a router
// does that tries again by itself.
func Duplicate(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
	if _, err := DropAfter(r, next); err != syscall.ECONNRESET {
		return nil, err
	}
	return next()
}

// Hold announces the request on arrived, and sends it when released is closed
// or yields. A request whose context ends meanwhile is never sent.
func Hold(arrived chan<- struct{}, released <-chan struct{}) Fault {
	return func(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		arrived <- struct{}{}
		select {
		case <-released:
			return next()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// HoldReply sends the request at once, announces on arrived that the server has
// answered, and passes the reply on when released is closed or yields.
func HoldReply(arrived chan<- struct{}, released <-chan struct{}) Fault {
	return func(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		resp, err := next()
		if err != nil {
			return nil, err
		}
		arrived <- struct{}{}
		select {
		case <-released:
			return resp, nil
		case <-r.Context().Done():
			resp.Body.Close()
			return nil, r.Context().Err()
		}
	}
}

// CutReply passes on only the first n bytes of the reply's body.
func CutReply(n int64) Fault {
	return func(_ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		resp, err := next()
		if err != nil {
			return nil, err
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, n), brokenReader{}), resp.Body}
		return resp, nil
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// Reply answers in the server's place: the request is not sent.
func Reply(status int, body string) Fault {
	return func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		return answer(r, status, body), nil
	}
}

// FailAfter lets the server do what was asked and answers with an internal
// error all the same, as AWS's request router can.
func FailAfter(r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
	if _, err := DropAfter(r, next); err != syscall.ECONNRESET {
		return nil, err
	}
	return answer(r, http.StatusInternalServerError, errorBody("InternalServerError", "internal server error", "")), nil
}

// Throttle refuses a request as DynamoDB does: exception is
// "ProvisionedThroughputExceededException", "ThrottlingException" or
// "RequestLimitExceeded", and reason, which may be empty, is for example
// "TableWriteKeyRangeThroughputExceeded".
func Throttle(exception, reason string) Fault {
	return Reply(http.StatusBadRequest, errorBody(exception, "throughput exceeds the current capacity", reason))
}

func errorBody(exception, message, reason string) string {
	reasons := ""
	if reason != "" {
		member := "ThrottlingReasons"
		if exception == "ThrottlingException" {
			member = "throttlingReasons" // so it is in DynamoDB's model
		}
		reasons = fmt.Sprintf(`,%q:[{"reason":%q,"resource":"arn:aws:dynamodb:us-east-1:123456789012:table/t"}]`, member, reason)
	}
	return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q%s}`, exception, message, reasons)
}

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode:    status,
		Status:        http.StatusText(status),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}
}

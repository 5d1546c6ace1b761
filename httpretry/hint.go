package httpretry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// hint is the wait that an answer asks for, 0 or more; not ok when it asks for
// none that can be read. A field that is malformed counts as missing.
func hint(h http.Header, now time.Time) (time.Duration, bool) {
	if wait, ok := retryAfter(h, now); ok {
		return wait, true
	}
	if wait, ok := rateLimit(h.Values("Ratelimit")); ok {
		return wait, true
	}
	if left := h.Get("Ratelimit-Remaining"); left != "" && left != "0" {
		return 0, false
	}
	return seconds(h.Get("Ratelimit-Reset"))
}

// retryAfter reads Retry-After. Of several, which a proxy may cause, the longest
// counts.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, v := range h.Values("Retry-After") {
		asked, readable := seconds(v)
		if until, err := http.ParseTime(v); err == nil {
			// Both dates are of the server's clock, the client's may differ.
			if sent, err := http.ParseTime(h.Get("Date")); err == nil {
				now = sent
			}
			asked, readable = until.Sub(now), true
		}
		if readable {
			wait, ok = max(wait, asked), true
		}
	}
	return wait, ok
}

// rateLimit reads the RateLimit field of draft 11. The exhausted policies are
// those that refused; if one of them does not say when more comes, nobody knows.
func rateLimit(field []string) (wait time.Duration, ok bool) {
	list, err := httpsfv.UnmarshalList(field)
	if err != nil {
		return 0, false
	}
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			continue
		}
		if r, _ := item.Params.Get("r"); r != int64(0) {
			continue
		}
		v, _ := item.Params.Get("t")
		t, isInt := v.(int64)
		if !isInt || t < 0 {
			return 0, false
		}
		wait, ok = max(wait, span(t)), true
	}
	return wait, ok
}

// seconds reads a count of whole seconds: digits and nothing else. A count that
// no integer holds is a very long wait, and never none.
func seconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return span(n), true
}

// span is a number of seconds, or the longest duration where that is less.
func span(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

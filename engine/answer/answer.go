// Package answer turns what the engine decided into the fields and bodies of
// responses. It is the one place where that happens, for every edge: net/http,
// the proxy, Lambda, and whatever comes.
//
// Three things are said in many ways on the web, and here always mean the same:
// a limit is the capacity of a bucket or the count of a window; remaining is in
// whole units, rounded down, and is left out when it is not known; a reset or a
// wait is in whole seconds from now, rounded up, until more can be had.
package answer

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Writer writes answers. It keeps what never changes of a limit. The zero value
// is ready, and safe for concurrent use.
type Writer struct {
	faces atomic.Pointer[map[*policy.Rule]*face]
	mu    sync.Mutex
	zones zoneCache
}

// face is what responses show of a limit whatever the decision.
type face struct {
	name     string // as a structured field's string
	policy   string // the item of RateLimit-Policy
	max      string
	interval time.Duration // in which a bucket regains one unit; 0 for windows
	most     int64
}

// maxFaces bounds the table: every reload of a policy brings new rules.
const maxFaces = 1024

func (w *Writer) face(v *engine.Verdict) *face {
	if v.Limit != v.Rule.Limit && v.Rule.Layer != policy.Edge && v.Limit.String() != v.Rule.Limit.String() {
		return newFace(v.Limit) // one caller's own limit, or a share, in place of the rule's
	}
	if m := w.faces.Load(); m != nil {
		if f := (*m)[v.Rule]; f != nil {
			return f
		}
	}
	f := newFace(v.Limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	next := map[*policy.Rule]*face{v.Rule: f}
	if m := w.faces.Load(); m != nil && len(*m) < maxFaces {
		for k, v := range *m {
			next[k] = v
		}
	}
	w.faces.Store(&next)
	return f
}

// maxInteger is the largest that a structured field may hold (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

func newFace(l weir.Limit) *face {
	f := &face{most: l.Max(), max: strconv.FormatInt(l.Max(), 10)}
	window := l.Period().Duration()
	if l.IsBucket() {
		window = l.Horizon() // in which an empty bucket regains all that q says
		f.interval = window / time.Duration(f.most)
		// An interval is rounded up to a nanosecond, and the window with each of its
		// units: 60/s are sixty in one second, not in two.
		window -= time.Duration(min(f.most, int64(time.Second)) - 1)
	}
	// Names hold nothing that a string of a structured field would escape.
	f.name = `"` + l.Name() + `"`
	f.policy = f.name + ";q=" + strconv.FormatInt(min(f.most, maxInteger), 10) +
		";w=" + strconv.FormatInt(max(1, engine.Seconds(window)), 10)
	return f
}

// until is the time until more can be had: of a refusal what Retry-After says,
// else for a bucket until the next whole unit, for a window until it ends. It is
// 0 when nothing is missing.
func (f *face) until(d *weir.Decision) time.Duration {
	if d.Unknown {
		return 0
	}
	if _, ok := RetryAfter(d); ok {
		return max(d.RetryAfter, 1) // in whole seconds, rounded up, the same as there
	}
	if f.interval > 0 {
		used := max(min(d.Used, f.most), 1)
		return max(d.ResetAfter-time.Duration(used-1)*f.interval, 0)
	}
	return d.ResetAfter
}

// RetryAfter is the value of Retry-After: whole seconds, at least 1. ok is
// false when no wait helps.
func RetryAfter(d *weir.Decision) (seconds int64, ok bool) {
	if d.Allowed || d.Reason == weir.ReasonNever {
		return 0, false
	}
	return max(1, engine.Seconds(d.RetryAfter)), true
}

// Decision is the value of the Weir-Decision field that the proxy sends to the
// service: `allowed;limit="reservations";r=9`, `exempt` or `degraded`.
func (w *Writer) Decision(o *engine.Outcome) string {
	switch {
	case o.Exempt != "":
		return "exempt"
	case o.Degraded:
		return "degraded"
	}
	v := o.Speaks()
	if v == nil {
		return "allowed"
	}
	s := "allowed;limit=" + w.face(v).name
	if !v.Unknown {
		s += ";r=" + strconv.FormatInt(min(v.Remaining, maxInteger), 10)
	}
	return s
}

// shown reports whether a verdict is one that responses list.
func shown(v *engine.Verdict) bool {
	return !v.Shadow && v.Reason != weir.ReasonNotAsked
}

func has(r *policy.Rule, s policy.HeaderStyle) bool {
	for _, h := range r.Headers {
		if h == s {
			return true
		}
	}
	return false
}

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
	"slices"
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
	faces atomic.Pointer[[]*face] // by the rule's place
	mu    sync.Mutex
	zones zoneCache
}

// face is what responses show of a limit whatever the decision.
type face struct {
	rule     *policy.Rule
	name     string // as a structured field's string
	policy   string // the item of RateLimit-Policy
	left     string // that of RateLimit, up to what is left
	max      string
	interval time.Duration // in which a bucket regains one unit; 0 for windows
	most     int64

	// near are, for a rule's bucket, the items of RateLimit for whoever has used one
	// unit, two, and so on, and is told of more in nearSeconds: callers who stay well
	// below a limit are told the same time and again.
	near        []string
	nearSeconds int64
}

// mostNear bounds face.near.
const mostNear = 32

func (w *Writer) face(v *engine.Verdict) *face {
	r := v.Rule
	if v.Limit != r.Limit && r.Layer != policy.Edge && v.Limit.String() != r.Limit.String() {
		return newFace(v.Limit) // one caller's own limit, or a share, in place of the rule's
	}
	if known := w.faces.Load(); known != nil && r.Place() < len(*known) {
		if f := (*known)[r.Place()]; f != nil && f.rule == r {
			return f
		}
	}
	return w.learn(v)
}

// learn notes the face of a rule in the place of one of an earlier policy.
func (w *Writer) learn(v *engine.Verdict) *face {
	f := newFace(v.Limit)
	f.rule = v.Rule
	f.nearSeconds = engine.Seconds(f.interval)
	if f.interval > 0 {
		for left := f.most - 1; left >= 0 && len(f.near) < mostNear; left-- {
			f.near = append(f.near, string(f.appendLeft(nil, left, f.nearSeconds)))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var next []*face
	if known := w.faces.Load(); known != nil {
		next = slices.Clone(*known)
	}
	if n := v.Rule.Place() + 1 - len(next); n > 0 {
		next = append(next, make([]*face, n)...)
	}
	next[v.Rule.Place()] = f
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
	f.left = f.name + ";r="
	f.policy = f.name + ";q=" + strconv.FormatInt(min(f.most, maxInteger), 10) +
		";w=" + strconv.FormatInt(max(1, engine.Seconds(window)), 10)
	return f
}

// text is the item of RateLimit of a decision that is known.
func (f *face) text(d *weir.Decision) string {
	seconds := engine.Seconds(f.until(d))
	if ready := f.ready(d.Remaining, seconds); ready != "" {
		return ready
	}
	var room [80]byte
	return string(f.appendLeft(room[:0], d.Remaining, seconds))
}

// append appends what text returns.
func (f *face) append(b []byte, d *weir.Decision) []byte {
	seconds := engine.Seconds(f.until(d))
	if ready := f.ready(d.Remaining, seconds); ready != "" {
		return append(b, ready...)
	}
	return f.appendLeft(b, d.Remaining, seconds)
}

// ready is the item of RateLimit if it is one of f.near, else "".
func (f *face) ready(remaining, seconds int64) string {
	if used := uint64(f.most - remaining - 1); used < uint64(len(f.near)) && seconds == f.nearSeconds {
		return f.near[used]
	}
	return ""
}

// appendLeft appends the item of RateLimit: how much is left, and the seconds until
// there is more.
func (f *face) appendLeft(b []byte, remaining, seconds int64) []byte {
	b = append(b, f.left...)
	b = strconv.AppendInt(b, min(remaining, maxInteger), 10)
	if seconds > 0 {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, min(seconds, maxInteger), 10)
	}
	return b
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

// onlyIETF reports whether a rule is shown in the default style and no other.
func onlyIETF(r *policy.Rule) bool { return len(r.Headers) == 1 && r.Headers[0] == policy.StyleIETF }

func has(r *policy.Rule, s policy.HeaderStyle) bool {
	for _, h := range r.Headers {
		if h == s {
			return true
		}
	}
	return false
}

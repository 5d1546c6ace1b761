package answer

import (
	"strconv"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Names of response fields in the canonical form of net/http, so that what Go
// code looks up is what was written. On the wire, case means nothing.
const (
	fieldRetryAfter = "Retry-After"
	fieldIETF       = "Ratelimit"
	fieldIETFPolicy = "Ratelimit-Policy"

	fieldLimit     = "Ratelimit-Limit" // draft 6
	fieldRemaining = "Ratelimit-Remaining"
	fieldReset     = "Ratelimit-Reset"

	fieldXLimit     = "X-Ratelimit-Limit" // x, github
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXUsed      = "X-Ratelimit-Used"
	fieldXReset     = "X-Ratelimit-Reset"
	fieldXResource  = "X-Ratelimit-Resource"

	fieldOpenAILimit     = "X-Ratelimit-Limit-Requests" // openai
	fieldOpenAIRemaining = "X-Ratelimit-Remaining-Requests"
	fieldOpenAIReset     = "X-Ratelimit-Reset-Requests"
)

// LimitFields are the names of all response fields that any style writes, as a
// browser must be told of them.
const LimitFields = "Retry-After, RateLimit, RateLimit-Policy, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, " +
	"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource, " +
	"X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests"

// Fields sets, in h, the limit fields of an outcome in the styles of its rules.
// Fields of the same names that a service wrote are replaced, or removed where
// the value is not known; the others stay. The values are kept in scratch as
// long as it has room: pass part of an array that lives as long as h, or nil.
//
// `ietf` lists every enforced limit of the call; the other styles show the one
// that speaks.
func (w *Writer) Fields(h map[string][]string, o *engine.Outcome, scratch []string) {
	if v := o.Speaks(); v != nil && len(o.Verdicts) == 1 && !v.Unknown && onlyIETF(v.Rule) {
		w.one(h, v, scratch) // as most answers are
		return
	}
	w.all(h, o, scratch)
}

// one sets the fields of the only limit that was asked, in the default style.
func (w *Writer) one(h map[string][]string, v *engine.Verdict, scratch []string) {
	f := w.face(v)
	if cap(scratch) < 2 {
		scratch = make([]string, 2)
	}
	values := scratch[:2]
	values[0], values[1] = f.policy, f.text(&v.Decision)
	h[fieldIETFPolicy] = values[0:1:1] // an Add by somebody else copies
	h[fieldIETF] = values[1:2:2]
}

// all sets the fields of any outcome.
func (w *Writer) all(h map[string][]string, o *engine.Outcome, scratch []string) {
	s := setter{h: h, room: scratch[:0]}
	w.ietf(&s, o)
	v := o.Speaks()
	if v == nil || onlyIETF(v.Rule) {
		return
	}
	f := w.face(v)
	remaining, reset := "", ""
	until := f.until(&v.Decision)
	if !v.Unknown {
		remaining = strconv.FormatInt(v.Remaining, 10)
		reset = strconv.FormatInt(engine.Seconds(until), 10)
	}
	for _, style := range v.Rule.Headers {
		switch style {
		case policy.StyleDraft6:
			s.set(fieldLimit, f.max)
			s.set(fieldRemaining, remaining)
			s.set(fieldReset, reset)
		case policy.StyleX:
			s.set(fieldXLimit, f.max)
			s.set(fieldXRemaining, remaining)
		case policy.StyleGitHub:
			s.set(fieldXLimit, f.max)
			s.set(fieldXRemaining, remaining)
			s.set(fieldXResource, v.Limit.Name())
			used, epoch := "", ""
			if !v.Unknown {
				used = strconv.FormatInt(v.Used, 10)
				at := o.Time().Add(until)
				if until == v.ResetAfter {
					at = v.ResetAt(o.Time())
				}
				epoch = strconv.FormatInt(ceilUnix(at), 10)
			}
			s.set(fieldXUsed, used)
			s.set(fieldXReset, epoch)
		case policy.StyleOpenAI:
			s.set(fieldOpenAILimit, f.max)
			s.set(fieldOpenAIRemaining, remaining)
			wait := ""
			if !v.Unknown {
				wait = (time.Duration(engine.Seconds(until)) * time.Second).String()
			}
			s.set(fieldOpenAIReset, wait)
		}
	}
}

// ietf writes both fields of draft 11, the policies and what is left of each,
// with one allocation: the policy of a limit never changes, and of several
// limits both fields are parts of one string.
func (w *Writer) ietf(s *setter, o *engine.Outcome) {
	var room [2][160]byte
	policies, left := room[0][:0], room[1][:0]
	var only *face
	n := 0
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if !shown(v) || !has(v.Rule, policy.StyleIETF) {
			continue
		}
		f := w.face(v)
		switch n++; n {
		case 1:
			only = f
		case 2:
			policies = append(policies, only.policy...)
			fallthrough
		default:
			policies = append(policies, ", "...)
			policies = append(policies, f.policy...)
		}
		if v.Unknown {
			continue
		}
		if len(left) > 0 {
			left = append(left, ", "...)
		}
		left = f.append(left, &v.Decision)
	}
	switch {
	case n == 0:
	case n == 1:
		s.set(fieldIETFPolicy, only.policy)
		s.set(fieldIETF, string(left))
	default:
		text := string(append(policies, left...))
		s.set(fieldIETFPolicy, text[:len(policies)])
		s.set(fieldIETF, text[len(policies):])
	}
}

func ceilUnix(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// setter sets fields whose values lie in one array.
type setter struct {
	h    map[string][]string
	room []string
}

// set replaces a field, or removes it when there is no value.
func (s *setter) set(name, value string) {
	if value == "" {
		delete(s.h, name)
		return
	}
	if len(s.room) == cap(s.room) {
		s.room = make([]string, 0, 8)
	}
	n := len(s.room)
	s.room = append(s.room, value)
	// The capacity ends with the value: an Add by somebody else copies.
	s.h[name] = s.room[n : n+1 : n+1]
}

package engine

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Verdict is what one limit of the policy said of the request.
type Verdict struct {
	Rule   *policy.Rule
	Key    weir.Key // the item that was judged; never show it, log it hashed
	Shadow bool     // the limit only watches: it never refuses and is never shown
	open   bool     // noted in openCalls as a call
	units  int64    // held, as noted there
	excess int64    // units beyond a metered quota that were told of so far
	weir.Decision
}

// Outcome is everything that an edge is given for one request. It is filled by
// [Engine.Decide] and belongs to one goroutine at a time.
type Outcome struct {
	// Status is 0 when the request is to be served. Otherwise the edge answers
	// with it: 429, 503 where a fail-closed limit could not ask its store, or
	// the status of Err.
	Status int

	// Err is set when the request was refused before any limit: a broken path,
	// an invalid token, a missing API key. Its text may be shown.
	Err *policy.RequestError

	// Exempt is the name of the exemption under which no limit was asked.
	Exempt string

	// Verdicts holds the limits that were asked: edge, then gateway, then
	// application, each in the order of the policy. Shadow limits are among
	// them. What stood behind a refusal was not asked: it is missing, or has
	// [weir.ReasonNotAsked]. They are those of the decision; after a give-back
	// they say what is left by it.
	Verdicts []Verdict

	// Client is the address that the policy takes for the caller's.
	Client netip.Addr

	// Identity is who calls, where somebody was identified or is known; else nil.
	Identity *policy.Identity

	// Degraded reports that a store did not answer and a failure mode decided.
	Degraded bool

	// Repeated reports that a request with the same id was charged before, so that
	// this one took nothing: see once: of the policy.
	Repeated bool

	judged bool
	once   bool  // held ends with the op of the request's id
	speaks int16 // index into Verdicts, -1 for none
	first  int16 // the first verdict that held belongs to
	st     *state
	now    int64
	denial uint64 // random; 0 unless a limit refused
	held   *weir.Reservation

	// Room for the common case, without an allocation.
	verdicts [1]Verdict
}

// Served reports whether the request goes on to the service.
func (o *Outcome) Served() bool { return o.Status == 0 }

// Limited reports whether a limit refused the request.
func (o *Outcome) Limited() bool { return o.Status != 0 && o.Err == nil }

// DenialID names a refusal by a limit to people, in the body and in logs. It is
// "" of any other outcome.
func (o *Outcome) DenialID() string {
	if o.denial == 0 {
		return ""
	}
	return denialID(o.denial)
}

// Speaks is the verdict that an answer shows where it can show one only: of a
// refusal the longest wait, of a served request one that is not known, else the
// smallest share that remains. It is nil when no enforced limit was asked.
func (o *Outcome) Speaks() *Verdict {
	if o.speaks < 0 || int(o.speaks) >= len(o.Verdicts) {
		return nil
	}
	return &o.Verdicts[o.speaks]
}

// Decision is that of the verdict that speaks, for [weir.NewContext].
func (o *Outcome) Decision() (weir.Decision, bool) {
	if v := o.Speaks(); v != nil {
		return v.Decision, true
	}
	return weir.Decision{}, false
}

// Policy is the one by which the request was judged: a reload does not change
// it for requests under way.
func (o *Outcome) Policy() *policy.Policy { return o.st.policy }

// Time is when the request was judged.
func (o *Outcome) Time() time.Time { return time.Unix(0, o.at()) }

// showsTime reports whether the answer, which may come much later, shows an
// instant that depends on when the request was judged.
func (o *Outcome) showsTime() bool {
	v := o.Speaks()
	return v != nil && slices.Contains(v.Rule.Headers, policy.StyleGitHub)
}

func (o *Outcome) at() int64 {
	if o.now == 0 {
		o.now = o.st.engine.now()
	}
	return o.now
}

// judge finds who speaks and with which status the edge answers.
func (o *Outcome) judge(refused bool) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		o.Degraded = o.Degraded || v.Degraded && !v.Shadow
		if v.Shadow || v.Reason == weir.ReasonNotAsked || refused && v.Allowed {
			continue
		}
		if o.speaks < 0 || before(v, &o.Verdicts[o.speaks], refused) {
			o.speaks = int16(i)
		}
	}
	if !refused {
		return
	}
	o.Status = http.StatusTooManyRequests
	if v := o.Speaks(); v != nil && v.Reason == weir.ReasonUnavailable {
		o.Status = http.StatusServiceUnavailable
	}
}

// before reports whether a speaks rather than b, which stands earlier.
func before(a, b *Verdict, refused bool) bool {
	if refused {
		// A cost that never fits outlasts every wait, and a limit that is known
		// to refuse says more than one that could not be asked.
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra > rb
		}
		return a.RetryAfter > b.RetryAfter
	}
	if a.Unknown != b.Unknown {
		return a.Unknown
	}
	return share(a) < share(b)
}

func rank(v *Verdict) int {
	switch v.Reason {
	case weir.ReasonNever:
		return 2
	case weir.ReasonUnavailable:
		return 0
	}
	return 1
}

func share(v *Verdict) float64 {
	return float64(v.Remaining) / float64(max(1, v.Limit.Max()))
}

package answer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Response is what an edge sends in place of the service's answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // nil for HEAD and gRPC
}

// body is the JSON of a refusal. Additions are fine; these names stay.
type body struct {
	Error             string `json:"error"`
	Message           string `json:"message,omitempty"`
	UpgradeURL        string `json:"upgradeUrl,omitempty"`
	Limit             string `json:"limit,omitempty"`
	RetryAfterSeconds *int64 `json:"retryAfterSeconds,omitempty"`
	DenialID          string `json:"denialId,omitempty"`
}

// problem is the same as RFC 9457 wants it, with the problem types of the
// RateLimit draft. Its detail is the body's message.
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	body
}

// day is from where on a quota is called one to people.
const day = 24 * time.Hour

const problemType = "https://iana.org/assignments/http-problem-types#"

// Refusal is the whole answer to a request that is not served, with its fields in h,
// where others of the same names give way. It must be asked only when
// [engine.Outcome.Served] is false.
func (w *Writer) Refusal(h http.Header, o *engine.Outcome, a *policy.Attributes) Response {
	const fields = 2 // of the default style
	values := make([]string, 8)
	s := setter{h: h, room: values[fields:fields]}
	s.set("Cache-Control", "no-store")
	w.Fields(h, o, values[:0:fields])
	cors(h, o, a)
	b := body{DenialID: o.DenialID()}
	kind := "about:blank"
	var data policy.MessageData
	switch v := o.Speaks(); {
	case o.Err != nil:
		b.Error, b.Message = o.Err.Code, o.Err.Reason
		challenge(h, o)
	case v != nil:
		var language string
		b.Error, b.Limit = code(v), v.Rule.Name
		if b.Message, language, data = w.message(o, a, v); v.Rule.Denied.Locales != nil {
			if vary(h, "Accept-Language"); language != "" {
				s.set("Content-Language", language)
			}
		}
		if v.Rule.Layer != policy.Edge {
			b.UpgradeURL = v.Rule.Denied.UpgradeURL
		}
		if seconds, ok := RetryAfter(&v.Decision); ok {
			b.RetryAfterSeconds = &seconds
			s.set(fieldRetryAfter, strconv.FormatInt(seconds, 10))
		}
		kind = problemType + "quota-exceeded"
		if o.Status == http.StatusServiceUnavailable {
			kind = problemType + "temporary-reduced-capacity"
		}
	}
	if isGRPC(a) {
		return trailersOnly(h, o, cmp.Or(b.Message, http.StatusText(o.Status)))
	}
	r := Response{Status: o.Status, Header: h}
	if v := o.Speaks(); v != nil && o.Err == nil && v.Rule.Denied.Body != nil && spoken(v) {
		var contentType string
		r.Body, contentType = ownBody(o, v, &b, data)
		s.set("Content-Type", contentType)
	} else if wantsProblem(a.Header["Accept"]) {
		s.set("Content-Type", "application/problem+json")
		p := problem{Type: kind, Title: title(o.Status, kind), Status: o.Status, Detail: b.Message, ViolatedPolicies: violated(o), body: b}
		p.Message = ""
		r.Body = encode(p)
	} else {
		s.set("Content-Type", "application/json")
		r.Body = encode(b)
	}
	s.set("Content-Length", strconv.Itoa(len(r.Body)))
	if a.Method == http.MethodHead {
		r.Body = nil
	}
	return r
}

// violated are the names of the limits that refused a request.
func violated(o *engine.Outcome) (names []string) {
	if o.Err != nil {
		return nil
	}
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; shown(v) && !v.Allowed && v.Reason != weir.ReasonUnavailable {
			names = append(names, v.Limit.Name())
		}
	}
	return names
}

// code is the refusal's kind for machines.
func code(v *engine.Verdict) string {
	switch {
	case v.Reason == weir.ReasonUnavailable:
		return "temporary_reduced_capacity"
	case v.Reason == weir.ReasonInFlight:
		return "in_flight"
	case v.Limit.OnCalendar(), v.Limit.IsQuota() && v.Limit.Period().Duration() >= day:
		return "quota_exhausted"
	}
	return "rate_limited"
}

func title(status int, kind string) string {
	switch kind {
	case problemType + "quota-exceeded":
		return "Request cannot be satisfied as assigned quota has been exceeded"
	case problemType + "temporary-reduced-capacity":
		return "Request cannot be satisfied due to temporary server capacity constraints"
	}
	return http.StatusText(status)
}

// challenge adds what HTTP requires beside some statuses.
func challenge(h http.Header, o *engine.Outcome) {
	switch o.Status {
	case http.StatusUnauthorized:
		// RFC 9110, 11.6.1: a 401 names a way to authenticate.
		h["Www-Authenticate"] = []string{"Bearer"}
	case http.StatusMethodNotAllowed:
		h["Allow"] = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	case http.StatusServiceUnavailable:
		h[fieldRetryAfter] = []string{"1"}
	}
}

// cors lets the page of a listed origin read a refusal: the service, which
// would have said so, was never asked.
func cors(h http.Header, o *engine.Outcome, a *policy.Attributes) {
	origins := o.Policy().CORS()
	if len(origins) == 0 || len(a.Header["Origin"]) != 1 {
		return
	}
	origin := a.Header["Origin"][0]
	if !slices.Contains(origins, strings.ToLower(origin)) { // the policy's are in lower case
		return
	}
	h["Access-Control-Allow-Origin"] = []string{origin}
	h["Access-Control-Expose-Headers"] = []string{LimitFields}
	vary(h, "Origin")
}

// vary adds to what an answer depends on. What is there may be shared: it is copied.
func vary(h http.Header, name string) { h["Vary"] = append(slices.Clip(h["Vary"]), name) }

// wantsProblem reports whether an Accept names problem+json and likes it no
// less than plain JSON.
func wantsProblem(accept []string) bool {
	problem, plain := 0.0, 0.0
	for _, field := range accept {
		for part := range strings.SplitSeq(field, ",") {
			kind, params, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/problem+json":
				problem = max(problem, quality(params))
			case "application/json":
				plain = max(plain, quality(params))
			}
		}
	}
	return problem > 0 && problem >= plain
}

func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok && strings.EqualFold(name, "q") {
			if q, err := strconv.ParseFloat(value, 64); err == nil {
				return q
			}
		}
	}
	return 1
}

func encode(v any) []byte {
	b := bytes.NewBuffer(make([]byte, 0, 320))
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false) // a message with an & is for people, not for a page
	if err := e.Encode(v); err != nil {
		// Structs of strings and integers always encode.
		return []byte(`{"error":"internal"}` + "\n")
	}
	return b.Bytes()
}

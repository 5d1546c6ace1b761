package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

// explainReport is the JSON of explain.
type explainReport struct {
	SchemaVersion int            `json:"schema_version"`
	Request       askedRequest   `json:"request"`
	Caller        askedCaller    `json:"caller"`
	Exempt        string         `json:"exempt"` // the exemption's name, or ""
	Fates         []fateReport   `json:"rules"`
	Verdict       verdictReport  `json:"verdict"`
	StoreCalls    int            `json:"store_calls"`
	AtOnce        *int           `json:"at_once"`      // null: more than are tried
	FirstDenial   *verdictReport `json:"first_denial"` // of requests sent at one instant; null without one
	FirstTen      []float64      `json:"first_ten"`    // seconds until each is served, sent as early as it passes
}

type askedRequest struct {
	Method   string   `json:"method"`
	Host     string   `json:"host"`
	Path     string   `json:"path"`
	Readings []string `json:"readings"` // of the path
	Peer     string   `json:"peer"`
	Client   string   `json:"client"` // whom the policy takes for the caller's address; "" when it does not look
}

type askedCaller struct {
	Claims map[string]any `json:"claims"`
	Owner  string         `json:"api_key_owner"`
	Key    string         `json:"api_key_plan"`
	Plan   string         `json:"plan"` // in the application
}

type fateReport struct {
	Layer   string       `json:"layer"` // exempt, edge, gateway or application
	Name    string       `json:"name"`
	Applies bool         `json:"applies"`
	Why     string       `json:"why"`
	Pattern string       `json:"pattern"`
	Limits  []limitState `json:"limits"`
}

// limitState is one limit that a rule asks, with what it holds before the request.
type limitState struct {
	Name       string  `json:"name"`
	Plan       string  `json:"plan"`
	Limit      string  `json:"limit"`
	Means      string  `json:"means"` // what passes at once, and then
	By         string  `json:"by"`
	Key        string  `json:"key"`
	Cost       int64   `json:"cost"`
	Mode       string  `json:"mode"`
	Override   bool    `json:"override"` // the limit is the caller's own, in place of the policy's
	Used       int64   `json:"used"`
	Remaining  int64   `json:"remaining"`
	Reset      float64 `json:"reset_seconds"`
	Asked      bool    `json:"asked"` // false: another limit had refused before
	Allowed    bool    `json:"allowed"`
	RetryAfter int64   `json:"retry_after_seconds"`
}

type verdictReport struct {
	Allowed    bool              `json:"allowed"`
	Status     int               `json:"status"` // 0 when the service answers
	Layer      string            `json:"layer"`  // of the limit that speaks
	Limit      string            `json:"limit"`
	RetryAfter *int64            `json:"retry_after_seconds"`
	Headers    map[string]string `json:"headers"`
	Body       json.RawMessage   `json:"body"` // null when the service answers
}

func (x *explained) report() *explainReport {
	a := &x.question.attributes
	client := ""
	if x.found.Match.Client.IsValid() {
		client = x.found.Match.Client.String()
	}
	r := &explainReport{
		SchemaVersion: 1,
		Request:       askedRequest{a.Method, a.Host, a.Path, append([]string{}, x.found.Readings...), a.Peer.String(), client},
		Caller:        askedCaller{x.identity.Claims, x.identity.KeyOwner, x.identity.KeyPlan, x.found.Plan},
		Exempt:        x.found.Match.Exempt,
		Fates:         []fateReport{},
		Verdict:       *verdictOf(x.outcome, &x.answer),
		StoreCalls:    x.storeCalls(),
		FirstTen:      []float64{},
	}
	for i := range x.found.Fates {
		r.Fates = append(r.Fates, x.fate(&x.found.Fates[i]))
	}
	if x.course.refused != nil {
		r.AtOnce = &x.course.AtOnce
		r.FirstDenial = verdictOf(x.course.refused, x.course.answer)
	}
	if f := x.found.Refused; f != nil && !x.outcome.Limited() {
		r.Verdict.Layer, r.Verdict.Limit = string(f.Layer), f.Name
	}
	for _, d := range x.course.Served {
		r.FirstTen = append(r.FirstTen, d.Seconds())
	}
	return r
}

func (x *explained) fate(f *policy.Fate) fateReport {
	r := fateReport{Layer: cmp.Or(string(f.Layer), "exempt"), Name: f.Name, Applies: f.Applies, Why: f.Why, Pattern: f.Pattern, Limits: []limitState{}}
	for i := range f.Ops {
		op := &f.Ops[i]
		before := x.before[op.Rule]
		s := limitState{
			Name: op.Rule.Name, Plan: op.Rule.Plan, Limit: op.Limit.String(), Means: means(op.Limit), By: op.Rule.By, Key: op.Key.String(),
			Cost: max(1, op.Cost), Mode: string(op.Rule.Mode), Override: op.Overridden, Used: before.Used, Remaining: before.Remaining, Reset: before.ResetAfter.Seconds(),
		}
		for j := range x.outcome.Verdicts {
			if v := &x.outcome.Verdicts[j]; v.Rule == op.Rule && v.Key == op.Key && v.Reason != weir.ReasonNotAsked {
				s.Asked, s.Allowed, s.RetryAfter = true, v.Allowed, engine.Seconds(v.RetryAfter)
			}
		}
		r.Limits = append(r.Limits, s)
	}
	return r
}

func verdictOf(o *engine.Outcome, a *answer.Response) *verdictReport {
	r := &verdictReport{Allowed: o.Served(), Status: o.Status, Headers: map[string]string{}}
	if v := o.Speaks(); v != nil {
		r.Layer, r.Limit = string(v.Rule.Layer), v.Rule.Name
		if seconds, ok := answer.RetryAfter(&v.Decision); ok {
			r.RetryAfter = &seconds
		}
	}
	for name, values := range a.Header {
		r.Headers[spelling(http.CanonicalHeaderKey(name))] = strings.Join(values, ", ")
	}
	if json.Valid(a.Body) {
		r.Body = a.Body
	}
	return r
}

// means says in two numbers what a limit lets through: what passes at once, and
// what passes after that.
func means(l weir.Limit) string {
	switch period := l.Period().String(); {
	case l.IsBucket():
		return fmt.Sprintf("%d at once, then 1 every %s", l.Max(), short(l.Horizon()/time.Duration(l.Max())))
	case l.OnCalendar():
		return fmt.Sprintf("%d in each %s of the calendar", l.Max(), period)
	case l.IsQuota():
		return fmt.Sprintf("%d in the %s that begins with the first", l.Max(), period)
	default:
		return fmt.Sprintf("%d in any %s", l.Max(), period)
	}
}

// short is a duration without the zeros at its end: 2s, 1m, 24h.
func short(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// write shows people what was found.
func (x *explained) write(c *common) error {
	r := x.report()
	w := &failing{to: c.stdout}
	w.line("%s %s", r.Request.Method, x.question.attributes.Path)
	switch ways := r.Request.Readings; {
	case len(ways) > 1:
		w.line("  read as %s, by other servers as %s", ways[0], strings.Join(ways[1:], " or "))
	case len(ways) == 1 && ways[0] != r.Request.Path:
		w.line("  read as %s", ways[0])
	}
	w.line("  from %s", x.from(r))
	w.line("  by   %s", x.caller(r))
	layer := ""
	for i := range r.Fates {
		f := &r.Fates[i]
		if f.Layer != layer {
			layer = f.Layer
			w.line("\n%s", c.paint(bold, layer))
		}
		mark := "-"
		if f.Applies {
			mark = c.paint(green, "+")
		}
		w.line("  %s %-16s %s", mark, f.Name, f.Why)
		for j := range f.Limits {
			x.writeLimit(w, &f.Limits[j])
		}
	}
	x.writeVerdict(w, c, r)
	return w.err
}

func (x *explained) from(r *explainReport) string {
	switch {
	case x.question.balancer:
		return "an address that the event does not prove: the function must set Options.TrustForwardedFor to believe its load balancer"
	case x.found.Reported:
		return fmt.Sprintf("%s, as the trusted proxy %s reports", r.Request.Client, r.Request.Peer)
	}
	return cmp.Or(r.Request.Client, r.Request.Peer)
}

func (x *explained) caller(r *explainReport) string {
	if x.found.Readings == nil {
		return "whoever: such a request is refused before"
	}
	if x.unknown != nil {
		return "nobody: " + x.unknown.Reason
	}
	var parts []string
	if sub := r.Caller.Claims["sub"]; sub != nil {
		parts = append(parts, fmt.Sprintf("account %v", sub))
	} else if len(r.Caller.Claims) > 0 {
		parts = append(parts, "a token without sub")
	}
	if r.Caller.Owner != "" {
		parts = append(parts, fmt.Sprintf("API key of %s (plan %s)", r.Caller.Owner, cmp.Or(r.Caller.Key, "none")))
	}
	switch {
	case !x.found.Match.NeedsIdentity:
		parts = append(parts, "whoever: no rule here depends on it")
	case len(parts) == 0:
		parts = append(parts, "nobody known")
	}
	if r.Caller.Plan != "" && x.found.Match.NeedsIdentity {
		plan := "plan " + r.Caller.Plan
		if x.found.PlanWhy != "" {
			plan += " (" + x.found.PlanWhy + ")"
		}
		parts = append(parts, plan)
	}
	return strings.Join(parts, ", ")
}

func (x *explained) writeLimit(w *failing, s *limitState) {
	name := s.Limit
	if s.Mode == string(policy.Shadow) {
		name += ", shadow"
	}
	if s.Override {
		name += ", an override in place of the policy's"
	}
	if s.Cost > 1 {
		name += fmt.Sprintf(", cost %d", s.Cost)
	}
	w.line("      %s: %s", name, s.Means)
	w.line("      key %s, by %s", s.Key, s.By)
	verdict := "allows"
	switch {
	case !s.Asked:
		verdict = "is not asked"
	case !s.Allowed && s.RetryAfter == 0:
		verdict = "can never allow that cost"
	case !s.Allowed:
		verdict = fmt.Sprintf("refuses for %d s", s.RetryAfter)
	}
	state := fmt.Sprintf("%d of %d used", s.Used, s.Used+s.Remaining)
	if s.Reset > 0 && s.Used > 0 {
		state += ", reset in " + short(time.Duration(s.Reset*float64(time.Second)))
	}
	w.line("      %s: %s", state, verdict)
}

func (x *explained) writeVerdict(w *failing, c *common, r *explainReport) {
	w.line("")
	switch v := &r.Verdict; {
	case r.Exempt != "":
		w.line("%s, never limited", c.paint(green, "allowed"))
	case v.Allowed && v.Limit == "":
		w.line("%s, no limit applies", c.paint(green, "allowed"))
	case v.Allowed:
		w.line("%s", c.paint(green, "allowed"))
	default:
		w.line("%s with %d: %s", c.paint(red, "refused"), v.Status, message(&x.answer))
		if f := x.found.Refused; f != nil && !x.outcome.Limited() {
			w.line("  by %s: %s", f.Name, f.Why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Verdict.Headers)) {
		w.line("  %s: %s", name, r.Verdict.Headers[name])
	}
	switch n := r.StoreCalls; {
	case n == 0:
		w.line("store calls: none")
	default:
		w.line("store calls: %d, one write for each item", n)
	}
	if !x.store && len(x.found.Ops) > 0 {
		w.line("counters: as if nobody had called; --store URL looks at those of a store")
	}
	x.writeCourse(w)
}

func (x *explained) writeCourse(w *failing) {
	switch {
	case x.course.refused == nil && len(x.outcome.Verdicts) == 0:
		return
	case x.course.refused == nil:
		w.line("at once: %d such requests and more pass", x.course.AtOnce)
		return
	case x.course.refused.Limited():
		w.line("at once: %s then %d: %s", passing(x.course.AtOnce), x.course.answer.Status, message(x.course.answer))
	}
	if len(x.course.Served) > 0 {
		var at []string
		for _, d := range x.course.Served {
			at = append(at, short(d))
		}
		w.line("the first %d, sent as early as they pass: %s", len(at), strings.Join(at, " "))
	}
}

func passing(n int) string {
	if n == 1 {
		return "1 such request passes,"
	}
	return fmt.Sprintf("%d such requests pass,", n)
}

// failing writes lines until one cannot be written.
type failing struct {
	to  io.Writer
	err error
}

func (f *failing) line(format string, args ...any) {
	if f.err == nil {
		_, f.err = fmt.Fprintf(f.to, format+"\n", args...)
	}
}

package policy

import (
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// settledFacts is facts of which only those names can be read that a rule settles
// before any request: the others lie behind a nil pointer, and reading one fails.
// An expression that computes a result all the same has it for every request that
// it is asked about.
type settledFacts struct {
	*settledMethod
	*settledHost
	*settledPlan
	*openFacts
}

type settledMethod struct {
	Method string `expr:"method"`
}
type settledHost struct {
	Host string `expr:"host"`
}
type settledPlan struct {
	Plan string `expr:"plan"`
}
type openFacts struct {
	Path   string                   `expr:"path"`
	IP     string                   `expr:"ip"`
	Claims map[string]any           `expr:"claims"`
	Header func(name string) string `expr:"header"`
	Query  func(name string) string `expr:"query"`
}

// constant computes an expression that uses no name of a request. It is not ok for
// one that does.
func (l *loader) constant(text string, want reflect.Kind) (result any, err error, ok bool) {
	none := &struct{}{}
	run, err := l.expressions(text, none, want)
	if err != nil {
		return nil, nil, false
	}
	result, err = run(none)
	return result, err, true
}

// maxSettled bounds how often an expression is computed to see what it can be.
const maxSettled = 1000

// results are those that an expression has for the requests of a rule, where they
// follow from the rule's own methods and hosts and from the policy's plans; none
// where they depend on more.
func (k *compiler) results(d *described, text string, want reflect.Kind) []any {
	if v, err, ok := k.constant(text, want); ok {
		if err != nil {
			return []any{err}
		}
		return []any{v}
	}
	run, err := k.expressions(text, &settledFacts{}, want)
	if err != nil {
		return nil
	}
	plans := []string{""}
	if len(k.p.plans) > 0 {
		plans = k.p.plans
	}
	places := d.places()
	if len(places)*len(plans) > maxSettled {
		return nil
	}
	var out []any
	for _, place := range places {
		for _, plan := range plans {
			f := &settledFacts{settledPlan: &settledPlan{plan}}
			if place.method != "" {
				f.settledMethod = &settledMethod{place.method}
			}
			if place.host != "" {
				f.settledHost = &settledHost{place.host}
			}
			v, err := run(f)
			if err != nil {
				return nil
			}
			if !slices.Contains(out, v) { // true, false or a number
				out = append(out, v)
			}
		}
	}
	return out
}

// place is what a pattern says of a request beside its path; "" for any.
type place struct{ method, host string }

// places are those of a rule's patterns.
func (d *described) places() []place {
	var out []place
	for _, p := range d.patterns {
		methods := []string{p.method}
		if p.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		for _, m := range methods {
			if one := (place{m, p.host}); !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
	}
	if len(out) == 0 {
		return []place{{}}
	}
	return out
}

// settled finds expressions whose result is known before any request comes.
func (k *compiler) settled(d *described) {
	c := d.conf
	if c.mode == "off" || k.expressions == nil {
		return
	}
	if d.rule.when != nil {
		switch results := k.results(d, c.when.text, reflect.Bool); {
		case len(results) != 1:
		case results[0] == false:
			k.doubt(c.when, codeNeverMet, "correct the condition, or remove the limit", "the limit %s is never reached: %s", k.nameOf(d), d.holds("never"))
		case results[0] == true:
			k.doubt(c.when, codeNoEffect, "remove the line", "when: has no effect: %s", d.holds("always"))
		default:
			k.doubt(c.when, codeAlwaysFails, "correct the condition", "when: fails for every request (%s): on_error alone decides", firstLine(results[0]))
		}
	}
	if d.rule.cost.program == nil {
		return
	}
	results := k.results(d, c.cost.text, reflect.Float64)
	if len(results) == 0 {
		return
	}
	most, all := int64(0), true // that one call may cost, under the most generous of the limits; whether each call has one
	for _, list := range append([][]*Rule{d.rule.full, d.rule.anon}, d.rule.byPlan...) {
		if len(list) == 0 {
			continue
		}
		least := int64(math.MaxInt64)
		for _, l := range list {
			if !l.Metered || !l.Limit.IsQuota() { // that one charges whatever comes
				least = min(least, l.Limit.Max())
			}
		}
		most = max(most, least)
	}
	for _, list := range d.rule.byPlan {
		all = all && len(list) > 0
	}
	fails, tooMuch := true, most > 0
	for _, v := range results {
		x, ok := v.(float64)
		bad := !ok || math.IsNaN(x) || x < 0
		fails, tooMuch = fails && bad, tooMuch && !bad && math.Ceil(x) > float64(most)
	}
	switch {
	case fails:
		k.doubt(c.cost, codeAlwaysFails, "a cost is 0 or more", "cost: fails for every request (%s): on_error alone decides", firstLine(noCost{results[0]}))
	case tooMuch:
		which, is := "every call", "is"
		if !all {
			which = "every call that it counts" // there is a plan without limit
		}
		if d.rule.shadow {
			is = "would be"
		}
		k.doubt(c.cost, codeAlwaysFails, "raise the burst or lower the cost", "%s %s refused: the limit can never hold the cost of one, %v", which, is, results[0])
	}
}

// holds says when a condition holds, and of which requests that was seen.
func (d *described) holds(when string) string {
	var of []string
	for _, p := range d.places() {
		if p.method != "" && !slices.Contains(of, p.method) {
			of = append(of, p.method)
		}
	}
	text := "its condition " + when + " holds"
	if len(of) > 0 {
		text += " for " + strings.Join(of, " or ")
	}
	return text
}

func firstLine(v any) string {
	if err, ok := v.(error); ok {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return line
	}
	return ""
}

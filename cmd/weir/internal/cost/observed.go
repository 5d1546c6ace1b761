package cost

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Observed makes the traffic of a month from a decision log. The zero value is
// ready. It is not safe for concurrent use.
type Observed struct {
	from, to time.Time
	weight   float64
	sampled  int // allowed decisions in the log that stand for more than themselves
	limits   map[string]*observed
	keys     map[string]struct{}
}

type observed struct {
	calls, refused float64
}

// Bounds of what a log can say.
const (
	maxKeys    = 5_000_000        // that are told apart; with more, there are at least so many
	leastTime  = 10 * time.Minute // below, a day's rhythm is pure chance
	leastLines = 100              // sampled ones; their number is off by a tenth, usually, at that
)

// Add takes one decision. Edge rules and shadow limits cost the store nothing
// that the log could show.
func (o *Observed) Add(r *engine.Record) {
	if r.Layer == policy.Edge || r.Shadow || r.Event != "" {
		return
	}
	if o.limits == nil {
		o.limits, o.keys, o.from = map[string]*observed{}, map[string]struct{}{}, r.Time
	}
	if r.Time.Before(o.from) {
		o.from = r.Time
	}
	if r.Time.After(o.to) {
		o.to = r.Time
	}
	o.weight = max(o.weight, r.Weight)
	l := o.limits[r.Limit]
	if l == nil {
		l = &observed{}
		o.limits[strings.Clone(r.Limit)] = l
	}
	l.calls += r.Weight
	if !r.Allowed {
		l.refused += r.Weight
	} else if r.Weight > 1 {
		o.sampled++
	}
	if _, known := o.keys[r.KeyHash]; !known && r.KeyHash != "" && len(o.keys) < maxKeys {
		o.keys[strings.Clone(r.KeyHash)] = struct{}{}
	}
}

// Unknown are limits of the log that the policy does not have, sorted. Their calls
// are counted like all others.
func (o *Observed) Unknown(p *policy.Policy) []string {
	var names []string
	for name := range o.limits {
		if !slices.ContainsFunc(p.Rules(), func(r *policy.Rule) bool { return r.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Traffic fills in t what the log says of a policy's requests. It fails, and says
// what to do, when the log says too little.
func (o *Observed) Traffic(p *policy.Policy, t *Traffic) error {
	span := o.to.Sub(o.from)
	switch {
	case len(o.limits) == 0:
		return fmt.Errorf("the log holds no decision of a gateway or application limit")
	case span < leastTime:
		return fmt.Errorf("the log covers %s, and a month cannot be made of less than %s; give the traffic with --rps", span.Round(time.Second), leastTime)
	case o.weight > 1 && o.sampled < leastLines:
		return fmt.Errorf("the log holds %d sampled lines of allowed calls, and an estimate needs %d; write more of them with --decision-log-allowed, or give the traffic with --rps", o.sampled, leastLines)
	}
	// The limits of one route meet the same requests, each with a line of its own;
	// those of different routes meet others.
	routes := map[string]*observed{}
	for name, l := range o.limits {
		route := routeOf(p, name)
		r := routes[route]
		if r == nil {
			r = &observed{}
			routes[route] = r
		}
		r.calls = max(r.calls, l.calls)
		r.refused += l.refused
	}
	var calls, refused float64
	for _, r := range routes {
		calls += r.calls
		refused += min(r.refused, r.calls)
	}
	t.RPS = calls / span.Seconds()
	t.DeniedShare = refused / calls
	if o.weight <= 1 {
		t.Keys = int64(len(o.keys))
	}
	return nil
}

// routeOf names what a limit meets by its patterns; one that the policy does not
// have is a route of its own.
func routeOf(p *policy.Policy, limit string) string {
	for _, r := range p.Rules() {
		if r.Name == limit {
			return strings.Join(r.Patterns, "\n")
		}
	}
	return "limit " + limit
}

// Package diff says what one policy changes against another, and for whom: in
// words that name callers and not lines of a file.
//
// It compares what is in force, plan by plan and with everything that the file
// leaves to defaults filled in, so that a file which is merely written in another
// way has no changes. [Replay] holds changes against a decision log.
package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Change is one thing that is not as it was.
type Change struct {
	Kind   string `json:"kind"`   // added, removed or changed
	Layer  string `json:"layer"`  // of a limit; exempt; settings
	Name   string `json:"name"`   // of the limit, exemption or setting
	Plan   string `json:"plan"`   // "" outside plans
	Who    string `json:"who"`    // whom it concerns
	Field  string `json:"field"`  // what of it changed: limit, mode, match, ...
	Old    string `json:"old"`    // "" for what is added
	New    string `json:"new"`    // "" for what is removed
	Effect string `json:"effect"` // tighter, looser, other: some of both; or "" where nobody is refused by it

	Affected *Affected `json:"affected,omitempty"` // by a decision log; nil without one, and where none can tell

	was, is *policy.Rule
}

// The effects.
const (
	Tighter = "tighter"
	Looser  = "looser"
	Other   = "other"
)

// Compare lists the changes from one policy to another: exemptions, limits from
// the outside in, then everything else.
func Compare(was, is *policy.Policy) []Change {
	c := comparer{}
	c.exemptions(was.Exemptions(), is.Exemptions())
	c.rules(was.Rules(), is.Rules())
	c.settings(was, is)
	return c.changes
}

type comparer struct{ changes []Change }

func (c *comparer) exemptions(was, is []policy.Exemption) {
	paths := func(list []policy.Exemption, name string) []string {
		for _, e := range list {
			if e.Name == name {
				return e.Paths
			}
		}
		return nil
	}
	for _, e := range append(slices.Clone(was), is...) {
		old, now := paths(was, e.Name), paths(is, e.Name)
		one := Change{
			Kind: "changed", Layer: "exempt", Name: e.Name, Field: "path", Effect: Other,
			Old: strings.Join(old, ", "), New: strings.Join(now, ", "), Who: "whoever calls " + strings.Join(e.Paths, ", "),
		}
		switch {
		case one.Old == one.New || slices.ContainsFunc(c.changes, func(o Change) bool { return o.Name == e.Name }):
			continue
		case old == nil:
			one.Kind, one.Effect = "added", Looser
		case now == nil:
			one.Kind, one.Effect = "removed", Tighter
		case contains(now, old):
			one.Effect = Looser
		case contains(old, now):
			one.Effect = Tighter
		}
		c.changes = append(c.changes, one)
	}
}

// id is what makes two rules the same limit.
type id struct {
	layer     policy.Layer
	name      string
	plan      string
	version   int
	anonymous bool
}

func idOf(r *policy.Rule) id { return id{r.Layer, r.Name, r.Plan, r.Version, r.Anonymous} }

func (c *comparer) rules(was, is []*policy.Rule) {
	find := func(list []*policy.Rule, want id) *policy.Rule {
		for _, r := range list {
			if idOf(r) == want {
				return r
			}
		}
		return nil
	}
	for _, layer := range []policy.Layer{policy.Edge, policy.Gateway, policy.Application} {
		for _, r := range was {
			if r.Layer != layer {
				continue
			}
			if n := find(is, idOf(r)); n != nil {
				c.rule(r, n)
				continue
			}
			c.add(Change{Kind: "removed", Field: "limit", Old: text(r), Effect: unless(r, Looser), was: r})
		}
		for _, r := range is {
			if r.Layer == layer && find(was, idOf(r)) == nil {
				c.add(Change{Kind: "added", Field: "limit", New: text(r), Effect: unless(r, Tighter), is: r})
			}
		}
	}
}

// unless is an effect, but for rules that refuse nobody.
func unless(r *policy.Rule, effect string) string {
	if !refuses(r) {
		return ""
	}
	return effect
}

// refuses reports whether a rule can refuse anybody: one that watches does not, and a
// quota under over: charge charges instead.
func refuses(r *policy.Rule) bool { return r.Mode == policy.Enforce && !charges(r) }

func charges(r *policy.Rule) bool { return r.Metered && r.Limit.IsQuota() }

// text is a limit that is there or not, with where it holds.
func text(r *policy.Rule) string {
	s := r.Limit.String()
	if len(r.Patterns) > 0 {
		s += " on " + strings.Join(r.Patterns, ", ")
	}
	if r.Mode != policy.Enforce {
		s += ", mode " + string(r.Mode)
	}
	return s
}

func (c *comparer) add(one Change) {
	r := one.is
	if r == nil {
		r = one.was
	}
	one.Layer, one.Name, one.Plan, one.Who = string(r.Layer), r.Name, r.Plan, Who(r)
	c.changes = append(c.changes, one)
}

// Who says in words whom a rule counts.
func Who(r *policy.Rule) string {
	plan := r.Plan
	if r.Version > 0 {
		plan = fmt.Sprintf("%s@%d", plan, r.Version)
	}
	switch {
	case r.Layer == policy.Gateway:
		return "API keys of the plan " + plan
	case plan != "":
		return "accounts on the plan " + plan
	case r.Anonymous:
		return "callers known by their address only"
	case r.By == "ip" || r.Layer == policy.Edge && r.By == "":
		return "every address"
	case strings.HasPrefix(r.By, "everyone"):
		return "all callers together"
	case r.By == "":
		return "every address"
	}
	return "callers by " + r.By
}

// rule compares what two rules say of one limit, field by field.
func (c *comparer) rule(was, is *policy.Rule) {
	differ := func(field, old, now, effect string) {
		if old != now {
			if !refuses(was) && !refuses(is) {
				effect = ""
			}
			c.add(Change{Kind: "changed", Field: field, Old: old, New: now, Effect: effect, was: was, is: is})
		}
	}
	if !sameLimit(was.Limit, is.Limit) {
		differ("limit", was.Limit.String(), is.Limit.String(), effectOf(was.Limit, is.Limit))
	}
	mode := Other
	switch {
	case is.Mode == policy.Enforce:
		mode = Tighter
	case was.Mode == policy.Enforce:
		mode = Looser
	}
	differ("mode", string(was.Mode), string(is.Mode), mode)
	where := Other
	old, now := matching(was), matching(is)
	switch {
	case was.Patterns != nil && is.Patterns == nil, contains(is.Patterns, was.Patterns) && was.ExactCase == is.ExactCase:
		where = Tighter
	case was.Patterns == nil, contains(was.Patterns, is.Patterns) && was.ExactCase == is.ExactCase:
		where = Looser
	}
	differ("match", old, now, where)
	differ("by", was.By, is.By, Other)
	excepted := Other
	switch old, now := prefixes(was), prefixes(is); {
	case len(old) == 0 || contains(now, old):
		excepted = Looser
	case len(now) == 0 || contains(old, now):
		excepted = Tighter
	}
	differ("except_ips", strings.Join(prefixes(was), ", "), strings.Join(prefixes(is), ", "), excepted)
	differ("when", was.When, is.When, Other)
	differ("cost", was.Cost, is.Cost, Other)
	if was.OnError != is.OnError { // deny refuses whatever the mode is
		c.add(Change{Kind: "changed", Field: "on_error", Old: was.OnError, New: is.OnError, Effect: failures(was, is), was: was, is: is})
	}
	differ("count", counting(was), counting(is), Other)
	differ("on_store_error", failing(was), failing(is), "")
	differ("priority", fmt.Sprint(was.Priority), fmt.Sprint(is.Priority), "")
	differ("header_styles", fmt.Sprint(was.Headers), fmt.Sprint(is.Headers), "")
	c.terms(differ, was, is)
	c.denied(differ, was, is)
}

// failures is the effect of another on_error: skip asks nothing, apply the limit, and
// deny refuses.
func failures(was, is *policy.Rule) string {
	order := []string{"skip", "apply", "deny"}
	old, now := slices.Index(order, cmp.Or(was.OnError, "apply")), slices.Index(order, cmp.Or(is.OnError, "apply"))
	off := was.Mode == policy.Off && is.Mode == policy.Off
	switch denies := max(old, now) == 2 && !off; {
	case was.OnError == "" || is.OnError == "", !denies && !refuses(was) && !refuses(is):
		return "" // of an expression that comes or goes
	case old < now:
		return Tighter
	}
	return Looser
}

// contains reports whether all of some are among all.
func contains(all, some []string) bool {
	for _, s := range some {
		if !slices.Contains(all, s) {
			return false
		}
	}
	return len(some) > 0
}

func matching(r *policy.Rule) string {
	s := strings.Join(r.Patterns, ", ")
	if r.Patterns == nil {
		s = "every request"
	}
	if r.ExactCase {
		s += ", case: exact"
	}
	return s
}

func prefixes(r *policy.Rule) []string {
	var all []string
	for _, p := range r.ExceptIPs {
		all = append(all, p.String())
	}
	slices.Sort(all)
	return all
}

func counting(r *policy.Rule) string {
	if !r.OnSuccess {
		return "every call"
	}
	return fmt.Sprintf("on_success, %d-%d", r.Success.From, r.Success.To)
}

func failing(r *policy.Rule) string {
	switch r.OnStoreError {
	case weir.FailDeny:
		return "deny"
	case weir.FailLocal:
		if r.Share == 0 {
			return "local, share 1/replicas"
		}
		return fmt.Sprintf("local, share 1/%d", r.Share)
	}
	return "allow"
}

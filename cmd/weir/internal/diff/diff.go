// Package diff says what one policy changes against another, and for whom: in
// words that name callers and not lines of a file.
//
// It compares what is in force, plan by plan and with everything that the file
// leaves to defaults filled in, so that a file which is merely written in another
// way has no changes. [Replay] holds changes against a decision log.
package diff

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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
	if r.Mode != policy.Enforce {
		return ""
	}
	return effect
}

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
			if was.Mode != policy.Enforce && is.Mode != policy.Enforce {
				effect = ""
			}
			c.add(Change{Kind: "changed", Field: field, Old: old, New: now, Effect: effect, was: was, is: is})
		}
	}
	differ("limit", was.Limit.String(), is.Limit.String(), effectOf(was.Limit, is.Limit))
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
	differ("except_ips", prefixes(was), prefixes(is), Other)
	differ("when", was.When, is.When, Other)
	differ("cost", was.Cost, is.Cost, Other)
	differ("on_error", was.OnError, is.OnError, "")
	differ("count", counting(was), counting(is), Other)
	differ("on_store_error", failing(was), failing(is), "")
	differ("priority", fmt.Sprint(was.Priority), fmt.Sprint(is.Priority), "")
	differ("header_styles", fmt.Sprint(was.Headers), fmt.Sprint(is.Headers), "")
	differ("denied", saying(was), saying(is), "")
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

func prefixes(r *policy.Rule) string {
	var all []string
	for _, p := range r.ExceptIPs {
		all = append(all, p.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
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

// saying is what a refusal says, of a sample of it.
func saying(r *policy.Rule) string {
	s := r.Denied.UpgradeURL
	if m := r.Denied.Message; m != nil {
		s = m.Text(&policy.MessageData{
			Limit: r.Limit.String(), Count: r.Limit.Max(), Unit: r.Limit.Period().String(), Name: r.Name,
			Operation: r.Operation, Plan: r.Plan, Wait: "6 seconds", At: "15:00", UpgradeURL: r.Denied.UpgradeURL,
		})
	}
	return s
}

// effectOf compares two limits by what passes at once and by what passes in the
// long run.
func effectOf(was, is weir.Limit) string {
	burst, rate := compare(float64(was.Max()), float64(is.Max())), compare(steady(was), steady(is))
	switch {
	case burst <= 0 && rate <= 0 && burst+rate < 0:
		return Tighter
	case burst >= 0 && rate >= 0 && burst+rate > 0:
		return Looser
	}
	return Other
}

// compare says whether a number falls (-1) or rises (1). Rates that differ by less
// than a millionth are the same, written in other units.
func compare(was, is float64) int {
	switch d := is - was; {
	case d > was*1e-6:
		return 1
	case d < -was*1e-6:
		return -1
	}
	return 0
}

// steady is what passes in a second in the long run.
func steady(l weir.Limit) float64 {
	n, scale := l.Rate()
	return float64(n) / float64(scale) / (float64(l.Period().Duration()) / float64(time.Second))
}

// settings compares what is no limit.
func (c *comparer) settings(was, is *policy.Policy) {
	set := func(name, who, old, now string) {
		if old != now {
			kind := "changed"
			switch {
			case old == "":
				kind = "added"
			case now == "":
				kind = "removed"
			}
			c.changes = append(c.changes, Change{Kind: kind, Layer: "settings", Name: name, Who: who, Field: name, Old: old, New: now, Effect: ""})
		}
	}
	all, operators := "everybody", "whoever runs it"
	callers := func(p *policy.Policy) string {
		var list []string
		for _, s := range p.CallerSources() {
			list = append(list, s.Name+": "+s.From)
		}
		return strings.Join(list, ", ")
	}
	plans := func(p *policy.Policy) string {
		if len(p.Plans()) == 0 {
			return ""
		}
		return strings.Join(p.Plans(), ", ") + " from " + p.PlansFrom()
	}
	set("callers", all, callers(was), callers(is))
	set("plans", "accounts", plans(was), plans(is))
	set("client_ip", "callers known by their address", was.Addressing(), is.Addressing())
	c.auth(was.Auth(), is.Auth(), set)
	set("store", all, was.Store(), is.Store())
	set("edge_store", "every address", edgeStore(was), edgeStore(is))
	set("retry_after_jitter", "who is refused", jitter(was), jitter(is))
	set("cors", "pages of other origins", strings.Join(was.CORS(), ", "), strings.Join(is.CORS(), ", "))
	set("log_keys", operators, was.LogKeys(), is.LogKeys())
	set("revision", operators, fmt.Sprint(was.Revision()), fmt.Sprint(is.Revision()))
	set("name", operators, was.Name(), is.Name())
}

func jitter(p *policy.Policy) string {
	if p.RetryAfterJitter() == 0 {
		return ""
	}
	return p.RetryAfterJitter().String()
}

func edgeStore(p *policy.Policy) string {
	if p.EdgeShared() {
		return "shared"
	}
	return "memory"
}

func (c *comparer) auth(was, is policy.Auth, set func(name, who, old, now string)) {
	jwt := func(j *policy.JWT) string {
		if j == nil {
			return ""
		}
		s := "a public key"
		switch {
		case j.SecretEnv != "":
			s = "the secret in " + j.SecretEnv
		case j.JWKS != "":
			s = "the keys of " + j.JWKS
		}
		if j.Issuer != "" {
			s += ", issuer " + j.Issuer
		}
		if j.Audience != "" {
			s += ", audience " + j.Audience
		}
		return s
	}
	old, now := jwt(was.JWT), jwt(is.JWT)
	if old == now && was.JWT != nil && !reflect.DeepEqual(was.JWT.PublicKey, is.JWT.PublicKey) {
		now = "another public key"
	}
	set("auth.jwt", "callers with a token", old, now)
	keys := func(k *policy.APIKeys) string {
		if k == nil {
			return ""
		}
		owners := map[string]bool{}
		for _, one := range k.All() {
			owners[one.Owner+" ("+or(one.Plan, "no plan")+")"] = true
		}
		var list []string
		for o := range owners {
			list = append(list, o)
		}
		slices.Sort(list)
		const most = 5
		if len(list) > most {
			list = append(list[:most], fmt.Sprintf("and %d more", len(owners)-most))
		}
		return fmt.Sprintf("%d keys in %s: %s", k.Len(), k.Header, strings.Join(list, ", "))
	}
	old, now = keys(was.APIKeys), keys(is.APIKeys)
	if old == now && was.APIKeys != nil && !reflect.DeepEqual(was.APIKeys.All(), is.APIKeys.All()) {
		now += ", in another order or with other owners"
	}
	set("auth.api_keys", "callers with an API key", old, now)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

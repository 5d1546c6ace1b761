package generate

import (
	"math/big"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// everyoneOf are the routes of the application's limits that all callers share, and
// that refuse what a stage would: it counts each call, as one, and knows no more of
// it.
func everyoneOf(p *policy.Policy) []route {
	var out []route
	for _, r := range p.Rules() {
		if r.Layer != policy.Application || r.By != "everyone" || r.Mode != policy.Enforce || r.When != "" || r.Cost != "1" || r.OnSuccess || r.Metered || r.Once != "" {
			continue
		}
		if r.Patterns == nil {
			out = append(out, route{method: "ANY", rest: "proxy", source: r})
		}
		for _, pattern := range r.Patterns {
			if one := routeOf(pattern); one.possible() == "" {
				one.source = r
				out = append(out, one)
			}
		}
	}
	return out
}

// covers reports whether every call of a method to a path, in the parts of an API,
// is one of the route's.
func (r route) covers(parts []string, method string) bool {
	if r.method != "ANY" && !slices.Contains(r.methods(), method) {
		return false
	}
	for i, part := range r.parts {
		if i >= len(parts) || greedy(parts[i]) || part[0] != '{' && !strings.EqualFold(part, parts[i]) {
			return false
		}
	}
	return r.rest != "" || len(parts) == len(r.parts)
}

// stageThrottle is a throttle of one path and method.
type stageThrottle struct {
	rate, burst *policy.Rule // the limits that its rate and its burst come from
	perSecond   string
	most        int64
}

// tightest is the lowest rate and the lowest burst of the limits that all callers
// of a path share: a stage has room for one of each, and takes the settings of the
// path alone where there are some.
func (b *builder) tightest(of string, parts []string, method string) stageThrottle {
	var t stageThrottle
	lowest := new(big.Rat)
	for _, e := range b.everyone {
		if !e.covers(parts, method) {
			continue
		}
		text, burst, _ := throttle(e.source, of)
		if rate := perSecond(e.source.Limit); t.rate == nil || rate.Cmp(lowest) < 0 {
			t.rate, t.perSecond, lowest = e.source, text, rate
		}
		if t.burst == nil || burst < t.most {
			t.burst, t.most = e.source, burst
		}
	}
	return t
}

// gap says what is lost where rate and burst come from two limits: between two of
// its bursts each of them alone lets more through.
func (t stageThrottle) gap(of string) (Gap, bool) {
	if t.rate == t.burst {
		return Gap{}, false
	}
	return gapOf(t.burst, Stricter, nearest(t.perSecond, t.most), "%s has one rate and one burst, and %s (%s) holds beside %s", of, t.rate.Name, t.rate.Limit, t.burst.Limit), true
}

// throttled says in a stage's comment which limits its throttles stand in front
// of, and where they differ from them.
func (b *builder) throttled(stage *resource, of string, made []stageThrottle) {
	var said []*policy.Rule
	for _, e := range b.everyone {
		if slices.Contains(said, e.source) {
			continue
		}
		if said == nil {
			stage.about = append(stage.about, "Best effort, each path and method by itself, in front of the exact limits that the application keeps:")
		}
		said = append(said, e.source)
		stage.about = append(stage.about, b.from(e.source.Line, e.source.Name))
		_, _, gaps := throttle(e.source, of)
		for _, g := range gaps {
			stage.about = append(stage.about, g.String())
		}
	}
	if len(b.exempt) > 0 {
		stage.about = append(stage.about, "What is exempt has none; spelled otherwise (case, escapes) it is throttled as the rest.")
	}
	for _, t := range made {
		if g, ok := t.gap(of); ok && !slices.Contains(stage.about, g.String()) {
			stage.about = append(stage.about, g.String())
		}
	}
}

// anyMethod are the methods that an API takes: a setting of one path is for one of
// them, and * is for all paths alone.
var anyMethod = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// settingsPath is a path as method settings name it: with ~1 for its slashes, but
// for that of the root (AWS::ApiGateway::Stage MethodSetting).
func settingsPath(parts []string) string {
	if len(parts) == 0 {
		return "/"
	}
	return "/~1" + strings.Join(parts, "~1")
}

// throttles are the method settings of a REST API's stage for limits that everybody
// shares.
func (b *builder) throttles(stage *resource) []any {
	const of = "a stage"
	var out []any
	var made []stageThrottle
	set := map[string]bool{}
	for _, r := range b.everyone {
		paths, all := r.paths(), r.source.Patterns == nil && len(b.exempt) == 0
		if r.source.Patterns == nil && !all { // what holds for all paths would hold for the exempt too
			paths = nil
			b.root.each(nil, func(parts []string, _ *place) { paths = append(paths, parts) })
		}
		for _, parts := range paths {
			if b.spared(parts) {
				continue
			}
			path, methods := settingsPath(parts), r.methods()
			switch {
			case all:
				path, methods = "/*", []string{"*"}
			case r.method == "ANY":
				methods = anyMethod
			}
			for _, m := range methods {
				if set[path+" "+m] {
					continue
				}
				set[path+" "+m] = true
				t := b.tightest(of, parts, m)
				made = append(made, t)
				out = append(out, object{{"ResourcePath", path}, {"HttpMethod", m}, {"ThrottlingRateLimit", decimal(t.perSecond)}, {"ThrottlingBurstLimit", t.most}, {"MetricsEnabled", true}})
			}
		}
	}
	if len(out) > 0 {
		b.throttled(stage, of, made)
	}
	return out
}

// routeThrottles are the settings of an HTTP API's routes for limits that everybody
// shares, and the ids of these routes; made are those that there are, by key.
func (b *builder) routeThrottles(stage *resource, made map[string]string) (settings object, after []string) {
	const of = "a route"
	var throttles []stageThrottle
	for _, e := range b.everyone {
		for _, parts := range e.paths() {
			for _, m := range e.methods() {
				key := keyOf(e, m, parts)
				if made[key] == "" || b.spared(parts) || settings.get(key) != nil {
					continue
				}
				t := b.tightest(of, parts, m)
				throttles = append(throttles, t)
				settings = settings.with(key, object{{"ThrottlingRateLimit", decimal(t.perSecond)}, {"ThrottlingBurstLimit", t.most}})
				after = append(after, made[key])
			}
		}
	}
	if len(settings) > 0 {
		b.throttled(stage, of, throttles)
	}
	return settings, after
}

package generate

import (
	"slices"

	"github.com/weirlabs/weir/policy"
)

// exemptRoute is one path of an exemption.
type exemptRoute struct {
	route
	path string
	from policy.Exemption
}

func exemptOf(p *policy.Policy) []exemptRoute {
	var out []exemptRoute
	for _, x := range p.Exemptions() {
		for _, path := range x.Paths {
			out = append(out, exemptRoute{globRoute(path), path, x})
		}
	}
	return out
}

// holds reports whether an exemption has all calls of a path of an API. It has not
// that of /hooks for /hooks/*, though that of /hooks/, which an API takes for the
// same.
func (x exemptRoute) holds(parts []string) bool {
	return x.covers(parts, "ANY") && (x.rest == "" || len(parts) > len(x.parts))
}

// spared reports whether a stage must not throttle a path of its API: calls that
// are exempt come there.
func (b *builder) spared(parts []string) bool {
	at := placed(parts)
	return slices.ContainsFunc(b.exempt, func(x exemptRoute) bool { return x.covers(parts, "ANY") }) ||
		slices.ContainsFunc(b.mixed, func(x exemptRoute) bool { return x.meets(at) })
}

// placed is the route that a path of an API takes, with any method.
func placed(parts []string) route {
	if n := len(parts) - 1; n >= 0 && greedy(parts[n]) {
		return route{method: "ANY", parts: parts[:n], rest: "proxy"}
	}
	return route{method: "ANY", parts: parts}
}

// layout lays out the paths of a REST API: everything goes to the function, the
// routes of gateway.match need a key, and what is exempt has paths of its own,
// which need none and are not throttled.
func (b *builder) layout() {
	root := &place{needsKey: map[string]bool{"ANY": false}}
	root.at([]string{"{proxy+}"}).needsKey["ANY"] = false
	for _, r := range b.keyed {
		for _, parts := range r.paths() {
			for _, m := range r.methods() {
				root.at(parts).needsKey[m] = true
			}
		}
	}
	problems := make([]string, len(b.exempt))
	for i, x := range b.exempt {
		if problems[i] = b.setApart(root, x); problems[i] != "" {
			b.mixed = append(b.mixed, x)
		}
	}
	b.everyone = slices.DeleteFunc(b.everyone, func(r route) bool { return !root.takes(r) })
	for i := range b.everyone {
		root.rename(&b.everyone[i])
	}
	for _, r := range b.everyone {
		for _, parts := range r.paths() {
			at := root.at(parts)
			for _, m := range r.methods() {
				if !at.needsKey[m] {
					at.needsKey[m] = hasKey(b.keyed, r)
				}
			}
		}
	}
	root.each(nil, func(parts []string, p *place) {
		if slices.ContainsFunc(b.exempt, func(x exemptRoute) bool { return x.holds(parts) }) {
			p.needsKey = map[string]bool{"ANY": false}
		}
	})
	root.fill()
	b.root = root
	for i, problem := range problems {
		if problem != "" {
			b.notApart(b.exempt[i], problem)
		}
	}
}

// setApart gives an exempt path a place of its own where another has a key or a
// throttle, or says why the API cannot have it.
func (b *builder) setApart(root *place, x exemptRoute) (problem string) {
	asked, throttled := slices.ContainsFunc(b.keyed, x.meets), slices.ContainsFunc(b.everyone, x.meets)
	if !asked && !throttled {
		return ""
	}
	if problem := x.possible(); problem != "" {
		return problem
	}
	paths := x.paths()
	if x.rest != "" && asked {
		paths = paths[1:] // the path above is not exempt, and may need a key
	}
	for _, parts := range paths {
		p := root.at(parts)
		if p == nil {
			return "API Gateway cannot have " + x.path + " beside a variable"
		}
		p.needsKey["ANY"] = false
	}
	return ""
}

// notApart says what becomes of an exempt path that has no place of its own.
func (b *builder) notApart(x exemptRoute, problem string) {
	gap := func(d Direction, nearest string) {
		b.gaps = append(b.gaps, Gap{Rule: x.from.Name, Line: x.from.Line, Problem: problem, Nearest: nearest, Direction: d})
	}
	asked := false
	b.root.each(nil, func(parts []string, p *place) {
		for _, key := range p.needsKey {
			asked = asked || key && x.meets(placed(parts))
		}
	})
	if asked {
		gap(Stricter, "ask for a key there too")
	}
	if slices.ContainsFunc(b.everyone, x.meets) {
		gap(Looser, "no throttle at the stage for what "+x.path+" may be among; the application keeps the limits")
	}
}

// each calls f for each place that has a method.
func (p *place) each(path []string, f func(parts []string, p *place)) {
	if len(p.needsKey) > 0 {
		f(path, p)
	}
	for _, b := range p.below {
		b.each(append(slices.Clone(path), b.part), f)
	}
}

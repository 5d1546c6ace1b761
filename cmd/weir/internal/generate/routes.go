package generate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// route is a pattern of the policy as an API of AWS reads it.
type route struct {
	method string   // ANY without one
	parts  []string // literals as written, {name} for a wildcard
	rest   string   // the name of what follows, or ""
	source *policy.Rule
}

// routeOf reads a pattern of match:, which the policy has checked. It drops the
// host, and a last slash.
func routeOf(pattern string) route {
	r := route{method: "ANY"}
	if method, path, ok := strings.Cut(pattern, " "); ok {
		r.method, pattern = method, strings.TrimLeft(path, " \t")
	}
	path := pattern[strings.IndexByte(pattern, '/')+1:]
	if path == "" {
		r.rest = "proxy"
		return r
	}
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "" || part == "{$}":
			if part == "" {
				r.rest = "proxy"
			}
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "...}"):
			r.rest = part[1 : len(part)-4]
		default:
			r.parts = append(r.parts, part)
		}
	}
	return r
}

// globRoutes are the routes of a `path:`.
func globRoute(path string) route {
	r := route{method: "ANY"}
	rest, all := strings.CutSuffix(path, "/*")
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		if part != "" {
			r.parts = append(r.parts, part)
		}
	}
	if all {
		r.rest = "proxy"
	}
	return r
}

// pathPart is what a part of a path may be in API Gateway.
var pathPart = regexp.MustCompile(`^([a-zA-Z0-9._:-]+|\{[a-zA-Z0-9._-]+\+?\})$`)

var restMethods = []string{"ANY", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// possible says what of a route API Gateway cannot have, or "".
func (r route) possible() string {
	if !slices.Contains(restMethods, r.method) {
		return "API Gateway knows no method " + r.method
	}
	for _, part := range r.parts {
		if !pathPart.MatchString(part) {
			return "API Gateway cannot have " + part + " in a path"
		}
	}
	return ""
}

// hosted reports whether a pattern names a host.
func hosted(pattern string) bool {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(path, " \t")
	}
	return !strings.HasPrefix(pattern, "/")
}

// methods are those that a route is for: GET covers HEAD.
func (r route) methods() []string {
	if r.method == "GET" {
		return []string{"GET", "HEAD"}
	}
	return []string{r.method}
}

// paths are the paths under which an API has to know the route: a part that
// follows is a path of its own.
func (r route) paths() [][]string {
	own := [][]string{r.parts}
	if r.rest == "" {
		return own
	}
	below := append(slices.Clone(r.parts), "{"+r.rest+"+}")
	return append(own, below)
}

// place is one resource of a REST API.
type place struct {
	part     string
	below    []*place
	needsKey map[string]bool // by method; a method that is not there has none
}

// at finds or makes a place. It answers nil where API Gateway cannot have it:
// below one place there is one variable.
func (p *place) at(parts []string) *place {
	if len(parts) == 0 {
		return p
	}
	part := parts[0]
	for _, b := range p.below {
		if b.part == part {
			return b.at(parts[1:])
		}
		if part[0] == '{' && b.part[0] == '{' {
			if greedy(part) != greedy(b.part) {
				return nil
			}
			return b.at(parts[1:]) // under another name
		}
	}
	b := &place{part: part, needsKey: map[string]bool{}}
	found := b.at(parts[1:])
	if found != nil {
		p.below = append(p.below, b)
		slices.SortFunc(p.below, func(a, b *place) int { return cmp.Compare(a.part, b.part) })
	}
	return found
}

// takes reports whether a place can have all that a route needs.
func (p *place) takes(r route) bool {
	return !slices.ContainsFunc(r.paths(), func(parts []string) bool { return p.at(parts) == nil })
}

// rename gives the variables of a route, which a place takes, the names that they
// have there.
func (p *place) rename(r *route) {
	parts := slices.Clone(r.parts)
	for i, part := range parts {
		p = p.at([]string{part})
		parts[i] = p.part
	}
	r.parts = parts
	if r.rest != "" {
		r.rest = strings.Trim(p.at([]string{"{" + r.rest + "+}"}).part, "{+}")
	}
}

func greedy(part string) bool { return strings.HasSuffix(part, "+}") }

// fill gives a place that knows some methods the others too: API Gateway would
// refuse them there, and not look further.
func (p *place) fill() {
	if _, any := p.needsKey["ANY"]; !any && len(p.needsKey) > 0 {
		p.needsKey["ANY"] = false
	}
	for _, b := range p.below {
		b.fill()
	}
}

// meets reports whether some path is a path of both routes.
func (r route) meets(o route) bool {
	n := min(len(r.parts), len(o.parts))
	for i := range n {
		if a, b := r.parts[i], o.parts[i]; a[0] != '{' && b[0] != '{' && !strings.EqualFold(a, b) {
			return false
		}
	}
	switch {
	case len(r.parts) < len(o.parts):
		return r.rest != ""
	case len(r.parts) > len(o.parts):
		return o.rest != ""
	}
	return true
}

// hasKey reports whether a route is one of the gateway's.
func hasKey(keyed []route, r route) bool {
	return slices.ContainsFunc(keyed, func(k route) bool {
		return (k.method == "ANY" || k.method == r.method) && len(k.parts) <= len(r.parts) && k.meets(r) && (k.rest != "" || len(k.parts) == len(r.parts))
	})
}

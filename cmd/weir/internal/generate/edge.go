package generate

import (
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// What WAF can count.
const (
	fewestRequests = 10
	mostRequests   = 2_000_000_000
	mostRateRules  = 10
	mostUnits      = 5000 // web ACL capacity units
	basicUnits     = 1500 // that the base price holds
	mostNetworks   = 10_000
)

var windows = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}

// EdgeRule is one rate-based rule of a web ACL in the policy's terms.
type EdgeRule struct {
	Name     string
	Priority int64
	Shadow   bool // Count in place of Block
	Requests int64
	Window   time.Duration
	Everyone bool           // one counter for all addresses
	Paths    []string       // as `path:` writes them, sorted; nil for all
	Exempt   []string       // those of the exemptions that it excludes, sorted
	Except   []netip.Prefix // sorted

	source *policy.Rule
}

// edgeOf translates the edge rules. Priorities that the policy leaves open follow
// the last one: which of two rules speaks first changes nothing of what is
// refused.
func edgeOf(p *policy.Policy, api API) (rules []EdgeRule, gaps []Gap) {
	var next int64
	for _, r := range p.Rules() {
		if r.Layer == policy.Edge {
			next = max(next, int64(r.Priority)+1)
		}
	}
	taken := map[int64]bool{}
	for _, r := range p.Rules() {
		if r.Layer != policy.Edge || r.Mode == policy.Off {
			continue
		}
		e := EdgeRule{Name: wafName(r.Name), Priority: int64(r.Priority), Shadow: r.Mode == policy.Shadow, source: r}
		if e.Priority < 0 || taken[e.Priority] {
			e.Priority = next
			next++
		}
		taken[e.Priority] = true
		found, ok := e.read(p, api)
		gaps = append(gaps, found...)
		if ok {
			rules = append(rules, e)
		}
	}
	rules, found := fit(rules)
	return rules, append(gaps, found...)
}

// fit leaves out the last rules of more than a web ACL can have.
func fit(rules []EdgeRule) (fitting []EdgeRule, gaps []Gap) {
	if len(rules) > mostRateRules {
		for _, e := range rules[mostRateRules:] {
			gaps = append(gaps, gapOf(e.source, Looser, "leave it to the application, as the last by priority", "a web ACL has at most %d rate-based rules, and this is one more", mostRateRules))
		}
		rules = rules[:mostRateRules]
	}
	for len(rules) > 0 && capacity(rules) > mostUnits {
		last := rules[len(rules)-1]
		gaps = append(gaps, gapOf(last.source, Looser, "leave it to the application, or name fewer paths", "the web ACL needs %d capacity units, and may have %d", capacity(rules), mostUnits))
		rules = rules[:len(rules)-1]
	}
	return rules, gaps
}

// read translates one rule, and reports whether WAF can do it at all.
func (e *EdgeRule) read(p *policy.Policy, api API) (gaps []Gap, ok bool) {
	r := e.source
	switch r.By {
	case "ip":
	case "everyone":
		e.Everyone = true
	default:
		gaps = append(gaps, gapOf(r, Stricter, "by: ip", "WAF counts addresses, and ignores whoever leaves out a header or parameter: by: %s is not possible", r.By))
	}
	gaps = append(gaps, e.round(r.Limit)...)
	for _, path := range r.Patterns {
		gaps = append(gaps, spelling(r.Name, r.Line, path)...)
		e.Paths = append(e.Paths, path)
	}
	slices.Sort(e.Paths)
	if e.Paths = slices.Compact(e.Paths); slices.Contains(e.Paths, "/*") {
		e.Paths = nil
	}
	if api == AppSync && e.Paths != nil {
		return append(gaps, gapOf(r, Looser, "limit the operation under application:", "AppSync has one path for everything, so that a rule for %s has nothing to match", strings.Join(e.Paths, ", "))), false
	}
	for _, x := range p.Exemptions() {
		for _, path := range x.Paths {
			if e.meets(path) && api != AppSync {
				gaps = append(gaps, spelling(x.Name, x.Line, path)...)
				e.Exempt = append(e.Exempt, path)
			}
		}
	}
	slices.Sort(e.Exempt)
	e.Exempt = slices.Compact(e.Exempt)
	e.Except = networks(r.ExceptIPs)
	for _, v4 := range []bool{true, false} {
		if n := len(family(e.Except, v4)); n > mostNetworks {
			gaps = append(gaps, gapOf(r, Stricter, "name larger networks", "an IP set holds %d networks, and except_ips: has %d", mostNetworks, n))
			return gaps, false
		}
	}
	return gaps, true
}

// round finds the count and the window that come nearest without refusing what
// the limit allows.
func (e *EdgeRule) round(l weir.Limit) []Gap {
	type choice struct {
		requests *big.Int
		window   time.Duration
	}
	var best *choice
	for _, w := range windows {
		c := &choice{most(l, w), w}
		if c.requests.Cmp(big.NewInt(fewestRequests)) < 0 {
			c.requests = big.NewInt(fewestRequests)
		}
		closer := best != nil && new(big.Int).Mul(c.requests, big.NewInt(int64(best.window))).Cmp(new(big.Int).Mul(best.requests, big.NewInt(int64(w)))) < 0
		// A bucket's burst passes once in every window, so that the shortest one
		// that can count it reacts best.
		if best == nil || closer && (!l.IsBucket() || best.requests.IsInt64() && best.requests.Int64() == fewestRequests) {
			best = c
		}
	}
	e.Window = best.window
	if best.requests.Cmp(big.NewInt(mostRequests)) > 0 {
		e.Requests = mostRequests
		return []Gap{gapOf(e.source, Stricter, e.limit(), "WAF counts to %d, and %s allows more", mostRequests, l)}
	}
	e.Requests = best.requests.Int64()
	if !l.IsBucket() && !l.IsQuota() && e.Requests == l.Max() && e.Window == l.Period().Duration() {
		return nil
	}
	return []Gap{gapOf(e.source, Looser, e.limit(), "WAF counts at least %d requests in 1, 2, 5 or 10 minutes, and not %s", fewestRequests, l)}
}

// limit is the rule's limit in the grammar of policies.
func (e *EdgeRule) limit() string {
	return fmt.Sprintf("sliding %d/%dm", e.Requests, int(e.Window.Minutes()))
}

// meets reports whether a path of an exemption has anything in common with what
// the rule counts.
func (e *EdgeRule) meets(path string) bool {
	x, prefix := search(path)
	if e.Paths == nil {
		return true
	}
	for _, own := range e.Paths {
		text, ownPrefix := search(own)
		if text == x || prefix && strings.HasPrefix(text, x) || ownPrefix && strings.HasPrefix(x, text) {
			return true
		}
	}
	return false
}

// search is what WAF looks for to match a path: a text in lower case, and whether
// a path may go on after it.
func search(path string) (text string, prefix bool) {
	rest, prefix := strings.CutSuffix(path, "*")
	if decoded, err := url.PathUnescape(rest); err == nil {
		rest = decoded
	}
	return strings.ToLower(rest), prefix
}

// spelling reports a path of which WAF cannot know every spelling.
func spelling(rule string, line int, path string) []Gap {
	g := Gap{Rule: rule, Line: line, Nearest: "the path as it is written", Direction: Differs}
	escaped := strings.ToLower(path)
	text, _ := search(path)
	switch {
	case strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") || strings.Contains(escaped, "%3b"):
		g.Problem = "WAF decodes a path before it looks at it, and cannot tell " + path + " from " + text
	case strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) >= 0:
		g.Problem = "WAF folds the case of ASCII letters only, and " + path + " has others"
	case strings.Contains(text, "%"):
		g.Problem = "WAF decodes a path once more than " + path + " is meant"
	default:
		return nil
	}
	return []Gap{g}
}

// networks sorts networks, and writes 0/0, which an IP set may not hold, as its
// two halves.
func networks(list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if p.Bits() == 0 {
			half := p.Addr().AsSlice()
			out = append(out, netip.PrefixFrom(p.Addr(), 1))
			half[0] = 0x80
			upper, _ := netip.AddrFromSlice(half)
			p = netip.PrefixFrom(upper, 1)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(out)
}

func family(list []netip.Prefix, v4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if p.Addr().Is4() == v4 {
			out = append(out, p)
		}
	}
	return out
}

// capacity is what the rules take of a web ACL's capacity units. Decoding is paid
// once for the path, whatever number of statements looks at it.
func capacity(rules []EdgeRule) int {
	units, decodes := 0, false
	for i := range rules {
		e := &rules[i]
		units += 2
		paths := len(e.Paths) + len(e.Exempt)
		if paths == 0 && e.Everyone {
			paths = 1
		}
		decodes = decodes || paths > 0
		units += 2 * paths
		for _, v4 := range []bool{true, false} {
			if len(family(e.Except, v4)) > 0 {
				units++
			}
		}
	}
	if decodes {
		units += 10 * len(decoding)
	}
	return units
}

// wafName is a limit's name with what WAF's names may have.
func wafName(name string) string { return strings.ReplaceAll(name, ".", "_") }

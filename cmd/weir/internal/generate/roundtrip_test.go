package generate

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/awscheck"
	"github.com/weirlabs/weir/policy"
)

// make roundtrip runs many more.
var policies = flag.Int("policies", 100, "how many random policies make the round trip")

// said is what a random policy says of one limit, and must be read back.
type said struct {
	name, limit, by string
	priority        int // -1 without one
	shadow          bool
	paths, except   []string
	line            int
}

// randomPolicy writes a policy, and says what it says.
func randomPolicy(r *rand.Rand) (text string, edge []said, exempt []string, plans [][]said) {
	var b strings.Builder
	lines := 0
	line := func(format string, args ...any) int {
		lines++
		fmt.Fprintf(&b, format+"\n", args...)
		return lines
	}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	some := func(most int, list ...string) []string {
		var out []string
		for range r.IntN(most + 1) {
			out = append(out, pick(list...))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	count := func() int { return []int{1, 7, 10, 99, 2000, 1 + r.IntN(1e6), min(3e9, math.MaxInt)}[r.IntN(7)] }
	paths := []string{"/*", "/api/*", "/api/auth/*", "/API/Auth/login", "/login", "/login/", "/a%20b/*", "/webhooks/*", "/x", "/x/*"}
	line("weir: 1")
	if exempt = some(3, paths[1:]...); len(exempt) > 0 {
		line("exempt:")
		for i, p := range exempt {
			line("  - {name: e%d, path: %q}", i, p)
		}
	}
	limit := func() string {
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("%d/%s burst %d", 1+r.IntN(50), pick("s", "m"), 1+r.IntN(500))
		case 1:
			return fmt.Sprintf("quota %d/%s", count(), pick("10s", "1m", "5m", "hour", "day"))
		}
		return fmt.Sprintf("sliding %d/%s", count(), pick("60s", "1m", "2m", "5m", "10m", "300s", "3m", "hour", "10s"))
	}
	priorities := r.Perm(40)
	if n := r.IntN(12); n > 0 {
		line("edge:")
		for i := range n {
			s := said{name: fmt.Sprintf("r%d", i), priority: -1, by: pick("ip", "ip", "ip", "everyone", "ip+header.x-a"), limit: limit(),
				shadow: r.IntN(4) == 0, paths: some(3, paths...), except: some(3, "203.0.113.0/24", "0.0.0.0/0", "2001:db8::/32", "10.1.2.3/32", "::/0")}
			more := ""
			if r.IntN(3) > 0 {
				s.priority = priorities[i]
				more += fmt.Sprintf(", priority: %d", s.priority)
			}
			if s.shadow {
				more += ", mode: shadow"
			}
			if len(s.paths) > 0 {
				more += fmt.Sprintf(", path: [%s]", quotes(s.paths))
			}
			if len(s.except) > 0 {
				more += fmt.Sprintf(", except_ips: [%s]", quotes(s.except))
			}
			s.line = line("  - {name: %s, limit: %s, by: %s%s}", s.name, s.limit, s.by, more)
			edge = append(edge, s)
		}
	}
	if n := r.IntN(4); n > 0 {
		line("gateway:")
		line("  match: GET /partner/")
		line("  plans:")
		for i := range n {
			var plan []said
			rate := fmt.Sprintf("%s/%s burst %d", pick("1", "0.5", "30", "7", "0.001"), pick("s", "s", "m", "h"), 1+r.IntN(500))
			quota := fmt.Sprintf("quota %d/%s%s", count(), pick("day", "week", "month"), pick(" calendar", " calendar", " calendar UTC", "", " calendar Europe/Berlin"))
			all := [][]string{{rate}, {quota}, {rate, quota}, {rate, fmt.Sprintf("quota %d/%s", count(), pick("2day", "year", "hour"))}}[r.IntN(4)]
			at := line("    p%d: [%s]", i, strings.Join(all, ", "))
			for j, l := range all {
				s := said{name: fmt.Sprintf("p%d", i), limit: l, line: at}
				if j > 0 {
					s.name = "" // it has one by its unit
				}
				plan = append(plan, s)
			}
			plans = append(plans, plan)
		}
	}
	line("application:")
	line("  limits:")
	line("    - {name: last, by: ip, limit: 1/s}")
	return b.String(), edge, exempt, plans
}

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}

// A policy becomes a template, and what the template's properties say is the
// policy again, or the difference is a gap in the output: on the very line, and
// in the direction that it names. Names, comments and descriptions are not looked
// at: rules are told by their priorities. The template keeps the invariants, and the
// same as Terraform's text is one that the provider takes.
func TestSpec_C01_C02_RoundTrip(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	seen := map[Direction]int{}
	exact := 0
	known := readProvider(t)
	for i := range *policies {
		text, edge, exempt, plans := randomPolicy(r)
		p := loadText(t, text)
		out, err := CloudFormation(p, Options{Approximate: true, API: REST})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if _, err := CloudFormation(p, Options{API: REST}); (err == nil) != (len(out.Gaps) == 0) {
			t.Fatalf("without approximation: %v, gaps %v", err, out.Gaps)
		}
		template, err := awscheck.Parse(out.Files[1].Text)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Files[1].Text)
		}
		for _, g := range out.Gaps {
			seen[g.Direction]++
			if !strings.Contains(string(out.Files[1].Text), g.String()) {
				t.Errorf("the template does not say %s", g)
			}
		}
		exact += checkEdge(t, template, p, edge, exempt, out.Gaps)
		exact += checkPlans(t, template, plans, out.Gaps)
		if i < 20 { // it takes longer than all else
			tf, err := Terraform(p, Options{Approximate: true, API: REST})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			problems, _ := checkTerraform(known, tf.Files[0].Text)
			for _, problem := range problems {
				t.Error(problem)
			}
			for _, finding := range invariants(string(out.Files[1].Text)) {
				t.Error(finding)
			}
		}
		if t.Failed() {
			t.Fatalf("policy %d\n%s\ngaps\n%s", i, text, out.Gaps.Error())
		}
	}
	if exact == 0 || seen[Looser] == 0 || seen[Stricter] == 0 || seen[Differs] == 0 {
		t.Errorf("%d limits were exact, gaps %v: the policies are too much alike", exact, seen)
	}
	t.Logf("%d policies, %d limits exact, gaps %v", *policies, exact, seen)
}

// order is how rules come: by priority, and those without one behind.
func order(edge []said) []said {
	out := slices.Clone(edge)
	slices.SortStableFunc(out, func(a, b said) int {
		x, y := a.priority, b.priority
		if x < 0 {
			x = 1 << 30
		}
		if y < 0 {
			y = 1 << 30
		}
		return x - y
	})
	return out
}

func checkEdge(t *testing.T, template *awscheck.Template, p *policy.Policy, edge []said, exempt []string, gaps Gaps) (exact int) {
	rd := &reader{prefix: "${PathPrefix}", sets: map[string][]netip.Prefix{}}
	for _, set := range template.Of("AWS::WAFv2::IPSet") {
		list, err := ipSet(set.Properties)
		if err != nil {
			t.Error(err)
		}
		rd.sets[set.ID] = list
	}
	var have []EdgeRule
	for _, acl := range template.Of("AWS::WAFv2::WebACL") {
		have = rd.webACL(acl.Properties)
	}
	slices.SortFunc(have, func(a, b EdgeRule) int { return int(a.Priority - b.Priority) })
	if rd.strange != nil {
		t.Errorf("read back: %v", rd.strange)
	}
	n := 0
	for _, s := range order(edge) {
		said := map[string]Gap{}
		for _, g := range gaps {
			if g.Line == s.line {
				said[g.Nearest] = g
			}
		}
		if _, left := said["leave it to the application, as the last by priority"]; left {
			if n < mostRateRules {
				t.Errorf("%s is left out, and there are %d rules", s.name, n)
			}
			continue
		}
		if n >= len(have) {
			t.Errorf("%s is missing", s.name)
			return exact
		}
		h := have[n]
		n++
		want, err := weir.ParseLimit(s.limit)
		if err != nil {
			t.Fatal(err)
		}
		same := strings.HasPrefix(s.limit, "sliding ") && want.Max() == h.Requests && want.Period().Duration() == h.Window
		g, gap := said[h.limit()]
		switch {
		case same == gap:
			t.Errorf("%s: %s was read back as %s; gap %v", s.name, s.limit, h.limit(), g)
		case same:
			exact++
		case g.Direction == Looser && float64(h.Requests) < allowed(want, h)-0.001, g.Direction == Stricter && h.Requests != mostRequests, g.Direction == Differs:
			t.Errorf("%s: %s is said to be %s than %s", s.name, h.limit(), g.Direction, s.limit)
		}
		if _, gap := said["by: ip"]; gap != (s.by == "ip+header.x-a") || h.Everyone != (s.by == "everyone") {
			t.Errorf("%s: by %s was read back as everyone %v", s.name, s.by, h.Everyone)
		}
		paths := canonical(s.paths)
		if slices.Contains(paths, "/*") {
			paths = nil
		}
		if !slices.Equal(h.Paths, paths) && !(s.by == "everyone" && len(paths) == 0 && len(h.Paths) == 0) {
			t.Errorf("%s: paths %q were read back as %q", s.name, s.paths, h.Paths)
		}
		if want := canonical(overlapping(t, s.paths, exempt)); !slices.Equal(canonical(h.Exempt), want) {
			t.Errorf("%s: exempt are %q, read back %q", s.name, want, h.Exempt)
		}
		if h.Shadow != s.shadow {
			t.Errorf("%s: shadow %v was read back as %v", s.name, s.shadow, h.Shadow)
		}
		for _, a := range []string{"203.0.113.9", "10.1.2.3", "10.1.2.4", "198.51.100.1", "2001:db8::1", "2001:dc8::1", "::1"} {
			addr := netip.MustParseAddr(a)
			holds := func(p netip.Prefix) bool { return p.Contains(addr) }
			excepted := slices.ContainsFunc(s.except, func(x string) bool { return holds(netip.MustParsePrefix(x)) })
			if slices.ContainsFunc(h.Except, holds) != excepted {
				t.Errorf("%s: %s is excepted by the policy: %v, and the other way in the template", s.name, a, excepted)
			}
		}
	}
	if n != len(have) {
		t.Errorf("%d rules were read back, and %d are the policy's", len(have), n)
	}
	return exact
}

// allowed is what a limit lets through at most in a window of the rule's length.
func allowed(l weir.Limit, h EdgeRule) float64 {
	window, period := h.Window.Seconds(), l.Period().Duration().Seconds()
	n, scale := l.Rate()
	switch {
	case l.IsBucket():
		return float64(int64(float64(l.Max()) + float64(n)/float64(scale)*window/period))
	case l.IsQuota():
		return float64(l.Max()) * 2
	case window > period:
		return float64(l.Max()) * float64(int64((window+period-1)/period))
	}
	return float64(l.Max())
}

// overlapping are the exemptions that share some path with some of paths.
func overlapping(t *testing.T, paths, exempt []string) (out []string) {
	matches := func(pattern, path string) bool {
		p, err := policy.ParsePath(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return p.Matches(strings.Replace(path, "*", "any", 1))
	}
	for _, x := range exempt {
		if len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool { return matches(p, x) || matches(x, p) }) {
			out = append(out, x)
		}
	}
	return out
}

func checkPlans(t *testing.T, template *awscheck.Template, plans [][]said, gaps Gaps) (exact int) {
	var have []string
	for _, r := range template.Of("AWS::ApiGateway::UsagePlan") {
		props := maps.Clone(r.Properties)
		delete(props, "UsagePlanName")
		u := usagePlan(props)
		have = append(have, strings.Join(u.limits(), ", "))
	}
	var want []string
	for _, plan := range plans {
		var limits []string
		var mine []Gap // of which the second limit's has a name with its unit
		for _, g := range gaps {
			if g.Line == plan[0].line {
				mine = append(mine, g)
			}
		}
		for _, s := range plan {
			l, err := weir.ParseLimit(s.limit)
			if err != nil {
				t.Fatal(err)
			}
			// The gap says what stands there; without one it is the limit itself.
			at := slices.IndexFunc(mine, func(g Gap) bool { return g.Rule == s.name || s.name == "" && strings.Contains(g.Rule, ".") })
			switch {
			case at >= 0 && strings.HasPrefix(mine[at].Nearest, "leave it"):
			case at >= 0:
				limits = append(limits, mine[at].Nearest)
			case l.IsBucket():
				n, scale := l.Rate()
				rate := float64(n) / float64(scale) / l.Period().Duration().Seconds()
				limits = append(limits, fmt.Sprintf("%v/s burst %d", rate, l.Max()))
				exact++
			default:
				limits = append(limits, strings.TrimSuffix(s.limit, " UTC"))
				exact++
			}
		}
		if len(limits) > 0 {
			want = append(want, strings.Join(limits, ", "))
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("plans were read back as\n%q\nand are\n%q", have, want)
	}
	return exact
}

package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// layers finds limits that stand where they cannot do what they are for.
func (k *compiler) layers() {
	k.proxyUnknown()
	k.promises()
	for i := range k.described {
		d := &k.described[i]
		k.receivers(d)
		k.tooLow(d)
		k.beyondWAF(d)
		k.globalItem(d)
	}
	k.overlaps()
}

// proxyUnknown finds limits by address in a policy that shows that a proxy stands
// in front, and does not say which: all callers would then be one.
func (k *compiler) proxyUnknown() {
	if k.p.addresses.proxies != nil || k.config.client.from != "" {
		return
	}
	var by *node
	sign := ""
	for i := range k.described {
		d := &k.described[i]
		if by == nil && d.conf.by != nil && len(d.rule.by.forms) > 0 && d.addressOnly(k.p.callers) {
			by = d.conf.by
		}
		switch header := d.proxyHeader(); {
		case d.conf.priorityNode != nil:
			sign = "priority: is that of a WAF rule"
		case d.layer == Gateway && k.p.auth.APIKeys == nil:
			sign = "gateway: without api_keys is that of an API gateway"
		case header != "":
			sign = header + " is what a proxy adds"
		}
	}
	if by != nil && sign != "" {
		k.doubt(by, codeProxyUnknown, "say what it is: client_ip: {from: alb}, or trusted_proxies: [10.0.0.0/8]; client_ip: {from: socket} when nothing stands there",
			"by address behind a proxy that nothing is said of: all callers would have the proxy's address (%s)", sign)
	}
}

// proxyHeader is the header that only a proxy sets, where the rule uses one.
func (d *described) proxyHeader() string {
	said := strings.ToLower(d.rule.by.text)
	for _, n := range []*node{d.conf.when, d.conf.cost} {
		if n != nil {
			said += " " + strings.ToLower(n.text)
		}
	}
	for _, h := range []string{"x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip", "cloudfront-viewer-address"} {
		if strings.Contains(said, h) {
			return h
		}
	}
	return ""
}

// promises finds gateway plans that are sold as hard limits.
func (k *compiler) promises() {
	g := &k.config.gateway
	switch {
	case g.denied.UpgradeURL != "":
		k.doubt(g.deniedAt, codeGatewayPromise, promiseHint, "gateway plans are promised to customers, and usage plans keep them at best effort only")
	case g.onFail == "deny":
		k.doubt(k.gatewayPlans[0].name, codeGatewayPromise, promiseHint, "on_store_error: deny makes gateway plans hard limits, and usage plans keep them at best effort only")
	}
}

const promiseHint = "put what a contract says under application.limits, by: partner; a gateway plan keeps integrators from each other"

// receivers finds webhook receivers and health checks that a limit can refuse.
func (k *compiler) receivers(d *described) {
	at := append(slices.Clone(d.conf.match), d.conf.path...)
	for i, p := range d.patterns {
		kind := ""
		for _, s := range p.segs {
			switch word := s.literal; {
			case strings.HasPrefix(word, "webhook"), word == "hooks":
				kind = "webhook"
			case slices.Contains([]string{"health", "healthz", "livez", "readyz", "heartbeat", "ping"}, word):
				kind = "health"
			}
		}
		if kind == "" || i >= len(at) || slices.ContainsFunc(k.exempted, func(x *pattern) bool { return exempts(x, p) }) {
			continue
		}
		if kind == "webhook" {
			k.doubt(at[i], codeReceiver, "add it to exempt:; let the receiver accept and queue, and limit behind the queue", "the limit %s can refuse a webhook: its sender tries again, or gives up for good", k.nameOf(d))
		} else {
			k.doubt(at[i], codeReceiver, "add it to exempt:", "the limit %s can refuse a health check: an instance that works would be taken out", k.nameOf(d))
		}
	}
}

func (k *compiler) nameOf(d *described) string {
	if d.conf.name == nil {
		return "here"
	}
	return show(d.conf.name.text)
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// usualCallers is how many legitimate callers one address may stand for.
const usualCallers = 30

// tooLow finds edge rules that refuse an address before the callers behind it have
// used what one limit of the application allows them.
func (k *compiler) tooLow(d *described) {
	if d.layer != Edge || d.exempt || d.conf.mode == "off" || d.conf.mode == "shadow" || !d.addressOnly(k.p.callers) || len(d.rule.by.forms) == 0 {
		return
	}
	callers := int64(usualCallers)
	if k.config.perAddress > 0 {
		callers = k.config.perAddress
	}
	for _, edge := range d.conf.limit {
		window := edge.Period().Duration()
		if edge.IsBucket() {
			window = 5 * time.Minute
		}
		allows := mostIn(edge.Limit, window)
		for i := range k.described {
			if a := &k.described[i]; a.layer == Application && !a.exempt && k.covers(d, a) {
				if name, uses := a.uses(window); uses > 0 && uses > allows/callers {
					hint := "let it be " + strconv.FormatInt(uses*callers, 10) + " in " + shortTime(window)
					if fewer := allows / uses; fewer > 0 {
						hint += ", or say how many share an address: callers_per_address: " + strconv.FormatInt(fewer, 10)
					}
					k.doubt(edge.at, codeEdgeTooLow, hint, "%s lets one address call %d times in %s, and %s behind it may use %d of %s", show(edge.String()), allows, shortTime(window), plural(callers, "caller"), uses*callers, show(name))
					return
				}
			}
		}
	}
}

// covers reports whether an edge rule meets all requests that a rule of the
// application can meet.
func (k *compiler) covers(edge, a *described) bool {
	if len(edge.patterns) == 0 {
		return true
	}
	return len(a.patterns) > 0 && !slices.ContainsFunc(a.patterns, func(p *pattern) bool {
		return !slices.ContainsFunc(edge.patterns, func(e *pattern) bool { return p.within(e) })
	})
}

// uses is how often one caller may call within a time under a rule's tightest
// limit: of operations, that of the lowest plan. 0 means that the rule does not say.
func (a *described) uses(window time.Duration) (name string, n int64) {
	r := a.rule
	limits := r.full
	switch {
	case a.conf.mode != "" && a.conf.mode != "enforce" || r.cost.program != nil || r.cost.header != "" || r.cost.fixed == 0 || r.when != nil:
		return "", 0
	case r.byPlan != nil:
		limits = r.byPlan[0]
	case len(r.by.forms) == 0 || r.by.forms[0].everyone:
		return "", 0
	}
	for _, one := range limits {
		if most := mostIn(one.Limit, window) / r.cost.fixed; n == 0 || most < n {
			name, n = one.Name, most
		}
	}
	return name, n
}

// mostIn is how many units a limit lets through within a time, of longer windows the
// part that falls to it; at most about 2^62.
func mostIn(l weir.Limit, window time.Duration) int64 {
	const bound = 1 << 62
	if l.IsBucket() {
		return l.Max() + int64(min(perSecond(l)*window.Seconds(), bound/2))
	}
	period := l.Period().Duration()
	if period > window { // nobody uses a month's in a minute: his part of it
		return int64(math.Ceil(float64(l.Max()) * window.Seconds() / period.Seconds()))
	}
	windows := int64(window / period)
	if l.Max() > bound/windows {
		return bound
	}
	return l.Max() * windows
}

// beyondWAF finds edge rules that AWS WAF cannot have: it counts in windows of 1, 2,
// 5 or 10 minutes, and at least 10 requests. A rule is meant for it when it slides,
// as WAF does, or has a priority.
func (k *compiler) beyondWAF(d *described) {
	if d.layer != Edge {
		return
	}
	for _, l := range d.conf.limit {
		sliding := !l.IsBucket() && !l.IsQuota()
		switch window := l.Period().Duration(); {
		case !sliding && d.conf.priorityNode == nil:
		case !sliding:
			k.doubt(l.at, codeWAF, "write sliding "+strconv.FormatInt(max(10, mostIn(l.Limit, 5*time.Minute)), 10)+"/5m, or remove priority:", "WAF has no limit such as %s: its rules count in sliding windows", show(l.String()))
		case !slices.Contains([]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}, window):
			k.doubt(l.at, codeWAF, "write a window of 1m, 2m, 5m or 10m where the rule is generated for WAF", "WAF has no window of %s", shortTime(window))
		case l.Max() < 10:
			k.doubt(l.at, codeWAF, "write 10 or more, or a longer window", "WAF has no limit below 10 requests, and this one is %d", l.Max())
		}
	}
}

// partitionWrites is about half of what one item of a table can take in a second.
const partitionWrites = 500

// globalItem finds a limit of so many calls for everybody that one item cannot count
// them.
func (k *compiler) globalItem(d *described) {
	forms := d.rule.by.forms
	local := strings.HasPrefix(k.store, "memory:") || strings.HasPrefix(k.store, "bolt:")
	if d.layer != Application || local || len(forms) == 0 || !forms[0].everyone || len(forms[0].parts) > 0 {
		return
	}
	for _, l := range d.conf.limit {
		if perSecond(l.Limit) >= partitionWrites {
			k.doubt(l.at, codeGlobalItem, "stage throttling of the gateway, or reserved concurrency of the function, bound everybody together without counting",
				"%s for everybody is counted in one item, and one partition of a table takes about 1,000 writes a second", show(l.String()))
		}
	}
}

// overlaps finds rules that never act, because another one meets all their requests,
// counts the same callers and always refuses first.
func (k *compiler) overlaps() {
	type place struct {
		layer      Layer
		by, prefix string
	}
	at := map[place][]int{}
	for i := range k.described {
		if d := &k.described[i]; d.plain() {
			for _, prefix := range d.prefixes() {
				at[place{d.layer, d.rule.by.text, prefix}] = append(at[place{d.layer, d.rule.by.text, prefix}], i)
			}
		}
	}
	for i := range k.described {
		a := &k.described[i]
		if !a.plain() {
			continue
		}
		var others []int
		for _, prefix := range append(a.prefixes(), "") {
			others = append(others, at[place{a.layer, a.rule.by.text, prefix}]...)
		}
		for _, n := range others {
			b := &k.described[n]
			equal := n > i && k.covers(a, b) && refusesFirst(b, a, true) // the later one is told of
			if n == i || !b.standsInFor(a) || !k.covers(b, a) || !refusesFirst(a, b, k.covers(a, b)) || equal {
				continue
			}
			k.doubt(a.conf.name, codeOverlap, "remove it, or make it the tighter one", "the limit %s never acts: %s, which holds for the same requests and callers, always refuses first", show(a.conf.name.text), show(b.conf.name.text))
			break
		}
	}
}

// plain reports whether nothing but a rule's routes, callers and limit says what it
// refuses.
func (d *described) plain() bool {
	c, r := d.conf, d.rule
	return d.layer != Gateway && !d.exempt && r.byPlan == nil && c.name != nil && c.anon == nil && c.when == nil && c.except == nil && c.count != "on_success" &&
		(c.mode == "" || c.mode == "enforce") && r.cost.program == nil && r.cost.header == "" && r.cost.fixed == 1
}

// standsInFor reports whether b refuses in all cases in which a would, and a does
// nothing else: it does not charge instead of refusing, forgives no repetition that
// a counts, gives no units back, and does the same while the store does not answer.
func (b *described) standsInFor(a *described) bool {
	c, other := &b.conf.terms, &a.conf.terms
	return c.over != "charge" && c.all().Once == other.all().Once && c.settleAt == nil && other.settleAt == nil && other.noteAt == nil &&
		b.rule.onFail == a.rule.onFail && b.conf.share == a.conf.share
}

// prefixes are the first segments of a rule's routes; "" where it may be any.
func (d *described) prefixes() []string {
	var out []string
	for _, p := range d.patterns {
		first := ""
		if len(p.segs) > 0 {
			first = p.segs[0].literal
		}
		if !slices.Contains(out, first) {
			out = append(out, first)
		}
	}
	if len(d.patterns) == 0 || slices.Contains(out, "") {
		return []string{""}
	}
	return out
}

// refusesFirst reports whether all limits of a never act beside those of b. Windows
// that begin with the first counted call are the same only where the routes are.
func refusesFirst(a, b *described, sameRoutes bool) bool {
	return !slices.ContainsFunc(a.conf.limit, func(own limitAt) bool {
		return !slices.ContainsFunc(b.conf.limit, func(other limitAt) bool {
			anchored := own.IsQuota() && !own.OnCalendar() && other.IsQuota() && !other.OnCalendar()
			return (sameRoutes || !anchored || 2*other.Max() <= own.Max()) && neverActs(own.Limit, other.Limit)
		})
	})
}

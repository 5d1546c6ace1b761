package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// findings are warnings about what is allowed, and most probably not meant: a
// limit in the wrong layer, one that never acts, an item that grows too large.
func (k *compiler) findings() {
	if k.failed() {
		return // first things first
	}
	for i := range k.described {
		k.misplaced(&k.described[i])
		k.unreachable(&k.described[i])
		k.settled(&k.described[i])
	}
	k.layers()
	k.unproven()
	k.lonely()
	k.exemptAll()
	k.reversed()
	if k.p.account < 0 && len(k.operations) > 0 {
		k.doubt(k.plansAt, codeNoAccount, "add callers: account: jwt.sub", "plan operations are by account, and callers: names no account: everybody is limited by address, under the first plan")
	}
	k.itemSizes()
	k.unbilled()
	for i := range k.gatewayPlans {
		k.dominated(k.gatewayPlans[i].limits, nil)
	}
	for i := range k.plans {
		for j := range k.plans[i].operations {
			k.dominated(k.plans[i].operations[j].limits, k.termsOf(k.plans[i].operations[j].name.text))
		}
	}
}

// misplaced finds business rules by address, and business words at the edge.
func (k *compiler) misplaced(d *described) {
	c := d.conf
	switch {
	case d.layer == Edge && c.deniedAt != nil:
		k.doubt(c.deniedAt, codeMessageAtEdge, "remove it, or move the limit to application.limits", "a message for customers at the edge: an edge rule stops abuse, and is answered with a fixed sentence")
	case d.layer == Application && d.rule.byPlan == nil && len(d.patterns) > 0 && len(d.rule.by.forms) > 0 && d.addressOnly(k.p.callers):
		k.doubt(c.by, codeBusinessByIP, "write by: [account, ip]; what shall stop abuse belongs to edge:", "a business limit by address: customers behind one address share it, and who has several escapes it")
	}
}

// addressOnly reports whether every form is an address, alone.
func (d *described) addressOnly(callers []caller) bool {
	for _, f := range d.rule.by.forms {
		if !onlyAddress(f, callers) {
			return false
		}
	}
	return true
}

// unreachable finds rules, and parts of rules, that no request can reach.
func (k *compiler) unreachable(d *described) {
	c := d.conf
	if len(d.patterns) > 0 && c.name != nil && d.layer != Gateway {
		covered := 0
		for _, p := range d.patterns {
			for _, x := range k.exempted {
				if exempts(x, p) {
					covered++
					break
				}
			}
		}
		if covered == len(d.patterns) {
			d.exempt = true
			k.doubt(c.name, codeExemptLimit, "remove the limit or the exemption", "the limit %s is never reached: every path that it matches is exempt", show(c.name.text))
		}
	}
	if d.layer != Gateway {
		k.dominated(c.limit, &c.terms)
		k.dominated(c.anon, &c.terms)
	}
	if c.anonAt == nil || len(d.rule.by.forms) == 0 {
		return
	}
	if d.addressOnly(k.p.callers) {
		k.doubt(c.anonAt, codeAnonymous, "write it as limit:", "by: is always the address, so anonymous: is the only limit that acts")
	} else if f := d.rule.by.forms[len(d.rule.by.forms)-1]; f.everyone {
		k.doubt(c.anonAt, codeAnonymous, "remove the line", "anonymous: never acts, because everyone is always present")
	}
}

// exempts reports whether an exemption covers all that a pattern matches: of a
// match:, with and without a last slash.
func exempts(x, p *pattern) bool {
	if p.edge {
		return p.within(x)
	}
	other := *p
	switch {
	case p.tail == nothing:
		other.tail = slash
	case len(p.segs) > 0:
		other.tail = nothing
	}
	return p.within(x) && other.within(x)
}

// exemptAll finds exemptions that leave nothing to limit.
func (k *compiler) exemptAll() {
	for _, c := range k.exempt {
		for _, n := range c.path {
			if n.text == "/*" {
				k.doubt(n, codeAllExempt, "name the paths that are meant", "every path is exempt: no limit is ever reached")
			}
		}
	}
}

// reversed finds plans of which a higher one allows less than a lower one.
func (k *compiler) reversed() {
	plans := map[string]map[string]limitAt{}
	for _, p := range k.plans {
		if plans[p.name.text] == nil {
			plans[p.name.text] = map[string]limitAt{} // of several versions, the last in the file
		}
		for _, o := range p.operations {
			if len(o.limits) == 1 {
				plans[p.name.text][o.name.text] = o.limits[0]
			}
		}
	}
	for _, c := range k.operations {
		name, below := c.name.text, ""
		for _, plan := range k.p.plans {
			own, ok := plans[plan][name]
			if !ok {
				continue
			}
			if low, ok := plans[below][name]; ok && neverActs(low.Limit, own.Limit) && !neverActs(own.Limit, low.Limit) {
				k.doubt(own.at, codeReversed, "order: lists the lowest plan first", "plan %s allows less of %s than %s, which stands below it", plan, name, below)
			}
			below = plan
		}
	}
}

// maxOps is how many limits one call to a store may ask.
const maxOps = 64

// tooMany reports requests that more limits match than can be asked at once.
// It looks at requests that match a pattern and all that are more general.
func (k *compiler) tooMany(layer Layer) {
	type group struct {
		*described
		limits int
	}
	var all []group
	total := 0
	for i := range k.described {
		d := &k.described[i]
		if d.layer != layer || d.conf.mode == "off" || d.conf.name == nil {
			continue
		}
		n := max(len(d.rule.full), len(d.rule.anon))
		for _, limits := range d.rule.byPlan {
			n = max(n, len(limits))
		}
		all = append(all, group{d, n})
		total += n
	}
	if total <= maxOps {
		return
	}
	report := func(at *node, n int) bool {
		if n > maxOps {
			k.wrong(at, codeTooMany, "join limits that say the same, or match fewer routes", "%d limits match one request here; at most %d can be asked at once", n, maxOps)
		}
		return n > maxOps
	}
	always := 0
	for _, g := range all {
		if len(g.patterns) == 0 {
			if always += g.limits; report(g.conf.name, always) {
				return
			}
		}
	}
	for _, g := range all {
		for _, p := range g.patterns {
			n := always
			for _, other := range all {
				if slices.ContainsFunc(other.patterns, func(q *pattern) bool { return (q.host == "" || q.host == p.host) && p.within(q) }) {
					n += other.limits
				}
			}
			if report(g.conf.name, n) {
				return
			}
		}
	}
}

// lonely finds a policy that has one limit for everything.
func (k *compiler) lonely() {
	if len(k.described) != 1 {
		return
	}
	d := &k.described[0]
	all := len(d.patterns) == 0
	for _, p := range d.patterns {
		all = all || p.method == "" && p.host == "" && p.tail == multi && len(p.segs) == 0
	}
	if d.layer == Application && all && d.conf.name != nil {
		k.doubt(d.conf.name, codeOneForAll, "limit addresses under edge:, and customers by route under application.limits", "one limit for everything: cheap and expensive calls, abuse and business share it")
	}
}

// termsOf are those of an operation; nil of one that there is not.
func (k *compiler) termsOf(operation string) *termsConf {
	for _, c := range k.operations {
		if c.name != nil && c.name.text == operation {
			return &c.terms
		}
	}
	return nil
}

// dominated finds limits of a list that can never act, because another one of
// the list always refuses first.
func (k *compiler) dominated(limits []limitAt, t *termsConf) {
	if t != nil && t.over == "charge" {
		limits = slices.DeleteFunc(slices.Clone(limits), func(l limitAt) bool { return l.IsQuota() }) // they refuse nothing
	}
	for i, a := range limits {
		for j, b := range limits {
			if told := t != nil && t.noteAt != nil && a.IsQuota(); !told && i != j && neverActs(a.Limit, b.Limit) && !(j > i && neverActs(b.Limit, a.Limit)) {
				k.doubt(a.at, codeNeverActs, "remove it, or make it the tighter one", "the limit %s never acts: %s always refuses first", show(a.String()), show(b.String()))
				break
			}
		}
	}
}

// neverActs reports whether whatever b lets through is allowed by a too. It
// says so only where that holds at every instant.
func neverActs(a, b weir.Limit) bool {
	switch {
	case a.IsBucket() && b.IsBucket():
		return b.Max() <= a.Max() && perSecond(b) <= perSecond(a)
	case a.IsBucket():
		// Two windows of b may meet within an instant.
		return 2*b.Max() <= a.Max() && float64(b.Max())/period(b) <= perSecond(a)
	case b.IsBucket():
		return float64(b.Max())+perSecond(b)*a.Horizon().Seconds() <= float64(a.Max())
	}
	return sameWindows(a, b) && b.Max() <= a.Max() || period(b) >= a.Horizon().Seconds() && 2*b.Max() <= a.Max()
}

// sameWindows reports whether the windows of two limits of one list begin and end
// together: those that start with the first counted call do so as well, because
// every call counts in both or in neither.
func sameWindows(a, b weir.Limit) bool {
	switch {
	case a.IsQuota() != b.IsQuota() || a.OnCalendar() != b.OnCalendar():
		return false
	case a.OnCalendar():
		_, ofA, _ := strings.Cut(a.String(), "/") // "month calendar Europe/Berlin"
		_, ofB, _ := strings.Cut(b.String(), "/")
		return strings.TrimSuffix(ofA, " UTC") == strings.TrimSuffix(ofB, " UTC")
	}
	return period(a) == period(b)
}

// unproven finds callers of whom nobody can ever be one, because auth: verifies
// no token, or no API key. A policy without auth: may be one of an edge that
// identifies callers by itself.
func (k *compiler) unproven() {
	tokens, keys := k.p.auth.JWT != nil, k.p.auth.APIKeys != nil
	if !tokens && !keys && !k.onlyAuth {
		return
	}
	const addJWT, addKeys = "add auth: {jwt: {hs256_secret_env: NAME}}, public_key_file or jwks_url", "add auth: {api_keys: {header: x-api-key, file: partners.keys}}"
	said := map[int]bool{}
	check := func(at *node, n int) {
		c := &k.p.callers[n]
		switch {
		case said[n]:
			return
		case c.from == fromClaim && !tokens:
			k.doubt(at, codeNobody, addJWT, "nobody can be %s: it is taken from jwt.%s, and auth: verifies no tokens; what stands next in by: is counted, or the address", show(c.name), c.claim)
		case c.from == fromKeyOwner && !keys:
			k.doubt(at, codeNobody, addKeys, "nobody can be %s: it is taken from api_key.owner, and auth: verifies no API keys; what stands next in by: is counted, or the address", show(c.name))
		default:
			return
		}
		said[n] = true
	}
	keyless := false
	for i := range k.described {
		d := &k.described[i]
		switch {
		case d.conf.mode == "off":
		case d.layer == Gateway:
			if !keys && !keyless {
				k.doubt(d.conf.name, codeNobody, addKeys, "nobody can have the gateway plan %s: auth: verifies no API keys", show(d.conf.name.text))
			}
			keyless = true
		case d.rule.byPlan != nil && k.p.account >= 0:
			check(d.conf.name, k.p.account)
		default:
			for f := range d.rule.by.forms {
				for _, n := range d.rule.by.forms[f].callers {
					check(d.conf.by, n)
				}
			}
		}
	}
	if k.from != nil && len(k.operations) > 0 && (k.p.plansFrom.from == fromClaim && !tokens || k.p.plansFrom.from == fromKeyPlan && !keys) {
		k.doubt(k.from, codeNobody, "verify what it is taken from under auth:", "nobody can have a plan but the first: plans come from %s, which auth: does not verify", k.from.text)
	}
}

func period(l weir.Limit) float64 { return l.Period().Duration().Seconds() }

func perSecond(l weir.Limit) float64 {
	n, scale := l.Rate()
	return float64(n) / float64(scale) / period(l)
}

// itemSizes estimates the items of every caller: above 1 KB a write costs two
// units.
func (k *compiler) itemSizes() {
	const most = 1024
	type item struct {
		size int
		last *node
		seen map[string]bool
	}
	items := map[string]*item{}
	add := func(kind string, limits []*Rule, at *node) {
		it := items[kind]
		if it == nil {
			// The key with an id of usual length, the expiry and four nonces.
			it = &item{size: len("pk") + len(kind) + 38 + len("expiresAt") + 6 + 4*13, seen: map[string]bool{}}
			items[kind] = it
		}
		for _, r := range limits {
			if id := r.Name + r.Limit.Period().String(); !it.seen[id] {
				it.seen[id] = true
				it.size += fieldSize(r.Limit)
				it.last = at
			}
		}
	}
	for _, d := range k.described {
		switch {
		case d.layer == Edge && !k.p.edgeShared || d.conf.name == nil:
		case d.layer == Gateway:
			// A key has one plan.
		case d.rule.byPlan != nil:
			for _, limits := range d.rule.byPlan {
				add("account", limits, d.conf.name)
			}
		default:
			for _, f := range d.rule.by.forms {
				kind := ""
				for _, c := range f.callers {
					kind += k.p.callers[c].name + "+"
				}
				for _, p := range f.parts {
					kind += p.kind + "+"
				}
				add(kind, d.rule.full, d.conf.name)
			}
		}
	}
	for kind, it := range items {
		k.p.itemBytes = max(k.p.itemBytes, it.size)
		if it.size > most && it.last != nil {
			k.doubt(it.last, codeItemSize, "shorten names, or share limits between routes", "the limits of one %s need about %d bytes in the store; above %d a write costs twice as much",
				trimPlus(kind), it.size/10*10, most)
		}
	}
}

func trimPlus(s string) string {
	for len(s) > 0 && s[len(s)-1] == '+' {
		s = s[:len(s)-1]
	}
	return s
}

// fieldSize is about what a limit takes in an item: names, and numbers of two
// digits a byte.
func fieldSize(l weir.Limit) int {
	number := func(v int64) int { return 2 + int(math.Log10(float64(max(v, 1))))/2 }
	name := len(l.Name()) + 2
	if l.IsBucket() {
		return 4*name + 11 + 2*number(int64(l.Horizon())) + 3
	}
	unit := len(fmt.Sprint("@", l.Period()))
	if l.IsQuota() && !l.OnCalendar() {
		return 2*(name+unit) + 11 + number(l.Max())
	}
	return 2 * (name + unit + len(":1796000400") + number(l.Max()))
}

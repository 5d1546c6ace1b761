package policy

import (
	"math"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// compiler turns what was read into a Policy. It reports what only shows when
// several parts of the file are seen together.
type compiler struct {
	*loader
	*config
	p         *Policy
	names     map[string]*node // of limits: counters belong to them
	exempted  []*pattern
	described []described
	editions  [][]*planConf // by plan, in the order of their versions
}

// described is a rule with what findings need to know of it.
type described struct {
	conf     *ruleConf
	layer    Layer
	patterns []*pattern
	rule     *rule
	exempt   bool // all that it matches
}

func (l *loader) compile(c *config) *Policy {
	p := &Policy{
		store: c.store, logKeys: c.logKeys, revision: uint32(c.revision),
		edgeShared: c.edgeStore == "shared", origins: c.origins,
		account: -1, gatewayKind: "partner", accountsAge: c.accountsAge, jitter: c.jitter,
	}
	if c.nameAt != nil {
		p.name = c.nameAt.text
	}
	k := &compiler{loader: l, config: c, p: p, names: map[string]*node{}}
	k.settleModes()
	k.compileClient()
	k.compileCallers()
	k.compileExemptions()
	k.compileEdge()
	k.compileGateway()
	k.compilePlans()
	k.compileLimits()
	k.compileAuth()
	if !k.failed() {
		p.compileKeep() // both rely on every rule having its limits
		k.compileOnce()
	}
	p.compileNeeds()
	if !k.failed() {
		p.compileSole()
	}
	k.compileStore()
	k.tooMany(Edge)
	k.tooMany(Application)
	k.findings()
	return p
}

// compileCallers knows three callers when the file names none; the address is
// always one of them.
func (k *compiler) compileCallers() {
	reserved := []string{"everyone", "path", "header", "query", onceKind}
	seen := map[string]bool{}
	for _, c := range k.config.callers {
		if !k.checkName(c.name, "a caller") {
			continue
		}
		name := c.name.text
		if contains(reserved, name) {
			k.wrong(c.name, codeCallerName, "choose another name", "%s has a meaning of its own in by:", show(name))
			continue
		}
		seen[name] = true
		made, ok := k.sourceOf(c.source, name, "a caller", "api_key.owner", "client_ip")
		switch {
		case ok && name == addressKind && made.from != fromAddress:
			k.wrong(c.source, codeCallerName, "write ip: client_ip, or choose another name", "the caller %s is the address: another source would mix its items with those of addresses", show(name))
		case ok && name != addressKind && made.from == fromAddress:
			k.wrong(c.name, codeCallerName, "write ip: client_ip", "items of addresses are named ip#, so the caller is named ip, not %s", show(name))
		}
		made.name = name
		k.p.callers = append(k.p.callers, made)
	}
	if k.config.callers == nil {
		k.p.callers = []caller{{name: "account", from: fromClaim, claim: "sub"}, {name: "partner", from: fromKeyOwner}}
	}
	if !seen[addressKind] {
		k.p.callers = append(k.p.callers, caller{name: addressKind})
	}
	for i := len(k.p.callers) - 1; i >= 0; i-- {
		c := k.p.callers[i]
		if c.name == "account" {
			k.p.account = i
		}
		if c.from == fromKeyOwner {
			k.p.gatewayKind = c.name
		}
	}
}

// compileStore asks whether the store can be, once it is known what it keeps.
func (k *compiler) compileStore() {
	if k.store == "" || k.checkStore == nil {
		return
	}
	if err := k.checkStore(k.store, slices.Clone(k.p.limits)); err != nil {
		k.wrong(k.storeAt, codeStore, "", "%s", strings.TrimPrefix(err.Error(), "weir: "))
		if strings.Contains(k.store, "@") {
			k.hideLast() // a password may stand before it, on a line that does not look like a store's
		}
	}
}

// settleModes holds every rule to the mode of the whole policy: the one that does
// less wins.
func (k *compiler) settleModes() {
	less := []string{"", "enforce", "shadow", "off"}
	rules := append(slices.Concat(k.config.edge, k.config.operations, k.config.limits), &k.config.gateway)
	for _, c := range rules {
		if slices.Index(less, k.config.mode) > slices.Index(less, c.mode) {
			c.mode = k.config.mode
		}
	}
}

func (k *compiler) target(t target, patterns []*pattern) {
	n := int32(len(k.p.targets))
	k.p.targets = append(k.p.targets, t)
	if len(patterns) == 0 {
		k.p.always = append(k.p.always, n)
	}
	for i, pt := range patterns {
		pt.order = i
		k.p.trie.add(pt, n)
	}
}

func (k *compiler) globs(c *ruleConf) []*pattern {
	var out []*pattern
	for _, n := range c.path {
		p, err := parseGlob(n.text)
		if err != nil {
			k.wrong(n, codePath, hintOf(err), "%s", err)
			continue
		}
		out = append(out, p)
	}
	return out
}

func (k *compiler) patterns(c *ruleConf) []*pattern {
	var out []*pattern
	k.flawed, k.lacked = false, ""
	for _, n := range c.match {
		p, err := parsePattern(n.text, c.letters == "exact")
		if err != nil {
			k.flawed = true
			k.wrong(n, codePattern, hintOf(err), "%s", err)
			continue
		}
		out = append(out, p)
	}
	return out
}

// claim reports a second limit of one name.
func (k *compiler) claim(n *node) bool {
	if n == nil {
		return false
	}
	if first := k.names[n.text]; first != nil {
		k.wrong(n, codeNameTaken, "counters belong to the name: give every limit one of its own", "a limit named %s exists already, in %s", show(n.text), k.placeOf(first, n))
		return false
	}
	k.names[n.text] = n
	return true
}

func (k *compiler) compileExemptions() {
	seen := map[string]*node{}
	for _, c := range k.exempt {
		if c.name == nil {
			continue
		}
		if first := seen[c.name.text]; first != nil {
			k.wrong(c.name, codeNameTaken, "choose another name", "an exemption named %s exists already, in %s", show(c.name.text), k.placeOf(first, c.name))
		}
		seen[c.name.text] = c.name
		globs := k.globs(c)
		if len(globs) == 0 {
			continue // without a path it would exempt everything
		}
		k.exempted = append(k.exempted, globs...)
		k.p.exemptions = append(k.p.exemptions, Exemption{c.name.text, texts(c.path), c.because, c.name.line})
		k.target(target{kind: exemption, name: c.name.text}, globs)
	}
}

// compileEdge puts the rules in order of priority, those without one last.
func (k *compiler) compileEdge() {
	seen := map[int64]*node{}
	for _, c := range k.edge {
		if c.priority < 0 {
			c.priority = math.MaxInt64
			continue
		}
		if first := seen[c.priority]; first != nil {
			k.wrong(c.priorityNode, codePriorityTaken, "give every rule a priority of its own", "priority %d is taken already, in %s", c.priority, k.placeOf(first, c.priorityNode))
		}
		seen[c.priority] = c.priorityNode
	}
	edge := slices.Clone(k.edge)
	slices.SortStableFunc(edge, func(a, b *ruleConf) int {
		switch {
		case a.priority < b.priority:
			return -1
		case a.priority > b.priority:
			return 1
		}
		return 0
	})
	for _, c := range edge {
		globs := k.globs(c)
		r := k.rule(c, Edge, nil, weir.FailAllow)
		if r == nil {
			continue
		}
		if len(globs) < len(c.path) {
			continue
		}
		r.except = c.except
		if c.mode != "off" {
			k.target(target{kind: edgeRule, rule: r}, globs)
		}
		k.described = append(k.described, described{c, Edge, globs, r, false})
	}
}

// rule compiles what all rules have in common. It returns nil when the rule
// cannot be named.
func (k *compiler) rule(c *ruleConf, layer Layer, patterns []*pattern, onFail weir.FailureMode) *rule {
	r := &rule{
		cost: k.costOf(c.cost), when: k.condition(c.when),
		shadow: c.mode == "shadow", onFail: onFail, onError: c.onError, exact: c.letters == "exact",
	}
	switch c.onFail {
	case "allow":
		r.onFail = weir.FailAllow
	case "deny":
		r.onFail = weir.FailDeny
	case "local":
		r.onFail = weir.FailLocal
	}
	if c.shareAt != nil && r.onFail != weir.FailLocal {
		k.wrong(c.shareAt, codeShareAlone, "add on_store_error: local, or remove the line", "share: has no effect without on_store_error: local")
	}
	r.by = k.sharingOf(c.by, layer, k.p.callers, patterns)
	if c.successAt != nil && c.count != "on_success" {
		k.doubt(c.successAt, codeNoEffect, "add count: on_success, or remove the line", "success: has no effect, because every call is counted")
	}
	if c.onErrorAt != nil && r.when == nil && r.cost.program == nil {
		k.doubt(c.onErrorAt, codeNoEffect, "remove the line", "on_error: has no effect, because there is no expression that could fail")
	}
	if r.once = k.onceOf(c.terms.once); c.name != nil {
		r.onceName = c.name.text
	}
	if !k.claim(c.name) {
		return nil
	}
	base := k.describe(c, layer, r)
	base.By = r.by.text
	r.full = k.build(base, c.limit, c.name.text, r)
	if c.anon != nil {
		base.Anonymous = true
		r.anon = k.build(base, c.anon, c.name.text, r)
	}
	k.checkTerms(c, append(slices.Clone(r.full), r.anon...))
	return r
}

// describe is what a rule says of itself before its limit is known.
func (k *compiler) describe(c *ruleConf, layer Layer, r *rule) Rule {
	d := Rule{
		Layer: layer, OnSuccess: c.count == "on_success", Success: c.success,
		Headers: c.styles, Denied: c.denied,
		Patterns: texts(append(slices.Clone(c.match), c.path...)), ExactCase: r.exact,
		Priority: -1, ExceptIPs: c.exceptIPs, Mode: Enforce, Cost: "1", OnError: "apply",
		OnStoreError: r.onFail, Share: c.share, Terms: c.terms.all(),
	}
	if layer == Edge && c.priority < math.MaxInt64 {
		d.Priority = int(c.priority)
	}
	if c.mode != "" {
		d.Mode = Mode(c.mode)
	}
	if c.cost != nil {
		d.Cost = c.cost.text
	}
	if c.when != nil {
		d.When = c.when.text
	}
	if c.onError != "" {
		d.OnError = c.onError
	}
	if c.successAt == nil {
		d.Success = StatusRange{100, 399}
	}
	if d.Headers == nil {
		d.Headers = k.config.styles
	}
	if d.Headers == nil {
		d.Headers = []HeaderStyle{StyleIETF}
	}
	return d
}

func texts(nodes []*node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.text)
	}
	return out
}

// build makes the rules of a list of limits, and files them.
func (k *compiler) build(base Rule, limits []limitAt, name string, r *rule) []*Rule {
	var out []*Rule
	for i, lim := range k.nameAll(limits, name, k.p.revision) {
		if r.cost.program == nil && r.cost.header == "" && r.cost.fixed > lim.Max() && i < len(limits) && !(base.Metered && lim.IsQuota()) {
			k.wrong(limits[i].at, codeNeverHolds, "raise the burst or lower the cost", "the limit can never hold the cost of one call, %d", r.cost.fixed)
		}
		if base.Share > 1 && i < len(limits) {
			k.checkShare(lim, limits[i].at, &base, r)
		}
		one := base
		lim = base.Terms.on(lim)
		one.Limit, one.Name, one.billing = lim, lim.Name(), isBilling(lim)
		if i < len(limits) {
			one.Line = limits[i].at.line
		}
		one.place = len(k.p.rules) + i
		out = append(out, &one)
	}
	k.p.rules = append(k.p.rules, out...)
	if base.Layer != Edge || k.p.edgeShared {
		for _, one := range out {
			if !slices.Contains(k.p.limits, one.Limit) {
				k.p.limits = append(k.p.limits, one.Limit)
			}
		}
	}
	return out
}

// checkShare reports a part of a limit that cannot be kept, or that no call fits
// into.
func (k *compiler) checkShare(l weir.Limit, at *node, base *Rule, r *rule) {
	part, err := Divided(l, base.Share)
	switch {
	case err != nil:
		k.wrong(at, codeShare, "choose a larger share", "the limit has no such part: %v", err)
	case r.cost.program == nil && r.cost.header == "" && r.cost.fixed > part.Max() && r.cost.fixed <= l.Max():
		k.doubt(at, codeShareRefuses, "choose a larger share, or on_store_error: allow or deny", "without the store every call is refused: the share of one process, %s, can never hold the cost of one call, %d", show(part.String()), r.cost.fixed)
	}
}

// compileGateway makes a rule of each plan.
func (k *compiler) compileGateway() {
	g := &k.config.gateway
	if g.at == nil {
		return
	}
	patterns := k.patterns(g)
	k.p.gateway = map[string]*rule{}
	k.p.gatewayMatch = g.matchAt != nil
	for _, plan := range k.gatewayPlans {
		c := *g
		c.name, c.limit = plan.name, plan.limits
		r := k.rule(&c, Gateway, nil, weir.FailAllow)
		if r == nil {
			continue
		}
		for _, one := range r.full {
			one.Plan, one.By = plan.name.text, k.p.gatewayKind
		}
		if g.mode == "off" {
			r.full = nil
		}
		k.p.gateway[plan.name.text] = r
		k.described = append(k.described, described{&c, Gateway, patterns, r, false})
	}
	if g.matchAt != nil && len(patterns) > 0 {
		k.target(target{kind: gatewayRoute}, patterns)
	}
}

func (k *compiler) compileLimits() {
	for _, c := range k.config.limits {
		patterns := k.patterns(c)
		r := k.rule(c, Application, patterns, weir.FailAllow)
		if r == nil || len(patterns) < len(c.match) {
			continue
		}
		if off := c.mode == "off" || r.cost.fixed == 0 && r.cost.header == "" && r.cost.program == nil; !off {
			k.target(target{kind: limit, rule: r}, patterns)
		}
		k.described = append(k.described, described{c, Application, patterns, r, false})
	}
}

// compileSole finds the op of a policy that has just one limit, of which everything
// but the address is known before a request.
func (p *Policy) compileSole() {
	if len(p.targets) != 1 || len(p.always) != 1 || p.targets[0].kind != limit || p.gateway != nil || !p.addressOnly(p.targets[0].rule) {
		return
	}
	t := p.targets[0].rule
	rules := t.anon
	if rules == nil {
		rules = t.full
	}
	if len(rules) != 1 || t.shadow {
		return
	}
	if r := rules[0]; !r.Settled() && len(r.NotifyAt) == 0 && !r.Limit.IsMetered() && !slices.Contains(r.Headers, StyleGitHub) {
		p.sole = &t.ask(nil, r, weir.Key{}, t.cost.fixed, 0)[0]
	}
}

// addressOnly reports whether nothing of a request but its address decides what a
// limit counts.
func (p *Policy) addressOnly(r *rule) bool {
	if r.when != nil || r.cost.program != nil || r.cost.header != "" || !r.once.isZero() || r.needs != 0 || len(r.by.forms) == 0 {
		return false
	}
	f := &r.by.forms[0]
	return len(f.callers) == 1 && len(f.parts) == 0 && p.callers[f.callers[0]].from == fromAddress
}

// compileAuth comes last: an API key's plan must be one that exists.
func (k *compiler) compileAuth() {
	a := &k.config.auth
	k.p.auth.JWT = a.jwt
	switch {
	case a.headerAt == nil:
	case a.header == "Host":
		k.wrong(a.headerAt, codeKeyHeader, "use a header of its own, such as x-api-key", "Host names the server, and is not kept among the headers")
	case a.header == "Authorization" && a.jwt != nil:
		k.wrong(a.headerAt, codeKeyHeader, "use a header of its own, such as x-api-key", "Authorization carries the token already: every caller with a token would have an unknown API key")
	}
	var plans []string
	for _, p := range k.gatewayPlans {
		plans = append(plans, p.name.text)
	}
	if k.p.plansFrom.from == fromKeyPlan {
		plans = append(plans, k.p.plans...)
	}
	if a.keyFile == nil || !k.is(a.keyFile, scalar, "file") {
		return
	}
	k.p.auth.APIKeys = &APIKeys{Header: a.header}
	k.readKeys(k.p.auth.APIKeys, a.keyFile, plans)
}

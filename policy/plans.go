package policy

import (
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// compilePlans gives every operation its limits under every plan. A plan that
// does not list an operation has the limit of the next lower plan that does.
func (k *compiler) compilePlans() {
	defined := map[string]*ruleConf{}
	var known []string
	for _, o := range k.operations {
		defined[o.name.text] = o
		known = append(known, o.name.text)
	}
	said := map[string]bool{}
	for i := range k.plans {
		p := &k.plans[i]
		for j := range p.operations {
			op := &p.operations[j]
			if defined[op.name.text] != nil {
				continue
			}
			if !said[op.name.text] {
				said[op.name.text] = true
				advice := ""
				if op.name.text == "since" {
					advice = "only a version has a date: name the plan " + p.name.text + "@2"
				}
				k.wrong(op.name, codeUnknownOperation, suggest(op.name.text, known, advice), "plan %s limits %s, which is not under operations:", p.name.text, show(op.name.text))
			}
			p.mean(op, nearest(op.name.text, known))
		}
	}
	k.orderPlans()
	k.compileEditions()
	k.p.plansFrom = caller{from: fromClaim, claim: "plans"}
	if k.from != nil {
		if isExpression(k.from) {
			if c, ok := k.entitlement(k.from); ok {
				k.p.plansFrom = c
			}
		} else if c, ok := k.sourceOf(k.from, "from", "plans", "api_key.plan", "account.plan"); ok {
			k.p.plansFrom = c
		}
	}
	for _, c := range k.operations {
		k.operation(c)
	}
	k.rankOperations()
}

// mean takes a slip for the operation that is meant, so that this one is not missed
// as well.
func (p *planConf) mean(op *planLimits, name string) {
	if name == "" || slices.ContainsFunc(p.operations, func(o planLimits) bool { return o.name.text == name }) {
		return
	}
	meant := *op.name
	meant.text = name
	op.name = &meant
}

// orderPlans checks the order of the plans against the plans.
func (k *compiler) orderPlans() {
	var names []string
	for _, p := range k.plans {
		if !contains(names, p.name.text) {
			names = append(names, p.name.text)
		}
	}
	for _, n := range k.config.order {
		if contains(k.p.plans, n.text) {
			k.wrong(n, codeRepeated, "keep one of the two", "plan %s stands twice in the order", show(n.text))
			continue
		}
		name := n.text
		if len(names) > 0 && !contains(names, name) {
			if best := nearest(name, names); best != "" && !k.ordered(best) {
				k.wrong(n, codePlanOrder, "did you mean "+show(best)+"?", "plan %s of the order is not there", show(name))
				name = best
			}
		}
		k.p.plans = append(k.p.plans, name)
	}
	if k.config.order == nil && len(names) == 1 {
		k.p.plans = names
		return
	}
	if k.config.order == nil && len(names) > 1 {
		k.wrong(k.plansAt, codePlanOrder, "add order: ["+strings.Join(names, ", ")+"], the lowest first", "plans have no order")
		k.p.plans = names
		return
	}
	for i, p := range k.plans {
		again := slices.ContainsFunc(k.plans[:i], func(o planConf) bool { return o.name.text == p.name.text })
		if !again && !contains(k.p.plans, p.name.text) {
			k.wrong(p.name, codePlanOrder, "add it to order:", "plan %s is not in the order", show(p.name.text))
		}
	}
}

func (k *compiler) ordered(name string) bool {
	for _, n := range k.config.order {
		if n.text == name {
			return true
		}
	}
	return false
}

func (k *compiler) operation(c *ruleConf) {
	patterns := k.patterns(c)
	c.by = nil
	r := k.rule(c, Application, nil, weir.FailDeny)
	if r == nil {
		return
	}
	name := c.name.text
	base := k.describe(c, Application, r)
	base.Operation, base.By = name, "account"
	if len(k.p.plans) == 0 {
		k.wrong(c.name, codeUnlisted, "add plans: with a limit for "+name, "no plan lists the operation %s", show(name))
		return
	}
	all, ok := k.byEdition(c)
	if !ok {
		return
	}
	for i, plan := range k.p.plans {
		for _, e := range k.p.editions[i] {
			base.Plan, base.Version = plan, 0
			if k.p.versioned[i] {
				base.Version = e.number
			}
			bare := base
			bare.Name = name
			r.bare = append(r.bare, &bare)
			if all[e.at].unlimited {
				r.byPlan = append(r.byPlan, nil)
			} else {
				r.byPlan = append(r.byPlan, k.build(base, all[e.at].limits, name, r))
			}
		}
	}
	k.checkTerms(c, slices.Concat(r.byPlan...))
	if len(patterns) < len(c.match) {
		return
	}
	if off := c.mode == "off" || r.cost.fixed == 0 && r.cost.header == "" && r.cost.program == nil; !off {
		k.target(target{kind: operation, name: name, rule: r}, patterns)
	}
	k.described = append(k.described, described{c, Application, patterns, r, false})
}

// rankOperations finds for every pattern how many others are more general, so
// that the most specific of those that match is the one with the most. Two of
// which neither is more specific are a mistake.
func (k *compiler) rankOperations() {
	type entry struct {
		*pattern
		op *ruleConf
		at *node
	}
	var all []entry
	for _, d := range k.described {
		if d.layer != Application || d.rule.byPlan == nil {
			continue
		}
		for i, p := range d.patterns {
			all = append(all, entry{p, d.conf, d.conf.match[i]})
		}
	}
	for i, a := range all {
		for j, b := range all {
			if i == j || a.host != b.host {
				continue
			}
			if a.within(b.pattern) && !b.within(a.pattern) {
				a.generals++
			}
			if j < i && a.op != b.op && a.conflicts(b.pattern) {
				k.wrong(a.at, codeConflict, "make one of the two more specific", "%s of %s and %s of %s (%s) match the same requests, and neither is the more specific one",
					show(a.text), a.op.name.text, show(b.text), b.op.name.text, k.placeOf(b.at, a.at))
			}
		}
	}
}

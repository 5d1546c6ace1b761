package policy

import (
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// ItemOps are the limits that may count on an item, for looking at it, from the
// outside in: each asks for one unit. Which they are, an item's key tells by the
// kinds that it is made of. It does not tell the caller's plan: of an operation,
// and of the gateway, the limits of every plan are there. Edge rules are only
// there where the store counts them. Limits are those of the callers of whom
// something is said.
func (p *Policy) ItemOps(item weir.Key, said ...*Account) []Op {
	kinds := kindsOf(item)
	res := resolver{p: p, id: &Identity{Accounts: said}}
	var ops []Op
	add := func(r *rule, rules []*Rule) {
		w := wanted{rule: r, key: item, units: 1}
		for _, one := range rules {
			ops = res.ask(ops, len(ops), &w, one, res.id.named(kinds, one.Name))
		}
	}
	for i := range p.targets {
		t := &p.targets[i]
		switch {
		case t.kind == operation && p.account >= 0 && alone(kinds, p.callers[p.account].name):
			for i, rules := range t.byPlan {
				if len(rules) == 0 && res.id.named(kinds, t.bare[i].Name).overrides(t.bare[i].Name) {
					rules = t.bare[i : i+1]
				}
				add(t.rule, rules)
			}
		case t.kind == operation && len(t.byPlan) > 0 && alone(kinds, addressKind):
			for _, e := range p.editions[0] {
				add(t.rule, t.byPlan[e.at])
			}
		case t.kind == limit || t.kind == edgeRule && p.edgeShared:
			counts, anonymous := p.counts(t.rule, kinds)
			switch {
			case counts && anonymous && t.anon != nil:
				add(t.rule, t.anon)
			case counts:
				add(t.rule, t.full)
			}
		}
	}
	if alone(kinds, p.gatewayKind) {
		for _, r := range p.gateway {
			add(r, r.full)
		}
	}
	place := make(map[*Rule]int, len(p.rules))
	for i, r := range p.rules {
		place[r] = i
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return place[a.Rule] - place[b.Rule] })
	return ops
}

// kindsOf are the kinds of a key's parts: account and event of
// account#a7|event#12.
func kindsOf(item weir.Key) []string {
	var kinds []string
	for pair := range strings.SplitSeq(item.String(), "|") {
		kind, _, _ := strings.Cut(pair, "#")
		kinds = append(kinds, kind)
	}
	return kinds
}

func alone(kinds []string, kind string) bool { return len(kinds) == 1 && kinds[0] == kind }

// counts reports whether a rule may count on items of these kinds, and whether
// their caller is known by the address only. It mirrors resolver.counter.
func (p *Policy) counts(r *rule, kinds []string) (counts, anonymous bool) {
	forms := r.by.forms
	for i := range forms {
		f := &forms[i]
		var names []string
		known := f.everyone
		if f.everyone {
			names = append(names, "everyone")
		}
		for _, n := range f.callers {
			names = append(names, p.callers[n].name)
			known = known || p.callers[n].from != fromAddress
		}
		if r.holds(names, f.parts, kinds) {
			return true, !known
		}
		if f.everyone || onlyAddress(*f, p.callers) {
			return false, false // it is always present, and no other form is reached
		}
	}
	if n := len(forms); n > 0 {
		return r.holds([]string{addressKind}, forms[n-1].parts, kinds), true
	}
	return alone(kinds, addressKind), true
}

// holds reports whether kinds are these names and then parts of a form, in their
// order. A request may lack some of the parts.
func (r *rule) holds(names []string, parts []part, kinds []string) bool {
	if len(kinds) < len(names) || !slices.Equal(kinds[:len(names)], names) {
		return false
	}
	kinds = kinds[len(names):]
	for i := range parts {
		switch {
		case len(kinds) > 0 && escaped(parts[i].kind) == kinds[0]:
			kinds = kinds[1:]
		case !r.mayLack(&parts[i]):
			return false
		}
	}
	return len(kinds) == 0
}

// mayLack reports whether a request that the rule applies to can be without a
// part: a segment of the path never is.
func (r *rule) mayLack(p *part) bool {
	return p.from != pathPart || slices.ContainsFunc(r.full[0].Patterns, func(pattern string) bool {
		return strings.Contains(pattern, "{"+p.name+"...}")
	})
}

// escaped is a kind as it stands in keys.
func escaped(kind string) string {
	return kindsOf(weir.NewKey(kind, "-"))[0]
}

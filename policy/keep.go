package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// KeepFor is how long an item still matters after a call: the longest
// [weir.Limit.Horizon] of the limits that may count on it, which its key tells
// by the kinds that it is made of, as with [Policy.ItemOps]. An account's item
// need not live for a month because a partner's has to. Of an item on which none
// of the policy's limits counts it is the longest of all. It suits
// [weir.Options], and costs no allocation.
func (p *Policy) KeepFor(item weir.Key) time.Duration {
	var room [64]byte
	if d, ok := p.keep[string(appendKinds(room[:0], item.String()))]; ok {
		return d
	}
	return p.longest
}

// appendKinds appends the kinds of a key's text: account|event of
// account#a7|event#12.
func appendKinds(b []byte, text string) []byte {
	for {
		kind, rest, _ := strings.Cut(text, "#")
		b = append(b, kind...)
		i := strings.IndexByte(rest, '|')
		if i < 0 {
			return b
		}
		b, text = append(b, '|'), rest[i+1:]
	}
}

// compileKeep asks every rule which items it may count on: those of the keys
// that its own `by:` can make.
func (p *Policy) compileKeep() {
	p.keep = map[string]time.Duration{}
	for _, l := range p.limits {
		p.longest = max(p.longest, l.Horizon())
	}
	for i := range p.targets {
		t := &p.targets[i]
		switch {
		case t.kind == operation:
			for n, rules := range t.byPlan {
				if p.account >= 0 {
					p.raise(p.callers[p.account].name, rules)
				}
				if n < len(p.editions[0]) {
					p.raise(addressKind, rules)
				}
			}
		case t.kind == limit || t.kind == edgeRule && p.edgeShared:
			for kinds := range p.ways(t.rule) {
				counts, anonymous := p.counts(t.rule, strings.Split(kinds, "|"))
				switch {
				case counts && anonymous && t.anon != nil:
					p.raise(kinds, t.anon)
				case counts:
					p.raise(kinds, t.full)
				}
			}
		}
	}
	for _, r := range p.gateway {
		p.raise(p.gatewayKind, r.full)
	}
}

// raise lets items of these kinds live as long as the rules' limits need.
func (p *Policy) raise(kinds string, rules []*Rule) {
	for _, r := range rules {
		p.keep[kinds] = max(p.keep[kinds], r.Limit.Horizon())
	}
}

// ways are the kinds of all keys that a rule might make, as form.ways has them:
// those of its forms, and those of a caller known by the address only.
func (p *Policy) ways(r *rule) map[string]bool {
	out := map[string]bool{addressKind: true}
	forms := slices.Clone(r.by.forms)
	if n := len(forms); n > 0 {
		forms = append(forms, form{callers: []int{p.addressAt()}, parts: forms[n-1].parts})
	}
	for i := range forms {
		for kinds := range forms[i].ways(p.callers) {
			out[kinds] = true
		}
	}
	return out
}

// addressAt is the place of the address among the callers.
func (p *Policy) addressAt() int {
	return slices.IndexFunc(p.callers, func(c caller) bool { return c.name == addressKind })
}

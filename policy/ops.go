package policy

import (
	"encoding/json"
	"net/netip"
	"net/url"

	"github.com/expr-lang/expr"

	"github.com/weirlabs/weir"
)

// Ops turns a match and the identity of who calls into the operations to be
// taken in one call: those of the gateway and those of the application, narrow
// ones first. The error is a *[RequestError].
func (p *Policy) Ops(m *Match, a *Attributes, id Identity) ([]Op, error) {
	if m.Exempt != "" {
		return nil, nil
	}
	if m.NeedsKey && id.KeyOwner == "" {
		return nil, unauthorized("an API key is required")
	}
	if len(m.app.hits) == 0 && (!m.app.gateway || id.KeyOwner == "") {
		return nil, nil
	}
	res := resolver{p: p, client: m.Client, a: a, id: id, ip: m.app.ip}
	plan := 0
	if len(p.plans) > 0 {
		plan = p.planOf(&id)
	}
	var f *facts
	defer func() {
		if f != nil {
			f.free()
		}
	}()
	list := rankedOps{ops: make([]Op, 0, len(m.app.hits)+2)}
	for i := range m.app.hits {
		h := &m.app.hits[i]
		if f == nil && (h.when != nil || h.cost.program != nil || h.cost.header != "") {
			name := ""
			if len(p.plans) > 0 {
				name = p.plans[plan]
			}
			f = newFacts(a, m.app.path, m.Client, name, id)
		}
		if h.when != nil {
			// An expression that fails holds: a limit is not escaped by a
			// request that its author did not think of.
			if v, err := expr.Run(h.when, f); err == nil && v == false {
				continue
			}
		}
		n := h.cost.of(f)
		if n == 0 {
			continue
		}
		if err := p.appOps(&list, h, &res, plan, n); err != nil {
			return nil, err
		}
	}
	if m.app.gateway && id.KeyOwner != "" {
		if r := p.gateway[id.KeyPlan]; r != nil {
			key := res.ownerKey()
			for _, one := range r.full {
				list.add(one, r, key, 1, rankGateway)
			}
		}
	}
	return list.ops, nil
}

// appOps adds the ops of one operation or limit.
func (p *Policy) appOps(list *rankedOps, h *appHit, res *resolver, plan int, n int64) error {
	if h.byPlan != nil {
		key, rank, anonymous, err := res.account()
		if err != nil {
			return err
		}
		if anonymous {
			plan = 0
		}
		for _, one := range h.byPlan[plan] {
			list.add(one, h.rule, key, n, rank)
		}
		return nil
	}
	c, err := res.counter(&h.by, h)
	if err != nil {
		return err
	}
	rules := h.full
	if c.anonymous && h.anon != nil {
		rules = h.anon
	}
	for _, one := range rules {
		list.add(one, h.rule, c.key, n, c.rank)
	}
	return nil
}

// UsageOps are the limits that a caller of this identity has, for looking at
// them: limits of his alone, in force, not of a single resource.
func (p *Policy) UsageOps(a *Attributes, client netip.Addr, id Identity) ([]Op, error) {
	res := resolver{p: p, client: client, a: a, id: id}
	plan := 0
	if len(p.plans) > 0 {
		plan = p.planOf(&id)
	}
	var list rankedOps
	for i := range p.targets {
		t := &p.targets[i]
		if t.kind != operation && t.kind != limit || t.shadow || !t.by.own() {
			continue
		}
		if err := p.appOps(&list, &appHit{rule: t.rule}, &res, plan, 1); err != nil {
			return nil, err
		}
	}
	if r := p.gateway[id.KeyPlan]; r != nil && id.KeyOwner != "" && !r.shadow {
		for _, one := range r.full {
			list.add(one, r, res.ownerKey(), 1, rankGateway)
		}
	}
	return list.ops, nil
}

// own reports whether counters belong to one caller each.
func (s *sharing) own() bool {
	for _, f := range s.forms {
		if f.everyone || len(f.parts) > 0 {
			return false
		}
	}
	return true
}

// planOf is the highest plan that the caller is entitled to, else the lowest.
func (p *Policy) planOf(id *Identity) int {
	best := 0
	consider := func(name string) {
		for i := best + 1; i < len(p.plans); i++ {
			if p.plans[i] == name {
				best = i
			}
		}
	}
	if p.plansFrom.from == fromKeyPlan {
		consider(id.KeyPlan)
		return best
	}
	switch v := id.Claims[p.plansFrom.claim].(type) {
	case string:
		consider(v)
	case []string:
		for _, s := range v {
			consider(s)
		}
	case []any:
		for _, x := range v {
			switch s := x.(type) {
			case string:
				consider(s)
			case json.Number:
				consider(s.String())
			}
		}
	}
	return best
}

// resolver finds the items of one request. It makes a caller's key once.
type resolver struct {
	p      *Policy
	client netip.Addr
	a      *Attributes
	id     Identity
	query  url.Values
	keys   [6]weir.Key // by caller
	ip     weir.Key
}

// counter is an item, and who it is of.
type counter struct {
	key       weir.Key
	rank      uint8
	anonymous bool // known by the address only
}

func (r *resolver) address() weir.Key {
	if !r.ip.Valid() {
		r.ip = addressKey(r.client)
	}
	return r.ip
}

func (r *resolver) ownerKey() weir.Key { return weir.NewKey(r.p.gatewayKind, r.id.KeyOwner) }

// single is the key of one caller; not valid when he is not present.
func (r *resolver) single(n int) (weir.Key, error) {
	c := &r.p.callers[n]
	if c.from == fromAddress {
		return r.address(), nil
	}
	if n < len(r.keys) && r.keys[n].Valid() {
		return r.keys[n], nil
	}
	id, err := c.id(&r.id, r.client)
	if err != nil || id == "" {
		return weir.Key{}, err
	}
	k := weir.NewKey(c.name, id)
	if n < len(r.keys) {
		r.keys[n] = k
	}
	return k, nil
}

// account is the item of plan operations.
func (r *resolver) account() (key weir.Key, rank uint8, anonymous bool, err error) {
	if n := r.p.account; n >= 0 {
		key, err := r.single(n)
		if err != nil || key.Valid() {
			return key, uint8(min(n, 200)), false, err
		}
	}
	return r.address(), r.addressRank(), true, nil
}

func (r *resolver) addressRank() uint8 {
	for i, c := range r.p.callers {
		if c.from == fromAddress {
			return uint8(min(i, 200))
		}
	}
	return 200
}

// counter finds the first form of which all callers are present, else the
// address with the parts of the last form.
func (r *resolver) counter(s *sharing, h *appHit) (counter, error) {
	for i := range s.forms {
		f := &s.forms[i]
		if len(f.callers) == 1 && len(f.parts) == 0 {
			key, err := r.single(f.callers[0])
			if err != nil {
				return counter{}, err
			}
			if key.Valid() {
				return counter{key, f.rank, r.p.callers[f.callers[0]].from == fromAddress}, nil
			}
			continue
		}
		var room [12]string
		pairs, present, known := room[:0], true, f.everyone
		if f.everyone {
			pairs = append(pairs, "everyone", everyoneID)
		}
		for _, n := range f.callers {
			c := &r.p.callers[n]
			id, err := c.id(&r.id, r.client)
			if err != nil {
				return counter{}, err
			}
			if id == "" {
				present = false
				break
			}
			known = known || c.from != fromAddress
			pairs = append(pairs, c.name, id)
		}
		if present {
			return counter{r.withParts(pairs, f, h), f.rank, !known}, nil
		}
	}
	if n := len(s.forms); n > 0 && len(s.forms[n-1].parts) > 0 {
		var room [8]string
		pairs := append(room[:0], addressKind, addressID(r.client))
		return counter{r.withParts(pairs, &s.forms[n-1], h), r.addressRank(), true}, nil
	}
	return counter{r.address(), r.addressRank(), true}, nil
}

// withParts completes a key. A part that the request lacks is left out.
func (r *resolver) withParts(pairs []string, f *form, h *appHit) weir.Key {
	for i := range f.parts {
		if v := f.parts[i].value(h, r.a, &r.query); v != "" {
			pairs = append(pairs, f.parts[i].kind, v)
		}
	}
	return keyOf(pairs)
}

// rankedOps keeps ops in the order in which different items are asked: keys of
// more parts first, then by rank.
type rankedOps struct {
	ops   []Op
	ranks []uint8
	room  [8]uint8
}

func (l *rankedOps) add(one *Rule, r *rule, key weir.Key, n int64, rank uint8) {
	if l.ranks == nil {
		l.ranks = l.room[:0]
	}
	l.ops = append(l.ops, Op{weir.Op{Limit: one.Limit, Key: key, Cost: n, Shadow: r.shadow, OnFail: r.onFail}, one})
	l.ranks = append(l.ranks, rank)
	for i := len(l.ops) - 1; i > 0 && l.before(i, i-1); i-- {
		l.ops[i], l.ops[i-1] = l.ops[i-1], l.ops[i]
		l.ranks[i], l.ranks[i-1] = l.ranks[i-1], l.ranks[i]
	}
}

func (l *rankedOps) before(i, j int) bool {
	a, b := l.ops[i].Key.Parts(), l.ops[j].Key.Parts()
	if a != b {
		return a > b
	}
	return l.ranks[i] < l.ranks[j]
}

package policy

import (
	"encoding/json"
	"net/netip"
	"net/url"

	"github.com/weirlabs/weir"
)

// Ops turns a match and the identity of who calls into the operations to be
// taken in one call: those of the gateway and those of the application, narrow
// ones first. The error is a *[RequestError].
func (p *Policy) Ops(m *Match, a *Attributes, id Identity) ([]Op, error) {
	return p.AppendOps(nil, m, a, &id)
}

// AppendOps is Ops with room for its result, to which the ops are appended. An
// error appends nothing. A nil identity is nobody's.
func (p *Policy) AppendOps(room []Op, m *Match, a *Attributes, id *Identity) ([]Op, error) {
	if id == nil {
		id = nobody
	}
	if m.Exempt != "" {
		return room, nil
	}
	if m.NeedsKey && id.KeyOwner == "" {
		return room, unauthorized("An API key is required.")
	}
	if m.found.app.n == 0 && (!m.found.gateway || id.KeyOwner == "") {
		return room, nil
	}
	res := resolver{p: p, client: m.Client, header: a.Header, rawQuery: a.RawQuery, id: id, ip: m.found.ip}
	plan := 0
	if len(p.plans) > 0 {
		plan = p.planOf(id)
	}
	var f *facts
	defer func() {
		if f != nil {
			f.free()
		}
	}()
	ops, from := room, len(room)
	operated := false
	for i := range m.found.app.n {
		h := m.found.app.at(i)
		if h.byPlan != nil && h.pattern == nil && operated {
			m.found.trace.skipped(h.rule, skipOperated)
			continue // a call is one operation: a pattern's, else the first whose condition holds
		}
		if f == nil && (h.when != nil || h.cost.program != nil || h.cost.header != "" || !h.once.isZero()) {
			name := ""
			if len(p.plans) > 0 {
				name = p.plans[plan]
			}
			f = newFacts(a, m.found.path, m.Client, name, id.Claims)
		}
		n, holds, err := h.units(f, m.found.trace)
		switch {
		case err != nil:
			return room, err
		case !holds:
			m.found.trace.skipped(h.rule, skipWhen)
			continue
		}
		if operated = operated || h.byPlan != nil; n == 0 {
			m.found.trace.skipped(h.rule, skipCost)
			continue
		}
		before := len(ops)
		if ops, err = p.appOps(ops, from, h, &res, plan, n); err != nil {
			return room, err
		}
		if len(ops) > before {
			res.noteOnce(m, h, f)
		}
	}
	if m.found.gateway && id.KeyOwner != "" {
		if r := p.gateway[id.KeyPlan]; r != nil {
			key := res.ownerKey()
			w := wanted{r, key, 1, rankGateway, r.needs != 0}
			for _, one := range r.full {
				ops = res.ask(ops, from, &w, one, res.id.Account(p.gatewayKind))
			}
		}
	}
	return ops, nil
}

// appOps appends the ops of one operation or limit, in their place among those
// from an index on.
func (p *Policy) appOps(ops []Op, from int, h *appHit, res *resolver, plan int, n int64) ([]Op, error) {
	if h.byPlan != nil {
		key, rank, anonymous, err := res.account()
		if err != nil {
			return ops, err
		}
		if anonymous {
			plan = 0
		}
		who := res.id.operator(p, anonymous)
		at := p.editionAt(plan, who.pins(), res.now())
		rules := h.byPlan[at.at]
		if len(rules) == 0 && who.overrides(h.bare[at.at].Name) {
			rules = h.bare[at.at : at.at+1]
		}
		w := wanted{h.rule, key, n, rank, h.needs != 0 && !anonymous}
		for _, one := range rules {
			ops = res.ask(ops, from, &w, one, who)
		}
		return ops, nil
	}
	c, err := res.counter(&h.by, h)
	if err != nil {
		return ops, err
	}
	rules := h.full
	if c.anonymous && h.anon != nil {
		rules = h.anon
	}
	w := wanted{h.rule, c.key, n, c.rank, h.needs != 0 && !c.anonymous}
	for _, one := range rules {
		ops = res.ask(ops, from, &w, one, res.id.sharing(p, c.form, one.Name))
	}
	return ops, nil
}

// UsageOps are the limits that a caller of this identity has, for looking at
// them: limits of his alone, in force, not of a single resource.
func (p *Policy) UsageOps(a *Attributes, client netip.Addr, id Identity) ([]Op, error) {
	res := resolver{p: p, client: client, header: a.Header, rawQuery: a.RawQuery, id: &id}
	plan := 0
	if len(p.plans) > 0 {
		plan = p.planOf(&id)
	}
	var ops []Op
	for i := range p.targets {
		t := &p.targets[i]
		if t.kind != operation && t.kind != limit || t.shadow || !t.by.own() {
			continue
		}
		var err error
		if ops, err = p.appOps(ops, 0, &appHit{rule: t.rule}, &res, plan, 1); err != nil {
			return nil, err
		}
	}
	if r := p.gateway[id.KeyPlan]; r != nil && id.KeyOwner != "" && !r.shadow {
		w := wanted{r, res.ownerKey(), 1, rankGateway, r.needs != 0}
		for _, one := range r.full {
			ops = res.ask(ops, 0, &w, one, id.Account(p.gatewayKind))
		}
	}
	return ops, nil
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
// What a record of the account grants counts beside what `from:` names.
func (p *Policy) planOf(id *Identity) int {
	best := 0
	consider := func(name string) {
		for i := best + 1; i < len(p.plans); i++ {
			if p.plans[i] == name {
				best = i
			}
		}
	}
	if a := id.Account(AccountKind); a != nil {
		for _, name := range a.Plans {
			consider(name)
		}
	}
	if id.entitled != nil {
		return p.highest(id.entitled, best)
	}
	switch p.plansFrom.from {
	case fromKeyPlan:
		consider(id.KeyPlan)
		return best
	case fromRecord:
		return best
	case fromExpression:
		granted, err := p.granted(id)
		if err != nil {
			return best // a claim that is not there entitles to nothing
		}
		return p.highest(granted, best)
	}
	return p.highest(id.Claims[p.plansFrom.claim], best)
}

// granted is what the expression of from: gives.
func (p *Policy) granted(id *Identity) (any, error) {
	return p.plansFrom.program(&entitlements{Claims: id.Claims, KeyOwner: id.KeyOwner, KeyPlan: id.KeyPlan})
}

// highest is the highest plan of those that a value names, if it is above one.
func (p *Policy) highest(names any, best int) int {
	consider := func(name string) {
		for i := best + 1; i < len(p.plans); i++ {
			if p.plans[i] == name {
				best = i
			}
		}
	}
	switch v := names.(type) {
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
	p        *Policy
	client   netip.Addr
	header   map[string][]string
	rawQuery string
	query    url.Values // of rawQuery, once a part asks for it
	id       *Identity
	at       int64       // as Identity.Now, once somebody asks for it
	keys     [6]weir.Key // by caller
	ip       weir.Key
}

// counter is an item, and who it is of.
type counter struct {
	key       weir.Key
	rank      uint8
	anonymous bool  // known by the address only
	form      *form // whose it is; nil: of the address
}

func (r *resolver) address() weir.Key {
	if !r.ip.Valid() {
		r.ip = r.p.addresses.key(r.client)
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
	id, err := c.id(&r.p.addresses, r.id, r.client)
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
				return counter{key, f.rank, r.p.callers[f.callers[0]].from == fromAddress, f}, nil
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
			id, err := c.id(&r.p.addresses, r.id, r.client)
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
			return counter{r.withParts(pairs, f, h), f.rank, !known, f}, nil
		}
	}
	if n := len(s.forms); n > 0 && len(s.forms[n-1].parts) > 0 {
		var room [8]string
		pairs := append(room[:0], addressKind, r.p.addresses.id(r.client))
		return counter{r.withParts(pairs, &s.forms[n-1], h), r.addressRank(), true, nil}, nil
	}
	return counter{r.address(), r.addressRank(), true, nil}, nil
}

// withParts completes a key. A part that the request lacks is left out.
func (r *resolver) withParts(pairs []string, f *form, h *appHit) weir.Key {
	for i := range f.parts {
		if v := r.part(&f.parts[i], h); v != "" {
			pairs = append(pairs, f.parts[i].kind, v)
		}
	}
	return keyOf(pairs)
}

// ask appends an op for n units of one of the rule's limits.
func (r *rule) ask(ops []Op, one *Rule, key weir.Key, n int64, rank uint8) []Op {
	ops = append(ops, Op{})
	op := &ops[len(ops)-1]
	op.Limit, op.Key, op.Cost, op.Shadow, op.OnFail = one.Limit, key, n, r.shadow, r.onFail
	op.Rule, op.rank = one, rank
	return ops
}

// ranked puts the last op into its place among those from an index on, in the
// order in which different items are asked: keys of more parts first, then by
// rank.
func ranked(ops []Op, from int) []Op {
	for i := len(ops) - 1; i > from && before(&ops[i], &ops[i-1]); i-- {
		ops[i], ops[i-1] = ops[i-1], ops[i]
	}
	return ops
}

func before(a, b *Op) bool {
	if x, y := a.Key.Parts(), b.Key.Parts(); x != y {
		return x > y
	}
	return a.rank < b.rank
}

package policy

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirlabs/weir"
)

// AccountKind is the caller by whom plan operations count.
const AccountKind = "account"

// Account is what a record says of one caller at one instant. It holds nothing
// that is over by then. An Account is safe for concurrent use once it is
// complete; its exported fields must not change after that.
type Account struct {
	// Kind is the caller's name in `callers:`: account, partner, ip.
	Kind string

	// Plans are granted beside what the policy's `from:` says. A plan that the
	// policy does not have is ignored.
	Plans []string

	// Pins says which version of a plan the account has, by the plan's name.
	Pins map[string]int

	// Anchor is when the account's first billing period began. The zero value
	// lets its billing quotas follow the calendar, in UTC.
	Anchor time.Time

	// Overrides stand in for the policy's limits of these names. The zero Limit
	// says that there is none.
	Overrides map[string]weir.Limit

	mu   sync.Mutex
	made map[*Rule]weir.Limit // limits made for this account
}

// maxMade bounds the limits that an account remembers: after many reloads most
// are of policies that are no longer in force.
const maxMade = 256

func (a *Account) pins() map[string]int {
	if a == nil {
		return nil
	}
	return a.Pins
}

func (a *Account) overrides(name string) bool {
	if a == nil {
		return false
	}
	l, ok := a.Overrides[name]
	return ok && !l.IsZero()
}

// limitOf is the limit that holds for this account in place of a rule's. ok is
// false when there is none for it.
func (a *Account) limitOf(r *Rule, revision uint32) (l weir.Limit, overridden, ok bool) {
	own, overridden := a.Overrides[r.Name]
	if overridden && own.IsZero() {
		return l, true, false
	}
	if !overridden && (a.Anchor.IsZero() || !r.billing) {
		return r.Limit, false, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l, ok = a.made[r]; ok {
		return l, overridden, true
	}
	l = r.Limit
	if overridden {
		named, err := own.Named(r.Name)
		if err != nil {
			return l, false, !l.IsZero() // the rule's name is one: not reached
		}
		l = r.Terms.on(named.Revised(revision, weir.KeepUsed))
	}
	anchor := a.Anchor
	if anchor.IsZero() {
		anchor = noAnchor
	}
	if anchored, err := l.Anchored(anchor); err == nil {
		l = anchored
	}
	if a.made == nil || len(a.made) >= maxMade {
		a.made = map[*Rule]weir.Limit{}
	}
	a.made[r] = l
	return l, overridden, true
}

// noAnchor begins the billing periods of those who have no anchor of their own.
var noAnchor = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// isBilling reports whether a limit's windows begin with an account's anchor.
func isBilling(l weir.Limit) bool {
	if !l.OnCalendar() {
		return false
	}
	_, err := l.Anchored(noAnchor)
	return err == nil
}

// nobody is who calls where that is not known. It is never written to.
var nobody = new(Identity)

// Account is what the records say of the caller of a kind, or nil.
func (id *Identity) Account(kind string) *Account {
	for _, a := range id.Accounts {
		if a != nil && a.Kind == kind {
			return a
		}
	}
	return nil
}

// operator is the account by which plan operations count.
func (id *Identity) operator(p *Policy, anonymous bool) *Account {
	if len(id.Accounts) == 0 {
		return nil
	}
	if anonymous {
		return id.Account(addressKind)
	}
	return id.Account(AccountKind)
}

// sharing is the account whose record speaks of a limit that several callers
// share.
func (id *Identity) sharing(p *Policy, f *form, limit string) *Account {
	if len(id.Accounts) == 0 {
		return nil
	}
	if f == nil {
		return id.Account(addressKind)
	}
	var kinds []string
	for _, n := range f.callers {
		kinds = append(kinds, p.callers[n].name)
	}
	return id.named(kinds, limit)
}

// named is of several kinds of callers the first account that has an override of
// a limit, else the first that there is.
func (id *Identity) named(kinds []string, limit string) (first *Account) {
	for _, kind := range kinds {
		a := id.Account(kind)
		if a == nil {
			continue
		}
		if _, ok := a.Overrides[limit]; ok {
			return a
		}
		if first == nil {
			first = a
		}
	}
	return first
}

// wanted is what one entry of the policy asks of one item.
type wanted struct {
	*rule
	key      weir.Key
	units    int64
	rank     uint8
	recorded bool // without the caller's record the limit is a guess
}

// ask appends an op for a limit of w, as it holds for who, in its place among
// those from an index on.
func (res *resolver) ask(ops []Op, from int, w *wanted, one *Rule, who *Account) []Op {
	limit, overridden := one.Limit, false
	if who != nil {
		var ok bool
		if limit, overridden, ok = who.limitOf(one, res.p.revision); !ok {
			return ops
		}
	}
	ops = w.ask(ops, one, w.key, w.units, w.rank)
	op := &ops[len(ops)-1]
	op.Limit, op.Overridden, op.FromRecord = limit, overridden, w.recorded
	return ranked(ops, from)
}

// now is the instant that decides which version of a plan is new.
func (res *resolver) now() int64 {
	if res.at == 0 {
		if res.at = res.id.Now; res.at == 0 {
			res.at = time.Now().UnixNano()
		}
	}
	return res.at
}

// The bounds of accounts.max_age, and what it is where the file says nothing.
const (
	minAccountsAge = time.Second
	maxAccountsAge = time.Hour
	usualAge       = 5 * time.Second
)

// accountsRows says how old may be what a process knows of accounts.
func (l *loader) accountsRows(c *config) []row {
	return []row{{"max_age", true, "How old may be what a process knows of an account's record: 30s, from 1s to 1h.", l.time("max_age", &c.accountsAge, minAccountsAge, maxAccountsAge)}}
}

// AccountsAge is how old may be what a process knows of an account's record,
// from a second to an hour: accounts.max_age of the file, by default 5 seconds.
func (p *Policy) AccountsAge() time.Duration {
	if p.accountsAge == 0 {
		return usualAge
	}
	return p.accountsAge
}

// Caller is one of those who a request is from.
type Caller struct {
	Key  weir.Key
	Kind string // the caller's name in `callers:`

	// Needed says that what the policy allows this request depends on the
	// caller's record: on the version of a plan, a plan that the record grants,
	// or a billing period.
	Needed bool
}

// NeedsRecords reports whether plans have versions or are granted by records, so
// that the policy cannot work on a store that keeps none.
func (p *Policy) NeedsRecords() bool { return p.needsRecords }

// ReadsRecords reports whether what some request is allowed depends on the record
// of its caller, so that a process reads one for each of those who call: on a plan,
// its version, or the day on which a billing period begins.
func (p *Policy) ReadsRecords() bool {
	for _, r := range p.gateway {
		if r.needs != 0 {
			return true
		}
	}
	return p.allNeeds != 0
}

// AppendCallers appends those who a request is from, as their claims and keys
// say, and the address last; or only those whose records are needed. A nil
// identity is nobody's.
func (p *Policy) AppendCallers(room []Caller, m *Match, id *Identity, onlyNeeded bool) []Caller {
	if id == nil {
		id = nobody
	}
	var needs uint64
	for i := range m.found.app.n {
		needs |= m.found.app.at(i).needs
	}
	if m.found.all {
		needs = p.allNeeds
	}
	gateway := (m.found.gateway || m.found.all) && p.gatewayNeeds(id)
	if onlyNeeded && needs == 0 && !gateway {
		return room
	}
	owner := false
	for n := range p.callers {
		c := &p.callers[n]
		if c.from == fromAddress {
			continue
		}
		text, err := c.id(&p.addresses, id, m.Client)
		if err != nil || text == "" {
			continue // a limit that counts by it says what is wrong
		}
		needed := needs>>min(n, 63)&1 == 1
		if c.name == p.gatewayKind {
			owner = true
			needed = needed || gateway
		}
		if onlyNeeded && !needed {
			continue
		}
		room = append(room, Caller{weir.NewKey(c.name, text), c.name, needed})
	}
	if !owner && id.KeyOwner != "" && (gateway || !onlyNeeded) {
		room = append(room, Caller{weir.NewKey(p.gatewayKind, id.KeyOwner), p.gatewayKind, gateway})
	}
	if onlyNeeded {
		return room
	}
	ip := m.found.ip
	if !ip.Valid() {
		ip = p.addresses.key(m.Client)
	}
	if !ip.Valid() {
		return room // an event without an address
	}
	return append(room, Caller{ip, addressKind, false})
}

// UsageMatch stands for all requests of a caller at once: for those who look at
// all his limits, see [Policy.UsageOps].
func (p *Policy) UsageMatch(client netip.Addr) Match {
	return Match{Client: client, NeedsIdentity: true, found: matched{all: true}}
}

// gatewayNeeds reports whether the limits of an API key depend on a record.
func (p *Policy) gatewayNeeds(id *Identity) bool {
	if id.KeyOwner == "" {
		return false
	}
	r := p.gateway[id.KeyPlan]
	return r != nil && r.needs != 0
}

// needsOf are the callers, a bit for each place in p.callers, whose records an
// operation or a limit depends on.
func (p *Policy) needsOf(r *rule) (needs uint64) {
	billing := slices.ContainsFunc(r.full, (*Rule).bills) || slices.ContainsFunc(r.byPlan, func(rules []*Rule) bool {
		return slices.ContainsFunc(rules, (*Rule).bills)
	})
	if r.byPlan != nil {
		if p.account >= 0 && (billing || p.plansFrom.from == fromRecord || slices.Contains(p.versioned, true)) {
			needs = 1 << min(p.account, 63)
		}
		return needs
	}
	for _, f := range r.by.forms {
		for _, n := range f.callers {
			if billing && p.callers[n].from != fromAddress {
				needs |= 1 << min(n, 63)
			}
		}
	}
	return needs
}

func (r *Rule) bills() bool { return r.billing }

// compileNeeds notes which rules depend on records.
func (p *Policy) compileNeeds() {
	for i := range p.targets {
		t := &p.targets[i]
		if t.kind == operation || t.kind == limit {
			t.needs = p.needsOf(t.rule)
			p.allNeeds |= t.needs
		}
		if t.kind == operation && p.account >= 0 && (p.plansFrom.from == fromRecord || slices.Contains(p.versioned, true)) {
			p.needsRecords = true
		}
	}
	for _, r := range p.gateway {
		if slices.ContainsFunc(r.full, (*Rule).bills) {
			r.needs = 1
		}
	}
}

// unbilled finds billing periods of those who have no account.
func (k *compiler) unbilled() {
	for _, d := range k.described {
		if d.conf.name != nil && d.layer != Gateway && slices.ContainsFunc(d.rule.full, (*Rule).bills) && k.p.needsOf(d.rule) == 0 {
			k.doubt(d.conf.name, codeBilling, "write calendar in place of billing, or by: account", "only those who are known by more than an address have a billing day of their own: here the periods begin on the 1st of January 2000, 00:00 UTC")
		}
	}
}

// A Pin is a version of a plan that an account is to keep.
type Pin struct {
	Plan    string
	Version int
}

// Unpinned is the version that the caller `account` of a request has from now
// on, where a matched operation is of a plan with versions and his record does
// not say yet which of them is his.
func (p *Policy) Unpinned(m *Match, id *Identity) (pin Pin, ok bool) {
	for i := range m.found.app.n {
		h := m.found.app.at(i)
		if h.byPlan == nil || h.needs == 0 {
			continue
		}
		plan := p.planOf(id)
		if !p.versioned[plan] || id.Account(AccountKind).pins()[p.plans[plan]] != 0 {
			return pin, false
		}
		if text, err := p.callers[p.account].id(&p.addresses, id, m.Client); err != nil || text == "" {
			return pin, false
		}
		res := resolver{p: p, id: id}
		return Pin{p.plans[plan], p.editionAt(plan, nil, res.now()).number}, true
	}
	return pin, false
}

// IdentityOf is the identity of a caller who is known by a verified id, entitled
// to plans as from: would say. It is for those who look at a caller from outside
// of his requests. ok is false for a kind that no verified source tells.
func (p *Policy) IdentityOf(kind, callerID string, plans ...string) (id Identity, ok bool) {
	for i := range p.callers {
		c := &p.callers[i]
		switch {
		case c.name != kind:
			continue
		case c.from == fromClaim:
			id.Claims = map[string]any{c.claim: callerID}
		case c.from == fromKeyOwner:
			id.KeyOwner = callerID
		default:
			return id, false
		}
		if len(plans) == 0 {
			return id, true
		}
		if p.plansFrom.from == fromKeyPlan {
			id.KeyPlan = plans[0] // the gateway's plan as well
		}
		id.entitled = plans
		return id, true
	}
	return id, false
}

// PlansFrom says where callers' plans come from, as the file does: jwt.plans,
// api_key.plan, account.plan, or an expression.
func (p *Policy) PlansFrom() string { return p.plansFrom.text() }

// CallerKinds are the names of those by whom the policy can count, in its order.
func (p *Policy) CallerKinds() []string {
	var kinds []string
	for _, c := range p.callers {
		kinds = append(kinds, c.name)
	}
	if !slices.Contains(kinds, p.gatewayKind) {
		kinds = append(kinds, p.gatewayKind)
	}
	return kinds
}

// Operations are the names of the operations that requests can meet, in the order
// of the file.
func (p *Policy) Operations() []string {
	var names []string
	for i := range p.targets {
		if t := &p.targets[i]; t.kind == operation {
			names = append(names, t.name)
		}
	}
	return names
}

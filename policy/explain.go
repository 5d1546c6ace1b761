package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Explanation is what a policy makes of one request: what became of every
// exemption and every rule, and why.
type Explanation struct {
	Match    Match
	Readings []string // of the path, mostly one, as patterns see them: the strict one first
	Reported bool     // a trusted proxy said whose address Match.Client is
	Refused  *Fate    // of Fates, whose expression failed under on_error: deny; else nil
	Plan     string   // the caller's, in the application; "" without plans
	PlanWhy  string   // why the expression that gives plans gives none; "" when it does
	Fates    []Fate   // from the outside in, in the order in which the policy looks
	Edge     []Op     // what [Policy.AppendEdge] asks for
	Ops      []Op     // what [Policy.Ops] asks for
}

// Fate is what became of one exemption, edge rule, gateway plan, operation or
// limit.
type Fate struct {
	Layer   Layer  // "" of an exemption
	Name    string // of the exemption, limit or operation; of the gateway the plan
	Pattern string // the one that matched; "" where none had to
	Applies bool
	Why     string // in words: why it applies, or why not
	Ops     []Op   // that it asks for; none where the caller's plan is unlimited

	refuses bool // by on_error: deny
}

// Explain decides about a request as [Policy.Match], [Policy.AppendEdge] and
// [Policy.Ops] do, by running them, and tells what they came upon. The error is
// theirs, a *[RequestError]; what was found until then is told all the same.
func (p *Policy) Explain(a *Attributes, id Identity) (x Explanation, err error) {
	return p.explain(a, id, nil)
}

// ExplainUnknown is [Policy.Explain] of a request whose caller says of himself what is
// not true, as with a wrong API key: after the edge it is refused with that error, and
// no rule of the gateway and the application is asked.
func (p *Policy) ExplainUnknown(a *Attributes, unknown *RequestError) (x Explanation, err error) {
	return p.explain(a, Identity{}, unknown)
}

func (p *Policy) explain(a *Attributes, id Identity, unknown *RequestError) (x Explanation, err error) {
	tr := &trace{nearest: map[int32]nearMiss{}, skip: map[*rule]skip{}, failures: map[*rule][]failure{}}
	if err = p.match(a, &x.Match, tr); err != nil {
		return x, err
	}
	x.Readings = tr.readings
	_, hops := p.addresses.walk(a)
	x.Reported = hops > 0
	if x.Match.Exempt == "" {
		x.Edge = p.AppendEdge(nil, &x.Match, a)
	}
	if unknown != nil {
		err = unknown
	} else if x.Match.Exempt == "" {
		x.Ops, err = p.Ops(&x.Match, a, id)
		if len(p.plans) > 0 {
			x.Plan = p.plans[p.planOf(&id)]
			if p.plansFrom.from == fromExpression && id.entitled == nil {
				if _, err := p.granted(&id); err != nil {
					x.PlanWhy = "from: " + p.plansFrom.written + " cannot be computed: " + firstLine(err)
				}
			}
		}
	}
	e := explainer{p, tr, &x, id, unknown != nil, err}
	for n := range p.targets {
		if t := &p.targets[n]; t.kind != gatewayRoute {
			e.target(int32(n), t)
		}
	}
	e.gateway()
	e.absent()
	slices.SortStableFunc(x.Fates, func(a, b Fate) int { return depth(a.Layer) - depth(b.Layer) })
	for i := range x.Fates {
		if x.Fates[i].refuses {
			x.Refused = &x.Fates[i]
		}
	}
	return x, err
}

func depth(l Layer) int { return slices.Index([]Layer{"", Edge, Gateway, Application}, l) }

// trace is filled by the code that decides. A nil trace hears nothing. It is told
// values, so that a request which nobody explains needs no memory for it.
type trace struct {
	method, host string
	preflight    bool
	readings     []string
	hits         []hit
	nearest      map[int32]nearMiss // by target: the pattern that came nearest
	skip         map[*rule]skip
	failures     map[*rule][]failure
}

// failure is an expression that could not be computed, and why.
type failure struct{ field, why string }

// nearMiss is a pattern that has the request's path, and what it lacks else.
type nearMiss struct {
	pattern *pattern
	why     miss
}

// skip is why a rule whose pattern matched asks for nothing.
type skip uint8

const (
	skipNothing skip = iota
	skipWhen
	skipCost
	skipOperated
)

func (t *trace) missed(target int32, p *pattern, why miss) {
	if t.nearest[target].why < why {
		t.nearest[target] = nearMiss{p, why}
	}
}

func (t *trace) request(method, host string, preflight bool) {
	t.method, t.host, t.preflight = method, host, preflight
}

func (t *trace) reading(text string, slash bool) {
	text = strings.ReplaceAll(text, inner, "%2f")
	if slash {
		text += "/"
	}
	t.readings = append(t.readings, text)
}

func (t *trace) skipped(r *rule, why skip) {
	if t != nil {
		t.skip[r] = why
	}
}

func (t *trace) failed(r *rule, field string, err error) {
	if t == nil {
		return
	}
	t.failures[r] = append(t.failures[r], failure{field, firstLine(err)}) // an excerpt follows
}

// explainer puts into words what a trace holds and what was decided.
type explainer struct {
	p  *Policy
	tr *trace
	x  *Explanation
	id Identity

	unknown bool  // who calls
	err     error // why nothing of the gateway and the application is asked
}

// target tells of what patterns lead to.
func (e *explainer) target(n int32, t *target) {
	f := Fate{Layer: Application, Name: t.name}
	var hits []*hit
	for i := range e.tr.hits {
		if e.tr.hits[i].target == n {
			hits = append(hits, &e.tr.hits[i])
		}
	}
	switch t.kind {
	case exemption:
		f.Layer = ""
	case edgeRule:
		f.Layer, f.Name = Edge, baseName(t.full)
	case limit:
		f.Name = baseName(t.full)
	}
	if len(hits) > 0 && hits[0].pattern != nil {
		f.Pattern = hits[0].pattern.text
	}
	switch {
	case len(hits) == 0:
		f.Why = e.missed(n, t)
	case t.kind == exemption && e.x.Match.Exempt != "":
		f.Applies, f.Why = true, "the path is exempt from every layer"
	case t.kind == exemption:
		n := len(e.x.Readings)
		every := "all"
		if n == 2 {
			every = "both"
		}
		f.Why = fmt.Sprintf("a server may read the path in %d ways, as %s, and %s would have to be exempt", n, strings.Join(e.x.Readings, " and as "), every)
	case e.x.Match.Exempt != "":
		f.Why = "the exemption " + e.x.Match.Exempt + " wins over every layer"
	case t.kind == edgeRule && !e.found(t):
		f.Why = fmt.Sprintf("%s is in except_ips", e.x.Match.Client)
	case t.kind == operation && !e.found(t):
		f.Why = "another operation has a more specific pattern"
	default:
		e.asked(&f, t.rule)
	}
	e.x.Fates = append(e.x.Fates, f)
}

// missed says why no pattern of a target matched.
func (e *explainer) missed(n int32, t *target) string {
	w, q := e.tr.nearest[n], e.tr
	switch w.why {
	case missSlash:
		return fmt.Sprintf("path: %s counts a last slash, in which this path differs", w.pattern.text)
	case missPreflight:
		return "a CORS preflight counts only at the edge, and where a pattern names OPTIONS"
	case missMethod:
		return fmt.Sprintf("the method is %s, the pattern %s", q.method, w.pattern.text)
	case missHost:
		return fmt.Sprintf("the host is %q, the pattern %s", q.host, w.pattern.text)
	case missCase:
		return fmt.Sprintf("the case of a letter differs from %s, and case: exact is set", w.pattern.text)
	}
	if q.preflight && slices.Contains(e.p.always, n) {
		return "a CORS preflight counts only at the edge, and where a pattern names OPTIONS"
	}
	return "the path is none of " + strings.Join(e.p.patternsOf(n), ", ")
}

// patternsOf lists the texts of a target's patterns, as they are in the trie.
func (p *Policy) patternsOf(n int32) []string {
	var all []*pattern
	var walk func(*branch)
	walk = func(b *branch) {
		if b == nil {
			return
		}
		for _, l := range slices.Concat(b.ends, b.multis) {
			if l.target == n {
				all = append(all, l.pattern)
			}
		}
		for _, t := range b.literals {
			walk(t.branch)
		}
		walk(b.wildcard)
	}
	walk(&p.trie.root)
	slices.SortFunc(all, func(a, b *pattern) int { return a.order - b.order })
	var texts []string
	for _, one := range all {
		texts = append(texts, one.text)
	}
	return texts
}

// found reports whether the match chose a rule.
func (e *explainer) found(t *target) bool {
	found := &e.x.Match.found
	for i := range found.edge.n {
		if *found.edge.at(i) == t.rule {
			return true
		}
	}
	for i := range found.app.n {
		if found.app.at(i).rule == t.rule {
			return true
		}
	}
	return false
}

// asked tells what a rule that matched asks for.
func (e *explainer) asked(f *Fate, r *rule) {
	f.Ops = opsOf(r, slices.Concat(e.x.Edge, e.x.Ops))
	failed := e.failed(r, "when", "cost")
	bad := failed != ""
	switch {
	case bad && r.onError == "deny":
		f.refuses, f.Why = true, "on_error: deny refuses the request, because "+failed
		return
	case e.err != nil && f.Layer == Application:
		f.Why = e.refused()
		return
	case bad && r.onError == "skip":
		f.Why = "on_error: skip leaves it out, because " + failed
		return
	}
	switch e.tr.skip[r] {
	case skipWhen:
		f.Why = "its condition does not hold: when: " + r.expression("when")
		return
	case skipCost:
		f.Why = "this call costs nothing"
		return
	case skipOperated:
		f.Why = "another operation is this call's"
		return
	}
	f.Applies = true
	switch {
	case len(f.Ops) == 0 && e.x.Match.NeedsKey && e.id.KeyOwner == "":
		f.Applies, f.Why = false, "without an API key this route answers 401 before"
	case len(f.Ops) == 0 && r.byPlan != nil:
		f.Why = "the plan " + e.x.Plan + " has no limit here"
	case f.Pattern == "":
		f.Why = "it holds for every request"
	default:
		f.Why = "the request matches " + f.Pattern
	}
	if bad {
		f.Why += ", and on_error: apply lets it act, although " + failed
	}
	if id := e.failed(r, "once"); id != "" {
		f.Why += ", and it counts whatever was sent before, because " + id
	}
}

// refused says of a rule that another one's mistake has kept from being asked.
func (e *explainer) refused() string {
	var re *RequestError
	if !errors.As(e.err, &re) {
		return "not asked: " + e.err.Error()
	}
	return fmt.Sprintf("not asked: the request is refused with %d before", re.Status)
}

// failed says which of a rule's expressions could not be computed, as the file says
// them, and why; "" for none.
func (e *explainer) failed(r *rule, fields ...string) string {
	var said, why []string
	for _, f := range e.tr.failures[r] {
		if slices.Contains(fields, f.field) {
			said, why = append(said, f.field+": "+r.expression(f.field)), append(why, f.why)
		}
	}
	if said == nil {
		return ""
	}
	return strings.Join(said, " and ") + " cannot be computed: " + strings.Join(why, ", and ")
}

// expression is what the file says in a field of a rule.
func (r *rule) expression(field string) string {
	for _, one := range slices.Concat(append(slices.Clone(r.byPlan), r.full, r.bare)...) {
		return map[string]string{"when": one.When, "cost": one.Cost, "once": one.Once}[field]
	}
	return ""
}

// opsOf are those of the ops that a rule asked for.
func opsOf(r *rule, ops []Op) (own []Op) {
	rules := slices.Concat(append(slices.Clone(r.byPlan), r.full, r.anon, r.bare)...)
	for _, op := range ops {
		if slices.Contains(rules, op.Rule) {
			own = append(own, op)
		}
	}
	return own
}

// gateway tells of every plan of the gateway.
func (e *explainer) gateway() {
	var told []string
	for _, one := range e.p.rules {
		if one.Layer != Gateway || one.Mode == Off || slices.Contains(told, one.Plan) {
			continue
		}
		told = append(told, one.Plan)
		f := Fate{Layer: Gateway, Name: one.Plan}
		var other nearMiss
		for n := range e.p.targets {
			if e.p.targets[n].kind == gatewayRoute {
				other = e.tr.nearest[int32(n)]
				for _, h := range e.tr.hits {
					if h.target == int32(n) {
						f.Pattern = h.pattern.text
					}
				}
			}
		}
		switch {
		case e.x.Match.Exempt != "":
			f.Why = "the exemption " + e.x.Match.Exempt + " wins over every layer"
		case e.err != nil && e.x.Match.found.gateway && (e.unknown || e.id.KeyOwner != ""):
			f.Why = e.refused()
		case !e.x.Match.found.gateway && other.why == missMethod:
			f.Why = fmt.Sprintf("the method is %s, the route %s", e.tr.method, other.pattern.text)
		case !e.x.Match.found.gateway && e.p.gatewayMatch:
			f.Why = "the path is none of " + strings.Join(one.Patterns, ", ")
		case !e.x.Match.found.gateway:
			f.Why = "a CORS preflight counts only at the edge, and where a pattern names OPTIONS"
		case e.id.KeyOwner == "" && e.x.Match.NeedsKey:
			f.Why = "no API key was sent, and this route needs one"
		case e.id.KeyOwner == "":
			f.Why = "no API key was sent"
		case e.id.KeyPlan != one.Plan:
			f.Why = "the API key of " + e.id.KeyOwner + " has the plan " + orNone(e.id.KeyPlan)
		default:
			f.Applies, f.Why = true, "the API key of "+e.id.KeyOwner+" has this plan"
			f.Ops = opsOf(e.p.gateway[one.Plan], e.x.Ops)
		}
		e.x.Fates = append(e.x.Fates, f)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// absent tells of what no request ever meets: rules that are off, or cost nothing.
func (e *explainer) absent() {
	for _, one := range e.p.rules {
		f := Fate{Layer: one.Layer, Name: baseName([]*Rule{one})}
		switch {
		case one.Layer == Gateway:
			f.Name = one.Plan
		case one.Operation != "":
			f.Name = one.Operation
		}
		if slices.ContainsFunc(e.x.Fates, func(o Fate) bool { return o.Layer == f.Layer && o.Name == f.Name }) {
			continue
		}
		f.Why = "mode: off"
		if one.Mode != Off {
			f.Why = "a call costs nothing"
		}
		e.x.Fates = append(e.x.Fates, f)
	}
}

// baseName is the name that the file gives: further limits of a list have a
// suffix of their own.
func baseName(rules []*Rule) string {
	if len(rules) == 0 {
		return ""
	}
	name, _, _ := strings.Cut(rules[0].Name, ".")
	return name
}

// Addressing says how a caller's address is found: who may report one, how many
// hops are walked, and what of an IPv6 address counts.
func (p *Policy) Addressing() string {
	var who []string
	if p.addresses.proxies != nil {
		for prefix := range p.addresses.proxies.AllSorted() {
			who = append(who, prefix.String())
		}
	}
	s := "the socket's peer"
	if len(who) > 0 {
		s = "reported by " + strings.Join(who, ", ")
	}
	if p.addresses.hops > 0 {
		s += ", " + plural(int64(p.addresses.hops), "hop")
	}
	s += fmt.Sprintf(", IPv6 by /%d", p.addresses.v6)
	for _, n := range p.addresses.nat64 {
		s += ", NAT64 " + n.String()
	}
	return s
}

package policy

import (
	"strconv"
	"strings"

	"github.com/weirlabs/weir"
)

// Terms are what the file says of a limit beside the limit itself: whether it
// refuses, what a call costs in the end, and who is told.

// Terms of one rule.
type Terms struct {
	// Metered: over: charge. Quotas refuse nothing and count on; what is beyond
	// them is the excess.
	Metered bool

	// Debt is how many units a settled cost may go below zero; -1 leaves it at
	// what [weir.Limit.WithDebt] says.
	Debt int64

	// NotifyAt are the percentages of a quota at which somebody is told, once a
	// window and caller.
	NotifyAt []int

	// Settle is the header of the service's answer that holds what the call
	// really cost, in canonical form; "" for none.
	Settle string

	// Once says where the id of a request comes from, as the file says it: a
	// request with the id of another one is not charged again. "" for nowhere.
	Once string
}

// Settled reports whether the end of a call decides what it costs.
func (r *Rule) Settled() bool { return r.OnSuccess || r.Settle != "" }

// on is a limit with the terms that suit its kind.
func (t *Terms) on(l weir.Limit) weir.Limit {
	if t.Metered && l.IsQuota() {
		if m, err := l.Metered(); err == nil {
			l = m
		}
	}
	if len(t.NotifyAt) > 0 && l.IsQuota() {
		if m, err := l.Noticed(t.NotifyAt...); err == nil {
			l = m
		}
	}
	if t.Debt >= 0 {
		if m, err := l.WithDebt(min(t.Debt, l.Debt())); err == nil {
			l = m
		}
	}
	return l
}

// termsConf is how the file says the terms.
type termsConf struct {
	over                             string
	overAt, debtAt, settleAt, noteAt *node
	once                             *node
	Terms
}

// told reports an operation that neither a pattern nor a condition tells.
func (l *loader) told(n *node, c *ruleConf) {
	if n.shape != object || n.partial || c.matchAt != nil || c.when != nil {
		return
	}
	for _, f := range n.fields {
		if near := nearest(f.key.text, []string{"match", "when"}); near != "" && near != f.key.text {
			return // meant, and reported
		}
	}
	l.wrong(n, codeMissingField, needed["match"]+", or when: with a condition", "an operation needs a field %s", show("match"))
}

// all are the terms that were read.
func (t *termsConf) all() Terms {
	all := t.Terms
	all.Metered = t.over == "charge"
	if t.debtAt == nil {
		all.Debt = -1
	}
	if t.once != nil {
		all.Once = t.once.text
	}
	return all
}

func (l *loader) termRows(c *ruleConf) []row {
	t := &c.terms
	return []row{
		{"over", false, "Whether calls beyond a quota are refused, or let through and counted to be charged for.", at(&t.overAt, l.word("over", &t.over, "deny", "charge"))},
		{"debt", false, "How many units a settled cost may take the limit below zero.", at(&t.debtAt, l.number("debt", &t.Debt, 0, maxCost))},
		{"settle", false, "header.NAME of the service's answer, which holds what the call really cost.", at(&t.settleAt, value{textForm, func(n *node) { t.Settle = l.settle(n) }})},
		{"notify_at", false, "The parts of a quota at which somebody is told, once a period and caller: [80%, 100%].", at(&t.noteAt, l.each("notify_at", value{percentForm, func(n *node) { l.percent(n, &t.NotifyAt) }}))},
		{"once", false, "header.NAME or an expression: the id of a request that is charged once when it is sent again.", keep(&t.once)},
	}
}

func percentForm() *schema {
	return &schema{Type: scalarTypes, Pattern: "^(100|[1-9][0-9]?)%?$", Examples: []string{"80%", "100%"}}
}

// settle reads header.NAME.
func (l *loader) settle(n *node) string {
	if !l.is(n, scalar, "settle") {
		return ""
	}
	name, ok := strings.CutPrefix(n.text, "header.")
	if !ok {
		l.wrong(n, codeCost, "write settle: header.NAME, a header of the service's answer", "%s does not say where the real cost of a call stands", show(n.text))
		return ""
	}
	return l.headerName(n, name)
}

// percent reads 80 or 80%.
func (l *loader) percent(n *node, to *[]int) {
	if !l.is(n, scalar, "notify_at") {
		return
	}
	v, err := strconv.Atoi(strings.TrimSuffix(n.text, "%"))
	if err != nil || v < 1 || v > 100 {
		l.wrong(n, codeRange, "write notify_at: [80%, 100%]", "%s is not a percentage from 1%% to 100%%", show(n.text))
		return
	}
	for _, have := range *to {
		if have == v {
			l.wrong(n, codeRepeated, "keep one of the two", "%s is given twice", show(n.text))
			return
		}
	}
	*to = append(*to, v)
}

// checkTerms reports terms that no limit of a rule can have.
func (k *compiler) checkTerms(c *ruleConf, limits []*Rule) {
	if len(limits) == 0 {
		return
	}
	t := c.terms.all()
	quotas, deepest := 0, int64(0)
	for _, r := range limits {
		if r.Limit.IsQuota() {
			quotas++
		}
		if plain, err := weir.ParseLimit(r.Limit.String()); err == nil {
			deepest = max(deepest, plain.Debt())
		}
	}
	switch {
	case t.Metered && quotas == 0:
		k.wrong(c.terms.overAt, codeTerms, "use a quota, such as quota 1000/month calendar", "over: charge needs a quota: a rate has no period to charge for")
	case len(t.NotifyAt) > 0 && quotas == 0:
		k.wrong(c.terms.noteAt, codeTerms, "use a quota, such as quota 1000/month calendar", "notify_at: needs a quota: a rate has no period in which to tell once")
	}
	if t.Debt > deepest {
		k.wrong(c.terms.debtAt, codeTerms, "write "+strconv.FormatInt(deepest, 10)+" or less", "a debt of %d is more than any of the limits can have", t.Debt)
	}
	if c.terms.debtAt != nil && c.terms.settleAt == nil {
		k.doubt(c.terms.debtAt, codeNoEffect, "add settle: header.NAME, or remove the line", "debt: has no effect, because no call costs more than was taken for it")
	}
}

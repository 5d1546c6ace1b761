package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Decide judges one request into o, which is the caller's to hold and must be
// the zero value. Decide keeps no reference to a beyond the call.
func (e *Engine) Decide(ctx context.Context, a *policy.Attributes, o *Outcome) {
	o.begin(e)
	if e.short && e.decideSole(ctx, a, o) {
		if e.silent && o.Served() && !o.Degraded && e.lines.outages.Load() == 0 {
			return // nobody is to hear of it
		}
	} else {
		e.decide(ctx, a, o)
	}
	e.conclude(ctx, o)
}

// conclude tells everybody of an outcome who is to hear of it.
func (e *Engine) conclude(ctx context.Context, o *Outcome) {
	telling := o.telling()
	if o.now == 0 && (telling || o.Limited() || e.o.Decisions != nil || o.held != nil || o.showsTime()) {
		o.now = e.now()
	}
	if o.Limited() {
		o.denial = rand.Uint64()
		e.keepDenial(o, o.lengthen())
	}
	if o.Limited() || o.Degraded || e.lines.outages.Load() != 0 {
		e.observe(ctx, o)
	}
	e.record(o)
	if telling {
		o.tell(ctx)
	}
	if e.o.Decided != nil {
		e.o.Decided(ctx, o)
	}
}

func (o *Outcome) begin(e *Engine) {
	o.st, o.speaks = e.state.Load(), -1
}

// add appends a verdict in place: a copy of so many words would cost more than
// the decision itself.
func (o *Outcome) add(r *policy.Rule, op *weir.Op, d *weir.Decision, excess int64) {
	if o.Verdicts == nil {
		o.Verdicts = o.verdicts[:0]
	}
	n := len(o.Verdicts)
	if n < cap(o.Verdicts) {
		o.Verdicts = o.Verdicts[:n+1]
	} else {
		o.Verdicts = append(o.Verdicts, Verdict{})
	}
	v := &o.Verdicts[n]
	v.Rule, v.Key, v.Shadow, v.excess, v.Decision = r, op.Key, op.Shadow, excess, *d
}

// decideSole is decide for a request of which the only op is known, and nothing of
// it can come back. It reports false, having done nothing, where there may be more.
func (e *Engine) decideSole(ctx context.Context, a *policy.Attributes, o *Outcome) (done bool) {
	p, client, key := o.st.policy.Sole(a)
	if p == nil || o.st.who != nil || e.book != nil && !e.book.Silent(o.st.policy.AccountsAge()) {
		return false
	}
	local := p.Local
	if p.OnFail == weir.FailLocal {
		local = o.st.parts[p.Rule.Place()]
	}
	d, err := e.rest.Take(ctx, weir.Op{Limit: p.Limit, Key: key, Cost: p.Cost, OnFail: p.OnFail, Local: local})
	if err != nil {
		o.refuse(ctx, e.nameless(err, key))
		return true
	}
	v := &o.verdicts[0]
	v.Decision = d
	v.Rule, v.Key, o.Client = p.Rule, key, client
	o.Verdicts = o.verdicts[:1]
	if o.speaks = 0; !v.Allowed || v.Degraded {
		o.judge(!v.Allowed)
	}
	return true
}

// decide asks all that may hold against a request.
func (e *Engine) decide(ctx context.Context, a *policy.Attributes, o *Outcome) {
	p := o.st.policy
	var m policy.Match
	if err := p.MatchInto(&m, a); err != nil {
		o.refuse(ctx, err)
		return
	}
	o.Client, o.Exempt = m.Client, m.Exempt
	var room [4]policy.Op
	if !e.admit(ctx, p.AppendEdge(room[:0], &m, a), o) || m.Exempt != "" {
		return
	}
	if m.NeedsIdentity && !e.identify(ctx, a, o) {
		return
	}
	missing, ok := e.consult(ctx, &m, o)
	if !ok {
		return
	}
	ops, err := p.AppendOps(room[:0], &m, a, o.Identity)
	if err != nil {
		o.refuse(ctx, err)
		return
	}
	if missing != nil {
		refused := false
		if ops, refused = e.blind(ctx, ops, missing, o); refused {
			o.judge(true)
			return
		}
	}
	o.first = int16(len(o.Verdicts))
	refused := false
	if once := m.Once(); once != nil {
		refused, err = e.takeOnce(ctx, ops, once, o)
	} else {
		refused, err = e.take(ctx, e.rest, ops, o, false)
	}
	if err != nil {
		o.refuse(ctx, e.nameless(err, keysOf(ops)...))
		return
	}
	o.untaken(ctx)
	if refused {
		o.markHeld()
	}
	o.judge(refused)
	switch {
	case o.MustSettle():
		o.open()
	case o.held != nil:
		o.keep(ctx)
	}
}

// keep finds the marks that a call has reached of which nothing comes back.
func (o *Outcome) keep(ctx context.Context) {
	if o.st.engine.o.CanGiveBack || !o.unfinished() {
		return
	}
	if err := o.held.SettleBeside(ctx, o.shed(nil)); err != nil {
		o.st.engine.lines.unsettled(ctx, o, o.Verdicts[o.first:], markless, err)
		return
	}
	each := o.held.Each()
	for i := range each[:len(o.Verdicts)-int(o.first)] {
		v := &o.Verdicts[int(o.first)+i]
		v.Notice = each[i].Notice
	}
}

func keysOf(ops []policy.Op) []weir.Key {
	keys := make([]weir.Key, len(ops))
	for i := range ops {
		keys[i] = ops[i].Key
	}
	return keys
}

// admit takes from the edge rules. It reports whether the request may go on.
func (e *Engine) admit(ctx context.Context, edge []policy.Op, o *Outcome) bool {
	refused, err := e.take(ctx, o.st.edge, edge, o, true)
	if err != nil {
		o.refuse(ctx, e.nameless(err, keysOf(edge)...))
		return false
	}
	if refused {
		o.judge(true)
	}
	return !refused
}

func (e *Engine) identify(ctx context.Context, a *policy.Attributes, o *Outcome) bool {
	if o.st.who == nil {
		return true
	}
	sent := *a // so that only requests of which somebody is identified need memory for it
	sent.Method = strings.ToUpper(a.Method)
	id, err := o.st.who(ctx, &sent)
	if err != nil {
		o.refuse(ctx, err)
		return false
	}
	o.Identity = &id
	return true
}

// take asks one limiter and appends its verdicts. It reports a refusal.
func (e *Engine) take(ctx context.Context, lim *weir.Limiter, ops []policy.Op, o *Outcome, edge bool) (refused bool, err error) {
	switch {
	case len(ops) == 0:
		return false, nil
	case len(ops) == 1 && (edge || !e.o.CanGiveBack && !ops[0].Rule.Settled()):
		// One limit of which nothing can come back needs no reservation. Take
		// shows a shadow as allowed, so what a shadow thinks comes from Reserve.
		if op := e.own(&ops[0], o); !op.Shadow {
			d, err := lim.Take(ctx, *op)
			if err != nil {
				return false, err
			}
			o.add(ops[0].Rule, op, &d, excessOf(&d))
			return !d.Allowed, nil
		}
	}
	r, refused, err := e.reserve(ctx, lim, ops, o)
	if err == nil && !refused && !edge {
		o.held = r // what the edge took stays taken
	}
	return refused, err
}

func (e *Engine) reserve(ctx context.Context, lim *weir.Limiter, ops []policy.Op, o *Outcome) (r *weir.Reservation, refused bool, err error) {
	list := make([]weir.Op, len(ops))
	for i := range ops {
		list[i] = *e.own(&ops[i], o)
	}
	units := o.hold(ops, list)
	r, d, err := lim.Reserve(ctx, list...)
	if err != nil {
		o.notHeld(ctx, ops, list, units)
		return nil, false, err
	}
	each := r.Each()
	for i := range each {
		o.add(ops[i].Rule, &list[i], &each[i], r.Excess(i))
	}
	o.holds(units)
	return r, !d.Allowed, nil
}

// own makes the policy's op the one that this process takes.
func (e *Engine) own(p *policy.Op, o *Outcome) *weir.Op {
	op := &p.Op
	op.Shadow = op.Shadow || e.o.Shadow
	if op.OnFail == weir.FailLocal {
		op.Local = e.localOf(p, o)
	}
	if p.Rule.Layer == policy.Edge && !o.st.policy.EdgeShared() {
		op.Limit = o.st.parts[p.Rule.Place()]
	}
	return op
}

// localOf is what this process allows of a limit without the store.
func (e *Engine) localOf(p *policy.Op, o *Outcome) weir.Limit {
	if part := o.st.parts[p.Rule.Place()]; part != (weir.Limit{}) && !p.Overridden {
		return part
	}
	by := p.Rule.Share
	if by == 0 {
		by = e.o.Replicas
	}
	l, err := policy.Divided(p.Limit, by)
	if err != nil {
		return p.Limit // a caller's own limit of which there is no such part
	}
	return l
}

// refuse turns an error into an answer of weir's own. What is not meant for the
// client is logged and not shown.
func (o *Outcome) refuse(ctx context.Context, err error) {
	var re *policy.RequestError
	if !errors.As(err, &re) {
		re = &policy.RequestError{Status: http.StatusServiceUnavailable, Code: "unavailable",
			Reason: "This request can't be checked right now. Try again later."}
		if ctx.Err() == nil {
			o.st.engine.lines.broken(ctx, err)
		}
	}
	o.Err, o.Status = re, re.Status
}

// lengthen makes the wait that the caller is told longer, by a random part of what
// the policy says, so that those who were refused together do not return together.
// It never makes it shorter. A wait that helps nobody, and none, stay as they are.
func (o *Outcome) lengthen() (by time.Duration) {
	jitter := o.st.policy.RetryAfterJitter()
	if v := o.Speaks(); jitter > 0 && v != nil && v.RetryAfter > 0 {
		by = rand.N(jitter + 1)
		v.RetryAfter += by
	}
	return by
}

// denialID writes a random number: long enough never to meet itself and short
// enough to read out.
func denialID(n uint64) string {
	const width = 13 // of 64 bits in base 32
	s := strconv.FormatUint(n, 32)
	return "0000000000000"[:width-len(s)] + s
}

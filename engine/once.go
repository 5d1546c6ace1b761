package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// A request with an id, of once:, is charged once. The op that remembers the id
// is taken together with the request's limits, after all of them:
//
//   - it allows: this is the first request of the id, and was charged;
//   - it refuses: another one was charged before. Everything that this one took
//     has been given back with the refusal, and it is served as that one was;
//   - a limit refuses before it is asked: when the id is known all the same, the
//     request is served; otherwise it is refused, and may be sent again.
//
// A crash between two items leaves limits charged and the id unknown: the
// request is then charged again when it is sent again, never the other way. A
// call that is given back because it failed gives its id back too.

// peeks a second in which a process looks up ids of refused requests. Whoever
// invents ids must not make a refusal cost a read.
const peeks = 20

// perSecond bounds what a process does in a second of side work.
type perSecond struct{ second, done atomic.Int64 }

func (p *perSecond) allow(now, most int64) bool {
	s := now / int64(time.Second)
	if last := p.second.Load(); last != s && p.second.CompareAndSwap(last, s) {
		p.done.Store(0)
	}
	return p.done.Add(1) <= most
}

// takeOnce is take for a request with an id.
func (e *Engine) takeOnce(ctx context.Context, ops []policy.Op, once *weir.Op, o *Outcome) (refused bool, err error) {
	if len(ops) == 0 {
		return false, nil
	}
	list := make([]weir.Op, len(ops), len(ops)+1)
	for i := range ops {
		list[i] = *e.own(&ops[i], o)
	}
	list = append(list, *once)
	units := o.hold(ops, list)
	r, d, err := e.rest.Reserve(ctx, list...)
	if err != nil {
		o.notHeld(ctx, ops, list, units)
		return false, err
	}
	each := r.Each()
	mark := &each[len(ops)]
	o.Repeated = mark.Reason == weir.ReasonLimit
	if !d.Allowed && !o.Repeated && e.lookups.allow(o.at(), peeks) {
		seen, err := e.rest.Peek(ctx, *once)
		o.Repeated = err == nil && seen[0].Used > 0
	}
	if o.Repeated {
		e.shown(ctx, list[:len(ops)], each, o)
	}
	for i := range ops {
		if v := &each[i]; o.Repeated && !v.Degraded {
			repeated(v)
		}
		o.add(ops[i].Rule, &list[i], &each[i], r.Excess(i))
	}
	o.holds(units)
	if o.Repeated {
		return false, nil
	}
	if d.Allowed {
		o.held, o.once = r, !mark.Degraded
	}
	return !d.Allowed, nil
}

// shown looks up what is left of the limits of a repetition, where its id refused
// from memory before they were asked: the second answer shows what the first did.
// It is bounded as other look-ups of ids are; beyond that it is not known.
func (e *Engine) shown(ctx context.Context, ops []weir.Op, each []weir.Decision, o *Outcome) {
	var list []weir.Op
	var of []int
	for i := range ops {
		if each[i].Reason == weir.ReasonNotAsked {
			list, of = append(list, ops[i]), append(of, i)
		}
	}
	if len(list) == 0 || !e.lookups.allow(o.at(), peeks) {
		return
	}
	seen, err := e.rest.Peek(ctx, list...)
	if err != nil {
		return
	}
	for n, i := range of {
		each[i] = seen[n]
	}
}

// repeated makes a decision that of a call which was charged before.
func repeated(d *weir.Decision) {
	d.Unknown = d.Unknown || d.Reason == weir.ReasonNotAsked
	d.Allowed, d.Reason, d.RetryAfter, d.Cost, d.Notice = true, weir.ReasonOK, 0, 0, 0
}

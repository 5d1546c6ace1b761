package engine

import (
	"context"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// What a call holds of a limit with marks is noted before it takes it, and until it
// is known to stay, or what is given back has been written. So what is counted and
// not noted stays: nothing else reaches a mark. Noted may be more than is counted;
// who has left such units out may have missed a mark, and so whoever held them looks.

// hold notes what a call is about to take of limits with marks: noted later, it
// could be counted before, as if it stayed. It returns the units noted of each op,
// nil for none.
func (o *Outcome) hold(ops []policy.Op, list []weir.Op) (units []int64) {
	for i := range ops {
		if r := ops[i].Rule; len(r.NotifyAt) == 0 || r.Layer == policy.Edge {
			continue
		}
		if units == nil {
			units = make([]int64, len(ops))
		}
		if cost := max(list[i].Cost, 1); o.st.engine.open.add(counterOf(&list[i]), 0, cost, o.at()) {
			units[i] = cost
		}
	}
	return units
}

// holds gives the verdicts that were added last what hold has noted.
func (o *Outcome) holds(units []int64) {
	from := len(o.Verdicts) - len(units)
	for i, n := range units {
		o.Verdicts[from+i].units = n
	}
}

// notHeld frees what hold has noted of a call that has no verdicts.
func (o *Outcome) notHeld(ctx context.Context, ops []policy.Op, list []weir.Op, units []int64) {
	for i, n := range units {
		op := &list[i]
		o.free(ctx, &Verdict{Rule: ops[i].Rule, Key: op.Key, Shadow: op.Shadow, units: n, Decision: weir.Decision{Limit: op.Limit}})
	}
}

// free notes that a call holds nothing more of a limit, and finds the mark that
// somebody could not tell of because of it.
func (o *Outcome) free(ctx context.Context, v *Verdict) {
	units := v.units
	if v.units = 0; units > 0 && o.st.engine.open.drop(v.counter(), 0, units) {
		o.look(ctx, v)
	}
}

// look tells of a mark that is reached by what others have left counted.
func (o *Outcome) look(ctx context.Context, v *Verdict) {
	e, c := o.st.engine, v.counter()
	op := weir.Op{Limit: v.Limit, Key: v.Key, Shadow: v.Shadow}
	d, err := e.rest.Mark(ctx, op, func() int64 { return e.open.units(c, 0, e.now()) })
	if err != nil {
		e.lines.unsettled(ctx, o, []Verdict{*v}, markless, err)
		return
	}
	if d.Notice == 0 {
		return
	}
	d.ResetAfter += time.Duration(e.now() - o.at())
	told := Verdict{Rule: v.Rule, Key: v.Key, Shadow: v.Shadow, Decision: d}
	o.tellOf(ctx, &told, 0)
	if e.o.Decisions != nil {
		e.o.Decisions(o.settledRecord(&told, 0))
	}
}

// untaken frees what a call has not taken after all.
func (o *Outcome) untaken(ctx context.Context) {
	for i := int(o.first); i < len(o.Verdicts); i++ {
		if v := &o.Verdicts[i]; o.held == nil || !v.Allowed {
			o.free(ctx, v)
		}
	}
}

// shed notes that what stays of the call, actual or all of it, is open no more, and
// returns what says how many units others hold: nil where no limit has marks. What
// comes back is open until that is written: see [Outcome.close].
func (o *Outcome) shed(actual []int64) func(op int) int64 {
	type other struct {
		counter
		own int64
	}
	verdicts := o.Verdicts[o.first:]
	var others []other
	for i := range verdicts {
		v := &verdicts[i]
		if !v.marked() {
			continue
		}
		if others == nil {
			others = make([]other, len(verdicts))
		}
		stays := v.units
		if actual != nil {
			stays = min(stays, actual[i])
		}
		v.units -= stays
		o.st.engine.open.drop(v.counter(), 0, stays)
		others[i] = other{v.counter(), v.units}
	}
	if others == nil {
		return nil
	}
	e := o.st.engine
	return func(op int) int64 {
		if op >= len(others) { // that of the request's id
			return 0
		}
		return e.open.units(others[op].counter, others[op].own, e.now())
	}
}

// marked reports whether the call may reach a mark of the limit.
func (v *Verdict) marked() bool { return v.Allowed && len(v.Rule.NotifyAt) > 0 }

package weir

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/weirlabs/weir/internal/pipeline"
	"github.com/weirlabs/weir/internal/plan"
)

// call is one Take or Reserve: its ops, and what became of each.
type call struct {
	limiter  *Limiter
	ops      []Op
	each     []Decision
	took     []taking
	order    []int         // ops in the order in which they are asked, those of one key together
	taken    int           // how many of order are taken
	watching bool          // only shadows have not been asked
	until    time.Duration // when a remote store must have decided all of them; 0 until the first is asked
	lent     bool          // the pipeline may still hold some of this
	open     bool          // what is taken may be given back after the call
}

// call is a Take of several ops, from the pool. ops are copied.
func (l *Limiter) call(ops []Op) *call {
	c, _ := l.calls.Get().(*call)
	if c == nil {
		c = &call{limiter: l}
	}
	c.ops = append(c.ops[:0], ops...)
	return c
}

// done gives a call back whose Decision has been returned.
func (c *call) done() {
	if c.lent {
		return
	}
	clear(c.ops)
	clear(c.each)
	clear(c.took)
	c.taken, c.watching, c.until = 0, false, 0
	c.limiter.calls.Put(c)
}

// room is a slice of n zeros, in the memory of an old one if that is enough.
func room[T any](old []T, n int) []T {
	if cap(old) < n {
		return make([]T, n)
	}
	old = old[:n]
	clear(old)
	return old
}

func (c *call) take(ctx context.Context) (Decision, error) {
	if err := c.prepare(); err != nil {
		return Decision{}, err
	}
	refused := c.refusedAlready()
	for !refused && c.taken < len(c.order) {
		group := c.group(c.taken)
		var err error
		if refused, err = c.takeItem(ctx, group); err != nil {
			return Decision{}, err
		}
		if refused {
			c.undo(ctx)
			break
		}
		c.taken += len(group)
	}
	if !refused && !c.open && c.quiet() {
		c.keep(ctx)
	}
	d := c.verdict()
	c.report(ctx)
	return d, nil
}

func (c *call) prepare() error {
	n := len(c.ops)
	if n > maxOps {
		return fmt.Errorf("weir: %d ops in one call: at most %d", n, maxOps)
	}
	c.each, c.took, c.order = room(c.each, n), room(c.took, n), room(c.order, n)
	for i := range c.ops {
		op := &c.ops[i]
		cost, err := c.limiter.prepare(op)
		if err != nil {
			return err
		}
		for j := range i {
			if o := &c.ops[j]; o.Key == op.Key && o.spec().Same(op.spec()) {
				return fmt.Errorf("weir: limit %q is asked for twice for one key in one call: name one of them with Limit.Named", op.Limit.Name())
			}
		}
		c.took[i].cost = cost
		c.each[i] = Decision{Limit: op.Limit, Cost: cost, Unknown: true, Reason: ReasonNotAsked}
		c.order[i] = i
	}
	if n > 1 {
		c.sort()
	}
	return nil
}

// quiet reports whether what the ops take may be given back after the write that
// takes it: then that reaches no mark, and what stays does when it is known.
func (c *call) quiet() bool {
	return c.open || len(c.order) > 1 && c.ops[c.order[0]].Key != c.ops[c.order[len(c.order)-1]].Key
}

// spec is what an op takes of.
func (c *call) spec(op *Op) *plan.Spec {
	if s := op.spec(); !s.HasMarks() || !c.quiet() {
		return s
	}
	return op.spec().Quiet()
}

// enforces reports whether an op of a group can refuse.
func (c *call) enforces(group []int) bool {
	return slices.ContainsFunc(group, func(i int) bool { return !c.ops[i].Shadow })
}

// sort brings ops of one key together, keys of more parts first and otherwise
// in the order given. Keys of which only shadows ask come last: by then the call
// is decided, and they can't use up the time of those that count.
func (c *call) sort() {
	if !slices.ContainsFunc(c.ops, func(o Op) bool { return o.Key != c.ops[0].Key }) {
		return // they are together
	}
	first := make([]int, len(c.ops)) // the first op with the same key
	last := make([]bool, len(c.ops))
	for i := range c.ops {
		first[i] = slices.IndexFunc(c.ops, func(o Op) bool { return o.Key == c.ops[i].Key })
		last[i] = !slices.ContainsFunc(c.ops, func(o Op) bool { return o.Key == c.ops[i].Key && !o.Shadow })
	}
	slices.SortStableFunc(c.order, func(a, b int) int {
		if last[a] != last[b] {
			if last[a] {
				return 1
			}
			return -1
		}
		if byParts := c.ops[b].Key.Parts() - c.ops[a].Key.Parts(); byParts != 0 {
			return byParts
		}
		return first[a] - first[b]
	})
}

// group is the ops of one key, from a place in order on.
func (c *call) group(from int) []int {
	to := from + 1
	for to < len(c.order) && c.ops[c.order[to]].Key == c.ops[c.order[from]].Key {
		to++
	}
	return c.order[from:to]
}

// takeItem takes the ops of one key, and reports whether an op refused.
func (c *call) takeItem(ctx context.Context, group []int) (refused bool, err error) {
	l := c.limiter
	key := c.ops[group[0]].Key
	if l.local != nil {
		if state, now := l.local.Lock(key); state != nil {
			refused = c.step(group, state, now)
			l.local.Unlock(key)
			return refused, nil
		}
	}
	if c.until == 0 {
		c.until = l.pipe.Until(1)
	}
	if !c.watching && !c.enforces(group) { // nor do the following
		c.watching = true
		c.until = min(c.until, l.pipe.Until(4))
	}
	c.lent = true
	asks, verdicts := c.asks(group)
	keep := true // a call that goes on although nobody answered stays charged
	for _, i := range group {
		op := &c.ops[i]
		keep = keep && (op.Shadow || op.OnFail == FailAllow)
	}
	if l.share.Owes(key) {
		err = l.repay(ctx, c.until, key)
	}
	if err == nil {
		refused, err = l.pipe.Take(ctx, c.until, key, asks, keep, verdicts)
	}
	if err != nil {
		return c.failed(ctx, group, storeError(err))
	}
	c.fill(group, verdicts, refused)
	for n, i := range group {
		if err := asks[n].Err; err != nil { // of a shadow: the others have been decided
			c.each[i] = Decision{Limit: c.ops[i].Limit, Cost: c.took[i].cost, Allowed: true, Degraded: true, Unknown: true}
			c.observeFailure(ctx, i, storeError(err))
		}
	}
	return refused, nil
}

// takeOne is Take of one op on a store that is not in this process. It allocates
// nothing of its own as long as the store answers.
func (l *Limiter) takeOne(ctx context.Context, op *Op) (d Decision, err error) {
	cost, err := l.prepare(op)
	if err != nil {
		return d, err
	}
	if l.share.Owes(op.Key) {
		return (&call{limiter: l, ops: []Op{*op}}).take(ctx)
	}
	ask := pipeline.Ask{Spec: op.spec(), Cost: cost, Shadow: op.Shadow}
	v, err := l.pipe.TakeOne(ctx, op.Key, ask, op.Shadow || op.OnFail == FailAllow)
	if err != nil {
		c := call{limiter: l, ops: []Op{*op}}
		if err := c.prepare(); err != nil {
			return d, err
		}
		if _, err := c.failed(ctx, c.order, storeError(err)); err != nil {
			return d, err
		}
		d = c.verdict()
		c.report(ctx)
		return d, nil
	}
	d = decide(op.Limit, cost, v)
	l.tell(ctx, op, &d)
	if op.Shadow {
		d = Decision{Allowed: true} // as if the op were absent
	}
	return d, nil
}

// repay charges what a key's shares have let through.
func (l *Limiter) repay(ctx context.Context, until time.Duration, key Key) error {
	ctx, cancel := l.pipe.Within(ctx, until)
	defer cancel()
	return l.pipe.Repay(ctx, &l.share, key, l.now)
}

// refusedAlready reports whether one of several keys refuses without being
// asked: then none is, and what would be taken of a narrower one need not be
// given back.
func (c *call) refusedAlready() bool {
	if len(c.order) < 2 || len(c.group(0)) == len(c.order) {
		return false
	}
	never := false
	for i := range c.ops {
		if op := &c.ops[i]; c.took[i].cost > op.Limit.spec.Most() && !op.Shadow {
			c.each[i] = decide(op.Limit, c.took[i].cost, plan.Verdict{Never: true, Unseen: true})
			never = true
		}
	}
	if never || c.limiter.local != nil {
		return never
	}
	for from := 0; from < len(c.order); {
		group := c.group(from)
		asks, verdicts := c.asks(group)
		if c.limiter.pipe.Refuses(c.ops[group[0]].Key, asks, verdicts) {
			c.fill(group, verdicts, true)
			return true
		}
		from += len(group)
	}
	return false
}

// asks is what the ops of one key want of the store, with room for its verdicts.
func (c *call) asks(group []int) ([]pipeline.Ask, []plan.Verdict) {
	asks := make([]pipeline.Ask, len(group))
	for n, i := range group {
		op := &c.ops[i]
		asks[n] = pipeline.Ask{Spec: c.spec(op), Cost: c.took[i].cost, Shadow: op.Shadow}
	}
	return asks, make([]plan.Verdict, len(group))
}

// fill decides the ops of one key by their verdicts. Of those of a refused one
// nothing was taken.
func (c *call) fill(group []int, verdicts []plan.Verdict, refused bool) {
	for n, i := range group {
		v := &verdicts[n]
		if v.Unseen && !v.Never {
			continue // another op refused without asking: not asked
		}
		c.each[i] = decide(c.ops[i].Limit, c.took[i].cost, *v)
		if !refused {
			c.took[i].hold(v)
		}
	}
}

// step decides under an item's lock.
func (c *call) step(group []int, state *Cells, now int64) (refused bool) {
	if len(group) > 1 {
		never := false
		for _, i := range group {
			op := &c.ops[i]
			v := op.spec().Look(state, now, c.took[i].cost)
			c.each[i] = decide(op.Limit, c.took[i].cost, v)
			refused = refused || !v.OK && !op.Shadow
			never = never || c.took[i].cost > op.Limit.spec.Most() && !op.Shadow
		}
		if never {
			return true // a remote store is not even asked
		}
	}
	for _, i := range group {
		op := &c.ops[i]
		if refused && c.each[i].Allowed {
			continue // nothing is taken; what refuses may have to tidy up
		}
		v := c.spec(op).Step(state, now, c.took[i].cost)
		c.each[i] = decide(op.Limit, c.took[i].cost, v)
		c.took[i].hold(&v)
		refused = refused || !v.OK && !op.Shadow
	}
	return refused
}

// failed decides the ops of an item that could not be asked.
func (c *call) failed(ctx context.Context, group []int, err error) (refused bool, _ error) {
	mode := FailAllow
	for _, i := range group {
		if op := &c.ops[i]; !op.Shadow && severity[op.OnFail] > severity[mode] {
			mode = op.OnFail
		}
	}
	gone := ctx.Err()
	if gone != nil || mode == FailError {
		c.undo(ctx)
		if gone != nil {
			return false, gone
		}
		return false, err
	}
	for _, i := range group {
		op, d := &c.ops[i], &c.each[i]
		*d = Decision{Limit: op.Limit, Cost: c.took[i].cost, Allowed: true, Degraded: true, Unknown: true}
		if mode == FailDeny && !op.Shadow {
			d.unavailable()
			refused = true
		}
	}
	var late *pipeline.Late
	if errors.As(err, &late) {
		c.took[group[0]].late = late
	}
	if mode == FailLocal {
		refused = c.decideHere(group)
	}
	for _, i := range group {
		c.observeFailure(ctx, i, err)
	}
	return refused, nil
}

// observeFailure tells the observer that an op could not be asked.
func (c *call) observeFailure(ctx context.Context, i int, err error) {
	if o := c.limiter.observer; o != nil && o.Failed != nil {
		o.Failed(ctx, c.ops[i], err)
	}
}

// unavailable refuses what nobody could decide.
func (d *Decision) unavailable() {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonUnavailable, time.Second
}

// severity orders the failure modes of ops that fail together.
var severity = [...]int{FailAllow: 0, FailLocal: 1, FailDeny: 2, FailError: 3}

// decideHere decides the ops of a key by this process's shares of their limits.
func (c *call) decideHere(group []int) (refused bool) {
	var shares []pipeline.Share
	var of []int
	for _, i := range group {
		op := &c.ops[i]
		if op.Shadow || op.OnFail != FailLocal {
			continue
		}
		shares = append(shares, pipeline.Share{Limit: op.Limit.spec, Part: op.part(), Cost: c.took[i].cost})
		of = append(of, i)
	}
	verdicts := make([]plan.Verdict, len(shares))
	number, refused := c.limiter.share.Take(c.ops[group[0]].Key, shares, c.limiter.now(), verdicts)
	for n, i := range of {
		v, d := &verdicts[n], &c.each[i]
		switch {
		case v.Never || v.Unseen: // the limit itself might allow it: not now
			d.unavailable()
		case !v.OK:
			d.Allowed, d.Reason, d.RetryAfter = false, ReasonLimit, time.Duration(v.Wait)
		case !refused:
			c.took[i].stamp, c.took[i].where, c.took[i].number = v.Stamp, inShare, number
		}
	}
	return refused
}

// verdict says which op speaks for the call.
func (c *call) verdict() Decision {
	best := -1
	degraded := false
	for i := range c.each {
		d := &c.each[i]
		d.Op = uint16(i)
		if c.ops[i].Shadow || d.Reason == ReasonNotAsked {
			continue
		}
		degraded = degraded || d.Degraded
		if best < 0 || speaksBefore(d, &c.each[best]) {
			best = i
		}
	}
	if best < 0 {
		return Decision{Allowed: true}
	}
	d := c.each[best]
	d.Degraded = d.Degraded || degraded
	return d
}

// speaksBefore orders the decisions of one call: refusals first, of those the
// one that lasts longest; then what is known, with the smallest share left.
func speaksBefore(a, b *Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case !a.Allowed && (a.Reason == ReasonNever) != (b.Reason == ReasonNever):
		return a.Reason == ReasonNever
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	case a.Unknown != b.Unknown:
		return !a.Unknown
	}
	// a.Remaining/a.Max < b.Remaining/b.Max, without division.
	ah, al := bits.Mul64(uint64(a.Remaining), uint64(b.Limit.Max()))
	bh, bl := bits.Mul64(uint64(b.Remaining), uint64(a.Limit.Max()))
	return ah < bh || ah == bh && al < bl
}

// report tells the observer of every op that was asked.
func (c *call) report(ctx context.Context) {
	for i := range c.each {
		if d := &c.each[i]; d.Reason != ReasonNotAsked {
			c.limiter.tell(ctx, &c.ops[i], d)
		}
	}
}

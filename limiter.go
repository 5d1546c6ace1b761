package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir/internal/pipeline"
	"github.com/weirlabs/weir/internal/plan"
)

// Options of a [Limiter]. The zero value is right for a start.
type Options struct {
	// Limits are all that may ever share an item, for example those of every
	// plan. They decide how long items are kept: an item that one call writes
	// must outlive what another limit counts in it. Without Limits, an item is
	// kept for the longest limit that this Limiter has met so far.
	Limits []Limit

	// KeepFor, when set, says instead what a key's item is kept for: the longest
	// Horizon of the limits that may share this item. It must be quick and safe
	// for concurrent use.
	KeepFor func(Key) time.Duration

	// Now is the time in Unix nanoseconds; the default is the machine's clock.
	// A store that is in this process, or has its own clock, judges by that.
	Now func() int64

	// Deadline bounds one decision of a remote store, over all its items, after
	// which the ops' FailureMode decides; giving back what was taken until then
	// may last as long again. The default is 100 ms. The first decision of a
	// process has a second at least, for connections and credentials.
	Deadline time.Duration

	// NoMemo asks the store also for what it has refused within the last
	// second. NoCoalescing gives every call a write of its own, and no memo.
	// NoNonces gives writes no name: one whose reply was lost is not sent again,
	// and its outcome stays unknown. NoBreaker asks a store however often it fails.
	NoMemo, NoCoalescing, NoNonces, NoBreaker bool

	// Observer hears of every decision. Nil is silent.
	Observer *Observer
}

// margin is how long an item is kept beyond its last meaning, so that the
// deletion never races a caller whose clock is behind.
const margin = time.Hour

// maxOps bounds the ops of one call.
const maxOps = 64

// Limiter decides calls on one store. It is safe for concurrent use. A Limiter
// costs a few words: make one for each store, not one for each limit or caller.
type Limiter struct {
	store    Store
	local    InProcess          // nil when the store is remote
	pipe     *pipeline.Pipeline // to a remote store, and to what local can't decide
	share    pipeline.Local     // what FailLocal counts
	calls    sync.Pool          // of *call
	caps     Caps
	observer *Observer
	now      func() int64
	keepFor  func(Key) time.Duration // Options.KeepFor
	keep     atomic.Int64            // ns for which items are kept
	broken   error                   // Options that no call can satisfy
}

// NewLimiter returns a Limiter on a store. When Options.Limits hold a limit
// whose period the store can't keep, every call fails with the error that
// [Limiter.Check] gives: check limits where they are configured.
func NewLimiter(s Store, o Options) *Limiter {
	l := &Limiter{store: s, caps: s.Caps(), observer: o.Observer, now: o.Now, keepFor: o.KeepFor}
	if l.now == nil {
		l.now = func() int64 { return time.Now().UnixNano() }
	}
	if o.Deadline <= 0 {
		o.Deadline = 100 * time.Millisecond
	}
	l.local, _ = s.(InProcess)
	l.pipe = pipeline.New(pipeline.Options{
		Store:    s,
		Clock:    l.now,
		Keep:     l.keepOf,
		Errors:   pipeline.Errors{OutcomeUnknown: ErrOutcomeUnknown, Unreachable: ErrUnreachable, Throttled: ErrThrottled, Busy: ErrBusy, Open: errOpen},
		OwnClock: l.caps.OwnClock, Nonces: l.caps.LossyReplies && !o.NoNonces, NoBreaker: o.NoBreaker, Deadline: o.Deadline, NoMemo: o.NoMemo, NoCoalescing: o.NoCoalescing, Gap: l.caps.Gap,
	})
	l.broken = l.Check(o.Limits...)
	for _, limit := range o.Limits {
		l.raiseKeep(limit)
	}
	return l
}

// Check reports whether the store can keep these limits: it errs when a period
// is longer than the store keeps an item that nobody writes.
func (l *Limiter) Check(limits ...Limit) error {
	for _, limit := range limits {
		if limit.spec == nil {
			return errNoLimit
		}
		if keep := limit.Horizon(); l.caps.MaxKeep > 0 && keep > l.caps.MaxKeep {
			return fmt.Errorf("weir: limit %q needs an item to be kept for %v, but the store keeps items for %v at most; shorten the period or use another store", limit.Name(), keep, l.caps.MaxKeep)
		}
	}
	return nil
}

// Stats are counts, since the start, of what the stages in front of a store that
// is not in this process have saved or have met.
type Stats = pipeline.Stats

// Stats says what each stage in front of the store has saved so far. A store in
// this process, which is decided under its own lock, has none in front of it.
func (l *Limiter) Stats() Stats {
	return l.pipe.Stats()
}

// Take asks for all ops at once: either every one is taken, or none. Ops of one
// key share one write. Different keys are asked one after the other, keys of
// more parts first and then in the order given, and what was taken is given
// back when a later key refuses: a caller over a limit of its own costs those
// that it shares a broader limit with nothing. Keys of which only shadow ops ask
// come last and may delay the decision by a quarter of the deadline, after which
// they are counted all the same.
//
// A refusal is a Decision. An error means that the ops are wrong (a zero Limit,
// an invalid Key, a negative Cost, one limit twice for one key) or that the
// store could not be asked and an op's mode is FailError. Without ops the
// Decision allows.
func (l *Limiter) Take(ctx context.Context, ops ...Op) (d Decision, err error) {
	if len(ops) == 1 && l.local == nil {
		return l.takeOne(ctx, &ops[0])
	}
	if len(ops) != 1 {
		c := l.call(ops)
		d, err = c.take(ctx)
		c.done()
		return d, err
	}
	// One op on a store in this process: nothing is allocated, and little is
	// written before Lock and Unlock, since both wait for what was written.
	op := &ops[0]
	cost, err := l.prepare(op)
	if err != nil {
		return d, err
	}
	state, now := l.local.Lock(op.Key)
	if state == nil {
		return l.takeOne(ctx, op)
	}
	spec := op.spec()
	switch b, ok := spec.StepUsual(state, now, cost); {
	case ok && b.OK: // others wait for the lock, so what is returned is written after it
		l.local.Unlock(op.Key)
		d.of(op.Limit, cost, b, spec.Max())
	case ok: // a refusal changes nothing, and Unlock waits for what is written here instead
		d.of(op.Limit, cost, b, spec.Max())
		l.local.Unlock(op.Key)
	default:
		d = decide(op.Limit, cost, spec.Step(state, now, cost))
		l.local.Unlock(op.Key)
	}
	l.tell(ctx, op, &d)
	if op.Shadow {
		d = Decision{Allowed: true} // as if the op were absent
	}
	return d, nil
}

// tell tells the observer of a decision.
func (l *Limiter) tell(ctx context.Context, op *Op, d *Decision) {
	if l.observer != nil && l.observer.Decided != nil {
		l.observer.Decided(ctx, *op, *d)
	}
}

// Reserve is Take with a way back: the Reservation, which is never nil without
// an error, can settle what was taken at another cost, or cancel it. It also
// has the decision of every op. After a refusal there is nothing to settle, and
// settling does nothing.
func (l *Limiter) Reserve(ctx context.Context, ops ...Op) (*Reservation, Decision, error) {
	r := &Reservation{call: call{limiter: l, ops: append([]Op(nil), ops...), open: true}}
	d, err := r.call.take(ctx)
	if err != nil {
		return nil, d, err
	}
	return r, d, nil
}

// Peek returns what Take would decide for each op alone, without taking.
// Remaining, Used and ResetAfter are those of the state as it is.
func (l *Limiter) Peek(ctx context.Context, ops ...Op) ([]Decision, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	out := make([]Decision, len(ops))
	seen := map[Key]*snapshot{}
	for i := range ops {
		op := &ops[i]
		cost, err := l.prepare(op)
		if err != nil {
			return nil, err
		}
		s := seen[op.Key]
		if s == nil {
			if s, err = l.snapshot(ctx, op.Key); err != nil {
				return nil, err
			}
			seen[op.Key] = s
		}
		out[i] = decide(op.Limit, cost, op.spec().Look(&s.state, s.now, cost))
		out[i].Op = uint16(i)
	}
	return out, nil
}

type snapshot struct {
	state Cells
	now   int64
}

func (l *Limiter) snapshot(ctx context.Context, key Key) (*snapshot, error) {
	s := new(snapshot)
	if l.local != nil {
		if state, now := l.local.Lock(key); state != nil {
			s.state.CopyFrom(state)
			s.now = now
			l.local.Unlock(key)
			return s, nil
		}
	}
	state, now, err := l.pipe.Read(ctx, key)
	if err != nil {
		return nil, storeError(err)
	}
	s.state, s.now = *state, now
	return s, nil
}

// Reset forgets what limits hold of a key, so that the next call finds them
// full. Without limits it forgets all that this process has limits for. A field of
// theirs that can't be read goes too; while one of another limit can't be, nothing is
// forgotten: see [SpoiledError]. An item that can't be read at all goes whole,
// whatever the limits: see [Deleter].
func (l *Limiter) Reset(ctx context.Context, key Key, limits ...Limit) error {
	if !key.Valid() {
		return errBadKey
	}
	for _, limit := range limits {
		if limit.spec == nil {
			return errNoLimit
		}
	}
	owned := func(f Field) bool {
		return len(limits) == 0 || slices.ContainsFunc(limits, func(l Limit) bool { return l.Owns(f) })
	}
	more := false
	forget := func(known *Cells, _ int64, w *Write) bool {
		more = false
		for slot := range known.All() {
			if owned(slot.Field) {
				if more = len(w.Do) == maxForgotten; more {
					break
				}
				w.Do = append(w.Do, Act{Field: slot.Field, Do: Remove})
			}
		}
		return len(w.Do) > 0
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	for deleted := 0; ; {
		err := l.update(ctx, key, pipeline.Change{Read: true, Next: forget})
		var spoiled *SpoiledError
		if err == nil && more {
			continue
		}
		if !errors.As(err, &spoiled) {
			return err
		}
		if store, deletes := l.store.(Deleter); deletes && spoiled.Field == "" {
			if deleted++; deleted > maxDeletes {
				return inVain(limits, err)
			}
			if err = store.Delete(ctx, key); err != nil {
				err = storeError(err)
			}
		} else if w, other := unread(spoiled, owned); other != "" {
			err = fmt.Errorf("weir: nothing is reset while field %q of another limit can't be read; reset that limit too: %w", other, err)
		} else if len(w.Do) > 0 {
			err = l.forgetUnread(ctx, key, w)
		}
		if err != nil {
			return err
		}
	}
}

// maxForgotten bounds the fields that one write of a reset removes: of 4 KB of an
// expression, which DynamoDB takes, each is six bytes.
const maxForgotten = 512

// maxDeletes is how often a reset deletes an item: somebody may write it again in between.
const maxDeletes = 3

// inVain is the error of a reset that has deleted an item so often.
func inVain(limits []Limit, err error) error {
	var names []string
	for _, limit := range limits {
		names = append(names, limit.Name())
	}
	return fmt.Errorf("weir: %s not reset: the item was deleted %d times and still can't be read; stop what writes it, or delete it with the store's own client: %w",
		cmp.Or(strings.Join(names, ", "), "all limits"), maxDeletes, err)
}

// unread is the write that removes the fields that keep an item from being read, or
// some if there are many. While one of them, other, is not owned, it is empty.
func unread(spoiled *SpoiledError, owned func(Field) bool) (w Write, other string) {
	const most = 32 // in one write
	for _, field := range append([]string{spoiled.Field}, spoiled.More...) {
		f, ok := ParseField(field)
		if !ok {
			return Write{}, ""
		}
		if !owned(f) {
			return Write{}, field
		}
		w.Do = append(w.Do, Act{Field: f, Do: Remove})
	}
	w.Do = w.Do[:min(len(w.Do), most)]
	return w, ""
}

// forgetUnread makes the write of unread. That others can't be read either, of limits
// that it names, is no error: the item was written.
func (l *Limiter) forgetUnread(ctx context.Context, key Key, w Write) error {
	err := l.update(ctx, key, pipeline.Change{Next: func(_ *Cells, _ int64, to *Write) bool {
		to.Do = append(to.Do, w.Do...)
		return true
	}})
	var other *SpoiledError
	if errors.As(err, &other) && !slices.ContainsFunc(w.Do, func(a Act) bool { return a.Field.Text() == other.Field }) {
		return nil
	}
	return err
}

// update changes one item, under the lock of a store in this process or through
// the pipeline.
func (l *Limiter) update(ctx context.Context, key Key, c pipeline.Change) error {
	if l.local != nil {
		if state, now := l.local.Lock(key); state != nil {
			defer l.local.Unlock(key)
			var w Write
			if c.Next(state, now, &w) {
				w.Apply(state, now)
				if c.Left != nil {
					c.Left(state)
				}
			}
			return nil
		}
	}
	if err := l.pipe.Update(ctx, key, c); err != nil {
		return storeError(err)
	}
	return nil
}

// within bounds what is asked of a remote store.
func (l *Limiter) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.local != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.pipe.Deadline())
}

// after is within for what follows a take. Whoever took has often gone by then;
// what it owes or is owed stays.
func (l *Limiter) after(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.within(context.WithoutCancel(ctx))
}

// prepare checks an op and returns its cost.
func (l *Limiter) prepare(op *Op) (cost int64, err error) {
	switch {
	case l.broken != nil:
		return 0, l.broken
	case op.Limit.spec == nil:
		return 0, errNoLimit
	case !op.Key.Valid():
		return 0, errBadKey
	case op.Cost < 0:
		return 0, fmt.Errorf("weir: limit %q: cost %d is negative; give back with Reservation.Cancel or Settle", op.Limit.Name(), op.Cost)
	}
	if err := op.Limit.spec.Ready(); err != nil {
		return 0, fmt.Errorf("weir: %w", err)
	}
	if l.caps.MaxKeep > 0 {
		if err := l.Check(op.Limit); err != nil {
			return 0, err
		}
	}
	if l.local == nil {
		l.raiseKeep(op.Limit)
	}
	return max(op.Cost, 1), nil
}

// keepOf is how long a key's item is kept after a write.
func (l *Limiter) keepOf(key Key) time.Duration {
	if l.keepFor != nil {
		return l.keepFor(key) + margin
	}
	return time.Duration(l.keep.Load())
}

// raiseKeep raises the time for which items are kept.
func (l *Limiter) raiseKeep(limit Limit) {
	want := int64(limit.Horizon() + margin)
	for {
		have := l.keep.Load()
		if want <= have || l.keep.CompareAndSwap(have, want) {
			return
		}
	}
}

func (op *Op) spec() *plan.Spec {
	if op.Shadow {
		return op.Limit.spec.Shadow()
	}
	return op.Limit.spec
}

// part is what this process allows of the op's limit by itself.
func (op *Op) part() *plan.Spec {
	if op.Local.spec == nil {
		return op.Limit.spec
	}
	return op.Local.spec
}

// decide turns a verdict into a Decision.
func decide(limit Limit, cost int64, v plan.Verdict) (d Decision) {
	d.of(limit, cost, v.Brief(), v.Max)
	d.Notice, d.end = uint8(v.Notice), v.End
	if v.Never {
		d.Reason = ReasonNever
	}
	if v.Unseen {
		d.Unknown, d.Remaining, d.end = true, 0, 0
	}
	return d
}

// of makes a zero Decision that of a limit which can hold most now.
func (d *Decision) of(limit Limit, cost int64, b plan.Brief, most int64) {
	d.Limit, d.Allowed, d.Cost = limit, b.OK, cost
	d.Used, d.Remaining = b.Used, max(most-b.Used, 0)
	d.RetryAfter, d.ResetAfter = time.Duration(b.Wait), time.Duration(b.Reset)
	if !b.OK {
		d.Reason = ReasonLimit
	}
}

var errBadKey = errors.New("weir: the key is empty or longer than 1,024 bytes: give NewKey a kind and an id that are not empty, and hash ids that may be long")

// errOpen: the store failed just now, so that it was not asked.
var errOpen = errors.New("not asked, because it failed on the last calls")

func storeError(err error) error { return fmt.Errorf("weir: store: %w", err) }

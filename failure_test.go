package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
)

var errDown = errors.New("no route to the store")

// remotely is a limiter on the way of a remote store.
func remotely(t *testing.T, o weir.Options) *place {
	c := newClock()
	far := newDistant(c)
	o = slowly(o)
	o.Now = c.now
	return &place{TB: t, clock: c, Limiter: weir.NewLimiter(far, o), far: far}
}

// The store fails at any one of the steps of a call over three items: the call
// is decided by its mode, nothing stays taken of a call that was not allowed,
// and only where the giving back itself failed one call is charged too much.
func TestFailureBetweenAnySteps(t *testing.T) {
	for _, mode := range []weir.FailureMode{weir.FailError, weir.FailAllow, weir.FailDeny} {
		for fail := 1; fail <= 10; fail++ {
			for _, refuses := range []bool{false, true} {
				p := remotely(t, weir.Options{})
				ops := []weir.Op{
					{Limit: limit(t, "quota 5/h", "a"), Key: weir.NewKey("a", "1", "b", "1", "c", "1"), OnFail: mode},
					{Limit: limit(t, "1/m burst 5", "b"), Key: weir.NewKey("a", "1", "b", "1"), OnFail: mode},
					{Limit: limit(t, "sliding 5/h", "c"), Key: weir.NewKey("a", "1"), OnFail: mode},
				}
				if refuses {
					p.take(weir.Op{Limit: ops[2].Limit, Key: ops[2].Key, Cost: 5})
				}
				before := p.peek(ops...)
				first, _ := p.far.counts()
				failed := false
				p.far.there = func(trip int, _ weir.Key, _ []weir.Write) error {
					if trip-first == fail {
						failed = true
						return errDown
					}
					return nil
				}
				r, d, err := p.Reserve(context.Background(), ops...)
				p.far.there = nil
				after := p.peek(ops...)
				missing := int64(0)
				for i := range ops {
					missing += before[i].Remaining - after[i].Remaining
				}
				name := fmt.Sprintf("mode %d, step %d, refuses %v", mode, fail, refuses)
				taken := int64(0)
				switch {
				case err != nil:
					if !errors.Is(err, errDown) || mode != weir.FailError || !failed {
						t.Fatalf("%s: %v", name, err)
					}
				case d.Allowed:
					if refuses && !(failed && mode == weir.FailAllow) {
						t.Fatalf("%s: allowed: %+v", name, d)
					}
					taken = 3
					if d.Degraded {
						taken = 2 // of the item that failed nothing is taken
					}
					if err := r.Cancel(context.Background()); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					for i, d := range p.peek(ops...) {
						if d.Remaining != before[i].Remaining {
							t.Fatalf("%s: op %d has %d left after a cancel", name, i, d.Remaining)
						}
					}
				case !refuses && !(failed && mode == weir.FailDeny):
					t.Fatalf("%s: refused: %+v", name, d)
				}
				// One give-back may have failed: a refusal asks three items, and
				// then gives two back.
				if missing < taken || missing > taken+1 || missing != taken && !(refuses && failed) {
					t.Fatalf("%s: %d units are missing, want %d", name, missing, taken)
				}
			}
		}
	}
}

func TestFailureModes(t *testing.T) {
	var failed []weir.Op
	p := remotely(t, weir.Options{Observer: &weir.Observer{Failed: func(_ context.Context, op weir.Op, err error) {
		if !errors.Is(err, errDown) {
			t.Errorf("told of %v", err)
		}
		failed = append(failed, op)
	}}})
	p.far.there = func(int, weir.Key, []weir.Write) error { return errDown }
	op := func(name string, mode weir.FailureMode, shadow bool) weir.Op {
		return weir.Op{Limit: limit(t, "1/s burst 5", name), Key: someone, OnFail: mode, Shadow: shadow}
	}
	for i, c := range []struct {
		ops []weir.Op
		// what becomes of the call
		err, allowed bool
	}{
		{[]weir.Op{op("a", weir.FailError, false)}, true, false},
		{[]weir.Op{op("a", weir.FailAllow, false)}, false, true},
		{[]weir.Op{op("a", weir.FailDeny, false)}, false, false},
		{[]weir.Op{op("a", weir.FailAllow, false), op("b", weir.FailDeny, false)}, false, false},
		{[]weir.Op{op("a", weir.FailDeny, false), op("b", weir.FailAllow, false)}, false, false},
		{[]weir.Op{op("a", weir.FailDeny, false), op("b", weir.FailError, false)}, true, false},
		{[]weir.Op{op("a", weir.FailError, false), op("b", weir.FailDeny, false)}, true, false},
		{[]weir.Op{op("a", weir.FailAllow, false), op("b", weir.FailError, true)}, false, true}, // a shadow has no say
		{[]weir.Op{op("a", weir.FailAllow, false), op("b", weir.FailDeny, true)}, false, true},
		{[]weir.Op{op("b", weir.FailError, true)}, false, true},
	} {
		failed = nil
		r, d, err := p.Reserve(context.Background(), c.ops...)
		if c.err != (err != nil) || err != nil && (!errors.Is(err, errDown) || r != nil) {
			t.Errorf("case %d: %v", i, err)
		}
		if err != nil {
			if len(failed) != 0 {
				t.Errorf("case %d: told of a failure that the caller hears of", i)
			}
			continue
		}
		if len(failed) != len(c.ops) {
			t.Errorf("case %d: told of %d ops of %d", i, len(failed), len(c.ops))
		}
		alone := len(c.ops) == 1 && c.ops[0].Shadow
		if d.Allowed != c.allowed || !alone && (!d.Degraded || !d.Unknown) {
			t.Errorf("case %d: %+v", i, d)
		}
		if !d.Allowed && (d.Reason != weir.ReasonUnavailable || d.RetryAfter <= 0) {
			t.Errorf("case %d: %+v", i, d)
		}
		for j, e := range r.Each() {
			if !e.Degraded || !e.Unknown || c.ops[j].Shadow && !e.Allowed {
				t.Errorf("case %d: op %d says %+v", i, j, e)
			}
		}
		// Nothing was taken, so nothing can be given back.
		p.far.there = nil
		p.settle(r, make([]int64, len(c.ops))...)
		for _, e := range p.peek(c.ops...) {
			if e.Remaining != 5 {
				t.Errorf("case %d: %+v", i, e)
			}
		}
		p.far.there = func(int, weir.Key, []weir.Write) error { return errDown }
	}
	if _, err := p.Peek(context.Background(), op("a", weir.FailAllow, false)); !errors.Is(err, errDown) {
		t.Errorf("Peek: %v", err)
	}
	if err := p.Reset(context.Background(), someone); !errors.Is(err, errDown) {
		t.Errorf("Reset: %v", err)
	}
}

// A store that is too busy to apply a write is a failure, never a refusal.
func TestCase_B050_B056_BusyIsNoRefusal(t *testing.T) {
	p := remotely(t, weir.Options{})
	op := weir.Op{Limit: limit(t, "10/s burst 5"), Key: someone}
	f, ok := weir.ParseField("rate.t")
	if !ok {
		t.Fatal("no field rate.t")
	}
	// Somebody else is always faster, and never leaves the item as it was seen.
	p.far.there = func(trip int, item weir.Key, tries []weir.Write) error {
		var state weir.Cells
		w := weir.Write{Do: []weir.Act{{Field: f, Do: 1, Value: p.now() + int64(trip%2)*int64(time.Millisecond)}}}
		_, _, err := p.far.Store.Apply(context.Background(), item, []weir.Write{w}, &state)
		return err
	}
	before, _ := p.far.counts()
	_, err := p.Take(context.Background(), op)
	if !errors.Is(err, weir.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	if after, _ := p.far.counts(); after-before != 8 {
		t.Errorf("%d trips", after-before)
	}
	op.OnFail = weir.FailAllow
	if d := p.take(op); !d.Allowed || !d.Degraded {
		t.Errorf("%+v", d)
	}
	op.OnFail = weir.FailDeny
	if d := p.take(op); d.Allowed || d.Reason != weir.ReasonUnavailable {
		t.Errorf("%+v", d)
	}
}

// Replies that are lost charge nobody twice and refuse nobody.
func TestLostReplies(t *testing.T) {
	for _, kind := range everyKind {
		p := remotely(t, weir.Options{NoCoalescing: true})
		op := weir.Op{Limit: limit(t, kind), Key: someone}
		lose := 0 // how many replies to lose
		p.far.back = func(applied int) error {
			if applied < 0 {
				return nil
			}
			if lose--; lose >= 0 {
				return fmt.Errorf("connection reset: %w", weir.ErrOutcomeUnknown)
			}
			return nil
		}
		for n := range int64(10) {
			lose = int(n % 3)
			if d := p.take(op); !d.Allowed || d.Remaining != 9-n {
				t.Fatalf("%s: %+v, want %d left", kind, d, 9-n)
			}
		}
		if d := p.take(op); d.Allowed || d.Degraded || d.Reason != weir.ReasonLimit {
			t.Errorf("%s: %+v", kind, d)
		}
		// A write of which nobody can tell whether it was applied is no refusal.
		p.far.back = func(int) error { return weir.ErrOutcomeUnknown }
		if _, err := p.Take(context.Background(), op); !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", kind, err)
		}
	}

	// While all replies are lost, the outcome is unknown: the mode decides.
	p := remotely(t, weir.Options{})
	p.far.back = func(int) error { return weir.ErrOutcomeUnknown }
	op := weir.Op{Limit: limit(t, "quota 9/h"), Key: someone}
	if _, err := p.Take(context.Background(), op); !errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	p.far.back = nil
	p.Limiter = weir.NewLimiter(p.far, weir.Options{Deadline: patient, Now: p.now}) // one that does not leave the store alone
	if left := p.left(op.Limit); left != 8 {
		t.Errorf("%d left of 9 after one take that was sent several times", left)
	}

	// A write that did not hold, of which the reply is lost, may have been
	// applied and forgotten: nobody can tell, so nothing else is tried.
	bucket := weir.Op{Limit: limit(t, "1/h burst 9"), Key: someone}
	p.take(bucket)
	lost := false
	p.far.back = func(applied int) error {
		if lost || applied >= 0 {
			return nil
		}
		lost = true
		return weir.ErrOutcomeUnknown
	}
	other := weir.NewLimiter(p.far, weir.Options{Deadline: patient, Now: p.now}) // knows nothing of the item
	all := bucket
	all.Cost = 9 // of eight
	if _, err := other.Take(context.Background(), all); !errors.Is(err, weir.ErrOutcomeUnknown) || !lost {
		t.Errorf("%v, %v", err, lost)
	}
	p.far.back = nil
	if left := p.left(bucket.Limit); left != 8 {
		t.Errorf("%d left of 8 after a take of unknown outcome that was not applied", left)
	}

	// A give-back is sent once: at most once is what it may be.
	r, _ := p.reserve(op)
	p.far.back = func(int) error { return weir.ErrOutcomeUnknown }
	before, _ := p.far.counts()
	if err := r.Cancel(context.Background()); !errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	p.far.back = nil
	if after, _ := p.far.counts(); after != before+1 {
		t.Errorf("a give-back of unknown outcome was sent %d times", after-before)
	}

	// A store that forgets no reply needs no second try.
	p = remotely(t, weir.Options{})
	p.far.caps.LossyReplies = false
	p.Limiter = weir.NewLimiter(p.far, weir.Options{Deadline: patient, Now: p.now})
	p.far.there = func(_ int, _ weir.Key, tries []weir.Write) error {
		if tries[0].Nonce != 0 {
			t.Error("a nonce for a store that loses nothing")
		}
		return nil
	}
	p.take(op)
}

// An unreachable store costs one deadline for a call, however many items the
// call has, and one more for giving back.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := remotely(t, weir.Options{Deadline: 300 * time.Millisecond})
		hang := &hanging{Store: p.far}
		l := weir.NewLimiter(hang, weir.Options{Deadline: 300 * time.Millisecond})
		hang.after.Store(1)
		if _, err := l.Peek(context.Background(), weir.Op{Limit: limit(t, "quota 5/h"), Key: someone}); err != nil {
			t.Fatal(err)
		}
		var ops []weir.Op
		for i := range 5 {
			ops = append(ops, weir.Op{Limit: limit(t, "quota 5/h"), Key: weir.NewKey("account", fmt.Sprint(i)), OnFail: weir.FailAllow})
		}
		took := func(f func()) time.Duration {
			began := time.Now()
			f()
			return time.Since(began)
		}
		if d := took(func() {
			if d, err := l.Take(context.Background(), ops...); err != nil || !d.Allowed || !d.Degraded {
				t.Errorf("%+v, %v", d, err)
			}
		}); d != 300*time.Millisecond {
			t.Errorf("five items took %v", d)
		}
		ops[4].OnFail = weir.FailDeny
		again := func() { // a limiter that has been answered, and none that fails
			<-time.After(time.Second) // what the last one has asked for ends by itself
			hang.after.Store(1)
			l = weir.NewLimiter(hang, weir.Options{Deadline: 300 * time.Millisecond})
			if _, err := l.Peek(context.Background(), ops[0]); err != nil {
				t.Fatal(err)
			}
		}
		again()
		hang.after.Store(4)
		if d := took(func() {
			if d, err := l.Take(context.Background(), ops...); err != nil || d.Allowed || d.Reason != weir.ReasonUnavailable {
				t.Errorf("%+v, %v", d, err)
			}
		}); d != 600*time.Millisecond {
			t.Errorf("a refusal with four items to give back took %v", d)
		}
		for name, f := range map[string]func() error{
			"Peek":  func() error { _, err := l.Peek(context.Background(), ops...); return err },
			"Reset": func() error { return l.Reset(context.Background(), someone) },
		} {
			again()
			hang.after.Store(0)
			if d := took(func() {
				if err := f(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			}); d != 300*time.Millisecond {
				t.Errorf("%s took %v", name, d)
			}
		}

		// The caller who leaves is told so, and has taken nothing.
		again()
		hang.after.Store(0)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if d := took(func() {
			if _, err := l.Take(ctx, ops...); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}); d != 50*time.Millisecond {
			t.Errorf("a caller with 50 ms waited %v", d)
		}
		<-time.After(time.Second) // what it had asked for ends by itself
	})
}

// hanging is a store that stops answering.
type hanging struct {
	weir.Store
	after atomic.Int64 // trips that are still answered
}

func (h *hanging) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	if h.after.Add(-1) >= 0 {
		return h.Store.Apply(ctx, item, tries, state)
	}
	<-ctx.Done()
	return -1, 0, ctx.Err()
}

// A caller who leaves between two items keeps nothing of the first; one who has
// left before takes nothing.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := remotely(t, weir.Options{})
		ops := []weir.Op{
			{Limit: limit(t, "quota 5/h"), Key: weir.NewKey("a", "1", "b", "1"), OnFail: weir.FailAllow},
			{Limit: limit(t, "quota 5/h"), Key: weir.NewKey("a", "1"), OnFail: weir.FailAllow},
		}
		ctx, cancel := context.WithCancel(context.Background())
		p.far.back = func(int) error { cancel(); return nil }
		if _, err := p.Take(ctx, ops...); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if _, err := p.Take(ctx, ops...); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		synctest.Wait() // what the first item is given back for goes on without the caller
		for i, d := range p.peek(ops...) {
			if d.Remaining != 5 {
				t.Errorf("op %d has %d left of 5", i, d.Remaining)
			}
		}
		// What was reserved can be settled by a caller who has left.
		r, _ := p.reserve(ops...)
		if err := r.Cancel(ctx); err != nil {
			t.Error(err)
		}
		for i, d := range p.peek(ops...) {
			if d.Remaining != 5 {
				t.Errorf("op %d has %d left of 5 after the cancel", i, d.Remaining)
			}
		}
	})
}

// On a clock that goes on during every trip, each verb needs few of them.
func TestRunningClock(t *testing.T) {
	for _, kind := range everyKind {
		p := remotely(t, weir.Options{})
		p.far.there = func(int, weir.Key, []weir.Write) error { p.advance(3 * time.Millisecond); return nil }
		p.far.back = func(int) error { p.advance(3 * time.Millisecond); return nil }
		op := weir.Op{Limit: limit(t, kind), Key: someone, Cost: 2}
		trips := func(f func()) int {
			before, _ := p.far.counts()
			f()
			after, _ := p.far.counts()
			return after - before
		}
		for round := range 3 {
			var r *weir.Reservation
			if n := trips(func() { r, _ = p.reserve(op) }); n > 2 {
				t.Errorf("%s, round %d: %d trips to take", kind, round, n)
			}
			p.advance(time.Second)
			settle := []func(){func() { p.settle(r, 0) }, func() { p.settle(r, 1) }, func() { p.settle(r, 3) }}[round]
			if n := trips(settle); n > 3 {
				t.Errorf("%s, round %d: %d trips to settle", kind, round, n)
			}
		}
		if left := p.left(op.Limit); left != 6 {
			t.Errorf("%s: %d left of 10 after 0, 1 and 3", kind, left)
		}
	}
}

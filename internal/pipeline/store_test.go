package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

var (
	errUnknown     = errors.New("outcome unknown")
	errUnreachable = errors.New("unreachable")
	errThrottled   = errors.New("throttled")
	errBusy        = errors.New("busy")
	errOpen        = errors.New("not asked")
	errBroken      = errors.New("broken")
)

// items is a store: it keeps items and the last four nonces of each, and does
// to a trip what the test wants.
type items struct {
	took time.Duration                            // a trip's time, half there and half back
	lost func(trip int, tries []plan.Write) error // on the way there
	back func(trip, applied int) error            // on the way back
	now  func() int64
	mu   sync.Mutex
	by   map[plan.Key]*plan.Cells
	ring map[plan.Key][]uint64
	log  []trip
}

// trip is what the store was asked.
type trip struct {
	item  plan.Key
	tries []plan.Write
	at    time.Time
}

func (s *items) Apply(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (int, int64, error) {
	s.mu.Lock()
	log := trip{item: item, at: time.Now()}
	for _, w := range tries { // which are the pipeline's again after this
		w.If, w.Do = slices.Clone(w.If), slices.Clone(w.Do)
		log.tries = append(log.tries, w)
	}
	s.log = append(s.log, log)
	n := len(s.log)
	s.mu.Unlock()
	if !sleep(ctx, s.took/2) {
		return -1, 0, errUnknown // nobody knows how far it came
	}
	if s.lost != nil {
		if err := s.lost(n, tries); err != nil {
			return -1, 0, err
		}
	}
	applied := s.apply(item, tries, state)
	now := s.now()
	if !sleep(ctx, s.took/2) {
		return -1, 0, errUnknown
	}
	if s.back != nil {
		if err := s.back(n, applied); err != nil {
			return -1, 0, err
		}
	}
	return applied, now, nil
}

func (s *items) apply(item plan.Key, tries []plan.Write, state *plan.Cells) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.by[item]
	if it == nil {
		it = new(plan.Cells)
		s.by[item] = it
	}
	defer func() { state.CopyFrom(it) }()
	for i := range tries {
		nonce := tries[i].Nonce
		if nonce != 0 && slices.Contains(s.ring[item], nonce) {
			return i
		}
		if tries[i].Holds(it, s.now()) {
			tries[i].Apply(it, s.now())
			if nonce != 0 {
				ring := append(s.ring[item], nonce)
				s.ring[item] = ring[max(0, len(ring)-4):]
			}
			return i
		}
	}
	return -1
}

func (s *items) trips() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// gatherer is a store that asks for what is to be sent, in a goroutine of its own.
type gatherer struct{ Applier }

func (s gatherer) Gather(q Question) bool {
	go func() {
		a, ok := q.Ask()
		if !ok {
			return
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(a.Context), a.Until)
		defer cancel()
		var r reply
		r.applied, r.now, r.err = s.Apply(ctx, a.Item, a.Tries, &r.state)
		q.Answered(&r)
	}()
	return true
}

// reply is an [Answer].
type reply struct {
	state   plan.Cells
	applied int
	now     int64
	err     error
}

func (r *reply) Read(state *plan.Cells) (int, int64, error) {
	state.CopyFrom(&r.state)
	return r.applied, r.now, r.err
}

// bench is a pipeline on a store, in a bubble of time.
type bench struct {
	*testing.T
	*Pipeline
	store *items
	step  atomic.Int64 // of this machine's clock, as if it had been set
}

// inBubble runs a test where time costs nothing, on a store that has to be waited
// for and on one that has not. Every goroutine of the pipeline must have ended by
// its end.
func inBubble(t *testing.T, o Options, test func(b *bench)) {
	t.Helper()
	inBubbleOn(t, o, func(s *items) Applier { return s }, test)
	inBubbleOn(t, o, func(s *items) Applier { return gatherer{s} }, test)
}

func inBubbleOn(t *testing.T, o Options, as func(*items) Applier, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t}
		b.store = &items{now: func() int64 { return time.Now().UnixNano() + b.step.Load() }, by: map[plan.Key]*plan.Cells{}, ring: map[plan.Key][]uint64{}}
		o.Store, o.Clock = as(b.store), b.store.now
		o.Keep = func(plan.Key) time.Duration { return time.Hour }
		o.Errors = Errors{OutcomeUnknown: errUnknown, Unreachable: errUnreachable, Throttled: errThrottled, Busy: errBusy, Open: errOpen}
		if o.Deadline == 0 {
			o.Deadline = 100 * time.Millisecond
		}
		if o.Gap == 0 {
			o.Gap = 8 * time.Millisecond
		}
		b.Pipeline = New(o)
		b.asked.Store(true) // the first call's longer deadline has its own test
		test(b)
	})
}

func key(id string) plan.Key { return plan.NewKey("account", id) }

// ask takes n of one limit, under the pipeline's deadline.
func (b *bench) ask(item plan.Key, s *plan.Spec, n int64) (plan.Verdict, error) {
	return b.askAs(b.Context(), item, s, n, false)
}

func (b *bench) askAs(ctx context.Context, item plan.Key, s *plan.Spec, n int64, keep bool) (plan.Verdict, error) {
	verdicts := make([]plan.Verdict, 1)
	if _, err := b.Take(ctx, b.Until(1), item, []Ask{{Spec: s, Cost: n}}, keep, verdicts); err != nil {
		return plan.Verdict{}, err // verdicts are the pipeline's for as long as the call goes on
	}
	return verdicts[0], nil
}

// must is ask without an error, and reports whether it was allowed.
func (b *bench) must(item plan.Key, s *plan.Spec, n int64) bool {
	b.Helper()
	v, err := b.ask(item, s, n)
	if err != nil {
		b.Fatal(err)
	}
	return v.OK
}

// used is what the store holds.
func (b *bench) used(item plan.Key, s *plan.Spec) int64 {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	it := b.store.by[item]
	if it == nil {
		return 0
	}
	return s.Look(it, b.store.now(), 1).Used
}

// trip checks how many trips a func needs.
func (b *bench) trip(want int, what string, f func()) {
	b.Helper()
	before := b.store.trips()
	f()
	if n := b.store.trips() - before; n != want {
		b.Errorf("%s: %d trips, want %d", what, n, want)
	}
}

// contextFor ends after a time.
func contextFor(b *bench, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context(), d)
}

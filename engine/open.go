package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
)

// A call whose outcome is open may still give back what it took: a limit that
// counts only success is then not used up, but held. Who is refused meanwhile is
// told so, and to come back in a second instead of at the window's end.
//
// Only calls of this process are known, which is enough: a refusal that is not
// marked is merely more careful than it has to be.

// Bounds of what is remembered of open calls.
const (
	openShards = 32
	maxOpen    = 2048             // counters of one shard
	openFor    = 15 * time.Minute // after the last call that took; an edge that forgot to settle holds no longer
	heldWait   = time.Second      // after which a refused caller may try again
)

// openCalls counts the open calls of every counter.
type openCalls struct {
	any    atomic.Int64 // counters with open calls: 0 keeps refusals from looking
	shards [openShards]openShard
}

type openShard struct {
	mu sync.Mutex
	of map[counter]openCount
}

// counter is what a limit counts of one item.
type counter struct {
	key    weir.Key
	limit  string
	shadow bool
}

func (v *Verdict) counter() counter { return counter{v.Key, v.Limit.Name(), v.Shadow} }
func counterOf(op *weir.Op) counter { return counter{op.Key, op.Limit.Name(), op.Shadow} }

type openCount struct {
	calls int
	units int64 // of those whose cost is not known yet
	asked bool  // somebody has left units out of a count, and could so have missed a mark
	at    int64 // Unix ns of the last one that began
}

func (o *openCalls) shard(c counter) *openShard { return &o.shards[c.key.Hash()%openShards] }

// add notes calls, and units that are held, or about to be. It reports false when
// there is no room to note it.
func (o *openCalls) add(c counter, calls int, units, now int64) bool {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.of[c]
	if !known && len(s.of) >= maxOpen && !s.forget(o, now) {
		return false
	}
	if !known {
		o.any.Add(1)
	}
	if s.of == nil {
		s.of = map[counter]openCount{}
	}
	s.of[c] = openCount{n.calls + calls, n.units + units, n.asked, now}
	return true
}

// forget drops a counter whose calls nobody will end, and reports whether there
// was one.
func (s *openShard) forget(o *openCalls, now int64) bool {
	for c, n := range s.of {
		if now-n.at > int64(openFor) {
			delete(s.of, c)
			o.any.Add(-1)
			return true
		}
	}
	return false
}

// drop notes that calls have ended, and that units are held no more. asked says
// that somebody has left some of these out meanwhile.
func (o *openCalls) drop(c counter, calls int, units int64) (asked bool) {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.of[c]
	if !known {
		return false // forgotten
	}
	asked = units > 0 && n.asked
	n.calls, n.units = max(n.calls-calls, 0), max(n.units-units, 0)
	n.asked = n.asked && n.units > 0
	if n.calls == 0 && n.units == 0 {
		delete(s.of, c)
		o.any.Add(-1)
		return asked
	}
	s.of[c] = n
	return asked
}

// units are what open calls hold, beside own units of who asks.
func (o *openCalls) units(c counter, own, now int64) int64 {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.of[c]
	if now-n.at > int64(openFor) || n.units <= own {
		return 0
	}
	n.asked = true
	s.of[c] = n
	return n.units - own
}

func (o *openCalls) has(c counter, now int64) bool {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.of[c]
	return known && n.calls > 0 && now-n.at <= int64(openFor)
}

// open notes that the outcome of a served call is open, for every limit that may get
// back what it took.
func (o *Outcome) open() {
	for i := int(o.first); i < len(o.Verdicts); i++ {
		if v := &o.Verdicts[i]; v.mayComeBack() {
			v.open = o.st.engine.open.add(v.counter(), 1, 0, o.at())
		}
	}
}

// close notes that nothing more of the call comes back.
func (o *Outcome) close(ctx context.Context) {
	if o.held == nil {
		return
	}
	for i := int(o.first); i < len(o.Verdicts); i++ {
		v := &o.Verdicts[i]
		if v.open {
			v.open = false
			o.st.engine.open.drop(v.counter(), 1, 0)
		}
		o.free(ctx, v)
	}
}

// mayComeBack reports whether the end of the call decides what it costs.
func (v *Verdict) mayComeBack() bool { return v.Rule.Settled() && v.Allowed && !v.Shadow }

// markHeld says of every limit that refuses whether calls under way hold what it
// may get back.
func (o *Outcome) markHeld() {
	if o.st.engine.open.any.Load() == 0 {
		return
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Reason == weir.ReasonLimit && !v.Shadow && v.Rule.Settled() && o.st.engine.open.has(v.counter(), o.at()) {
			v.Reason, v.RetryAfter = weir.ReasonInFlight, min(v.RetryAfter, heldWait)
		}
	}
}

// Release says that nobody will say how the call ended: what it took stays
// counted. An edge calls it where neither [Outcome.Settle] nor
// [Outcome.GiveBack] can follow; after them it does nothing.
func (o *Outcome) Release() {
	if !o.judged && o.held != nil && o.unfinished() {
		_ = o.settle(context.Background(), nil) // an error is logged
	}
	o.judged = true
	o.close(context.Background())
}

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

type openCount struct {
	calls int
	units int64 // of those whose cost is not known yet
	at    int64 // Unix ns of the last one that began
}

func (o *openCalls) shard(c counter) *openShard { return &o.shards[c.key.Hash()%openShards] }

// begin notes a call that has taken so many units. It reports false when there is no room to note it.
func (o *openCalls) begin(c counter, units, now int64) bool {
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
	s.of[c] = openCount{n.calls + 1, n.units + units, now}
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

// shed notes that units of a call are open no more: its cost is known, or about to be.
func (o *openCalls) shed(c counter, units int64) {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.of[c]; known {
		n.units = max(n.units-units, 0)
		s.of[c] = n
	}
}

// units are what open calls hold.
func (o *openCalls) units(c counter, now int64) int64 {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.of[c]; now-n.at <= int64(openFor) {
		return n.units
	}
	return 0
}

func (o *openCalls) end(c counter) {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.of[c]
	switch {
	case !known: // forgotten
	case n.calls > 1:
		n.calls--
		s.of[c] = n
	default:
		delete(s.of, c)
		o.any.Add(-1)
	}
}

func (o *openCalls) has(c counter, now int64) bool {
	s := o.shard(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.of[c]
	return known && now-n.at <= int64(openFor)
}

// open notes that the outcome of a served call is open, for every limit that may get
// back what it took, and for those with marks, which what comes back must not reach.
func (o *Outcome) open() {
	for i := int(o.first); i < len(o.Verdicts); i++ {
		v := &o.Verdicts[i]
		if (v.mayComeBack() || v.marked()) && o.eng.open.begin(v.counter(), v.Cost, o.at()) {
			v.units = v.Cost
			v.open, o.opened = true, true
		}
	}
}

// close notes that nothing more of the call comes back.
func (o *Outcome) close() {
	if !o.opened {
		return
	}
	o.opened = false
	for i := int(o.first); i < len(o.Verdicts); i++ {
		if v := &o.Verdicts[i]; v.open {
			v.open = false
			o.eng.open.end(v.counter())
		}
	}
}

// shed notes that the call's own units are open no more, and returns what says how
// many others hold: nil where no limit has marks.
func (o *Outcome) shed() func(op int) int64 {
	verdicts := o.Verdicts[o.first:]
	var others []counter
	for i := range verdicts {
		v := &verdicts[i]
		if v.open && v.marked() {
			o.eng.open.shed(v.counter(), v.units)
			v.units = 0
		}
		if v.marked() && others == nil {
			others = make([]counter, len(verdicts))
		}
		if v.marked() {
			others[i] = v.counter()
		}
	}
	if others == nil {
		return nil
	}
	e := o.eng
	return func(op int) int64 {
		if op >= len(others) { // that of the request's id
			return 0
		}
		return e.open.units(others[op], e.now())
	}
}

// marked reports whether the call may reach a mark of the limit.
func (v *Verdict) marked() bool { return v.Allowed && len(v.Rule.NotifyAt) > 0 }

// mayComeBack reports whether the end of the call decides what it costs.
func (v *Verdict) mayComeBack() bool { return v.Rule.Settled() && v.Allowed && !v.Shadow }

// markHeld says of every limit that refuses whether calls under way hold what it
// may get back.
func (o *Outcome) markHeld() {
	if o.eng.open.any.Load() == 0 {
		return
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Reason == weir.ReasonLimit && !v.Shadow && v.Rule.Settled() && o.eng.open.has(v.counter(), o.at()) {
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
	o.close()
}

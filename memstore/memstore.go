// Package memstore keeps items in this process: for limits of one instance, for
// tests, and for an edge's own rules.
//
// A Limiter decides under an item's lock and allocates nothing for a key that
// is already there. Keys are exact, never merely hashed. Memory is bounded:
// items that hold nothing any more go first, and only if that is not enough an
// item goes that still does, the one nearest to being full again. Such a loss
// lets a caller start over with a full limit, so it is counted and reported.
package memstore

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/table"
)

// Options of a Store. The zero value is right for most uses.
type Options struct {
	// MaxKeys bounds the number of items. The default is 1,048,576.
	MaxKeys int
	// MaxBytes bounds the memory of items and keys, approximately. The default
	// is 512 MiB.
	MaxBytes int64
	// Now is the time in Unix nanoseconds, 0 or more. It must be safe for concurrent use.
	// The default is the wall clock at start, moved on by the monotonic clock.
	Now func() int64
	// Lost, if set, is called when items are dropped that still held something,
	// with the number of all that were so far: at the first, and then whenever
	// the number has doubled. Raise MaxKeys or MaxBytes then.
	Lost func(total uint64)
}

// Store is a weir.Store in memory. It is safe for concurrent use.
type Store struct {
	now     func() int64 // nil: the machine's
	base    time.Time    // and then the start, as the wall clock
	wall    int64        // said then
	lost    func(uint64)
	dropped atomic.Uint64
	evicted atomic.Uint64
	shards  []shard // one, or 1<<shardBits
	records records
}

const (
	shardBits = 6
	shardKeys = 1 << 16 // smaller stores have one shard, so that its bound is exact
)

var (
	_ weir.Store     = (*Store)(nil)
	_ weir.InProcess = (*Store)(nil)
	_ weir.Records   = (*Store)(nil)
)

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1 << 20
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 512 << 20
	}
	base := time.Now()
	s := &Store{now: o.Now, base: base, wall: base.UnixNano(), lost: o.Lost, shards: make([]shard, 1)}
	if o.MaxKeys >= shardKeys {
		s.shards = make([]shard, 1<<shardBits)
	}
	for i := range s.shards {
		s.shards[i].MaxKeys = o.MaxKeys / len(s.shards)
		s.shards[i].MaxBytes = o.MaxBytes / int64(len(s.shards))
	}
	return s
}

// shard is a table with its lock. What every call writes is one cache line, with the
// lock that it waits for; what it reads stays on others, where no call takes it from
// another processor. In one line with `last` two of them took half as long again.
type shard struct {
	sync.Mutex
	now   int64 // when the last one was locked
	extra int   // what the locked one held when it was locked
	isNew bool  // a key without entry is locked
	_     [32]byte

	last   *table.Entry // the entry that was locked last, and often is next; nil after an Insert, which may drop it
	number uint32       // of last
	table.Table
	_ [16]byte

	fresh weir.Cells // the state of a locked key without entry: it gets one only when something is to be remembered, so that looks and refusals push nobody out
	_     [24]byte   // to 320, so that all begin alike
}

func (s *Store) shard(item weir.Key) *shard {
	return &s.shards[item.Hash()>>(64-shardBits)&uint64(len(s.shards)-1)]
}

// Caps says that the store has its own clock and keeps items for ever.
func (s *Store) Caps() weir.Caps { return weir.Caps{OwnClock: true} }

// Lock implements weir.InProcess. An item never sees readings of the clock out
// of order. Reading it takes longer than all else here, so the machine's clock,
// which never goes back, is read before the lock: whoever has waited in between
// is at the time of the one before. Another clock is read under the lock.
func (s *Store) Lock(item weir.Key) (*weir.Cells, int64) {
	sh := s.shard(item)
	if s.now != nil {
		sh.Lock()
		sh.now = s.now()
	} else {
		now := s.wall + int64(time.Since(s.base))
		sh.Lock()
		sh.now = max(sh.now, now)
	}
	if e := sh.last; e != nil && e.Key == item {
		sh.extra = e.Cells.Extra()
		return &e.Cells, sh.now
	}
	n, e := sh.Use(item)
	if e == nil {
		sh.isNew = true
		return &sh.fresh, sh.now
	}
	sh.last, sh.number, sh.extra = e, n, e.Cells.Extra()
	return &e.Cells, sh.now
}

// Unlock implements weir.InProcess.
func (s *Store) Unlock(item weir.Key) {
	sh := s.shard(item)
	if sh.isNew {
		s.keep(item, sh)
		return
	}
	cells := &sh.last.Cells
	if cells.Empty() {
		sh.Remove(sh.number, sh.extra)
		sh.last = nil
	} else if has := cells.Extra(); has != 0 { // it never gets less
		sh.Grew(has - sh.extra)
	}
	sh.Unlock()
}

// keep gives the locked key an entry if there is something to remember.
func (s *Store) keep(item weir.Key, sh *shard) {
	sh.isNew = false
	if sh.fresh.Empty() {
		sh.Unlock()
		return
	}
	_, idle, live := sh.Insert(item, sh.fresh, sh.now)
	sh.last = nil
	sh.fresh = weir.Cells{}
	sh.Unlock()
	if idle > 0 {
		s.evicted.Add(uint64(idle))
	}
	if live > 0 {
		s.report(uint64(live))
	}
}

// report counts items that were dropped although they held something.
func (s *Store) report(lost uint64) {
	total := s.dropped.Add(lost)
	if s.lost != nil && bits.Len64(total) != bits.Len64(total-lost) {
		s.lost(total)
	}
}

// Apply implements weir.Store.
func (s *Store) Apply(_ context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (applied int, now int64, err error) {
	cells, now := s.Lock(item)
	defer s.Unlock(item)
	applied = -1
	for i := range tries {
		if tries[i].Holds(cells, now) {
			tries[i].Apply(cells, now)
			applied = i
			break
		}
	}
	state.CopyFrom(cells)
	return applied, now, nil
}

// Close does nothing: the memory goes with the Store.
func (s *Store) Close() error { return nil }

// Stats is a count of what a Store holds and has dropped.
type Stats struct {
	Keys    int
	Bytes   int64  // approximately
	Evicted uint64 // items dropped that held nothing any more
	Lost    uint64 // items dropped that still held something
}

// Stats counts. It takes every shard's lock in turn.
func (s *Store) Stats() Stats {
	st := Stats{Evicted: s.evicted.Load(), Lost: s.dropped.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		st.Keys += sh.Len()
		st.Bytes += sh.Bytes()
		sh.Unlock()
	}
	return st
}

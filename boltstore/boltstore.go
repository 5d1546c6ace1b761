// Package boltstore keeps items in memory and in one file, for limits of one
// process that must outlast it.
//
// Decisions are made in memory, as in package memstore, and are written behind:
// what changed is collected and goes to the file, a bbolt database, in one
// transaction for all. The two modes differ in when a take is answered.
//
//   - [SyncInterval] answers at once and writes every half second. A process
//     that is killed, or a machine that loses power, loses at most the takes of
//     the last second, if the disk needs no more than half of it for a write:
//     that much can be taken once more, and no more than it.
//   - [SyncAlways] answers when the take is on the disk. Takes that arrive during
//     one write share the next: see docs/decisions/0006-bolt-file.md for what
//     that costs. No answered take is ever lost.
//
// Limits whose period is an hour or more deserve one of the two: a counter that
// is lost forgets the whole of its period, not the second in which it was lost.
//
// One process at a time has the file. A file that is not exactly what weir wrote,
// is refused: see [DamageError]. While the file can't be written, because the disk
// is full or memory short for example, takes fail and reads go on; that ends by itself. It ends
// with the process when the file was damaged, cut off, removed or replaced while
// it was in use: nothing is written then.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
)

// Sync says when a take is answered.
type Sync uint8

const (
	// SyncInterval: at once. It is in the file within a second while a write takes
	// half of it or less, as with some 100,000 keys that all change; with a million
	// on a busy disk four seconds were measured.
	SyncInterval Sync = iota
	SyncAlways        // when it is in the file
)

// Options of a Store. The zero value is right for most uses.
type Options struct {
	// Sync says when a take is answered.
	Sync Sync
	// Prefix stands before every key in the file. Items of other prefixes, and
	// those whose key is none without it, stay in the file as they are.
	Prefix string
	// MaxKeep, if not 0, is the longest period of a limit that the store accepts.
	MaxKeep time.Duration
	// MaxKeys bounds the number of items. The default is 4,194,304. A file that
	// holds more opens nevertheless, and then there is room for an eighth more.
	MaxKeys int
	// MaxBytes bounds the memory of items and keys, those of other prefixes in
	// the same packs of the file included, approximately, in the same way, and
	// not that of records. The default is 1 GiB.
	MaxBytes int64
	// Now is the time in Unix nanoseconds. It must be safe for concurrent use.
	// The default is the wall clock at start, moved on by the monotonic clock.
	Now func() int64
	// Lost, if set, is called when items are dropped that still held something,
	// with the number of all that were so far: at the first, and then whenever
	// the number has doubled. Raise MaxKeys or MaxBytes then.
	Lost func(total uint64)
}

const (
	shardBits = 6
	shardKeys = 1 << 16 // smaller stores have one shard, so that its bound is exact
)

// Store is a weir.Store in a file. It is safe for concurrent use.
type Store struct {
	path    string
	prefix  string
	always  bool
	caps    weir.Caps
	lost    func(uint64)
	bounds  Options
	clock   clock
	names   *names
	shards  []shard // a power of two of them
	shift   uint8   // of a hash, to its shard
	db      *file
	one     bool // whether the file had one whole root only
	records records
	broken  atomic.Pointer[error] // why nothing can be taken now
	dropped atomic.Uint64
	evicted atomic.Uint64
	writer
}

var (
	_ weir.Store   = (*Store)(nil)
	_ weir.Records = (*Store)(nil)
)

// Open opens the store of a file, and makes the file if there is none. Errors
// are *[HeldError] when the file is in use, *[DamageError] when it is not what
// weir wrote, and otherwise that the file is another version's, or those of the
// file system.
func Open(path string, o Options) (*Store, error) {
	if strings.ContainsRune(path, 0) || path == "" {
		return nil, fmt.Errorf("boltstore: %q can't be the name of a file", path)
	}
	if len(o.Prefix) > weir.MaxKey {
		return nil, fmt.Errorf("boltstore: a prefix of %d bytes is too long: at most %d", len(o.Prefix), weir.MaxKey)
	}
	if err := create(path); err != nil {
		return nil, err
	}
	// Between the reading and the writing another process may get hold of the
	// file: then what was read is stale.
	for range 3 {
		s := newStore(path, o)
		is, err := s.load()
		if err != nil {
			return nil, err
		}
		if s.db, err = writing(path); err != nil {
			return nil, err
		}
		if s.db.txid == int(is.newest.txid) { // bbolt has it as an int, which may be shorter than what it writes
			s.one, s.db.uneven = is.broken, !is.even
			_ = os.Remove(compacting(path)) // of a process that was killed while it wrote
			s.startWriter()
			return s, nil
		}
		if err = s.db.release(); err != nil {
			return nil, fmt.Errorf("boltstore: %s: %w", path, err)
		}
	}
	return nil, held(path)
}

func newStore(path string, o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1 << 22
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	return &Store{
		path: path, prefix: o.Prefix, always: o.Sync == SyncAlways, lost: o.Lost, bounds: o,
		caps:  weir.Caps{OwnClock: true, MaxKeep: o.MaxKeep},
		clock: newClock(o.Now),
	}
}

// start makes room for what a file holds.
func (s *Store) start(n *names) {
	s.names = n
	s.shards, s.shift = make([]shard, 1), 64
	if s.bounds.MaxKeys >= shardKeys {
		s.shards, s.shift = make([]shard, 1<<shardBits), 64-shardBits
	}
	for i := range s.shards {
		s.shards[i].start(n, s.bounds.MaxKeys/len(s.shards), s.bounds.MaxBytes/int64(len(s.shards)))
	}
}

func (s *Store) shard(item weir.Key) *shard {
	return &s.shards[item.Hash()>>s.shift]
}

// Caps says that the store has its own clock, and for how long it keeps items.
func (s *Store) Caps() weir.Caps { return s.caps }

// Apply implements weir.Store. With [SyncAlways] it waits until the file holds
// the write; when that fails or ctx ends first the outcome is unknown: the write
// counts in this process, and may or may not after its end.
func (s *Store) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (applied int, now int64, err error) {
	if err := ctx.Err(); err != nil {
		return -1, 0, err
	}
	if err := s.broken.Load(); err != nil && (len(tries) > 0 || *err == errClosed) {
		return -1, 0, *err
	}
	applied = -1
	sh := s.shard(item)
	sh.Lock()
	now = s.clock.now()
	cells := sh.lock(item, now)
	for i := range tries {
		if tries[i].Holds(cells, now) {
			tries[i].Apply(cells, now)
			applied = i
			break
		}
	}
	state.CopyFrom(cells)
	idle, live := sh.unlock(item, applied >= 0)
	sh.Unlock()
	s.count(idle, live)
	if applied >= 0 && s.always {
		if err := s.written(ctx); err != nil {
			return -1, 0, unknown(err)
		}
	}
	return applied, now, nil
}

// count counts items that were dropped, and tells of those that held something.
func (s *Store) count(idle, live int) {
	if idle > 0 {
		s.evicted.Add(uint64(idle))
	}
	if live > 0 {
		n := uint64(live)
		total := s.dropped.Add(n)
		if s.lost != nil && bits.Len64(total) != bits.Len64(total-n) {
			s.lost(total)
		}
	}
}

// Flush writes what is not in the file yet, and returns when it is.
func (s *Store) Flush(ctx context.Context) error { return s.written(ctx) }

// Warnings says what whoever runs the store should know of its file.
func (s *Store) Warnings() (list []string) {
	if s.one {
		list = append(list, s.path+" "+oneRoot)
	}
	switch round := func(d int64) time.Duration { return time.Duration(d).Round(time.Second) }; {
	case s.clock.lead != 0:
		list = append(list, fmt.Sprintf("%s was last written at a time that is %s ahead of this machine's clock, which went back; refilling runs at half speed until the clock has caught up",
			s.path, round(s.clock.lead)))
	case s.clock.back != 0:
		list = append(list, fmt.Sprintf("%s was last written at a time that is %s ahead of this machine's clock, which went back by more than a day: limits whose window is of a calendar, and sliding ones, start over",
			s.path, round(s.clock.back)))
	}
	return list
}

// Close writes what is not in the file yet and gives the file free. An error
// means that the file may lack the takes of the last second.
func (s *Store) Close() error {
	if s.closed() != nil {
		return nil
	}
	err := s.stopWriter()
	s.broken.Store(&errClosed)
	return errors.Join(err, s.db.Close())
}

// closed is errClosed after Close.
func (s *Store) closed() error {
	if err := s.broken.Load(); err != nil && *err == errClosed {
		return errClosed
	}
	return nil
}

// Stats is a count of what a Store holds and has done.
type Stats struct {
	Keys    int
	Bytes   int64  // of memory, approximately
	Evicted uint64 // items dropped that held nothing any more
	Lost    uint64 // items dropped that still held something
	Commits uint64 // transactions; each waits for the disk twice
	Written uint64 // packs of items, and records, that they held
}

// Stats counts. It takes every shard's lock in turn.
func (s *Store) Stats() Stats {
	st := Stats{Evicted: s.evicted.Load(), Lost: s.dropped.Load(), Commits: s.commits.Load(), Written: s.changes.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		st.Keys += sh.Len()
		st.Bytes += sh.Bytes()
		sh.Unlock()
	}
	return st
}

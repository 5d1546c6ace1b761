package boltstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	flushEvery = time.Second / 2 // together with the write itself within a second, if that takes no longer
	retryEvery = time.Second / 4 // while the file can't be written
	stallAfter = 5 * time.Second // of one transaction: then takes fail until all is written
	gatherFor  = 2 * time.Millisecond
	sweepIn    = 120     // flushes in which all items are looked at for idle ones
	perCommit  = 1 << 12 // packs in one transaction
	maxWords   = 1 << 24 // bytes of memory that are kept for the next
)

// writer is the part of a Store that writes: one goroutine, one transaction at a
// time. Whoever needs to know that a change is in the file joins the next batch
// and waits for its end.
type writer struct {
	commits, changes atomic.Uint64

	mu     sync.Mutex
	next   *batch
	expect int // how many may want to write now: those of the last batch, and those who came during it

	kick chan struct{} // somebody has joined
	full chan struct{} // as many as were expected have
	quit chan struct{}
	gone chan struct{} // the goroutine has ended; last is set
	last error

	packs    packs
	steps    []step   // of a commit
	words    []byte   // memory for the packs of a transaction
	list     []packed // as well
	over     []string // keys of records whose time is over
	overFrom string   // where the next look for such records starts
	lastTook time.Duration
}

// batch is those who wait for one commit.
type batch struct {
	size int
	puts []*put
	done chan struct{}
	err  error // set before done is closed
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

func (s *Store) startWriter() {
	s.next = newBatch()
	s.kick, s.full = make(chan struct{}, 1), make(chan struct{}, 1)
	s.quit, s.gone = make(chan struct{}), make(chan struct{})
	go s.write()
}

func (s *Store) stopWriter() error {
	close(s.quit)
	<-s.gone
	return s.last
}

// written returns when all changes that were made before the call are in the file.
func (s *Store) written(ctx context.Context) error { return s.join(ctx, nil) }

func (s *Store) join(ctx context.Context, p *put) error {
	s.mu.Lock()
	b := s.next
	b.size++
	if p != nil {
		b.puts = append(b.puts, p)
	}
	size := b.size
	expect := s.expect
	s.mu.Unlock()
	if size == 1 {
		signal(s.kick)
	}
	if size == expect {
		signal(s.full)
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gone:
	}
	select {
	case <-b.done:
		return b.err
	default:
		return errClosed
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write is the writer's goroutine.
func (s *Store) write() {
	defer close(s.gone)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var retry <-chan time.Time
	for {
		select {
		case <-s.kick:
			s.gather()
		case <-tick.C:
			s.sweep()
		case <-retry:
		case <-s.quit:
			s.last = s.flush()
			return
		}
		retry = nil
		if s.flush() != nil {
			retry = time.After(retryEvery)
		}
	}
}

// gather waits a moment, at most as long as a commit takes, for those who were
// answered by the last one: a batch of all of them costs no more than one of the
// first.
func (s *Store) gather() {
	s.mu.Lock()
	missing := s.next.size < s.expect
	s.mu.Unlock()
	if !missing {
		return
	}
	select {
	case <-s.full:
	case <-time.After(min(s.lastTook, gatherFor)):
	}
}

// flush writes all that is not in the file and answers those who wait for it.
func (s *Store) flush() error {
	s.mu.Lock()
	b := s.next
	s.next = newBatch()
	s.mu.Unlock()

	began := time.Now()
	b.err = s.judge(s.commit(b.puts))
	s.lastTook = time.Since(began)
	s.mu.Lock()
	s.expect = b.size + s.next.size
	select {
	case <-s.full: // of an earlier expectation
	default:
	}
	s.mu.Unlock()
	close(b.done)
	return b.err
}

// commit writes everything that is dirty. Also when nothing is it looks whether
// the file is still what it was.
func (s *Store) commit(puts []*put) error {
	for i := range s.shards {
		s.shards[i].collect(i, &s.packs, s.clock.now)
	}
	s.steps = s.packs.steps(s.steps[:0], perCommit)
	over := s.over
	s.over = nil
	var err error
	for rest, first := s.steps, true; first || len(rest) > 0; first = false {
		some := rest[:min(perCommit, len(rest))]
		if err = s.transact(some, puts, over); err != nil {
			s.over = over
			break
		}
		rest, puts, over = rest[len(some):], nil, nil
	}
	s.packs.dirty = slices.DeleteFunc(s.packs.dirty, func(number uint32) bool {
		is := s.packs.all[number]
		return is == nil || !is.dirty
	})
	return err
}

// transact is one transaction: all of it is in the file afterwards, or nothing.
func (s *Store) transact(steps []step, puts []*put, over []string) error {
	// For each one anew: a write of many is no disk that hangs.
	defer time.AfterFunc(stallAfter, s.stall).Stop()
	var t *transaction
	var from, to int
	var now int64
	s.list = s.list[:0]
	err := s.db.Update(func(tx *bolt.Tx) (err error) {
		if t, err = begin(tx); err != nil {
			return err
		}
		words := s.words[:0]
		for _, is := range steps {
			var p packed
			words, p = s.encode(words, is)
			s.list = append(s.list, p)
		}
		if s.words = words; cap(words) > maxWords {
			s.words = nil
		}
		for _, p := range s.list {
			if err := t.put(bucketItems, numberKey(p.number), p.payload); err != nil {
				return err
			}
		}
		var newNames []name
		from, newNames = s.names.unsaved()
		to = from + len(newNames)
		for i, n := range newNames {
			if err := t.put(bucketNames, numberKey(uint32(from+i)), []byte(n.text)); err != nil {
				return err
			}
		}
		now = s.clock.now()
		for _, p := range puts {
			if err := p.do(t, now); err != nil {
				return err
			}
		}
		if err := t.expire(over, now); err != nil {
			return err
		}
		if t.changes == 0 {
			return errNothing
		}
		t.head.seen = now
		return t.head.save(tx)
	})
	if err != nil && !errors.Is(err, errNothing) {
		return err
	}
	s.records.written(puts, over, now)
	for _, p := range s.list {
		s.packs.written(p.number, p.old, len(p.payload))
	}
	if err == nil {
		s.names.save(to)
		s.commits.Add(1)
		s.changes.Add(t.changes)
	}
	return nil
}

// errNothing ends a transaction that would change nothing.
var errNothing = errors.New("nothing to write")

// transaction keeps the header true while values change.
type transaction struct {
	tx      *bolt.Tx
	head    head
	changes uint64
}

func begin(tx *bolt.Tx) (*transaction, error) {
	b := tx.Bucket(bucketHead)
	if b == nil {
		return nil, errDamaged
	}
	h, err := decodeHead(b.Get(keyHead))
	if err != nil {
		return nil, errDamaged
	}
	return &transaction{tx: tx, head: h}, nil
}

func (h *head) save(tx *bolt.Tx) error { return tx.Bucket(bucketHead).Put(keyHead, h.encode()) }

// put stores a value, or removes it when the payload is nil. One that is the
// same stays.
func (t *transaction) put(bucket, k, payload []byte) error {
	b := t.tx.Bucket(bucket)
	if b == nil {
		return errDamaged
	}
	n := t.head.counter(bucket)
	if old := b.Get(k); old != nil {
		was, sum, ok := unseal(bucket[0], k, old)
		if !ok {
			return errDamaged
		}
		if payload != nil && bytes.Equal(was, payload) {
			return nil
		}
		t.head.sum -= sum
		*n--
	} else if payload == nil {
		return nil
	}
	t.changes++
	if payload == nil {
		return b.Delete(k)
	}
	value, sum := stored(bucket[0], k, payload)
	t.head.sum += sum
	*n++
	return b.Put(k, value)
}

func (h *head) counter(bucket []byte) *uint64 {
	switch bucket[0] {
	case bucketNames[0]:
		return &h.names
	case bucketItems[0]:
		return &h.packs
	}
	return &h.records
}

// stall makes takes fail while a commit hangs.
func (s *Store) stall() {
	err := writeError(s.path, errStalled)
	s.broken.CompareAndSwap(nil, &err)
}

var errStalled = errors.New("the disk has not answered for five seconds")

// judge makes takes fail after a commit that did, and lets them pass after one
// that did not. It returns why they fail.
func (s *Store) judge(err error) error {
	if err == nil {
		s.broken.Store(nil)
		return nil
	}
	if errors.Is(err, errDamaged) {
		err = &DamageError{s.path, "was damaged while it was in use (" + err.Error() + ")"}
	} else {
		err = writeError(s.path, err)
	}
	s.broken.Store(&err)
	return err
}

// sweep looks at some of the items, so that those which mean nothing any more
// leave memory and file although nobody asks for others.
func (s *Store) sweep() {
	idle := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		idle += sh.Sweep(s.clock.now(), sh.Len()/sweepIn+1)
		sh.Unlock()
	}
	s.count(idle, 0)
	s.sweepRecords()
}

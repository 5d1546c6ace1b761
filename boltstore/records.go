package boltstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlabs/weir"
)

// Records are written in the writer's transactions: a Put returns when the file
// has it, in either mode. They are read from memory, where all of a store's
// prefix are: no caller has to wait for the file, or for a part of it that can't
// be read any more.
type records struct {
	mu   sync.RWMutex
	by   map[string]record
	keys []string // in order
}

// get gives what is there and is not over.
func (r *records) get(key string, now int64) (is record, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	is, ok = r.by[key]
	return is, ok && !is.over(now)
}

// load takes up a record of the file, whose keys come in order.
func (r *records) load(key, prefix string, is record) {
	if strings.HasPrefix(key, prefix) {
		is.value = bytes.Clone(is.value)
		r.set(key, is)
	}
}

func (r *records) set(key string, is record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]record{}
	}
	if _, ok := r.by[key]; !ok {
		i, _ := slices.BinarySearch(r.keys, key)
		r.keys = slices.Insert(r.keys, i, key)
	}
	r.by[key] = is
}

// remove removes a record, unless there is a newer one by now.
func (r *records) remove(key string, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is, ok := r.by[key]; ok && is.over(now) {
		delete(r.by, key)
		if i, found := slices.BinarySearch(r.keys, key); found {
			r.keys = slices.Delete(r.keys, i, i+1)
		}
	}
}

// written takes up what a transaction has left in the file. That of a conflict is
// the file's too: it has what memory has not when an earlier commit was called a
// failure, and was none.
func (r *records) written(puts []*put, over []string, now int64) {
	for _, p := range puts {
		if p.found {
			r.set(p.key, p.record)
		}
	}
	for _, key := range over {
		r.remove(key, now)
	}
}

// Get implements weir.Records.
func (s *Store) Get(_ context.Context, key string) (value []byte, version string, err error) {
	if err := s.closed(); err != nil {
		return nil, "", err
	}
	r, ok := s.records.get(s.prefix+key, s.clock.now())
	if !ok {
		return nil, "", nil
	}
	return append([]byte{}, r.value...), r.text(), nil
}

// readRecord reads a stored value; an absent one is none, and so is one that is
// not what was written.
func readRecord(key, value []byte) (record, bool) {
	payload, _, ok := unseal(bucketRecords[0], key, value)
	if !ok {
		return record{}, false
	}
	return decodeRecord(payload)
}

func (r *record) text() string { return strconv.FormatUint(r.version, 10) }

const (
	maxRecordKey = 16 << 10
	maxRecord    = 16 << 20
)

// put is a Put that waits for its transaction.
type put struct {
	key       string
	value     []byte
	ifVersion string
	expiresAt int64
	conflict  bool // the answer
	found     bool // whether the file has a record of the key then, which is
	record    record
}

// do compares and stores, in a transaction that may still fail.
func (p *put) do(t *transaction, now int64) error {
	version := ""
	k := []byte(p.key)
	if p.record, p.found = readRecord(k, t.tx.Bucket(bucketRecords).Get(k)); p.found && !p.record.over(now) {
		version = p.record.text()
	}
	if p.conflict = version != p.ifVersion; p.conflict {
		p.record.value = bytes.Clone(p.record.value)
		return nil
	}
	t.head.version++
	p.record, p.found = record{t.head.version, p.expiresAt, p.value}, true
	return t.put(bucketRecords, k, p.record.encode())
}

// Put implements weir.Records. It returns when the file has the record.
func (s *Store) Put(ctx context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key == "" || len(key) > maxRecordKey || len(value) > maxRecord {
		return fmt.Errorf("boltstore: a record needs a key of 1 to %d bytes and a value of at most %d, and has %d and %d", maxRecordKey, maxRecord, len(key), len(value))
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	p := &put{key: s.prefix + key, value: bytes.Clone(value), ifVersion: ifVersion}
	if !expiresAt.IsZero() {
		p.expiresAt = expiresAt.UnixNano()
	}
	if err := s.join(ctx, p); err != nil {
		return unknown(err)
	}
	if p.conflict {
		return weir.ErrConflict
	}
	return nil
}

// List implements weir.Records, in the order of the keys.
func (s *Store) List(_ context.Context, prefix, cursor string, limit int) (keys []string, next string, err error) {
	if err := s.closed(); err != nil {
		return nil, "", err
	}
	now := s.clock.now()
	r := &s.records
	r.mu.RLock()
	defer r.mu.RUnlock()
	prefix, cursor = s.prefix+prefix, s.prefix+cursor
	i, _ := slices.BinarySearch(r.keys, max(prefix, cursor))
	for _, key := range r.keys[i:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if is := r.by[key]; is.over(now) || key == cursor && cursor != s.prefix {
			continue
		}
		if limit > 0 && len(keys) == limit {
			return keys, keys[limit-1], nil
		}
		keys = append(keys, strings.TrimPrefix(key, s.prefix))
	}
	return keys, "", nil
}

// sweepRecords notes some of the records whose time is over, for the next
// transaction to remove.
func (s *Store) sweepRecords() {
	const some = 1000
	now := s.clock.now()
	r := &s.records
	r.mu.RLock()
	defer r.mu.RUnlock()
	i, _ := slices.BinarySearch(r.keys, s.overFrom)
	end := min(i+some, len(r.keys))
	for _, key := range r.keys[i:end] {
		if is := r.by[key]; is.over(now) {
			s.over = append(s.over, key)
		}
	}
	s.overFrom = ""
	if end < len(r.keys) {
		s.overFrom = r.keys[end]
	}
}

// expire removes records whose time is over, if it still is.
func (t *transaction) expire(keys []string, now int64) error {
	for _, key := range keys {
		k := []byte(key)
		if r, ok := readRecord(k, t.tx.Bucket(bucketRecords).Get(k)); !ok || !r.over(now) {
			continue
		}
		if err := t.put(bucketRecords, k, nil); err != nil {
			return err
		}
	}
	return nil
}

package boltstore

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlabs/weir"
)

// Records are read from the file and written in the writer's transactions: a
// Put returns when the file has it, in either mode.

// Get implements weir.Records.
func (s *Store) Get(_ context.Context, key string) (value []byte, version string, err error) {
	err = s.view(func(b *bolt.Bucket) error {
		k := []byte(s.prefix + key)
		r, ok := readRecord(k, b.Get(k))
		if ok && !r.over(s.clock.now()) {
			value, version = append([]byte{}, r.value...), r.text()
		}
		return nil
	})
	return value, version, err
}

// view reads the records' bucket.
func (s *Store) view(look func(*bolt.Bucket) error) error {
	if err := s.broken.Load(); err != nil && err.error == errClosed {
		return errClosed
	}
	return guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) error { return look(tx.Bucket(bucketRecords)) })
	})
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
}

// do compares and stores, in a transaction that may still fail.
func (p *put) do(t *transaction, now int64) error {
	p.conflict = false
	version := ""
	k := []byte(p.key)
	if r, ok := readRecord(k, t.tx.Bucket(bucketRecords).Get(k)); ok && !r.over(now) {
		version = r.text()
	}
	if p.conflict = version != p.ifVersion; p.conflict {
		return nil
	}
	t.head.version++
	r := record{t.head.version, p.expiresAt, p.value}
	return t.put(bucketRecords, k, r.encode(), 0)
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
		return err.error
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
	from := []byte(s.prefix + prefix)
	err = s.view(func(b *bolt.Bucket) error {
		now := s.clock.now()
		c := b.Cursor()
		after := []byte(s.prefix + cursor)
		at := from
		if cursor != "" && bytes.Compare(after, from) > 0 {
			at = after
		}
		for k, v := c.Seek(at); k != nil && bytes.HasPrefix(k, from); k, v = c.Next() {
			if cursor != "" && bytes.Compare(k, after) <= 0 {
				continue
			}
			if r, ok := readRecord(k, v); !ok || r.over(now) {
				continue
			}
			if limit > 0 && len(keys) == limit {
				next = keys[limit-1]
				return nil
			}
			keys = append(keys, strings.TrimPrefix(string(k), s.prefix))
		}
		return nil
	})
	return keys, next, err
}

// sweepRecords notes some of the records whose time is over, for the next
// transaction to remove.
func (s *Store) sweepRecords() {
	const some = 1000
	// What can't be read now is looked at again the next time.
	_ = s.view(func(b *bolt.Bucket) error {
		now := s.clock.now()
		c := b.Cursor()
		n := 0
		k, v := c.Seek(s.overFrom)
		for ; k != nil && n < some; k, v = c.Next() {
			if r, ok := readRecord(k, v); ok && r.over(now) {
				s.over = append(s.over, string(k))
			}
			n++
		}
		s.overFrom = append(s.overFrom[:0], k...)
		return nil
	})
}

// expire removes records whose time is over, if it still is.
func (t *transaction) expire(keys []string, now int64) error {
	for _, key := range keys {
		k := []byte(key)
		if r, ok := readRecord(k, t.tx.Bucket(bucketRecords).Get(k)); !ok || !r.over(now) {
			continue
		}
		if err := t.put(bucketRecords, k, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

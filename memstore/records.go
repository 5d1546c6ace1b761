package memstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
)

// records is the part of a Store that is not integers. It is small and cold.
type records struct {
	mu      sync.Mutex
	by      map[string]record
	changes atomic.Uint64 // and so versions given out
}

type record struct {
	value     []byte
	version   string
	expiresAt time.Time // zero is never
}

// Get implements weir.Records.
func (s *Store) Get(_ context.Context, key string) ([]byte, string, error) {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	r := s.record(key)
	return slices.Clone(r.value), r.version, nil
}

// time is the store's now: that of a clock that was given, else the machine's.
func (s *Store) time() int64 {
	if s.now != nil {
		return s.now()
	}
	return s.wall + int64(time.Since(s.base))
}

// record returns what is there and has not expired.
func (s *Store) record(key string) record {
	r := s.records.by[key]
	if !r.expiresAt.IsZero() && !r.expiresAt.After(time.Unix(0, s.time())) {
		delete(s.records.by, key)
		return record{}
	}
	return r
}

// Put implements weir.Records.
func (s *Store) Put(_ context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	if s.record(key).version != ifVersion {
		return weir.ErrConflict
	}
	version := strconv.FormatUint(s.records.changes.Add(1), 10)
	r := record{value: slices.Clone(value), version: version, expiresAt: expiresAt}
	if s.records.by == nil {
		s.records.by = map[string]record{}
	}
	s.records.by[key] = r
	return nil
}

// RecordChanges counts what was put. While it stays, so does every record, but for
// those that expire: who has read one need not look at a clock to know that.
func (s *Store) RecordChanges() uint64 { return s.records.changes.Load() }

// List implements weir.Records.
func (s *Store) List(_ context.Context, prefix, cursor string, limit int) (keys []string, next string, err error) {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	for key := range s.records.by {
		if strings.HasPrefix(key, prefix) && key > cursor && s.record(key).version != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		next = keys[limit-1]
	}
	return keys, next, nil
}

package boltstore

import (
	"context"
	"fmt"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/table"
)

var _ weir.Lister = (*Store)(nil)

// ListKeys implements weir.Lister. All items of the file are in memory, those
// with the store's prefix without it. It takes a shard's lock for as long as it
// looks at some of its items, so that callers hardly wait.
func (s *Store) ListKeys(_ context.Context, prefix, cursor string, max int) (keys []weir.Key, next string, err error) {
	if err := s.closed(); err != nil {
		return nil, "", err
	}
	keys, next, err = table.List(len(s.shards), func(i int, do func(*table.Table)) {
		sh := &s.shards[i]
		sh.Lock()
		defer sh.Unlock()
		do(&sh.Table)
	}, prefix, cursor, max)
	if err != nil {
		return nil, "", fmt.Errorf("boltstore: %s: list keys: %w", s.path, err)
	}
	return keys, next, nil
}

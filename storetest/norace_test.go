//go:build !race

package storetest

import (
	"context"
	"testing"

	"github.com/weirlabs/weir"
)

// looseStore has no lock at all. The race detector would find it by itself.
type looseStore struct {
	now   func() int64
	items map[weir.Key]*weir.Cells
}

func (s *looseStore) Caps() weir.Caps { return weir.Caps{} }
func (s *looseStore) Close() error    { return nil }

func (s *looseStore) Apply(_ context.Context, key weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	now := s.now()
	item := s.items[key]
	if item == nil {
		item = new(weir.Cells)
		s.items[key] = item
	}
	state.CopyFrom(item)
	for i := range tries {
		if tries[i].Holds(state, now) {
			tries[i].Apply(state, now)
			item.CopyFrom(state)
			return i, now, nil
		}
	}
	return -1, now, nil
}

func TestNoLockIsFound(t *testing.T) {
	foundEveryTime(t, func(_ testing.TB, now func() int64) weir.Store {
		return &looseStore{now: now, items: map[weir.Key]*weir.Cells{}}
	})
}

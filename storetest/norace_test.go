//go:build !race

package storetest

import (
	"testing"

	"github.com/weirlabs/weir"
)

// noLock is that of a store without one. The race detector would find it by itself.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

func TestNoLockIsFound(t *testing.T) {
	foundEveryTime(t, func(_ testing.TB, now func() int64) weir.Store {
		return &looseStore{Locker: noLock{}, now: now, items: map[weir.Key]*weir.Cells{}}
	})
}

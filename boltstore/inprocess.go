package boltstore

import "github.com/weirlabs/weir"

var _ weir.InProcess = (*Store)(nil)

// Lock implements weir.InProcess. With [SyncAlways], and while the file can't be
// written, it gives no state: Apply can wait for the file, and say what is wrong
// with it.
func (s *Store) Lock(item weir.Key) (*weir.Cells, int64) {
	if s.always || s.broken.Load() != nil {
		return nil, 0
	}
	sh := s.shard(item)
	sh.Lock()
	now := s.clock.now()
	return sh.lock(item, now), now
}

// Unlock implements weir.InProcess.
func (s *Store) Unlock(item weir.Key) {
	sh := s.shard(item)
	idle, live := sh.unlock(item, true)
	sh.Unlock()
	if idle|live != 0 {
		s.count(idle, live)
	}
}

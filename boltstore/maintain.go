package boltstore

import (
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Report is what [Check] finds.
type Report struct {
	Path    string
	Bytes   int64 // the size of the file
	Free    int64 // bytes of it that hold nothing: Compact gives them back
	Items   int   // that could be read
	Idle    int   // of these, items that mean nothing any more
	Records int
	Seen    time.Time // when it was written last, by the store's clock

	// Damage says what is wrong. Without any, the file holds exactly what was
	// written to it last.
	Damage []string
}

// maxDamage is how many faults a Report tells.
const maxDamage = 20

// errEnough ends a reading that has found enough faults.
var errEnough = errors.New("enough")

// Check reads the whole file, and says whether it is what weir wrote. It changes
// nothing, and goes on behind damaged pages to see what is left. The error is a
// *[HeldError] while a Store has the file open, or that of the file system.
func Check(path string) (*Report, error) {
	rep := &Report{Path: path}
	now := time.Now().UnixNano()
	err := reading(path, func(r *os.File, size int64) error {
		rep.Bytes = size
		f, err := read(r, size, contents{
			fault: func(f fault) error {
				rep.Damage = append(rep.Damage, f.Error())
				if len(rep.Damage) >= maxDamage {
					return errEnough
				}
				return nil
			},
			item: func(_, payload []byte) error {
				rep.Items++
				if idleOf(payload) <= now {
					rep.Idle++
				}
				return nil
			},
			record: func([]byte, record) error {
				rep.Records++
				return nil
			},
		})
		if f != nil {
			rep.Seen = time.Unix(0, f.seen)
			rep.Free = max(size-int64(f.pages)*int64(f.meta.pageSize), 0)
		}
		return err
	})
	var wrong fault
	var damage *DamageError
	switch {
	case err == nil, errors.Is(err, errEnough):
	case errors.As(err, &wrong):
		rep.Damage = append(rep.Damage, wrong.Error())
	case errors.As(err, &damage):
		rep.Damage = append(rep.Damage, damage.Reason)
	default:
		return nil, err
	}
	return rep, nil
}

// Compact writes a file anew without the space that it does not need, and
// without the items that mean nothing any more. The old file stays until the new
// one is complete. It returns the sizes before and after; the errors are Open's.
func Compact(path string) (before, after int64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("boltstore: %w", err)
	}
	before = info.Size()
	s, err := Open(path, Options{}) // drops the items that are idle
	if err != nil {
		return 0, 0, err
	}
	// The old file stays locked until the new one has its name.
	err = s.stopWriter()
	if err == nil {
		err = replace(path, true, func(to *bolt.DB) error { return bolt.Compact(to, s.db, 1<<20) })
	}
	s.broken.Store(&brokenness{errClosed})
	_ = os.Remove(pidFile(path))
	if err = errors.Join(err, guarded(s.db.Close)); err != nil {
		return 0, 0, err
	}
	if info, err = os.Stat(path); err != nil {
		return 0, 0, fmt.Errorf("boltstore: %w", err)
	}
	return before, info.Size(), nil
}

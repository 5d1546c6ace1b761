package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

	// Damage says what is wrong, for which the file is refused. Without any it
	// holds exactly what was written to it last; but see Warnings.
	Damage []string
	// Warnings says what is wrong with a file that opens.
	Warnings []string
}

// oneRoot: which of the two roots is broken can't be told, nor whether the power
// failed while it was written. See docs/decisions/0006-bolt-file.md.
const oneRoot = "has one of its two roots only: unless it was closed in order, what was written to it last, up to a second of takes, may be missing"

// maxDamage is how many faults a Report tells.
const maxDamage = 20

// errEnough ends a reading that has found enough faults.
var errEnough = errors.New("enough")

// Check reads the whole file, and says whether it is what weir wrote. It changes
// nothing, and goes on behind damaged pages to see what is left. The error is a
// *[HeldError] while a Store has the file open, says that the file is another
// version's, or is that of the file system.
func Check(path string) (*Report, error) {
	rep := &Report{Path: path}
	now := time.Now().UnixNano()
	tell := func(f fault) error {
		rep.Damage = append(rep.Damage, f.Error())
		if len(rep.Damage) >= maxDamage {
			return errEnough
		}
		return nil
	}
	seen := map[string]bool{}
	err := reading(path, func(r *os.File, size int64) error {
		rep.Bytes = size
		f, err := read(r, size, contents{
			fault: tell,
			pack: func(_ uint32, payload []byte) error {
				for key, item := range itemsOf(payload) {
					if seen[string(key)] {
						if err := tell(errTwice); err != nil {
							return err
						}
						continue
					}
					seen[string(key)] = true
					rep.Items++
					if idleOf(item) <= now {
						rep.Idle++
					}
				}
				return nil
			},
			record: func([]byte, record) error {
				rep.Records++
				return nil
			},
		})
		if f != nil {
			if f.roots.broken {
				rep.Warnings = append(rep.Warnings, oneRoot)
			}
			rep.Seen = time.Unix(0, f.seen)
			rep.Free = max(size-int64(f.pages)*int64(f.roots.newest.pageSize), 0)
		}
		return err
	})
	var damage *DamageError
	switch {
	case err == nil, errors.Is(err, errEnough):
	case errors.As(err, &damage):
		rep.Damage = append(rep.Damage, damage.Reason)
	default:
		return nil, err
	}
	return rep, nil
}

// Compact writes a file anew without the space that it does not need, and
// without the items that mean nothing any more. The old file stays until the new
// one is complete, which has its owner and mode. It returns the sizes before and
// after; the errors are Open's.
func Compact(path string) (before, after int64, err error) {
	path = resolved(path) // a link is not to be replaced
	old, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("boltstore: %w", err)
	}
	before = old.Size()
	s, err := Open(path, Options{}) // drops the items that are idle
	if err != nil {
		return 0, 0, err
	}
	// The old file stays locked until the new one has its name.
	if err = s.stopWriter(); err == nil {
		err = s.db.replace(old)
	}
	s.broken.Store(&errClosed)
	if err = errors.Join(err, s.db.release()); err != nil {
		return 0, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("boltstore: %w", err)
	}
	return before, info.Size(), nil
}

// compacting is the name of a file while it is written anew. Only who holds the
// old one writes or removes it.
func compacting(path string) string {
	dir, base := filepath.Split(resolved(path))
	return filepath.Join(dir, "."+base+".compact")
}

// replace writes the file anew, and gives that the name of the old one.
func (f *file) replace(old os.FileInfo) error {
	temporary := compacting(f.path)
	defer os.Remove(temporary)
	to, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(likeOwner(to, old), to.Chmod(old.Mode().Perm()), to.Close())
	}
	if err == nil {
		err = fill(temporary, func(to *bolt.DB) error { return bolt.Compact(to, f.DB, 1<<20) })
	}
	if err == nil {
		err = os.Rename(temporary, f.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be written anew: %w", f.path, err)
	}
	return nil
}

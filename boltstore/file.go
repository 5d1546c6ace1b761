package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// file is the bolt file of an open store, for one goroutine at a time.
//
// bbolt reads a file through the memory that it is mapped to. Where a page is not
// what bbolt wrote it panics, and where the file ends before the page does, or
// the disk can't deliver it, the access faults. Both are caught where goroutines
// of this package read, and leave bbolt's locks as they were then: it is not
// called any more, and the file stays locked until the process ends. Nobody can
// catch them in the goroutine by which bbolt looks for free pages, when it opens a
// file and after a commit that failed: so the file is looked at before each
// transaction.
type file struct {
	*bolt.DB
	path   string
	f      *os.File
	info   os.FileInfo // when it was looked at last
	txid   int         // of the latest commit
	unsure bool        // whether the commit after that may be in the file: its error does not say
	uneven bool        // whether the two roots differ
	lost   error       // why nothing is written any more
	stuck  bool        // whether bbolt has panicked
}

// Update is a transaction. After an error that is errDamaged there is no other.
func (f *file) Update(do func(*bolt.Tx) error) error {
	err := f.whole()
	if err == nil {
		f.stuck = true
		err = guarded(func() error {
			err := f.transact(do)
			f.stuck = false
			return err
		})
	}
	if errors.Is(err, errDamaged) {
		f.lost = err
	}
	return err
}

// whole looks whether the file is still there, and as long as it was.
func (f *file) whole() error {
	if f.lost != nil {
		return f.lost
	}
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it was removed or renamed", errDamaged)
	case err != nil:
		return err
	case !os.SameFile(f.info, info):
		return fmt.Errorf("%w: another file stands in its place", errDamaged)
	case info.Size() < f.info.Size():
		return fmt.Errorf("%w: of %d bytes %d are left", errDamaged, f.info.Size(), info.Size())
	}
	f.info = info
	return nil
}

// transact does not roll back when it panics, as bbolt's own would: that waits
// for locks, and reads all pages where it can't be caught.
func (f *file) transact(do func(*bolt.Tx) error) error {
	tx, err := f.Begin(true)
	if errors.Is(err, bolterrors.ErrInvalidMapping) || errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		if err = f.reopen(); err == nil {
			tx, err = f.Begin(true)
		}
	}
	if err != nil {
		return err
	}
	if used := tx.Size(); used > f.info.Size() { // cut off while the latest commit made it longer
		return errors.Join(fmt.Errorf("%w: of %d bytes in use %d are left", errDamaged, used, f.info.Size()), tx.Rollback())
	}
	// A root that was lost shows the state before it.
	if id := tx.ID(); f.unsure && id == f.txid+2 {
		f.txid++
	} else if id != f.txid+1 {
		return errors.Join(fmt.Errorf("%w: its latest commit is number %d, not %d", errDamaged, id-1, f.txid), tx.Rollback())
	}
	f.unsure = false
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	f.unsure, f.uneven = true, true
	if err := tx.Commit(); err != nil {
		return err
	}
	f.unsure = false
	f.txid++
	return f.whole() // it may be longer now
}

// reopen opens the file anew after bbolt has lost its mapping: it unmaps a file that
// has become too long for that before it maps it again, and when the system refuses
// the longer one, because memory is short for example, it can't go on. Nothing of
// that transaction was written. Between closing and opening another process may get
// hold of the file: this one waits for its end then, and the number of the latest
// commit says whether it has written.
func (f *file) reopen() error {
	f.unsure = false
	removePID(f.path)
	if err := f.DB.Close(); err != nil {
		return err
	}
	err := reading(f.path, func(r *os.File, size int64) error {
		_, err := read(r, size, contents{fault: stop})
		return err
	})
	var again *file
	if err == nil {
		again, err = writing(f.path)
	}
	var damage *DamageError
	if errors.As(err, &damage) {
		return fmt.Errorf("%w: it %s", errDamaged, damage.Reason)
	} else if err != nil {
		return err
	}
	f.DB, f.f = again.DB, again.f
	return nil
}

// Close makes both roots the same, so that a file at rest loses nothing when one
// of them is damaged, and gives the file free.
func (f *file) Close() error {
	if f.uneven {
		// When it fails the roots differ by what was written last, as in use.
		_ = f.Update(func(*bolt.Tx) error { return nil })
	}
	return f.release()
}

// release gives the file free.
func (f *file) release() error {
	if f.stuck {
		return nil
	}
	if !f.IsReadOnly() {
		removePID(f.path)
	}
	return guarded(f.DB.Close)
}

// guarded turns panics and faults of the memory into errors, in this goroutine.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return do()
}

// errDamaged: a file that was whole when it was opened is not any more. Nothing
// is written to it then.
var errDamaged = errors.New("it is not what was written")

// options are bbolt's. No list of free pages is kept in the file: it is one
// thing less to write with every commit, and one less that can be wrong.
func options(readOnly bool, opened func(*os.File)) *bolt.Options {
	return &bolt.Options{
		Timeout:        1, // a nanosecond: never wait for another process
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		ReadOnly:       readOnly,
		NoStatistics:   true,
		OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(path, flag, mode)
			if err == nil {
				opened(f)
			}
			return f, err
		},
	}
}

// reading opens a file that nobody writes, for as long as look takes. A fault that
// look returns is a DamageError.
func reading(path string, look func(f *os.File, size int64) error) error {
	f, err := openBolt(path, true)
	if err != nil {
		return err
	}
	err = errors.Join(look(f.f, f.info.Size()), f.release())
	if wrong := (fault{}); errors.As(err, &wrong) {
		return &DamageError{path, wrong.Error()}
	} else if errors.Is(err, errVersion) {
		return fmt.Errorf("boltstore: %s %w", path, errVersion)
	}
	return err
}

// writing opens a file for this process alone, and notes its id beside it.
func writing(path string) (*file, error) {
	f, err := openBolt(path, false)
	if err != nil {
		return nil, err
	}
	err = guarded(func() error {
		return f.View(func(tx *bolt.Tx) error {
			f.txid = tx.ID()
			return nil
		})
	})
	if err != nil { // bbolt has panicked
		return nil, &DamageError{path, "was damaged while it was opened (" + err.Error() + ")"}
	}
	if err = f.whole(); err != nil { // it may have been replaced between the opening and the locking
		_ = f.release()
		if errors.Is(err, errDamaged) {
			err = held(path)
		}
		return nil, err
	}
	// Without the id the store works as well; others just can't name us.
	_ = writePID(path)
	return f, nil
}

func openBolt(path string, readOnly bool) (*file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &DamageError{path, "is not a regular file"}
	} else if info.Size() == 0 {
		return nil, &DamageError{path, "is empty, and weir never leaves a file so: if it is new, delete it"}
	}
	f := &file{path: path}
	err = guarded(func() (err error) {
		f.DB, err = bolt.Open(path, 0o600, options(readOnly, func(opened *os.File) { f.f = opened }))
		return err
	})
	if err == nil {
		if f.info, err = f.f.Stat(); err == nil {
			return f, nil
		}
		return nil, errors.Join(fmt.Errorf("boltstore: %w", err), f.release())
	}
	var system syscall.Errno // no memory to map it to, for example
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, held(path)
	case errors.As(err, &system):
		return nil, fmt.Errorf("boltstore: %s can't be opened: %w", path, system)
	}
	return nil, &DamageError{path, "is not a bolt file, or its first pages are damaged (" + err.Error() + ")"}
}

// create makes a file, unless it is there. It appears under its name when it is
// complete, so that a file which is empty or cut off is never a new one.
func create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), "."+base+".new-*")
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be made: %w", path, err)
	}
	temporary := f.Name()
	defer os.Remove(temporary)
	err = errors.Join(f.Close(), fill(temporary, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			for _, name := range [][]byte{bucketHead, bucketNames, bucketItems, bucketRecords} {
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
			return tx.Bucket(bucketHead).Put(keyHead, new(head).encode())
		})
	}))
	if err == nil {
		if err = os.Link(temporary, path); errors.Is(err, fs.ErrExist) {
			return nil // another process was faster
		} else if err != nil { // some file systems have no links
			err = os.Rename(temporary, path)
		}
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be made: %w", path, err)
	}
	return nil
}

// fill fills an empty file with what is written to it, to the disk.
func fill(path string, write func(*bolt.DB) error) error {
	return guarded(func() error {
		db, err := bolt.Open(path, 0o600, options(false, func(*os.File) {}))
		if err != nil {
			return err
		}
		err = write(db)
		if err == nil {
			err = db.Update(func(*bolt.Tx) error { return nil }) // so that both roots are of the new file
		}
		if err == nil {
			err = db.Sync()
		}
		return errors.Join(err, db.Close())
	})
}

// syncDir makes a new name last. Systems that can't do that do it by themselves.
func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

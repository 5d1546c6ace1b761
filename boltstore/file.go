package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// guarded turns panics of bbolt into errors, those from memory that the disk
// could not deliver among them.
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
var errDamaged = errors.New("a page is not what was written")

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

// reading opens a file that nobody writes, for as long as look takes.
func reading(path string, look func(f *os.File, size int64) error) error {
	var f *os.File
	db, err := openBolt(path, options(true, func(opened *os.File) { f = opened }))
	if err != nil {
		return err
	}
	defer db.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return look(f, info.Size())
}

// writing opens a file for this process alone.
func writing(path string) (*bolt.DB, error) {
	var f *os.File
	db, err := openBolt(path, options(false, func(opened *os.File) { f = opened }))
	if err != nil {
		return nil, err
	}
	// It may have been replaced between the opening and the locking.
	mine, err := f.Stat()
	there, err2 := os.Stat(path)
	if err = errors.Join(err, err2); err != nil || !os.SameFile(mine, there) {
		db.Close()
		return nil, errors.Join(err, &HeldError{Path: path})
	}
	return db, nil
}

func openBolt(path string, o *bolt.Options) (db *bolt.DB, err error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &DamageError{path, "is not a regular file"}
	} else if info.Size() == 0 {
		return nil, &DamageError{path, "is empty, and weir never leaves a file so: if it is new, delete it"}
	}
	err = guarded(func() error {
		db, err = bolt.Open(path, 0o600, o)
		return err
	})
	var system *fs.PathError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, &HeldError{path, holder(path)}
	case errors.As(err, &system):
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	return nil, &DamageError{path, "is not a bolt file, or its first pages are damaged (" + err.Error() + ")"}
}

// create makes a file, unless it is there. It appears under its name when it is
// complete, so that a file which is empty or cut off is never a new one.
func create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replace(path, false, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			for _, name := range [][]byte{bucketHead, bucketNames, bucketItems, bucketRecords} {
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
			return tx.Bucket(bucketHead).Put(keyHead, new(head).encode())
		})
	})
}

// replace fills a new file and gives it the name. Without over, a file that
// another process has made meanwhile stays.
func replace(path string, over bool, fill func(*bolt.DB) error) error {
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), "."+base+".new-*")
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be made: %w", path, err)
	}
	temporary := f.Name()
	defer os.Remove(temporary)
	if err := f.Close(); err != nil {
		return err
	}
	err = guarded(func() error {
		db, err := bolt.Open(temporary, 0o600, options(false, func(*os.File) {}))
		if err != nil {
			return err
		}
		err = fill(db)
		if err == nil {
			err = db.Update(func(*bolt.Tx) error { return nil }) // so that both roots are of the new file
		}
		if err == nil {
			err = db.Sync()
		}
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be made: %w", path, err)
	}
	if !over {
		if err = os.Link(temporary, path); errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	if over || err != nil { // some file systems have no links
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("boltstore: %s can't be made: %w", path, err)
	}
	return syncDir(dir)
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

// The lock is bbolt's own, on the file itself, and ends with the process. The
// process id stands in a file beside it and only ever explains a lock that is
// held, so that one left over from a crash says nothing.
func pidFile(path string) string { return path + ".lock" }

func writePID(path string) error {
	return os.WriteFile(pidFile(path), fmt.Appendln(nil, os.Getpid()), 0o644)
}

// holder is the process that holds a file. One that has just taken hold may not
// have written its id yet.
func holder(path string) int {
	for range 20 {
		if b, err := os.ReadFile(pidFile(path)); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && alive(pid) {
				return pid
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, fs.ErrPermission)
}

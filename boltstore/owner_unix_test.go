//go:build unix

package boltstore_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirlabs/weir/boltstore"
)

// A file that is written anew has the owner, group and mode of the old one, also
// where a link leads to it, and what a killed process left of an earlier try goes.
func TestCompactKeepsOwner(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "data", "weir.db"), filepath.Join(dir, "weir.db")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Symlink(filepath.Join("data", "weir.db"), link)); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, boltstore.Options{})
	fillDamageItems(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 { // nobody else can give a file away
		uid, gid = 65534, 65533
	}
	if err := errors.Join(os.Chown(path, uid, gid), os.Chmod(path, 0o664)); err != nil {
		t.Fatal(err)
	}
	old, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "data", ".weir.db.compact")
	for _, name := range []string{path, link} {
		if err := os.WriteFile(left, []byte("half of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := boltstore.Compact(name); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if is := now.Sys().(*syscall.Stat_t); os.SameFile(old, now) || now.Mode() != old.Mode() || int(is.Uid) != uid || int(is.Gid) != gid {
			t.Errorf("%s: a new file: %v, mode %v, user %d, group %d; want mode %v, user %d, group %d",
				name, !os.SameFile(old, now), now.Mode(), is.Uid, is.Gid, old.Mode(), uid, gid)
		}
		old = now
		if is, err := os.Lstat(link); err != nil || is.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%s: the link is %v, %v", name, is, err)
		}
		if rep, err := boltstore.Check(link); err != nil || len(rep.Damage)+len(rep.Warnings) > 0 || rep.Items != damageItems || rep.Records != 1 {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what was left is still there: %v", name, err)
		}
	}
	// The next process that opens the file removes it as well.
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, link, boltstore.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Open what was left is still there: %v", err)
	}
}

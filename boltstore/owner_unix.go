//go:build unix

package boltstore

import (
	"fmt"
	"os"
	"syscall"
)

// likeOwner gives a new file the owner and group of an old one.
func likeOwner(f *os.File, old os.FileInfo) error {
	was, ok := old.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return fmt.Errorf("it belongs to user %d and group %d, and has to be written as that user: %w", was.Uid, was.Gid, err)
	}
	return nil
}

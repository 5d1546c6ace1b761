package boltstore

import (
	"errors"
	"fmt"

	"github.com/weirlabs/weir"
)

// DamageError says that a file is not what weir wrote. Nothing was changed.
// Opening such a file would let callers start over who have used up a limit.
type DamageError struct {
	Path   string
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("boltstore: %s %s; to see what is left of it: weir store check --store bolt:%s", e.Path, e.Reason, e.Path)
}

// errClosed is why a closed Store does nothing.
var errClosed = errors.New("boltstore: the store is closed")

// writeError is why takes fail while the file can't be written.
func writeError(path string, err error) error {
	return fmt.Errorf("boltstore: %s can't be written, and takes are refused until it can; if the disk is full make room: %w", path, err)
}

// unknown marks an error after which a take is counted in memory, and whether
// it will reach the file is open.
func unknown(err error) error {
	return fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, err)
}

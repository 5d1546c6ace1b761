//go:build !unix

package boltstore_test

import "errors"

// full is not asked for: TestDiskFull needs a bound of a file's size.
func full(string) error { return errors.ErrUnsupported }

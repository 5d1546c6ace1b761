package main

import (
	"errors"
	"fmt"
)

// The kinds of failure that a command can end with. Any error that is none of
// them means that a store, server or file could not be reached.

// errNo: the command did its work, and the answer is no.
type errNo struct {
	err  error
	said bool // the command's own output says it already
}

func (e errNo) Error() string { return e.err.Error() }
func (e errNo) Unwrap() error { return e.err }

// errUsage: the command line asks for something that cannot be.
type errUsage struct{ err error }

func (e errUsage) Error() string { return e.err.Error() }
func (e errUsage) Unwrap() error { return e.err }

// errHint adds the command to type next to an error of any kind.
type errHint struct {
	err error
	try string
}

func (e errHint) Error() string { return e.err.Error() }
func (e errHint) Unwrap() error { return e.err }

// errInterrupted: the user pressed Ctrl-C.
var errInterrupted = errors.New("interrupted")

// usage makes a usage error. Every one says what to type next.
func usage(try, format string, args ...any) error {
	return errHint{errUsage{fmt.Errorf(format, args...)}, try}
}

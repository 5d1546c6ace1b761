package engine

import (
	"errors"
	"sync/atomic"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
)

// failures remembers why the store could not be asked: a decision that was made
// without it carries no error, and its log line must name the cause. Of each key
// the last one is kept, as long as no other key needs its place.
type failures struct {
	last   atomic.Pointer[storeFailure] // that says something of the whole store
	places [64]atomic.Pointer[storeFailure]
}

type storeFailure struct {
	of  weir.Key
	err error
}

func (f *failures) place(key weir.Key) *atomic.Pointer[storeFailure] {
	return &f.places[key.Hash()%uint64(len(f.places))]
}

func (f *failures) add(of weir.Key, err error) {
	one := &storeFailure{of, err}
	f.place(of).Store(one)
	if !ofOneKey(err) {
		f.last.Store(one)
	}
}

// of is why the store could not be asked of a key just now: never what is wrong
// with another key alone.
func (f *failures) of(key weir.Key) error {
	if one := f.place(key).Load(); one != nil && one.of == key {
		return one.err
	}
	if one := f.last.Load(); one != nil {
		return one.err
	}
	return nil
}

// ofOneKey reports whether an error says nothing of the store's health.
func ofOneKey(err error) bool {
	var record *account.UnreadableError
	return errors.Is(err, weir.ErrThrottled) || errors.Is(err, weir.ErrBusy) || errors.As(err, &record)
}

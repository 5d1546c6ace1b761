package account

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// editTrips bounds how often a change is tried against other writers.
const editTrips = 16

// Editor changes records. It is for people's commands: unlike a [Book] it reads
// anew each time, and waits for as long as its context.
type Editor struct {
	Records weir.Records

	// DryRun lets changes be made to a copy only, and nothing be stored.
	DryRun bool
}

// Read is the record of one caller. One of whom nothing is said has an empty
// record and no error.
func (e Editor) Read(ctx context.Context, caller weir.Key) (*Record, error) {
	r, _, err := e.read(ctx, caller)
	return r, err
}

func (e Editor) read(ctx context.Context, caller weir.Key) (*Record, string, error) {
	value, version, err := get(ctx, e.Records, recordKey(caller), caller.String())
	if err != nil {
		return nil, "", err
	}
	r := new(Record)
	return r, version, decode(value, r, &r.Schema, caller.String())
}

// ReadIndex is what is said of many callers at once.
func (e Editor) ReadIndex(ctx context.Context) (*Index, error) {
	x, _, err := e.readIndex(ctx)
	return x, err
}

func (e Editor) readIndex(ctx context.Context) (*Index, string, error) {
	value, version, err := get(ctx, e.Records, indexKey, "all accounts")
	if err != nil {
		return nil, "", err
	}
	x, err := decodeIndex(value)
	return x, version, err
}

// Edit changes the record of one caller and returns it as it was before and as it
// is then. change may be called several times, each time with another copy, when
// others write too; it must do nothing else than change that. A change that
// changes nothing is not stored. Processes learn of it within the age that their
// policies allow.
func (e Editor) Edit(ctx context.Context, caller weir.Key, change func(*Record) error) (before, after *Record, err error) {
	for range editTrips {
		var version string
		if before, version, err = e.read(ctx, caller); err != nil {
			return nil, nil, err
		}
		after = before.clone()
		if err := change(after); err != nil {
			return before, nil, err
		}
		after.Schema = schema
		if reflect.DeepEqual(before, after) {
			return before, after, nil
		}
		value, err := encode(after, maxRecord)
		if err != nil {
			return before, nil, err
		}
		if e.DryRun {
			return before, after, nil
		}
		// Processes look for the record only where the index sends them, so the
		// index comes first.
		if err := e.announce(ctx, KindOf(caller), after); err != nil {
			return before, nil, err
		}
		err = e.Records.Put(ctx, recordKey(caller), value, version, time.Time{})
		if !errors.Is(err, weir.ErrConflict) {
			return before, after, err
		}
	}
	return before, nil, fmt.Errorf("the record of %s: %w", caller, weir.ErrBusy)
}

// announce notes in the index that a kind of callers has a record.
func (e Editor) announce(ctx context.Context, kind string, r *Record) error {
	return e.editIndex(ctx, func(x *Index) (bool, error) { return x.admit(kind, true, r), nil })
}

// EditPattern changes what is said of all callers that a wildcard names, as Edit
// does for one. A record that says nothing any more is removed.
func (e Editor) EditPattern(ctx context.Context, p Pattern, change func(*Record) error) (before, after *Record, err error) {
	err = e.editIndex(ctx, func(x *Index) (bool, error) {
		have := x.Wildcards[p]
		before, after = have.clone(), have.clone()
		if err := change(after); err != nil {
			return false, err
		}
		if len(after.Pins) > 0 {
			return false, errors.New("a wildcard keeps no version of a plan: versions belong to single accounts")
		}
		if before.Schema == 0 {
			before.Schema = schema
		}
		after.Schema = schema
		if reflect.DeepEqual(before, after) {
			return false, nil
		}
		x.admit(p.Kind(), false, after)
		if x.Wildcards == nil {
			x.Wildcards = map[Pattern]Record{}
		}
		x.Wildcards[p] = *after
		if after.Empty() {
			delete(x.Wildcards, p)
		}
		return true, nil
	})
	return before, after, err
}

func (e Editor) editIndex(ctx context.Context, change func(*Index) (changed bool, err error)) error {
	for range editTrips {
		x, version, err := e.readIndex(ctx)
		if err != nil {
			return err
		}
		changed, err := change(x)
		if err != nil || !changed {
			return err
		}
		x.Schema = schema
		value, err := encode(x, maxIndex)
		if err != nil || e.DryRun {
			return err
		}
		if err = e.Records.Put(ctx, indexKey, value, version, time.Time{}); !errors.Is(err, weir.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("the record of all accounts: %w", weir.ErrBusy)
}

// Forget removes the record of one caller. Its content is gone at once; where a
// store removes what is over in its own time, the caller's name is until then.
func (e Editor) Forget(ctx context.Context, caller weir.Key) (had bool, err error) {
	for range editTrips {
		_, version, err := get(ctx, e.Records, recordKey(caller), caller.String())
		if err != nil || version == "" {
			return false, err
		}
		if e.DryRun {
			return true, nil
		}
		if err = e.Records.Put(ctx, recordKey(caller), nil, version, time.Unix(1, 0)); !errors.Is(err, weir.ErrConflict) {
			return true, err
		}
	}
	return false, fmt.Errorf("the record of %s: %w", caller, weir.ErrBusy)
}

// Each hands on the callers whose keys begin with a prefix and of whom there is a
// record, a page at a time and in no order. One that is written meanwhile may be
// missing, or come twice.
func (e Editor) Each(ctx context.Context, prefix string, do func([]weir.Key) error) error {
	for cursor := ""; ; {
		names, next, err := e.Records.List(ctx, recordPrefix+prefix, cursor, 1000)
		if err != nil {
			return err
		}
		var keys []weir.Key
		for _, n := range names {
			if key, ok := weir.ParseKey(strings.TrimPrefix(n, recordPrefix)); ok {
				keys = append(keys, key)
			}
		}
		if err := do(keys); err != nil || next == "" {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		cursor = next
	}
}

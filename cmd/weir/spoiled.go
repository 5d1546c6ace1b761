package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

// spoiledOf is a caller whose item cannot be read.
func spoiledOf(key weir.Key, e *weir.SpoiledError) unreadable {
	u := unreadable{Caller: key.String(), Error: key.String() + ": " + e.Error()}
	u.try = "weir keys reset " + shellWord(u.Caller)
	u.Fix = u.try + " lets the caller start over"
	return u
}

// unreadCaller is what to say of a caller whose item, or whose record, keeps it
// from being looked at; ok is false for an error of another kind.
func unreadCaller(key weir.Key, err error) (u unreadable, ok bool) {
	var item *weir.SpoiledError
	var record *account.UnreadableError
	switch {
	case errors.As(err, &item):
		return spoiledOf(key, item), true
	case errors.As(err, &record) && record.Of == key.String():
		return unreadableOf(key, record), true
	}
	return u, false
}

// named is an error of a look at one caller with the caller's name and what to do.
func named(key weir.Key, err error) error {
	var item *weir.SpoiledError
	if !errors.As(err, &item) {
		return err
	}
	return errHint{fmt.Errorf("%s: %w", key, err), spoiledOf(key, item).try}
}

// resetSpoiled lets a caller start over of whom nobody can say what was used, with
// all limits or with the one that is named.
func resetSpoiled(ctx context.Context, c *common, k *counters, key weir.Key, name []string, dryRun bool, why error) error {
	ops, err := k.ops(ctx, key)
	if err != nil {
		return err
	}
	ops = slices.DeleteFunc(ops, func(op policy.Op) bool { return len(name) == 1 && op.Rule.Name != name[0] })
	if len(ops) == 0 {
		return named(key, why)
	}
	var item *weir.SpoiledError
	errors.As(why, &item)
	_, deletes := k.items.(weir.Deleter)
	whole := item.Field == "" && deletes
	switch {
	case dryRun && !whole && len(name) == 1 && !slices.ContainsFunc(ops, func(op policy.Op) bool { return ofLimit(item.Field, op.Limit.Name()) }):
		return named(key, why) // as without it
	case dryRun:
	case len(name) == 0:
		err = k.limiter.Reset(ctx, key)
	default:
		err = resetEach(ctx, k, key, ops)
	}
	if errors.As(err, &item) {
		return named(key, err)
	}
	if err != nil {
		return notReset(key.String(), false, err)
	}
	if c.format == "json" {
		return writeJSON(c.stdout, keysReport{SchemaVersion: 1, Caller: key.String(), DryRun: dryRun, Limits: []keyUsage{}})
	}
	switch {
	case dryRun && whole:
		c.say("weir: nothing was changed; what is stored of %s cannot be read (%v), and without --dry-run all of it is deleted", key, why)
	case dryRun:
		c.say("weir: nothing was changed; what %s has used cannot be read (%v), and without --dry-run it starts over", key, why)
	case whole:
		c.say("weir: %s starts over; what was stored of it could not be read, and all of it was deleted", key)
	default:
		c.say("weir: %s starts over; what it had used could not be read", key)
	}
	return nil
}

// resetEach resets limits one by one, as keysReset does. One whose own fields can be
// read may fail for another's that cannot, until that one is reset.
func resetEach(ctx context.Context, k *counters, key weir.Key, ops []policy.Op) (why error) {
	for range 2 {
		why = nil
		for i := range ops {
			if err := k.limiter.Reset(ctx, key, ops[i].Limit); errors.As(err, new(*weir.SpoiledError)) {
				why = err
			} else if err != nil {
				return err
			}
		}
		if why == nil {
			return nil
		}
	}
	return why
}

// ofLimit reports whether a field, as [weir.Field.Text] writes it, is of the limit
// of this name, or of its shadow.
func ofLimit(field, name string) bool {
	field, _, _ = strings.Cut(field, "@")
	dot := strings.LastIndexByte(field, '.')
	return dot >= 0 && strings.TrimSuffix(field[:dot], "~") == name
}

// notReset says what became of a reset that failed, after others of the same caller.
func notReset(caller string, some bool, err error) error {
	switch {
	case errors.Is(err, weir.ErrOutcomeUnknown):
		return fmt.Errorf("%s may or may not have been reset; look again: %w", caller, err)
	case some:
		return fmt.Errorf("%s was reset in part; look again: %w", caller, err)
	}
	return fmt.Errorf("%s was not reset: %w", caller, err)
}

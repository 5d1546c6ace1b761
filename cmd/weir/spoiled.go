package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	var limits []weir.Limit // none: all
	if len(name) == 1 {
		for i := range ops {
			limits = append(limits, ops[i].Limit)
		}
		if f, ok := outside(item, limits); ok && !whole {
			return errHint{fmt.Errorf("%s was not reset: field %q of another limit cannot be read: %w", key, f, why), spoiledOf(key, item).try}
		}
	}
	if !dryRun {
		err = k.limiter.Reset(ctx, key, limits...)
	}
	if errors.As(err, &item) {
		return errHint{notReset(key.String(), err), spoiledOf(key, item).try} // somebody has spoiled more since
	}
	if err != nil {
		return notReset(key.String(), err)
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

// outside is a field that can't be read and is none of limits, if there is one. While
// it is in the way, none of them is reset.
func outside(e *weir.SpoiledError, limits []weir.Limit) (field string, ok bool) {
	for _, text := range append([]string{e.Field}, e.More...) {
		f, _ := weir.ParseField(text)
		if !slices.ContainsFunc(limits, func(l weir.Limit) bool { return l.Owns(f) }) {
			return text, true
		}
	}
	return "", false
}

// notReset says what became of a reset that failed.
func notReset(caller string, err error) error {
	if errors.Is(err, weir.ErrOutcomeUnknown) || errors.As(err, new(*weir.SpoiledError)) { // it may have removed some fields
		return fmt.Errorf("%s may or may not have been reset; look again: %w", caller, err)
	}
	return fmt.Errorf("%s was not reset: %w", caller, err)
}

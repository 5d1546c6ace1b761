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
	if e.Field == "" {
		u.Fix = "remove it by the store's own means, and run this again"
		return u
	}
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
	err = fmt.Errorf("%s: %w", key, err)
	if try := spoiledOf(key, item).try; try != "" {
		return errHint{err, try}
	}
	return err
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
	// A limit whose own fields can be read may fail for another's that cannot, until
	// that one is reset.
	for round := 0; round < 2 && why != nil && !dryRun; round++ {
		why = nil
		for i := range ops {
			var item *weir.SpoiledError
			if err := k.limiter.Reset(ctx, key, ops[i].Limit); errors.As(err, &item) {
				why = err
			} else if err != nil {
				return fmt.Errorf("%s may or may not have been reset; look again: %w", key, err)
			}
		}
	}
	if why != nil && !dryRun {
		return named(key, why)
	}
	if c.format == "json" {
		return writeJSON(c.stdout, keysReport{SchemaVersion: 1, Caller: key.String(), DryRun: dryRun, Limits: []keyUsage{}})
	}
	if dryRun {
		c.say("weir: nothing was changed; what %s has used cannot be read (%v), and without --dry-run it starts over", key, why)
	} else {
		c.say("weir: %s starts over; what it had used could not be read", key)
	}
	return nil
}

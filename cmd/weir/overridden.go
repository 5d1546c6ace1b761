package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// What an override changes beside the number: kinds of limits count apart, and
// not every kind can have every term of the policy's limit.

// asides are sentences on what else happens when one limit of a name follows
// another, for the rules of that name. A zero Limit is the policy's own.
func (k *counters) asides(ctx context.Context, kind, name string, before, after weir.Limit) (said []string, err error) {
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	for _, r := range k.policy.Rules() {
		if r.Name != name || r.Layer == policy.Edge || !countsBy(r, kind) {
			continue
		}
		old, next := before, after
		if old.IsZero() {
			old = r.Limit
		}
		if next.IsZero() {
			next = r.Limit
		}
		if same, err := sharesCounter(ctx, old, next); err != nil {
			return nil, err
		} else if !same {
			add("%s and %s count apart: what was used of the one is not used of the other", old, next)
		}
		if after.IsZero() {
			continue // the policy's terms hold again
		}
		if r.Terms.Metered && !next.IsQuota() {
			add("%s is over: charge, which %s cannot be, having no period to charge for: it refuses what is beyond it", name, next)
		}
		if r.Terms.Debt > 0 && next.Debt() < min(r.Terms.Debt, r.Limit.Debt()) {
			add("a settled cost may take %s %d below zero, and no longer %d", next, next.Debt(), r.Limit.Debt())
		}
		if len(r.Terms.NotifyAt) > 0 && !next.IsQuota() {
			add("%s has notify_at, and %s has no period to tell of once: nobody is told", name, next)
		}
	}
	return said, nil
}

// sharesCounter reports whether what is used of a limit is used of another of the
// same name and the same caller.
func sharesCounter(ctx context.Context, a, b weir.Limit) (bool, error) {
	var ops [2]weir.Op
	for i, l := range []weir.Limit{a, b} {
		l, err := l.Named("same")
		if err != nil {
			return false, err
		}
		if anchored, err := l.Anchored(time.Unix(0, 0).UTC()); err == nil {
			l = anchored
		}
		ops[i].Limit = l
	}
	return carriesOver(ctx, ops[0], ops[1])
}

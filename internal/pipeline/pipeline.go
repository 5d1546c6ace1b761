// Package pipeline is the way of a decision to a store that is not in this
// process: plan from what is known, apply, and plan again from what came back.
//
// It is the only loop around a store. A store makes one attempt and has no
// opinion; an algorithm makes one plan and does no I/O.
package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/weirlabs/weir/internal/plan"
)

// MaxTrips bounds the loop. Eight are more than any interleaving needs that is
// not deliberately hostile: see the model of concurrent writers.
const MaxTrips = 8

// Errors are those that a Store wraps, and those that the loop itself returns.
type Errors struct {
	OutcomeUnknown error
	Busy           error
}

// Applier is the part of a store that the loop needs.
type Applier interface {
	Apply(ctx context.Context, item plan.Key, tries []plan.Write, state *plan.Cells) (applied int, now int64, err error)
}

// Loop asks one store. It is safe for concurrent use.
type Loop struct {
	Store  Applier
	Nonces bool         // the store may lose replies
	Now    func() int64 // an estimate of the store's now
	Errors Errors
}

// Planner appends a write to w, judging by the known state, and reports whether
// there is one. known is nil until the store has answered.
type Planner func(known *plan.Cells, now int64, w *plan.Write) bool

// Do plans and applies until a write is applied or the planner has none. It
// returns the item as it was last seen, with the store's time of that, and
// whether a write was applied; the state is nil when the store was not asked.
// repeat says whether a write whose outcome is
// unknown is sent again: a nonce then keeps it from being applied twice.
//
// A write whose outcome stays unknown is an error that wraps OutcomeUnknown:
// neither applied nor refused.
func (l *Loop) Do(ctx context.Context, item plan.Key, repeat bool, next Planner) (state *plan.Cells, at int64, applied bool, err error) {
	var (
		spare   = new(plan.Cells)
		w       [1]plan.Write
		unknown error
	)
	now := l.Now()
	for range MaxTrips {
		if unknown == nil {
			w[0].Reset()
			if !next(state, now, &w[0]) {
				return state, now, false, nil
			}
			if l.Nonces {
				w[0].Nonce = rand.Uint64() | 1
			}
		}
		which, at, err := l.Store.Apply(ctx, item, w[:], spare)
		switch {
		case err != nil && errors.Is(err, l.Errors.OutcomeUnknown):
			if !repeat || !l.Nonces || ctx.Err() != nil {
				return nil, 0, false, err
			}
			unknown = err
			continue
		case err != nil && unknown != nil:
			return nil, 0, false, unknown // what became of the first attempt is still open
		case err != nil:
			return nil, 0, false, err
		case which >= 0:
			return spare, at, true, nil
		case unknown != nil:
			// Not among the item's last nonces: applied and pushed out, or
			// never applied. Nobody can tell.
			return nil, 0, false, unknown
		}
		if state == nil {
			state = new(plan.Cells)
		}
		state, spare = spare, state
		now = at
	}
	if unknown != nil {
		return nil, 0, false, unknown
	}
	return nil, 0, false, l.Errors.Busy
}

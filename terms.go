package weir

import (
	"fmt"
	"time"
)

// Metered is the same quota that refuses nothing: what is used beyond Max is
// counted on in the same counter, so that it can be charged for. Decision.Used
// less Max is the excess. Only a quota can be metered.
func (l Limit) Metered() (Limit, error) {
	if l.spec == nil {
		return l, errNoLimit
	}
	s, err := l.spec.Metered()
	if err != nil {
		return l, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// IsMetered reports whether the limit counts on beyond Max instead of refusing.
func (l Limit) IsMetered() bool { return l.spec != nil && l.spec.Most() > l.spec.Max() }

// WithDebt is the same limit that [Reservation.Settle] takes below zero by at
// most these units: from 0 to what it is without it, which is Max, and for a
// bucket an hour's refill where that is less. What a call cost beyond that is
// not counted.
func (l Limit) WithDebt(units int64) (Limit, error) {
	if l.spec == nil {
		return l, errNoLimit
	}
	s, err := l.spec.WithDebt(units)
	if err != nil {
		return l, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// Debt is how many units a settled cost may take the limit below zero.
func (l Limit) Debt() int64 {
	if l.spec == nil {
		return 0
	}
	return l.spec.Debt()
}

// Noticed is the same quota with marks at these percentages of Max, from 1 to
// 100. The one call of a window and key that reaches a mark has it in
// [Decision.Notice], in whatever process it is decided: the write that counts
// the call also sets the mark. A call that may be given back, one that is reserved
// or has several keys, reaches none before it is settled or wholly taken: what
// stays tells, not what was held. Only a quota can have marks.
func (l Limit) Noticed(percent ...int) (Limit, error) {
	if l.spec == nil {
		return l, errNoLimit
	}
	s, err := l.spec.Noticed(percent...)
	if err != nil {
		return l, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// Location is the zone of a calendar quota, and nil of any other limit.
func (l Limit) Location() *time.Location {
	if l.spec == nil {
		return nil
	}
	return l.spec.Location()
}

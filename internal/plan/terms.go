package plan

import (
	"fmt"
	"time"
)

// Terms that a limit may have beside its grammar: a quota that refuses nothing
// and counts on, how deep a settled cost may go into debt, and the marks at
// which somebody is told.

// Metered is the same quota that refuses nothing: what is used beyond its count
// is counted on, so that it can be charged for.
func (s *Spec) Metered() (*Spec, error) {
	if !s.IsQuota() {
		return nil, fmt.Errorf("limit %q cannot count beyond itself: only a quota can, since a rate has no period to charge for", s.text)
	}
	t := s.copy()
	t.most = maxCount
	t.pair()
	return t, nil
}

// Most is the largest cost that can ever be taken at once: Max, but of a
// metered quota.
func (s *Spec) Most() int64 { return s.most }

// WithDebt is the same limit that a settled cost may take below zero by at most
// units, instead of by the capacity or an hour's refill of a bucket, whichever
// is less, and by the count of a window.
func (s *Spec) WithDebt(units int64) (*Spec, error) {
	most := s.max
	if s.alg == bucket {
		most = min(s.depth, maxDebt) / s.interval
	}
	if units < 0 || units > most {
		return nil, fmt.Errorf("limit %q cannot owe %d units: from 0 to %d are possible", s.text, units, most)
	}
	t := s.copy()
	t.owes, t.bounded = units, true
	t.pair()
	return t, nil
}

// Debt is how many units a settled cost may take the limit below zero.
func (s *Spec) Debt() int64 {
	if s.alg == bucket {
		return (s.floorOf(s.depth, s.interval) - s.depth) / s.interval
	}
	return s.floor() - s.max
}

// floorOf is the level down to which a bucket of this depth and interval may owe.
func (s *Spec) floorOf(depth, interval int64) int64 {
	debt := min(depth, maxDebt)
	if s.bounded {
		debt = min(debt, mulDiv(s.owes, interval, 1))
	}
	return depth + debt
}

// floor is the count up to which a settled cost may take a window.
func (s *Spec) floor() int64 {
	switch {
	case s.most > s.max:
		return s.most
	case s.bounded:
		return s.max + s.owes
	}
	return 2 * s.max
}

// Owns reports whether a field is this limit's: a counter, or a mark told of.
func (s *Spec) Owns(f Field) bool {
	return f.Kind&shadowBit == s.shadow && (f.Limit == s.id || s.marks != nil && f.Limit == s.marks.id)
}

// Location is the zone by whose calendar the windows go, or nil.
func (s *Spec) Location() *time.Location {
	if s.alg != calendar {
		return nil
	}
	return s.loc
}

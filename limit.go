package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// Limit is one checked limit. It is a small immutable value; == says whether two
// are copies of one, not whether they mean the same.
// The zero Limit is invalid.
type Limit struct{ spec *plan.Spec }

// Period is the unit of a limit's rate or the nominal length of its window.
type Period = plan.Period

// Change is what becomes of a balance when a bucket's rate or capacity changes.
type Change = plan.Change

// The ways to carry a balance over to a changed limit. Windows keep the used
// count by nature.
const (
	KeepUsed  = plan.Keep  // the units used stay used: the default
	KeepShare = plan.Scale // the share used stays used
	StartFull = plan.Fresh // the bucket is full again
)

// ParseLimit reads a limit. UNIT is s, m, h, d, a word from second to year, or
// a number with one, such as 5m:
//
//	N/UNIT [burst B]               token bucket (GCRA); N may have decimals; B defaults to N, at least 1
//	quota N/UNIT                   window that starts with the key's first counted call
//	quota N/UNIT calendar [ZONE]   window aligned to clock and calendar, UTC by default
//	quota N/UNIT billing           window from the account's own anchor, see [Limit.Anchored]
//	sliding N/UNIT                 two-cell sliding window
//
// A rate is at most 1,000,000 a second for one key, an empty bucket fills
// within 100 years, and a count is at most 1e15. The error says which word is
// wrong and what may stand there.
func ParseLimit(text string) (Limit, error) {
	s, err := plan.Parse(text)
	if err != nil {
		return Limit{}, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// Named is the same limit under a name of its own. Counters belong to the name
// and the key: limits that may share a key need different names. Without it
// the name is rate, quota or sliding.
func (l Limit) Named(name string) (Limit, error) {
	if l.spec == nil {
		return l, errNoLimit
	}
	s, err := l.spec.Named(name)
	if err != nil {
		return l, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// Revised is the same limit as part of a policy's revision. Stored balances of
// a changed bucket are carried over, in the way that change says, by the first
// take of a process whose revision is not lower than the item's; a process with
// a lower one goes on with the item's values. Without it the revision is 0.
func (l Limit) Revised(revision uint32, change Change) Limit {
	if l.spec == nil {
		return l
	}
	return Limit{l.spec.Revised(revision, change)}
}

// Anchored is the same billing quota for the account whose first period began
// at this instant. A billing quota can be taken from only when anchored.
func (l Limit) Anchored(at time.Time) (Limit, error) {
	if l.spec == nil {
		return l, errNoLimit
	}
	s, err := l.spec.Anchored(at)
	if err != nil {
		return l, fmt.Errorf("weir: %w", err)
	}
	return Limit{s}, nil
}

// IsZero reports whether the limit is the invalid zero value.
func (l Limit) IsZero() bool { return l.spec == nil }

// String is the limit in its grammar, and so can be parsed again.
func (l Limit) String() string {
	if l.spec == nil {
		return ""
	}
	return l.spec.String()
}

// Name is the name to which the counters belong.
func (l Limit) Name() string {
	if l.spec == nil {
		return ""
	}
	return l.spec.Name()
}

// Max is the capacity of a bucket, the count of a window: the largest cost that
// can ever be taken at once.
func (l Limit) Max() int64 {
	if l.spec == nil {
		return 0
	}
	return l.spec.Max()
}

// Rate is the count for each Period as it was written, n/scale: 0.5/s is 5/10.
func (l Limit) Rate() (n, scale int64) {
	if l.spec == nil {
		return 0, 1
	}
	return l.spec.Rate()
}

// Period is the unit of a bucket's rate or the nominal length of a window.
func (l Limit) Period() Period {
	if l.spec == nil {
		return Period{}
	}
	return l.spec.Period()
}

// IsBucket reports whether the limit is a token bucket.
func (l Limit) IsBucket() bool { return l.spec != nil && l.spec.IsBucket() }

// IsQuota reports whether the limit is a counted window, neither a bucket nor sliding.
func (l Limit) IsQuota() bool { return l.spec != nil && l.spec.IsQuota() }

// OnCalendar reports whether the windows are those of the calendar or of the
// account's billing periods.
func (l Limit) OnCalendar() bool { return l.spec != nil && l.spec.OnCalendar() }

// Horizon is how long after a take its item still matters: the time in which an
// empty bucket fills, or after which a window means nothing any more.
func (l Limit) Horizon() time.Duration {
	if l.spec == nil {
		return 0
	}
	return time.Duration(l.spec.Horizon())
}

// Owns reports whether a field of an item is the limit's: a counter, one of its
// shadow, or a mark that was told of.
func (l Limit) Owns(f Field) bool {
	return l.spec != nil && (l.spec.Owns(f) || l.spec.Shadow().Owns(f))
}

var errNoLimit = errors.New("weir: the zero Limit is invalid: use ParseLimit")

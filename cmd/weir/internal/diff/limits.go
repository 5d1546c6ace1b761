package diff

import (
	"math/big"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// sameLimit reports whether two limits are one in two spellings: 60/m burst 5 and
// 1/s burst 5, or a quota of a day and of 24 hours.
func sameLimit(was, is weir.Limit) bool {
	if was.IsBucket() != is.IsBucket() || was.IsQuota() != is.IsQuota() || was.OnCalendar() != is.OnCalendar() || was.Max() != is.Max() {
		return false
	}
	if was.IsBucket() {
		return exactly(was).Cmp(exactly(is)) == 0
	}
	if was.OnCalendar() { // of the calendar, a month is not 30 days
		return windowOf(was) == windowOf(is)
	}
	return was.Period().Duration() == is.Period().Duration()
}

// exactly is what a bucket gains in a nanosecond.
func exactly(l weir.Limit) *big.Rat {
	n, scale := l.Rate()
	r := big.NewRat(n, scale)
	return r.Quo(r, new(big.Rat).SetInt64(int64(l.Period().Duration())))
}

// windowOf is the window of a calendar quota in words: its period, and calendar or
// billing, and the zone unless that is UTC.
func windowOf(l weir.Limit) string {
	_, kind, _ := strings.Cut(l.String(), "/")
	_, kind, _ = strings.Cut(kind, " ")
	return l.Period().String() + " " + strings.TrimSuffix(kind, " UTC")
}

// effectOf compares two limits by what passes at once and by what passes in the
// long run.
func effectOf(was, is weir.Limit) string {
	burst, rate := compare(float64(was.Max()), float64(is.Max())), compare(steady(was), steady(is))
	switch {
	case burst <= 0 && rate <= 0 && burst+rate < 0:
		return Tighter
	case burst >= 0 && rate >= 0 && burst+rate > 0:
		return Looser
	}
	return Other
}

// compare says whether a number falls (-1) or rises (1). Rates that differ by less
// than a millionth are the same, written in other units.
func compare(was, is float64) int {
	switch d := is - was; {
	case d > was*1e-6:
		return 1
	case d < -was*1e-6:
		return -1
	}
	return 0
}

// steady is what passes in a second in the long run.
func steady(l weir.Limit) float64 {
	n, scale := l.Rate()
	return float64(n) / float64(scale) / (float64(l.Period().Duration()) / float64(time.Second))
}

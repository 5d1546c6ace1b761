package policy

import (
	"fmt"
	"strings"

	"github.com/weirlabs/weir"
)

// maxParts bounds into how many parts a limit may be divided.
const maxParts = 1_000_000

// Divided is the part of a limit that one of several processes enforces by
// itself: count or rate, and burst, divided and rounded up, at least 1. A rate
// below one a unit keeps its count and gets a longer unit instead, since
// rounding it up would raise it. The part keeps the limit's name. It fails where
// the part would be no limit that weir can keep.
func Divided(l weir.Limit, by int) (weir.Limit, error) {
	if by <= 1 {
		return l, nil
	}
	if by > maxParts {
		return l, fmt.Errorf("%s divided by %d: at most %d parts", l, by, maxParts)
	}
	parts := int64(by)
	n, scale := l.Rate()
	whole := scale * parts // of n, so that n/whole is the part in units
	part := n/whole + min(1, n%whole)
	burst := (l.Max()-1)/parts + 1

	words := strings.Fields(l.String())
	var text string
	switch count, unit, _ := strings.Cut(words[0], "/"); {
	case !l.IsBucket():
		_, unit, _ = strings.Cut(words[1], "/")
		words[1] = fmt.Sprintf("%d/%s", part, unit)
		text = strings.Join(words, " ")
	case n < scale:
		period := l.Period()
		period.Count *= parts
		text = fmt.Sprintf("%s/%s burst %d", count, period, burst)
	default:
		text = fmt.Sprintf("%d/%s burst %d", part, unit, burst)
	}
	d, err := weir.ParseLimit(text)
	if err != nil {
		return d, fmt.Errorf("%s divided by %d: %s", l, by, strings.TrimPrefix(err.Error(), "weir: "))
	}
	if d, err = d.Named(l.Name()); err == nil && l.IsMetered() {
		return d.Metered()
	}
	return d, err
}

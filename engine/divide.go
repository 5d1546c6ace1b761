package engine

import (
	"fmt"
	"strings"

	"github.com/weirlabs/weir"
)

// divided is the share of one replica: rate and burst divided and rounded up,
// at least 1. A rate below one a unit keeps its count and gets a longer unit
// instead, since rounding it up would raise it.
func divided(l weir.Limit, replicas int) (weir.Limit, error) {
	if replicas <= 1 {
		return l, nil
	}
	by := int64(replicas)
	n, scale := l.Rate()
	whole := scale * by // of n, so that n/whole is the share in units
	share := n/whole + min(1, n%whole)

	words := strings.Fields(l.String())
	var text string
	switch count, unit, _ := strings.Cut(words[0], "/"); {
	case !l.IsBucket():
		_, unit, _ = strings.Cut(words[1], "/")
		words[1] = fmt.Sprintf("%d/%s", share, unit)
		text = strings.Join(words, " ")
	case n < scale:
		period := l.Period()
		period.Count *= by
		text = fmt.Sprintf("%s/%s burst %d", count, period, (l.Max()+by-1)/by)
	default:
		text = fmt.Sprintf("%d/%s burst %d", share, unit, (l.Max()+by-1)/by)
	}
	d, err := weir.ParseLimit(text)
	if err != nil {
		return d, fmt.Errorf("%s divided by %d replicas: %w", l, replicas, err)
	}
	return d.Named(l.Name())
}

package generate

import (
	"math/big"
	"time"

	"github.com/weirlabs/weir"
)

// most is how many units a limit allows at most in any interval of a length: what
// a counter over such intervals has to let through, so that it refuses nothing
// that the limit allows. It may be larger than any int64.
func most(l weir.Limit, length time.Duration) *big.Int {
	count := big.NewInt(l.Max())
	if l.IsBucket() {
		n, scale := l.Rate()
		refill := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(length)))
		refill.Div(refill, new(big.Int).Mul(big.NewInt(scale), big.NewInt(int64(l.Period().Duration()))))
		return count.Add(count, refill)
	}
	period := int64(l.Period().Duration())
	windows := (int64(length)-1)/period + 1
	if l.IsQuota() {
		windows++ // one may be under way when the interval begins
	}
	return count.Mul(count, big.NewInt(windows))
}

// perSecond is the lasting rate of a limit.
func perSecond(l weir.Limit) *big.Rat {
	n, scale := l.Rate()
	seconds := new(big.Rat).SetFrac64(int64(l.Period().Duration()), int64(time.Second))
	return new(big.Rat).Quo(big.NewRat(n, scale), seconds)
}

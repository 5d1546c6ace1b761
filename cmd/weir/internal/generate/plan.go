package generate

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir/policy"
)

// UsagePlan is one usage plan in the policy's terms.
type UsagePlan struct {
	Name   string
	Rate   string // units a second, a decimal number; "" without a throttle
	Burst  int64
	Quota  int64  // 0 without one
	Period string // DAY, WEEK or MONTH
	Line   int
}

// plansOf translates the gateway's plans for usage plans, which have one rate with
// its burst and one quota, both for each key.
func plansOf(p *policy.Policy) (plans []UsagePlan, gaps []Gap) {
	for _, r := range p.Rules() {
		if r.Layer != policy.Gateway || r.Mode == policy.Off {
			continue
		}
		if r.Mode == policy.Shadow {
			gaps = append(gaps, gapOf(r, Looser, "no usage plan; the application counts in shadow", "a usage plan cannot count without refusing"))
			continue
		}
		if len(plans) == 0 || plans[len(plans)-1].Name != r.Plan {
			plans = append(plans, UsagePlan{Name: r.Plan, Line: r.Line})
		}
		u := &plans[len(plans)-1]
		quota := !r.Limit.IsBucket() && r.Limit.Period().Duration() >= 24*time.Hour
		switch {
		case quota && u.Quota > 0:
			gaps = append(gaps, gapOf(r, Looser, "leave it to the application", "a usage plan has one quota"))
		case !quota && u.Rate != "":
			gaps = append(gaps, gapOf(r, Looser, "leave it to the application", "a usage plan has one rate"))
		case quota:
			gaps = append(gaps, u.setQuota(r)...)
		default:
			rate, burst, found := throttle(r, "a usage plan")
			u.Rate, u.Burst = rate, burst
			gaps = append(gaps, found...)
		}
	}
	plans = slices.DeleteFunc(plans, func(u UsagePlan) bool { return u.Rate == "" && u.Quota == 0 })
	return plans, gaps
}

// calendarOf are the periods of usage plans with their nominal and their greatest
// length in days.
var calendarOf = []struct {
	name       string
	unit       string
	days, most int64
}{{"DAY", "day", 1, 1}, {"WEEK", "week", 7, 7}, {"MONTH", "month", 30, 31}}

// largest is the largest count that API Gateway takes: an int32.
const largest = 1<<31 - 1

func (u *UsagePlan) setQuota(r *policy.Rule) []Gap {
	l := r.Limit
	period := l.Period()
	for _, c := range calendarOf {
		if !l.IsQuota() || l.Max() > largest || period.Duration() != time.Duration(c.days)*24*time.Hour {
			continue
		}
		u.Quota, u.Period = l.Max(), c.name
		if _, how, _ := strings.Cut(l.String(), " calendar"); strings.Contains(l.String(), " calendar") && (how == "" || how == " UTC") && period.String() == c.unit {
			return nil
		}
		return []Gap{gapOf(r, Differs, u.quota(), "a usage plan's quota begins anew with every %s of the calendar in UTC, and not as %s does", c.unit, l)}
	}
	var best *big.Rat
	for _, c := range calendarOf {
		n := most(l, time.Duration(c.most)*24*time.Hour)
		if rate := new(big.Rat).SetFrac(n, big.NewInt(c.days)); n.Cmp(big.NewInt(largest)) <= 0 && (best == nil || rate.Cmp(best) < 0) {
			best = rate
			u.Quota, u.Period = n.Int64(), c.name
		}
	}
	if best == nil {
		return []Gap{gapOf(r, Looser, "leave it to the application", "a usage plan counts to %d, and %s allows more", largest, l)}
	}
	return []Gap{gapOf(r, Looser, u.quota(), "a usage plan's quota is for a day, a week or a month of the calendar, and not %s", l)}
}

// quota is the plan's quota in the grammar of policies.
func (u *UsagePlan) quota() string {
	for _, c := range calendarOf {
		if c.name == u.Period {
			return fmt.Sprintf("quota %d/%s calendar", u.Quota, c.unit)
		}
	}
	return ""
}

// limits are the plan's limits in the grammar of policies.
func (u *UsagePlan) limits() []string {
	var out []string
	if u.Rate != "" {
		out = append(out, fmt.Sprintf("%s/s burst %d", u.Rate, u.Burst))
	}
	if u.Quota > 0 {
		out = append(out, u.quota())
	}
	return out
}

// throttle is a limit as a rate a second and a burst, never stricter than the
// limit.
func throttle(r *policy.Rule, of string) (rate string, burst int64, gaps []Gap) {
	l := r.Limit
	exact := l.IsBucket()
	size := big.NewInt(l.Max())
	if l.IsQuota() {
		size.Mul(size, big.NewInt(2))
	}
	perS := perSecond(l)
	rate, whole := decimalUp(perS)
	exact = exact && whole
	if size.Cmp(big.NewInt(largest)) > 0 {
		size = big.NewInt(largest)
		return rate, size.Int64(), []Gap{gapOf(r, Stricter, nearest(rate, largest), "%s counts to %d, and %s allows more at once", of, largest, l)}
	}
	burst = size.Int64()
	if !exact {
		gaps = append(gaps, gapOf(r, Looser, nearest(rate, burst), "%s has a rate a second and a burst, and not %s", of, l))
	}
	return rate, burst, gaps
}

func nearest(rate string, burst int64) string { return fmt.Sprintf("%s/s burst %d", rate, burst) }

// decimals is how many decimals of a rate are written.
const decimals = 6

// decimalUp writes a rate, rounded up to few decimals, and reports whether it is
// the rate itself.
func decimalUp(r *big.Rat) (text string, exact bool) {
	scale := big.NewInt(1_000_000)
	scaled := new(big.Rat).Mul(r, new(big.Rat).SetInt(scale))
	n, rest := new(big.Int).QuoRem(scaled.Num(), scaled.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	text = new(big.Rat).SetFrac(n, scale).FloatString(decimals)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), "."), rest.Sign() == 0
}

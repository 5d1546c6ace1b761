package engine

import (
	"context"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// MustSettle reports whether the end of the call decides what it costs, so that
// the edge must [Outcome.Settle]: a limit counts only success, or the service
// says what the call really cost. So it must where the call may be given back and
// somebody is to be told of what stays.
func (o *Outcome) MustSettle() bool {
	if o.held == nil {
		return false
	}
	for i := int(o.first); i < len(o.Verdicts); i++ {
		if o.Verdicts[i].Rule.Settled() {
			return true
		}
	}
	return o.st.engine.o.CanGiveBack && o.unfinished()
}

// unfinished reports whether there is something to find out of a call that costs
// what it took: whether what stays reaches a mark, or how much of a take that was
// not waited for is beyond a quota.
func (o *Outcome) unfinished() bool {
	for i := int(o.first); i < len(o.Verdicts); i++ {
		if v := &o.Verdicts[i]; v.marked() || v.Unknown && v.Limit.IsMetered() {
			return true
		}
	}
	return false
}

// AwaitsCost reports whether a limit of the call has its cost from a header that
// header does not have, although the status is none of a failure. The header may
// then follow as a trailer, and the edge settles at the end.
func (o *Outcome) AwaitsCost(status int, header func(name string) string) bool {
	if o.judged || o.held == nil {
		return false
	}
	for i := int(o.first); i < len(o.Verdicts); i++ {
		r := o.Verdicts[i].Rule
		if r.Settle != "" && (!r.OnSuccess || r.Success.Holds(status)) && header(r.Settle) == "" {
			return true
		}
	}
	return false
}

// Settle is [Outcome.SettleBy] for an edge that has no header to look into.
func (o *Outcome) Settle(ctx context.Context, status int) error { return o.SettleBy(ctx, status, nil) }

// SettleBy says with which status the service answered, and what its header
// holds. Limits that count only success give back what they took when the status
// is none. Where the policy says settle:, a call costs what that field says;
// without it, what was taken at first.
//
// Only the first call of Settle, SettleBy, [Outcome.GiveBack] and [Outcome.Release] does
// anything. An error means that something may still be counted; it is logged
// already. Without one, Verdicts say what is left now. The context's end does
// not stop a settlement.
func (o *Outcome) SettleBy(ctx context.Context, status int, header func(name string) string) error {
	if o.judged || o.held == nil {
		return nil
	}
	o.judged = true
	defer o.close(ctx)
	verdicts := o.Verdicts[o.first:]
	var actual []int64
	for i := range verdicts {
		cost := verdicts[i].actual(status, header)
		if cost == verdicts[i].Cost {
			continue
		}
		if actual == nil {
			actual = make([]int64, len(verdicts), len(verdicts)+1)
			for j := range verdicts {
				actual[j] = verdicts[j].Cost
			}
		}
		actual[i] = cost
	}
	if actual == nil && !o.unfinished() {
		return nil
	}
	return o.settle(ctx, actual)
}

// actual is what a call really cost one limit.
func (v *Verdict) actual(status int, header func(name string) string) int64 {
	r := v.Rule
	if r.OnSuccess && !r.Success.Holds(status) {
		return 0
	}
	if r.Settle == "" || header == nil {
		return v.Cost
	}
	n, err := strconv.ParseInt(strings.TrimSpace(header(r.Settle)), 10, 64)
	if err != nil || n < 0 {
		return v.Cost
	}
	return n
}

// GiveBack returns what every gateway and application limit took, because the
// request never reached the service. What the edge took stays taken. It needs
// [Options.CanGiveBack]. Like Settle it acts once.
func (o *Outcome) GiveBack(ctx context.Context) error {
	if o.judged || o.held == nil {
		return nil
	}
	o.judged = true
	defer o.close(ctx)
	n := len(o.Verdicts) - int(o.first)
	return o.settle(ctx, make([]int64, n, n+1))
}

// settle brings the call to its real cost; nil is what it took. The verdicts then say what is left,
// so that an answer which is written now shows it. When anything failed they
// stay: what is left is not more than they say.
func (o *Outcome) settle(ctx context.Context, actual []int64) error {
	verdicts := o.Verdicts[o.first:]
	back := false
	for i := range actual {
		back = back || actual[i] == 0 && verdicts[i].Cost > 0
	}
	costs := len(actual)
	if o.once && back { // a call that is not charged is charged when it is sent again
		actual = append(actual, 0)
	}
	if err := o.held.SettleBeside(ctx, o.shed(actual), actual...); err != nil {
		what := markless
		if actual != nil {
			what = notGivenBack
		}
		o.st.engine.lines.unsettled(ctx, o, verdicts, what, err)
		return err
	}
	since := time.Duration(o.st.engine.now() - o.now)
	for i := range costs {
		v := &verdicts[i]
		v.returned(v.Cost-actual[i], since)
		if v.Allowed && !v.Unknown {
			v.Cost = actual[i]
		}
	}
	o.tellSettled(ctx)
	o.speaks = -1
	o.judge(false)
	return nil
}

// returned notes n units that were given back, so long after they were taken;
// below 0 they were charged.
func (v *Verdict) returned(n int64, since time.Duration) {
	most := v.Limit.Max()
	switch {
	case n == 0 || !v.Allowed || v.Unknown:
		return
	case !v.Limit.IsBucket() && since >= v.ResetAfter:
		return // that window is over
	}
	beyond := max(v.Used-most, 0) // counted, or owed, above the limit
	v.Used = min(max(v.Used-n, 0), most+v.Limit.Debt())
	v.Remaining = min(max(v.Remaining+n-beyond, 0), most)
	switch {
	case v.Limit.IsBucket() && n < 0:
		v.ResetAfter = refill(v, v.Used)
	case v.Limit.IsBucket():
		v.ResetAfter = max(v.ResetAfter-refill(v, min(n, most)), 0)
	case v.Used == 0 && v.Limit.IsQuota() && !v.Limit.OnCalendar():
		v.ResetAfter = 0 // the window begins anew with the next call
	}
}

// refill is how long a bucket needs for n units; an empty one for all of them
// needs its horizon.
func refill(v *Verdict, n int64) time.Duration {
	hi, lo := bits.Mul64(uint64(v.Limit.Horizon()), uint64(n))
	d, _ := bits.Div64(hi, lo, uint64(v.Limit.Max()))
	return time.Duration(d)
}

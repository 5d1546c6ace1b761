package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Notice is something about a quota that somebody wants to hear of beside the
// decisions: a mark that was reached, or units beyond a metered quota.
type Notice struct {
	Rule      *policy.Rule
	KeyHash   string // as in [Record]
	Percent   int    // the mark, of notify_at:, that this call is the first of its window to reach; 0 without one
	Excess    int64  // units of this call beyond a metered quota; below 0 when some are given back
	Used, Max int64
	ResetAt   time.Time // when the window is over
	Shadow    bool
}

// Excess is by how many units the call has changed what is beyond a metered quota,
// so far: by what it took, and what came back of that. It is below 0 when others
// have moved up meanwhile, so that the sum over all calls is what is beyond it now.
func (v *Verdict) Excess() int64 { return v.excess }

// excessOf is the excess of a take of which nothing comes back.
func excessOf(d *weir.Decision) int64 {
	if !d.Allowed || d.Unknown || !d.Limit.IsMetered() {
		return 0
	}
	return min(max(d.Used-d.Limit.Max(), 0), d.Cost)
}

// telling reports whether a verdict is one that somebody wants to hear of.
func (v *Verdict) telling() bool { return v.Notice != 0 || v.excess != 0 }

// telling reports whether one of the verdicts is.
func (o *Outcome) telling() bool {
	for i := range o.Verdicts {
		if o.Verdicts[i].telling() {
			return true
		}
	}
	return false
}

// tell passes on what the verdicts of a call have to tell. Of one that was refused
// that is only how giving back what it had taken has moved those beyond a quota.
func (o *Outcome) tell(ctx context.Context) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.telling() {
			o.tellOf(ctx, v, v.excess)
		}
	}
}

func (o *Outcome) tellOf(ctx context.Context, v *Verdict, excess int64) {
	n := Notice{
		Rule: v.Rule, KeyHash: o.KeyHash(v), Percent: int(v.Notice), Excess: excess,
		Used: v.Used, Max: v.Limit.Max(), ResetAt: v.ResetAt(o.Time()).UTC(), Shadow: v.Shadow,
	}
	if n.Percent != 0 {
		o.st.engine.lines.noticed(ctx, o, v, &n)
	}
	if o.st.engine.o.Noticed != nil {
		o.st.engine.o.Noticed(ctx, n)
	}
}

// tellSettled passes on what the settlement of a call has to tell: marks that are
// reached by what stays, and how it changed the excess.
func (o *Outcome) tellSettled(ctx context.Context) {
	each := o.held.Each()
	verdicts := o.Verdicts[o.first:]
	for i := range verdicts {
		v := &verdicts[i]
		excess := o.held.Excess(i) - v.excess
		v.excess += excess
		if v.Notice = each[i].Notice; v.Notice != 0 {
			v.Used = each[i].Used
		} else if excess == 0 {
			continue
		}
		o.tellOf(ctx, v, excess)
		if o.st.engine.o.Decisions != nil {
			o.st.engine.o.Decisions(o.settledRecord(v, excess))
		}
	}
}

// eventSettled marks a line of the decision log that is no decision: what became
// of one.
const eventSettled = "settled"

// noticed writes a line for a mark, bounded as those of refusals are.
func (l *lines) noticed(ctx context.Context, o *Outcome, v *Verdict, n *Notice) {
	s := l.of(v.Rule)
	s.mu.Lock()
	held, ok := s.notices.take(o.at())
	s.mu.Unlock()
	if !ok {
		return
	}
	attrs := append(attrsOf(o, v),
		slog.Int("percent", n.Percent), slog.Int64("used", n.Used), slog.Int64("of", n.Max),
		slog.Time("reset_at", n.ResetAt))
	if held > 0 {
		attrs = append(attrs, slog.Int64("notices_not_logged", held))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "a quota has reached a mark", attrs...)
}

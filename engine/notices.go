package engine

import (
	"context"
	"log/slog"
	"time"

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

// Excess is how many units of the call are beyond a metered quota.
func (v *Verdict) Excess() int64 {
	if !v.Allowed || v.Unknown || !v.Limit.IsMetered() {
		return 0
	}
	return min(max(v.Used-v.Limit.Max(), 0), v.Cost)
}

// telling reports whether a verdict is one that somebody wants to hear of.
func (v *Verdict) telling() bool { return v.Notice != 0 || v.Used > v.Limit.Max() && v.Excess() > 0 }

// tell passes on what the verdicts of a call that was served have to tell, or
// those from an index on.
func (o *Outcome) tell(ctx context.Context) {
	if o.Limited() {
		return // what belongs to a refused call was not taken, or was given back
	}
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.telling() {
			o.tellOf(ctx, v, v.Excess())
		}
	}
}

func (o *Outcome) tellOf(ctx context.Context, v *Verdict, excess int64) {
	n := Notice{
		Rule: v.Rule, KeyHash: o.KeyHash(v), Percent: int(v.Notice), Excess: excess,
		Used: v.Used, Max: v.Limit.Max(), ResetAt: v.ResetAt(o.Time()).UTC(), Shadow: v.Shadow,
	}
	if n.Percent != 0 {
		o.eng.lines.noticed(ctx, o, v, &n)
	}
	if o.eng.o.Noticed != nil {
		o.eng.o.Noticed(ctx, n)
	}
}

// tellSettled passes on what the settlement of a call has to tell: marks that
// only the real cost has reached, and how it changed the excess.
func (o *Outcome) tellSettled(ctx context.Context, before []int64) {
	each := o.held.Each()
	verdicts := o.Verdicts[o.first:]
	for i := range verdicts {
		v := &verdicts[i]
		v.Notice = each[i].Notice
		excess := v.Excess() - before[i]
		if v.Notice == 0 && excess == 0 {
			continue
		}
		o.tellOf(ctx, v, excess)
		if o.eng.o.Decisions != nil {
			r := o.recordOf(v, 1)
			r.Event, r.Excess = eventSettled, excess
			o.eng.o.Decisions(r)
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

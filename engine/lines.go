package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// refusalsPerSecond is how many refusals of one limit get a log line of their
// own each second. An attack must not fill the disk.
const refusalsPerSecond = 5

// lines writes the log lines of limits, bounded per limit. Counts that were held
// back are told by the next line, so that nothing needs a goroutine.
type lines struct {
	log      *slog.Logger
	now      func() int64
	limits   sync.Map     // limit name -> *lineState; as many as policies have limits
	staleAt  atomic.Int64 // Unix ns of the last line about records that could not be read
	brokenAt atomic.Int64 // Unix ns of the last line about a request that could not be judged
	outages  atomic.Int32 // limits whose store is known to fail: 0 keeps the check off the hot path
}

type lineState struct {
	mu       sync.Mutex
	refusals ration
	notices  ration

	down      bool
	told      int64 // Unix ns of the last line that the store fails
	ended     int64 // Unix ns of the last line that it answers again
	degraded  int64 // decisions without a line since the last of either
	sinceDown int64 // decisions without the store since ended
	failed    int64 // Unix ns of the last line about a failed give-back

}

// ration bounds the lines of one kind: so many a second, and the next one says how
// many were held back.
type ration struct {
	second int64 // Unix second to which wrote belongs
	wrote  int
	held   int64 // events without a line since the last one
}

// take reports whether a line may be written now, and how many were not before it.
func (r *ration) take(now int64) (held int64, ok bool) {
	if second := now / int64(time.Second); second != r.second {
		r.second, r.wrote = second, 0
	}
	if r.wrote >= refusalsPerSecond {
		r.held++
		return 0, false
	}
	r.wrote++
	held, r.held = r.held, 0
	return held, true
}

func (l *lines) of(r *policy.Rule) *lineState {
	if s, ok := l.limits.Load(r.Name); ok {
		return s.(*lineState)
	}
	s, _ := l.limits.LoadOrStore(r.Name, &lineState{})
	return s.(*lineState)
}

// refused writes a warning for a refusal.
func (l *lines) refused(ctx context.Context, o *Outcome, v *Verdict) {
	s := l.of(v.Rule)
	s.mu.Lock()
	held, ok := s.refusals.take(o.at())
	s.mu.Unlock()
	if !ok {
		return
	}
	attrs := append(attrsOf(o, v),
		slog.String("reason", v.Reason.String()),
		slog.Int64("cost", v.Cost),
		slog.Int64("remaining", v.Remaining),
		slog.Int64("retry_after_seconds", Seconds(v.RetryAfter)),
		slog.String("denial_id", o.DenialID()))
	if held > 0 {
		attrs = append(attrs, slog.Int64("refusals_not_logged", held))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, "request refused", attrs...)
}

// degraded writes an error when a store could not be asked: at once, and then
// once a minute with the count in between, also when the store answers others, or
// every other time.
func (l *lines) degraded(ctx context.Context, o *Outcome, v *Verdict, cause error) {
	s := l.of(v.Rule)
	now := o.at()
	s.mu.Lock()
	if !s.down {
		s.down = true
		l.outages.Add(1)
	}
	s.degraded++
	s.sinceDown++
	if s.told != 0 && now-s.told < int64(time.Minute) {
		s.mu.Unlock()
		return
	}
	s.told = now
	count := s.degraded
	s.degraded = 0
	s.mu.Unlock()

	msg, mode := "store could not be asked: request served without counting it", "allow"
	switch {
	case v.Reason == weir.ReasonUnavailable:
		msg, mode = "store could not be asked: request refused", "deny"
	case v.Rule.OnStoreError == weir.FailLocal:
		msg, mode = "store could not be asked: requests decided by this process's share of the limit", "local"
	}
	attrs := append(attrsOf(o, v), slog.String("on_store_error", mode), slog.Int64("decisions", count))
	if cause != nil {
		attrs = append(attrs, slog.String("cause", cause.Error()))
	}
	l.log.LogAttrs(ctx, slog.LevelError, msg, attrs...)
}

// healthy ends an outage, and says how many decisions it touched: at once, unless
// one was said to be over within the last minute. Then what was not told of this
// one is told as soon as that is past.
func (l *lines) healthy(ctx context.Context, o *Outcome, v *Verdict) {
	if l.outages.Load() == 0 {
		return
	}
	s := l.of(v.Rule)
	now := o.at()
	s.mu.Lock()
	if !s.down || s.ended != 0 && now-s.ended < int64(time.Minute) {
		s.mu.Unlock()
		return
	}
	count := s.sinceDown
	s.down, s.ended, s.degraded, s.sinceDown = false, now, 0, 0
	s.mu.Unlock()
	l.outages.Add(-1)
	l.log.LogAttrs(ctx, slog.LevelInfo, "store answers again", slog.String("limit", v.Rule.Name),
		slog.Int64("decisions_without_it", count))
}

// What could not be done when a call ended.
const (
	notGivenBack = "could not give back what a failed request took; it stays counted"
	markless     = "could not find out whether a request has reached a mark of its quota; a later one tells of it"
)

// unsettled writes an error at most once a second and limit.
func (l *lines) unsettled(ctx context.Context, o *Outcome, of []Verdict, what string, err error) {
	s := l.of(of[0].Rule)
	now := l.now()
	s.mu.Lock()
	due := s.failed == 0 || now-s.failed >= int64(time.Second)
	if due {
		s.failed = now
	}
	s.mu.Unlock()
	if due {
		keys := make([]weir.Key, len(of))
		for i := range of {
			keys[i] = of[i].Key
		}
		l.log.LogAttrs(ctx, slog.LevelError, what,
			append(attrsOf(o, &of[0]), slog.String("cause", o.st.engine.nameless(err, keys...).Error()))...)
	}
}

// broken writes an error for a request that could not be judged at all, at most
// once a second.
func (l *lines) broken(ctx context.Context, err error) {
	now := l.now()
	last := l.brokenAt.Load()
	if last != 0 && now-last < int64(time.Second) || !l.brokenAt.CompareAndSwap(last, now) {
		return
	}
	l.log.LogAttrs(ctx, slog.LevelError, "a request could not be judged and was answered 503", slog.String("cause", err.Error()))
}

// stale writes an error, at most once a minute, when requests are decided by
// what records of accounts said before the store failed, or without them.
func (l *lines) stale(cause error) {
	now := l.now()
	last := l.staleAt.Load()
	if last != 0 && now-last < int64(time.Minute) || !l.staleAt.CompareAndSwap(last, now) {
		return
	}
	l.log.Error("records of accounts could not be read: requests are decided by what was known before", "cause", cause.Error())
}

func attrsOf(o *Outcome, v *Verdict) []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("layer", string(v.Rule.Layer)), slog.String("limit", v.Rule.Name))
	if v.Rule.Operation != "" {
		attrs = append(attrs, slog.String("operation", v.Rule.Operation), slog.String("plan", v.Rule.Plan))
	}
	if key := o.KeyHash(v); key != "" {
		attrs = append(attrs, slog.String("key", key))
	}
	return attrs
}

// observe writes the lines that an outcome deserves.
func (e *Engine) observe(ctx context.Context, o *Outcome) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		switch {
		case v.Degraded:
			e.lines.degraded(ctx, o, v, e.failure.of(v.Key))
		case v.Reason != weir.ReasonNotAsked:
			e.lines.healthy(ctx, o, v)
		}
	}
	if v := o.Speaks(); v != nil && o.Limited() && v.Reason != weir.ReasonUnavailable {
		e.lines.refused(ctx, o, v)
	}
}

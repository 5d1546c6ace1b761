package diff

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Affected says what a change would have meant to the calls of a decision log.
type Affected struct {
	Requests float64 `json:"requests"` // that the limit was asked about; estimated where lines stand for several
	Callers  int     `json:"callers"`  // whose they are

	// Replayed says that the requests were made again, at their times, under both
	// limits. The figures below are 0 without that.
	Replayed      bool `json:"replayed"`
	RefusedBefore int  `json:"refused_before"`
	RefusedAfter  int  `json:"refused_after"`
	HurtCallers   int  `json:"hurt_callers"`   // who are refused more often than before
	HelpedCallers int  `json:"helped_callers"` // less often

	Note string `json:"note"` // why nothing could be replayed, or what the log does not say
}

// Thin is a log that says too little to make its calls again.
type Thin struct {
	Limit  string
	Weight float64 // of the lines of what was allowed; 0: there are none
}

func (t *Thin) Error() string {
	if t.Weight == 0 {
		return fmt.Sprintf("the log has refusals by %s and no line of what it allowed, so its calls cannot be made again", t.Limit)
	}
	return fmt.Sprintf("the log has one in %.3g of the calls that %s allowed, so they cannot be made again: a caller's next call may be missing", t.Weight, t.Limit)
}

// Replay holds changes against a decision log.
type Replay struct {
	changes []Change
	limits  map[string][]*replayed // by layer, name and plan
}

// maxCallers bounds the callers of one limit that are told apart.
const maxCallers = 1 << 20

// replayed is one change under way.
type replayed struct {
	change  *Change
	weight  float64 // the largest of what was allowed
	allowed int64
	refused int64
	callers map[string]*caller
	note    string
	old     *side // nil: nothing is made again
	now     *side
}

// caller counts the refusals of one caller under both limits.
type caller struct{ before, after int }

// side makes calls under one limit, at the times of the log.
type side struct {
	limit   weir.Limit
	refuses bool // what the limit does not allow; a shadow lets it pass
	lim     *weir.Limiter
	now     int64
}

func newSide(r *policy.Rule) *side {
	s := &side{limit: r.Limit, refuses: r.Mode == policy.Enforce}
	clock := func() int64 { return s.now }
	s.lim = weir.NewLimiter(memstore.New(memstore.Options{Now: clock, MaxKeys: maxCallers}), weir.Options{Now: clock})
	return s
}

func (s *side) call(ctx context.Context, key weir.Key, cost, at int64) (allowed bool, err error) {
	s.now = max(s.now, at) // lines of several processes may be a little out of order
	d, err := s.lim.Take(ctx, weir.Op{Limit: s.limit, Key: key, Cost: cost})
	return d.Allowed || !s.refuses, err
}

// NewReplay prepares changes of limits for a log; they are filled in by
// [Replay.End].
func NewReplay(changes []Change) *Replay {
	r := &Replay{changes: changes, limits: map[string][]*replayed{}}
	// The fields whose changes are made again, all of one edit at once: the first has the
	// figures. A mode alone needs none: the log says what it refused.
	replayable := []string{"limit", "mode", "over"}
	words := map[string]string{"limit": "its numbers", "over": "its over:", "mode": "its mode"}
	variants := map[string]int{}
	for i := range changes {
		c := &changes[i]
		if c.Field == "limit" && c.Kind == "changed" {
			variants[keyOf(c.was.Layer, c.was.Name, c.was.Plan)]++
		}
	}
	for i := range changes {
		c := &changes[i]
		rule := c.was
		if rule == nil {
			rule = c.is
		}
		if rule == nil || c.Effect == "" {
			continue
		}
		one := &replayed{change: c, callers: map[string]*caller{}}
		key := keyOf(rule.Layer, rule.Name, rule.Plan)
		others := together(changes, c)
		made := slices.DeleteFunc(append(slices.Clone(others), c.Field), func(f string) bool { return !slices.Contains(replayable, f) })
		slices.SortFunc(made, func(a, b string) int { return slices.Index(replayable, a) - slices.Index(replayable, b) })
		again := slices.Contains(made, c.Field) && !slices.Equal(made, []string{"mode"}) && c.Kind == "changed" && c.was.By == c.is.By
		switch {
		case again && c.Field != made[0]: // once is enough
			c.Affected = &Affected{Note: "what the log says of it stands at " + words[made[0]]}
			continue
		case again:
			one.old, one.now = newSide(c.was), newSide(c.is)
			if c.was.Mode == c.is.Mode { // a shadow's refusals are those that it would make
				one.old.refuses, one.now.refuses = true, true
			}
			if variants[key] > 1 || c.was.Anonymous {
				one.say("the log is read for those who had this limit")
			}
			if len(made) > 1 {
				var all []string
				for _, f := range made {
					all = append(all, words[f])
				}
				one.say("of " + strings.Join(all, " and ") + " together")
			}
			if others = slices.DeleteFunc(others, func(f string) bool { return slices.Contains(made, f) }); len(others) > 0 {
				one.say("what its other changes (" + strings.Join(others, ", ") + ") do is not in it")
			}
		case c.Field == "limit" && c.Kind == "removed":
			one.note = "whom it refused would pass"
		case c.Field == "limit" && c.Kind == "added":
			one.note = "the log knows nothing of a limit that was not there; run it with mode: shadow, and ask weir report --shadow"
		case c.Field == "mode":
			one.note = "refusals are those of the log"
		default:
			one.note = "which of these requests it concerns, the log does not say"
		}
		r.limits[key] = append(r.limits[key], one)
	}
	return r
}

// together are the other fields of a change's rule that one edit changes as well, and
// on which it depends who is refused.
func together(changes []Change, c *Change) (fields []string) {
	for i := range changes {
		if o := &changes[i]; o.Kind == "changed" && o.was == c.was && o.is == c.is && o.was != nil && o.Field != c.Field && o.Effect != "" {
			fields = append(fields, o.Field)
		}
	}
	return fields
}

// say adds to the note.
func (o *replayed) say(note string) {
	if o.note != "" {
		note = o.note + "; " + note
	}
	o.note = note
}

func keyOf(layer policy.Layer, name, plan string) string {
	return string(layer) + "\x00" + name + "\x00" + plan
}

// Add takes one line of the log.
func (r *Replay) Add(ctx context.Context, d *engine.Record) error {
	for _, one := range r.limits[keyOf(d.Layer, d.Limit, d.Plan)] {
		if err := one.add(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (o *replayed) add(ctx context.Context, d *engine.Record) error {
	was := o.change.was
	if was != nil && (was.Mode == policy.Shadow) != d.Shadow {
		return nil
	}
	if o.old != nil && d.LimitText != "" && d.LimitText != was.Limit.String() {
		return nil // of the same name, for other callers
	}
	if d.KeyHash == "" {
		return fmt.Errorf("a line of %s names no caller: the log was written under log_keys: none, and callers cannot be told apart", d.Limit)
	}
	if d.Allowed {
		o.allowed++
		o.weight = max(o.weight, d.Weight)
	} else {
		o.refused++
	}
	who := o.callers[d.KeyHash]
	if who == nil {
		if len(o.callers) >= maxCallers {
			return fmt.Errorf("the log has more than %d callers of %s; give a part of it", maxCallers, d.Limit)
		}
		who = &caller{}
		o.callers[d.KeyHash] = who
	}
	if o.change.Affected == nil {
		o.change.Affected = &Affected{}
	}
	a := o.change.Affected
	a.Requests += d.Weight
	if o.old == nil {
		if !d.Allowed && o.change.Kind == "removed" || !d.Allowed && o.change.Field == "mode" {
			a.RefusedBefore++
			who.before++
		}
		return nil
	}
	key := weir.NewKey("caller", d.KeyHash)
	if !key.Valid() {
		return fmt.Errorf("a line of %s has a key that is too long", d.Limit)
	}
	before, err := o.old.call(ctx, key, d.Cost, d.Time.UnixNano())
	if err != nil {
		return err
	}
	after, err := o.now.call(ctx, key, d.Cost, d.Time.UnixNano())
	if err != nil {
		return err
	}
	if !before {
		a.RefusedBefore++
		who.before++
	}
	if !after {
		a.RefusedAfter++
		who.after++
	}
	return nil
}

// End fills the changes in. The error is a *[Thin] where a log has too little of
// what was allowed.
func (r *Replay) End() error {
	for i := range r.changes {
		for _, all := range r.limits {
			for _, one := range all {
				if one.change == &r.changes[i] {
					if err := one.end(); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (o *replayed) end() error {
	a := o.change.Affected
	if a == nil {
		a = &Affected{}
		o.change.Affected = a
		if o.note == "" || o.change.Kind != "added" {
			a.Note = "the log has no line of it"
			return nil
		}
	}
	a.Callers, a.Note = len(o.callers), o.note
	a.Requests = math.Round(a.Requests)
	if o.old != nil {
		switch {
		case o.weight > 1:
			return &Thin{o.change.Name, o.weight}
		case o.allowed == 0 && o.refused > 0:
			return &Thin{o.change.Name, 0}
		}
		a.Replayed = true
		if o.change.was.OnSuccess {
			o.say("calls that failed cost nothing, which the log does not say: these are the most")
			a.Note = o.note
		}
	}
	if o.old == nil && o.change.Field == "mode" && o.change.is.Mode == policy.Enforce {
		a.RefusedBefore, a.RefusedAfter = 0, a.RefusedBefore // of a shadow: nobody was, and would be now
		for _, c := range o.callers {
			c.before, c.after = 0, c.before
		}
	}
	for _, c := range o.callers {
		switch {
		case c.after > c.before:
			a.HurtCallers++
		case c.after < c.before:
			a.HelpedCallers++
		}
	}
	return nil
}

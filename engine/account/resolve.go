package account

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// resolve is Resolve for a caller of the book, made anew only when a record has
// changed or something of it has ended.
func (b *Book) resolve(e *entry, c policy.Caller, r *Record, x *Index) Caller {
	now := b.o.Now()
	if have := e.resolved.Load(); have != nil && have.record == r && have.index == x && have.from <= now && now < have.until {
		return have.caller
	}
	next := &resolved{record: r, index: x, from: now}
	var wrong error
	next.caller, next.until, wrong = Resolve(r, x, c.Kind, c.Key, now)
	if a := next.caller.Account; a != nil && b.o.MaxKeep > 0 {
		for name, l := range a.Overrides {
			if l.Horizon() > b.o.MaxKeep {
				delete(a.Overrides, name)
				wrong = fmt.Errorf("the override of %s, %s: the store keeps items for %v at most", name, l, b.o.MaxKeep)
			}
		}
	}
	if wrong != nil {
		b.tell(wrong)
	}
	e.resolved.Store(next)
	return next.caller
}

// tell logs what is wrong with a record, at most once a minute.
func (b *Book) tell(wrong error) {
	now, last := b.o.Now(), b.told.Load()
	if last != 0 && now-last < int64(time.Minute) || !b.told.CompareAndSwap(last, now) {
		return
	}
	b.o.Logger.Error("a caller's record cannot be followed: the policy's own limit holds", slog.String("cause", wrong.Error()))
}

// Resolve says what a caller's own record and the wildcards that name it say
// together at an instant, in Unix nanoseconds, and until when that holds if no
// record changes. wrong names a limit that is none; it is passed over.
func Resolve(r *Record, x *Index, kind string, caller weir.Key, now int64) (c Caller, until int64, wrong error) {
	until = math.MaxInt64
	at := time.Unix(0, now)
	holds := func(t *Terms) bool {
		if t.over(at) {
			return false
		}
		if !t.Expires.IsZero() && t.Expires.Year() < 2262 {
			until = min(until, t.Expires.UnixNano())
		}
		return true
	}
	said := policy.Account{Kind: kind, Pins: r.Pins}
	for i, one := range append([]Record{*r}, x.about(kind, caller)...) {
		granted := said.Plans != nil
		for _, g := range one.Plans {
			if !granted && holds(&g.Terms) {
				said.Plans = append(said.Plans, g.Plan)
			}
		}
		if said.Anchor.IsZero() {
			said.Anchor = one.BillingAnchor
		}
		for _, name := range slices.Sorted(maps.Keys(one.Overrides)) {
			o := one.Overrides[name]
			if _, have := said.Overrides[name]; have || !holds(&o.Terms) {
				continue
			}
			l, err := o.parse()
			if err != nil {
				wrong = fmt.Errorf("the override of %s: %w", name, err)
				if i > 0 {
					wrong = fmt.Errorf("of a wildcard, %w", wrong)
				}
				continue
			}
			if said.Overrides == nil {
				said.Overrides = map[string]weir.Limit{}
			}
			said.Overrides[name] = l
		}
		c.Banned = c.Banned || one.Ban != nil && holds(&one.Ban.Terms)
	}
	if said.Plans != nil || said.Pins != nil || !said.Anchor.IsZero() || said.Overrides != nil {
		c.Account = &said
	}
	return c, until, wrong
}

// clone is a record that can be changed without its origin.
func (r *Record) clone() *Record {
	n := *r
	n.Plans = slices.Clone(r.Plans)
	n.Pins = maps.Clone(r.Pins)
	n.Overrides = maps.Clone(r.Overrides)
	n.History = slices.Clone(r.History)
	if r.Ban != nil {
		ban := *r.Ban
		n.Ban = &ban
	}
	return &n
}

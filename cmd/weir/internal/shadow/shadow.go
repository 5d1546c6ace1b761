// Package shadow reads from decision logs whom limits that merely watch would have
// refused, how often, and what limit would have spared them.
//
// Who would have been refused stands in the log: refusals are always written. What
// would have spared a caller does not. It is found by making all calls of the log
// again, at their times, under the same limit with room for everything, and looking
// at the most that the caller ever had in use. That needs every call: of a sample
// nothing is said.
package shadow

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Limit is what a log says of one limit that watches.
type Limit struct {
	Layer    string    `json:"layer"`
	Name     string    `json:"limit"`
	Plan     string    `json:"plan"`
	Text     string    `json:"limit_text"` // "" where neither the log nor a policy says
	Requests float64   `json:"requests"`   // estimated, where lines stand for several
	Callers  int       `json:"callers"`    // of those
	Denied   int64     `json:"denied"`     // that would have been refused
	Hurt     int       `json:"hurt_callers"`
	First    time.Time `json:"first"` // refusal
	Last     time.Time `json:"last"`
	Top      []Caller  `json:"top"` // who would have been refused most often
	Spare    *Spare    `json:"spared_by"`
	Note     string    `json:"note"` // why nothing would be known to spare them, or what the log does not say
}

// Caller is one who would have been refused.
type Caller struct {
	Key    string    `json:"key_hash"`
	Denied int64     `json:"denied"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Needs  string    `json:"needs"` // the smallest limit that refuses none of its calls; "" where it is not known
}

// Spare are the smallest limits of the same kind that would have refused nobody,
// or only one caller in ten of those who were.
type Spare struct {
	All  string `json:"all"`
	Most string `json:"nine_in_ten"`
}

// The bounds of what is held.
const (
	maxCallers = 1 << 20 // of one limit
	maxLimits  = 10_000
	maxTop     = 10
)

// Collector takes the lines of logs.
type Collector struct {
	since  time.Time
	texts  map[key]string // of limits in a policy, where a line does not say
	limits map[key]*limit
	sorted []*limit
	older  int64
}

type key struct {
	layer, name, plan, text string
}

type limit struct {
	Limit
	callers map[string]*caller
	weight  float64 // the largest
	allowed int64
	room    weir.Limit // the same with room for everything; zero: not known
	lim     *weir.Limiter
	now     int64
}

type caller struct {
	denied      int64
	first, last time.Time
	used        int64 // at most
}

// New returns a collector of what is not older than since. The policy, which may be
// nil, says what limits are of which lines do not say it.
func New(since time.Time, p *policy.Policy) *Collector {
	c := &Collector{since: since, texts: map[key]string{}, limits: map[key]*limit{}}
	if p == nil {
		return c
	}
	for _, r := range p.Rules() {
		k := key{string(r.Layer), r.Name, r.Plan, ""}
		if was, twice := c.texts[k]; twice && was != r.Limit.String() {
			c.texts[k] = "" // one for callers with an account, one for others
			continue
		}
		c.texts[k] = r.Limit.String()
	}
	return c
}

// Add takes one line. An error says that the log cannot be judged.
func (c *Collector) Add(ctx context.Context, d *engine.Record) error {
	switch {
	case !d.Shadow:
		return nil
	case d.Time.Before(c.since):
		c.older++
		return nil
	case d.KeyHash == "":
		return fmt.Errorf("a line of %s names no caller: the log was written under log_keys: none, and callers cannot be told apart", d.Limit)
	}
	text := d.LimitText
	if text == "" {
		text = c.texts[key{string(d.Layer), d.Limit, d.Plan, ""}]
	}
	k := key{string(d.Layer), d.Limit, d.Plan, text}
	l := c.limits[k]
	if l == nil {
		if len(c.limits) >= maxLimits {
			return fmt.Errorf("the log has more than %d limits", maxLimits)
		}
		l = newLimit(k)
		c.limits[k] = l
		c.sorted = append(c.sorted, l)
	}
	return l.add(ctx, d)
}

func newLimit(k key) *limit {
	l := &limit{Limit: Limit{Layer: k.layer, Name: k.name, Plan: k.plan, Text: k.text, Top: []Caller{}}, callers: map[string]*caller{}}
	if as, err := weir.ParseLimit(k.text); err == nil {
		if l.room, err = withRoom(as); err == nil {
			clock := func() int64 { return l.now }
			l.lim = weir.NewLimiter(memstore.New(memstore.Options{Now: clock, MaxKeys: maxCallers}), weir.Options{Now: clock})
		}
	}
	return l
}

func (l *limit) add(ctx context.Context, d *engine.Record) error {
	who := l.callers[d.KeyHash]
	if who == nil {
		if len(l.callers) >= maxCallers {
			return fmt.Errorf("the log has more than %d callers of %s; give a part of it, as with --since", maxCallers, d.Limit)
		}
		who = &caller{}
		l.callers[d.KeyHash] = who
	}
	l.Requests += d.Weight
	if d.Allowed {
		l.allowed++
		l.weight = max(l.weight, d.Weight)
	} else {
		l.Denied++
		if who.denied++; who.denied == 1 || d.Time.Before(who.first) {
			who.first = d.Time
		}
		if d.Time.After(who.last) {
			who.last = d.Time
		}
	}
	item := weir.NewKey("caller", d.KeyHash)
	if l.lim == nil || !item.Valid() {
		return nil
	}
	l.now = max(l.now, d.Time.UnixNano()) // lines of several processes may be a little out of order
	used, err := l.lim.Take(ctx, weir.Op{Limit: l.room, Key: item, Cost: d.Cost})
	if err != nil {
		return err
	}
	who.used = max(who.used, used.Used)
	return nil
}

// Limits are what was found, those that would have refused most first.
func (c *Collector) Limits() []Limit {
	out := []Limit{}
	for _, l := range c.sorted {
		out = append(out, l.end())
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return cmp.Compare(b.Denied, a.Denied) })
	return out
}

// Older is how many lines were passed over.
func (c *Collector) Older() int64 { return c.older }

func (l *limit) end() Limit {
	r := l.Limit
	r.Requests, r.Callers = math.Round(r.Requests), len(l.callers)
	known := true
	switch {
	case l.weight > 1:
		known, r.Note = false, fmt.Sprintf("one in %.3g of what was allowed is in the log, so what would have spared them is not known: write it with --decision-log-allowed 1", l.weight)
	case l.allowed == 0 && l.Denied > 0:
		known, r.Note = false, "what was allowed is not in the log, so what would have spared them is not known: write it with --decision-log-allowed 1"
	case l.lim == nil:
		known, r.Note = false, "neither the log nor the policy says how the limit reads: name the policy with -c"
	}
	var needs []int64
	for name, who := range l.callers {
		if who.denied == 0 {
			continue
		}
		r.Hurt++
		needs = append(needs, who.used)
		if r.First.IsZero() || who.first.Before(r.First) {
			r.First = who.first
		}
		if who.last.After(r.Last) {
			r.Last = who.last
		}
		one := Caller{Key: name, Denied: who.denied, First: who.first, Last: who.last}
		if known {
			one.Needs = withCount(l.Text, who.used)
		}
		at, _ := slices.BinarySearchFunc(r.Top, one, byDenied)
		if at < maxTop {
			r.Top = slices.Insert(r.Top, at, one)
			r.Top = r.Top[:min(len(r.Top), maxTop)]
		}
	}
	if known && len(needs) > 0 {
		slices.Sort(needs)
		r.Spare = &Spare{All: withCount(l.Text, needs[len(needs)-1]), Most: withCount(l.Text, needs[(len(needs)*9+9)/10-1])}
	}
	return r
}

func byDenied(a, b Caller) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key))
}

var count = regexp.MustCompile(`^((?:quota |sliding )?)([0-9.]+)(/[^ ]+)(.*)$`)

// withCount is a limit of the same kind with room for n: the burst of a bucket, whose
// rate stays, and the count of a window.
func withCount(text string, n int64) string {
	parts := count.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	if parts[1] == "" {
		return parts[2] + parts[3] + " burst " + strconv.FormatInt(n, 10)
	}
	return parts[1] + strconv.FormatInt(n, 10) + parts[3] + parts[4]
}

// withRoom is a limit of the same kind with room for everything. What it can hold
// is bounded, as of every limit: a bucket must fill within 100 years.
func withRoom(l weir.Limit) (weir.Limit, error) {
	n := int64(1e12)
	if l.IsBucket() {
		const years = 99 * 365 * 24 * time.Hour
		interval := float64(l.Horizon()) / float64(l.Max())
		n = int64(min(1e12, float64(years)/interval))
	}
	text := withCount(l.String(), max(n, l.Max()))
	if strings.HasPrefix(l.String(), "quota") && strings.HasSuffix(l.String(), " billing") {
		text = strings.Replace(text, " billing", " calendar", 1) // without an account's anchor
	}
	return weir.ParseLimit(text)
}

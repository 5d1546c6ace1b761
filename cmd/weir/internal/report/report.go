// Package report says what each layer of a policy stopped, and what that cost,
// from logs that were written anyway: those of AWS WAF, of API Gateway and weir's
// decision log.
//
// Logs are read in any order and in any number of parts. A line is a request that
// was served, one that was refused, or bad; bad lines are counted and never guessed
// at, so that the sums are those of the input.
//
// Refusals of one client by one limit that are less than [EpisodeGap] apart are one
// episode: what somebody did once. What kind of thing it was is a guess from its
// shape, and says why. Refusals by a plan's limit are no incident: they are counted
// as callers a day, because there the product works as it is sold.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/cost"
	"github.com/weirlabs/weir/policy"
)

// EpisodeGap is how long a client must have been quiet for its next refusal to
// begin another episode.
const EpisodeGap = 10 * time.Minute

// What refusals take in memory, about, and how much of it a report may take. An
// episode takes most while it is written as JSON.
const (
	bytesOfHit     = 48
	bytesOfGroup   = 1024
	bytesOfEpisode = 1024
	maxBytes       = 2 << 30
)

// Request is one line of a log: what one layer did with one request.
type Request struct {
	Time    time.Time
	Layer   policy.Layer
	Refused bool    // by an enforced limit
	Weight  float64 // how many requests the line stands for; at least 1

	// The rest is of refused requests.
	Limit      string
	Client     string // an address, the id of an API key, or a hash
	Plan       bool   // the limit belongs to a plan
	Outage     bool   // refused because the store could not be asked
	Path       string // with its query; "" when the log does not say
	Method     string // "" when the log does not say
	Agent      string // the client's own word for itself
	RetryAfter int64  // seconds that the client was told to wait; 0 when the log does not say
}

// Collector takes requests and makes the report. It is not safe for concurrent
// use. The zero value is not ready: see [New].
type Collector struct {
	since  time.Time
	seed   maphash.Seed
	groups map[group]*hits
	layers map[policy.Layer]*tally
	bytes  int64
}

type group struct {
	layer         policy.Layer
	limit, client string
	outage        bool
}

// hits are the refusals of one client by one limit.
type hits struct {
	plan bool
	all  []hit
}

type hit struct {
	at     int64 // Unix nanoseconds
	path   uint64
	retry  int32 // seconds
	method method
	hints  hint
}

type tally struct {
	months map[string]*Month
	rules  map[string]bool
}

// New returns a collector that passes over what is older than since.
func New(since time.Time) *Collector {
	return &Collector{since: since, seed: maphash.MakeSeed(), groups: map[group]*hits{}, layers: map[policy.Layer]*tally{}}
}

// Add takes one request. It reports false for one that is too old, and fails
// when there are more refusals than a report can hold.
func (c *Collector) Add(r *Request) (bool, error) {
	if r.Time.Before(c.since) {
		return false, nil
	}
	t := c.layers[r.Layer]
	if t == nil {
		t = &tally{months: map[string]*Month{}, rules: map[string]bool{}}
		c.layers[r.Layer] = t
	}
	name := r.Time.UTC().Format("2006-01")
	m := t.months[name]
	if m == nil {
		m = &Month{Month: name}
		t.months[name] = m
	}
	m.Requests += r.Weight
	if !r.Refused {
		return true, nil
	}
	if c.bytes > maxBytes {
		return false, errors.New("there are more refusals than a report holds in 2 GiB; take a shorter time with --since")
	}
	c.bytes += bytesOfHit
	m.Denied++
	t.rules[r.Limit] = true
	g := group{r.Layer, r.Limit, r.Client, r.Outage}
	h := c.groups[g]
	if h == nil {
		h = &hits{}
		c.groups[g] = h
		c.bytes += bytesOfGroup
	}
	h.plan = h.plan || r.Plan
	at := r.Time.UnixNano()
	if n := len(h.all); n == 0 || at-h.all[n-1].at >= int64(EpisodeGap) {
		c.bytes += bytesOfEpisode
	}
	path, _, _ := strings.Cut(r.Path, "?")
	h.all = append(h.all, hit{
		at: at, path: c.hash(r.Path), retry: int32(min(r.RetryAfter, 1<<31-1)),
		method: methodOf(r.Method), hints: hintsOf(r.Agent, path),
	})
	return true, nil
}

// hash tells paths apart without holding them; 0 stands for a log that has none.
func (c *Collector) hash(path string) uint64 {
	if path == "" {
		return 0
	}
	return max(1, maphash.String(c.seed, path))
}

// Report is what the layers stopped.
type Report struct {
	SchemaVersion int       `json:"schema_version"`
	PricesAsOf    string    `json:"prices_as_of"`
	Region        string    `json:"region"`
	Since         time.Time `json:"since,omitzero"`
	Layers        []Layer   `json:"layers"`
	Inputs        []Input   `json:"inputs"`
}

// Layer is what one layer stopped. Denied is the number of refusals in the logs;
// the sizes of Episodes add up to it.
type Layer struct {
	Layer         policy.Layer `json:"layer"`
	Denied        int64        `json:"denied"`
	Requests      float64      `json:"requests"` // in the logs, refused ones included; an estimate where allowed ones are sampled
	USD           cost.Dollars `json:"usd"`
	Formula       string       `json:"formula"`
	Months        []Month      `json:"months"`
	Kinds         []Count      `json:"kinds"`
	PlanDays      []Day        `json:"plan_callers_by_day"`
	CallersPerDay float64      `json:"plan_callers_a_day"` // on days with any, on average
	Episodes      []Episode    `json:"episodes"`

	met met // by the callers of PlanDays
}

// Callers says how many callers a day met which limits, or "" when none did.
func (l *Layer) Callers() string {
	if len(l.PlanDays) == 0 {
		return ""
	}
	who, at := "callers", "the limit of their plan"
	if math.Round(l.CallersPerDay) == 1 {
		who = "caller"
	}
	switch {
	case !l.met.plan:
		at = "a business limit"
	case l.met.business:
		at += " or a business limit"
	}
	return fmt.Sprintf("about %.0f %s a day at %s: the product working", l.CallersPerDay, who, at)
}

// met says which limits were met by those who are counted: one of a plan, and one of
// none.
type met struct{ plan, business bool }

// Month is a calendar month in UTC.
type Month struct {
	Month    string       `json:"month"`
	Denied   int64        `json:"denied"`
	Requests float64      `json:"requests"`
	USD      cost.Dollars `json:"usd"`
}

// Count says how many episodes are of a kind, of how many clients, and how many
// refusals they have. Runs counts episodes of one limit that are less than
// [EpisodeGap] apart as one, whoever their clients are: an attack from a hundred
// addresses is a hundred episodes and one run.
type Count struct {
	Kind     Kind  `json:"kind"`
	Episodes int   `json:"episodes"`
	Runs     int   `json:"runs"`
	Clients  int   `json:"clients"`
	Denied   int64 `json:"denied"`
}

// Day is how many different callers met a business limit in a day of UTC, those who
// then came back in a loop to the limit of their plan included.
type Day struct {
	Day     string `json:"day"`
	Callers int    `json:"callers"`
}

// Episode is a run of refusals of one client by one limit.
type Episode struct {
	Limit  string    `json:"limit"`
	Client string    `json:"client"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"` // of the last refusal
	Denied int64     `json:"denied"`
	Kind   Kind      `json:"kind"`
	Reason string    `json:"reason"`
}

// Input is what was read of one file: Lines is the sum of all others.
type Input struct {
	Kind     string `json:"kind"` // waf, gateway or decisions
	Name     string `json:"name"`
	Lines    int64  `json:"lines"`
	Refused  int64  `json:"refused"`
	Served   int64  `json:"served"` // allowed, and what shadow limits said
	Older    int64  `json:"older"`  // than --since
	Bad      int64  `json:"bad"`
	FirstBad int64  `json:"first_bad_line,omitempty"`
	Why      string `json:"why_bad,omitempty"`
	Cut      bool   `json:"cut,omitempty"` // a compressed log ends before its end
}

// Report makes the report of all that was added. It may be called once.
func (c *Collector) Report(costs Costs) Report {
	r := Report{SchemaVersion: 1, Since: c.since, Layers: []Layer{}, PricesAsOf: costs.Prices.AsOf, Region: costs.Prices.Region}
	for _, name := range []policy.Layer{policy.Edge, policy.Gateway, policy.Application} {
		t := c.layers[name]
		if t == nil {
			continue
		}
		l := Layer{Layer: name, Months: []Month{}, Kinds: []Count{}, PlanDays: []Day{}, Episodes: []Episode{}}
		for _, m := range t.months {
			l.Months = append(l.Months, *m)
		}
		slices.SortFunc(l.Months, func(a, b Month) int { return cmp.Compare(a.Month, b.Month) })
		costs.price(&l, len(t.rules))
		callers := map[string]map[string]bool{}
		for g, h := range c.groups {
			if g.layer != name {
				continue
			}
			l.Episodes = append(l.Episodes, h.episodes(g, callers, &l.met)...)
		}
		slices.SortFunc(l.Episodes, func(a, b Episode) int {
			return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Client, b.Client))
		})
		l.sum(callers)
		r.Layers = append(r.Layers, l)
	}
	return r
}

func (l *Layer) sum(callers map[string]map[string]bool) {
	type run struct {
		kind  Kind
		limit string
	}
	kinds := map[Kind]*Count{}
	ends := map[run]time.Time{}
	clients := map[Kind]map[string]bool{}
	for i := range l.Episodes { // by their start
		e := &l.Episodes[i]
		k := kinds[e.Kind]
		if k == nil {
			k = &Count{Kind: e.Kind}
			kinds[e.Kind], clients[e.Kind] = k, map[string]bool{}
		}
		k.Episodes++
		k.Denied += e.Denied
		clients[e.Kind][e.Client] = true
		of := run{e.Kind, e.Limit}
		if end, known := ends[of]; !known || e.Start.Sub(end) >= EpisodeGap {
			k.Runs++
		}
		if e.End.After(ends[of]) {
			ends[of] = e.End
		}
	}
	for kind, k := range kinds {
		k.Clients = len(clients[kind])
		l.Kinds = append(l.Kinds, *k)
	}
	slices.SortFunc(l.Kinds, func(a, b Count) int { return cmp.Compare(a.Kind, b.Kind) })
	for day, who := range callers {
		l.PlanDays = append(l.PlanDays, Day{day, len(who)})
		l.CallersPerDay += float64(len(who))
	}
	slices.SortFunc(l.PlanDays, func(a, b Day) int { return cmp.Compare(a.Day, b.Day) })
	if n := len(l.PlanDays); n > 0 {
		l.CallersPerDay /= float64(n)
	}
}

// episodes cuts the refusals where the client was quiet, and notes the days on
// which a caller met a business limit, and whether it was one of a plan.
func (h *hits) episodes(g group, callers map[string]map[string]bool, met *met) []Episode {
	slices.SortFunc(h.all, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	var list []Episode
	for from, i := 0, 1; i <= len(h.all); i++ {
		if i < len(h.all) && h.all[i].at-h.all[i-1].at < int64(EpisodeGap) {
			continue
		}
		run := h.all[from:i]
		from = i
		kind, reason := guess(&g, h.plan, run)
		list = append(list, Episode{
			Limit: g.limit, Client: g.client, Start: time.Unix(0, run[0].at).UTC(), End: time.Unix(0, run[len(run)-1].at).UTC(),
			Denied: int64(len(run)), Kind: kind, Reason: reason,
		})
		if g.layer != policy.Application || g.outage || g.client == "" || kind != PlanLimit && !h.plan {
			continue
		}
		met.plan, met.business = met.plan || h.plan, met.business || !h.plan
		for _, one := range run {
			day := time.Unix(0, one.at).UTC().Format(time.DateOnly)
			if callers[day] == nil {
				callers[day] = map[string]bool{}
			}
			callers[day][g.client] = true
		}
	}
	return list
}

func (i *Input) String() string {
	s := fmt.Sprintf("%s %s: %d lines, %d refused, %d served", i.Kind, i.Name, i.Lines, i.Refused, i.Served)
	if i.Older > 0 {
		s += fmt.Sprintf(", %d older", i.Older)
	}
	if i.Bad > 0 {
		s += fmt.Sprintf(", %d bad (the first is line %d: %s)", i.Bad, i.FirstBad, i.Why)
	}
	if i.Cut {
		s += ", cut off: the compressed file ends before its end"
	}
	return s
}

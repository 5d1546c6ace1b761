package plan

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

type algorithm uint8

const (
	bucket algorithm = iota
	quota
	calendar
	billing
	sliding
)

// Change is what becomes of a balance when a bucket's rate or capacity changes.
type Change uint8

// The ways to carry a balance over to a changed limit.
const (
	Keep  Change = iota // the units used stay used
	Scale               // the share used stays used
	Fresh               // the bucket is full again
)

// Bounds of a limit. They leave room for the sums that the algorithms make.
const (
	maxPeriod    = int64(100 * 365 * 24 * time.Hour) // of a window, and depth of a bucket
	minInterval  = int64(time.Second) / 1e6          // one token: 1,000,000 a second at most
	maxCount     = int64(1e15)
	maxDebt      = int64(time.Hour)
	staleWindows = 4 // more are removed even when no take follows
)

// Spec is one checked limit with every constant worked out. It is immutable
// but for a cache, and safe for concurrent use.
type Spec struct {
	alg    algorithm
	shadow Kind // shadowBit, or 0
	change Change
	id     ID
	text   string
	name   string
	max    int64 // capacity, or count of a window

	// Of a bucket.
	arrival                   Field
	interval, depth, debt     int64
	inverse                   uint64 // of interval, with shift: see units
	shift                     uint8
	latest                    int64 // the last time to which depth can be added; before all time when an item can't refer to this bucket by arrival alone
	revision                  int64
	tokens, tokensScale, unit int64 // the rate as written: tokens/tokensScale each unit ns

	// Terms beside the grammar: see terms.go.
	most    int64 // largest cost; max, but of a metered quota
	owes    int64 // units below zero, when bounded
	bounded bool
	marks   *marks // nil: nobody is told
	silent  bool   // takes reach no mark; see Quiet

	// Of a window.
	period Period
	loc    *time.Location
	anchor time.Time
	spans  atomic.Pointer[span]

	twin  *Spec // the same limit as a shadow
	quiet *Spec // the same limit whose takes reach no mark
}

// Parse reads a limit of the grammar
//
//	N/UNIT [burst B]                  token bucket
//	quota N/UNIT                      window that starts with the first counted call
//	quota N/UNIT calendar [ZONE]      window aligned to clock and calendar
//	quota N/UNIT billing              window from the account's own anchor
//	sliding N/UNIT                    two-cell sliding window
func Parse(text string) (*Spec, error) {
	s, err := parse(strings.Fields(text))
	if err == nil {
		err = s.build()
	}
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", text, err)
	}
	return s, nil
}

func parse(words []string) (*Spec, error) {
	s := &Spec{text: strings.Join(words, " "), name: "rate"}
	if len(words) == 0 {
		return nil, errors.New("empty; write for example 10/s burst 20, quota 100/day or sliding 2000/5m")
	}
	switch words[0] {
	case "quota":
		s.alg, s.name = quota, "quota"
	case "sliding":
		s.alg, s.name = sliding, "sliding"
	}
	rest := words
	if s.alg != bucket {
		if rest = words[1:]; len(rest) == 0 {
			return nil, fmt.Errorf("%s needs a count and a unit, for example %s 100/day", words[0], words[0])
		}
	}
	count, unit, ok := strings.Cut(rest[0], "/")
	if !ok {
		return nil, fmt.Errorf("%q is not N/UNIT, for example 10/s", rest[0])
	}
	var err error
	if s.period, err = parsePeriod(unit); err != nil {
		return nil, err
	}
	if s.tokens, s.tokensScale, err = parseCount(count, s.alg == bucket); err != nil {
		return nil, err
	}
	rest = rest[1:]
	switch {
	case s.alg == bucket:
		s.max = max(1, s.tokens/s.tokensScale)
		if len(rest) > 0 && rest[0] == "burst" {
			if len(rest) < 2 {
				return nil, errors.New("burst needs a number, for example burst 20")
			}
			if s.max, _, err = parseCount(rest[1], false); err != nil {
				return nil, fmt.Errorf("burst: %w", err)
			}
			rest = rest[2:]
		}
	default:
		s.max = s.tokens
		if s.alg == quota && len(rest) > 0 && rest[0] == "calendar" {
			s.alg, s.loc = calendar, time.UTC
			if rest = rest[1:]; len(rest) > 0 {
				if s.loc, err = loadZone(rest[0]); err != nil {
					return nil, err
				}
				rest = rest[1:]
			}
		} else if s.alg == quota && len(rest) > 0 && rest[0] == "billing" {
			s.alg, s.loc, rest = billing, time.UTC, rest[1:]
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%q is not understood here; the forms are N/UNIT [burst B], quota N/UNIT [calendar [ZONE] | billing] and sliding N/UNIT", rest[0])
	}
	return s, nil
}

func loadZone(name string) (*time.Location, error) {
	// "Local" would mean something else on every machine.
	if name == "Local" || name == "" {
		return nil, fmt.Errorf("zone %q is not the same on every machine; name one, for example Europe/Berlin", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q is unknown; write an IANA name such as Europe/Berlin (a program without zone files must import time/tzdata)", name)
	}
	return loc, nil
}

// parseCount reads digits, with decimals where they are allowed, as n/scale.
func parseCount(text string, decimals bool) (n, scale int64, err error) {
	whole, fraction, dotted := strings.Cut(text, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" || whole == "" || dotted && fraction == "" {
		return 0, 0, fmt.Errorf("%q is not a count: write digits, at least 1", text)
	}
	if dotted && !decimals {
		return 0, 0, fmt.Errorf("%q must be a whole number", text)
	}
	if len(fraction) > 9 || len(strings.TrimLeft(digits, "0")) > 16 {
		return 0, 0, fmt.Errorf("%q is beyond 1e15 or has more than nine decimals", text)
	}
	n, err = strconv.ParseInt(digits, 10, 64)
	scale = int64(math.Pow10(len(fraction)))
	if err != nil || n/scale > maxCount {
		return 0, 0, fmt.Errorf("%q is beyond 1e15", text)
	}
	if n == 0 {
		return 0, 0, errors.New("zero would refuse everything; to switch a limit off use mode: off")
	}
	return n, scale, nil
}

// build works out the constants and the limit's fields.
func (s *Spec) build() error {
	if err := s.constants(); err != nil {
		return err
	}
	if err := s.fields(); err != nil {
		return err
	}
	s.pair()
	return nil
}

func (s *Spec) constants() error {
	p := s.period.fixed()
	if p > maxPeriod {
		return fmt.Errorf("a period of %s is longer than 100 years", s.period)
	}
	if s.max > maxCount {
		return fmt.Errorf("%d is beyond 1e15", s.max)
	}
	s.most = s.max
	switch s.alg {
	case bucket:
		s.unit = p
		s.interval = mulDivUp(p, s.tokensScale, s.tokens)
		if mulDiv(p, s.tokensScale, s.tokens) < minInterval {
			return fmt.Errorf("a rate above 1,000,000 a second for one key is out of bounds")
		}
		hi, lo := bits.Mul64(uint64(s.interval), uint64(s.max))
		if hi != 0 || lo > uint64(maxPeriod) {
			return fmt.Errorf("an empty bucket would take more than 100 years to fill; raise the rate or lower the burst")
		}
		s.depth = int64(lo)
		s.debt = min(s.depth, maxDebt)
	case calendar:
		return s.period.checkAligned()
	}
	return nil
}

// fields interns the limit's name with the unit that its windows are of. A count
// of one length of window means nothing in another; that of a quota goes with the
// call that began it, whatever the period is called since.
func (s *Spec) fields() error {
	unit, horizon := "", int64(0)
	switch s.alg {
	case quota:
		horizon = s.period.fixed() // no unit: the count survives a change of the period
	case sliding:
		unit, horizon = s.period.tag(), 2*s.period.fixed()
	case calendar:
		unit, horizon = s.period.String()+"/"+s.loc.String(), s.period.longest()
	case billing:
		unit, horizon = s.period.String()+"/billing", s.period.longest()
	}
	id, err := intern(s.name, unit, horizon)
	if s.id = id; err != nil || s.marks == nil {
		return err
	}
	m := *s.marks // the name is not the other limit's
	if m.id, err = intern(s.name+toldMark, unit, horizon); err == nil {
		s.marks = &m
	}
	return err
}

// pair completes the spec and makes its shadow.
func (s *Spec) pair() {
	s.shape()
	t := s.copy()
	t.shadow = shadowBit
	t.shape()
	s.twin, t.twin = t, s
	s.hush()
	t.hush()
}

func (s *Spec) shape() {
	s.arrival = Field{Limit: s.id, Kind: Arrival | s.shadow}
	if s.alg == bucket {
		s.inverse, s.shift = invert(uint64(s.interval))
		s.latest = math.MaxInt64 - s.depth
		if s.arrival.Window = internShape(shape{s.interval, s.depth, s.revision}); s.arrival.Window == 0 {
			s.latest = math.MinInt64
		}
	}
}

func (s *Spec) copy() *Spec {
	return &Spec{alg: s.alg, shadow: s.shadow, change: s.change, id: s.id, text: s.text, name: s.name, max: s.max,
		most: s.most, owes: s.owes, bounded: s.bounded, marks: s.marks,
		arrival: s.arrival, interval: s.interval, depth: s.depth, debt: s.debt, revision: s.revision,
		tokens: s.tokens, tokensScale: s.tokensScale, unit: s.unit,
		period: s.period, loc: s.loc, anchor: s.anchor}
}

// Named is the same limit under a name of its own: counters belong to the name.
func (s *Spec) Named(name string) (*Spec, error) {
	if !validName(name) {
		return nil, fmt.Errorf("name %q of a limit: use a lower-case letter, then up to 31 letters, digits or -", name)
	}
	t := s.copy()
	t.name = name
	if err := t.fields(); err != nil {
		return nil, err
	}
	t.pair()
	return t, nil
}

// Revised is the same limit as part of a policy's revision.
func (s *Spec) Revised(revision uint32, change Change) *Spec {
	t := s.copy()
	t.revision, t.change = int64(revision), change
	t.pair()
	return t
}

// Anchored is the same billing quota for the account whose first period starts
// at this instant. Without that, a billing quota can't be taken from.
func (s *Spec) Anchored(at time.Time) (*Spec, error) {
	if s.alg != billing {
		return nil, fmt.Errorf("limit %q has no billing anchor", s.text)
	}
	if at.IsZero() {
		return nil, fmt.Errorf("limit %q needs a billing anchor", s.text)
	}
	t := s.copy()
	t.anchor = at.UTC()
	t.pair()
	return t, nil
}

// Shadow is the same limit with counters of its own.
func (s *Spec) Shadow() *Spec { return s.twin }

// Ready reports whether the limit can be taken from.
func (s *Spec) Ready() error {
	if s.alg != billing {
		return nil
	}
	return s.anchored()
}

func (s *Spec) anchored() error {
	if s.anchor.IsZero() {
		return fmt.Errorf("limit %q has no anchor: say when the account's first period began", s.text)
	}
	return nil
}

// Same reports whether two limits keep the same counters.
func (s *Spec) Same(o *Spec) bool { return s.id == o.id && s.shadow == o.shadow }

// Alike reports whether two limits that keep the same counters also mean the
// same, so that one write can take of both.
func (s *Spec) Alike(o *Spec) bool {
	return s == o || s.Same(o) && s.alg == o.alg && s.max == o.max && s.interval == o.interval && s.depth == o.depth &&
		s.revision == o.revision && s.change == o.change && s.anchor.Equal(o.anchor) && s.most == o.most && s.silent == o.silent && s.marks.alike(o.marks)
}

// Name is the name to which the limit's counters belong.
func (s *Spec) Name() string { return s.name }

// String is the limit in its grammar.
func (s *Spec) String() string { return s.text }

// Max is the capacity of a bucket, the count of a window.
func (s *Spec) Max() int64 { return s.max }

// IsBucket reports whether the limit refills continuously.
func (s *Spec) IsBucket() bool { return s.alg == bucket }

// IsQuota reports whether the limit is a counted window: not a bucket, not sliding.
func (s *Spec) IsQuota() bool { return s.alg == quota || s.alg == calendar || s.alg == billing }

// OnCalendar reports whether the windows are those of a calendar or of an
// account's billing periods.
func (s *Spec) OnCalendar() bool { return s.alg == calendar || s.alg == billing }

// Period is the unit of a bucket's rate, or the nominal length of a window.
func (s *Spec) Period() Period { return s.period }

// Rate is the count of the limit as it was written, n/scale for each period.
func (s *Spec) Rate() (n, scale int64) { return s.tokens, s.tokensScale }

// Horizon is how long after a take its item matters: the time in which an empty
// bucket fills, or that until a window means nothing any more. In nanoseconds.
func (s *Spec) Horizon() int64 {
	switch s.alg {
	case bucket:
		return s.depth
	case quota:
		return s.period.fixed()
	case sliding:
		return 2 * s.period.fixed()
	}
	return s.period.longest()
}

func (s *Spec) field(k Kind) Field { return Field{Limit: s.id, Kind: k | s.shadow} }

package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Period is the time unit of a limit: Count of a Unit, as in 5 minutes.
type Period struct {
	Count int64
	Unit  Unit
}

// Unit is a unit of time in the grammar.
type Unit uint8

// The units. Outside calendars and billing periods a month is 30 days and a
// year 365 days.
const (
	Second Unit = iota
	Minute
	Hour
	Day
	Week
	Month
	Year
)

var units = [...]struct {
	word    string
	letter  string
	seconds int64
	longest int64 // seconds, in any zone's calendar
}{
	Second: {"second", "s", 1, 1},
	Minute: {"minute", "m", 60, 60},
	Hour:   {"hour", "h", 3600, 2 * 3600},
	Day:    {"day", "d", 86400, 2 * 86400},
	Week:   {"week", "", 7 * 86400, 8 * 86400},
	Month:  {"month", "", 30 * 86400, 32 * 86400},
	Year:   {"year", "", 365 * 86400, 367 * 86400},
}

func parsePeriod(text string) (Period, error) {
	number := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	word := text[len(number):]
	p := Period{Count: 1}
	if number != "" {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 1 || n > maxPeriod/second {
			return p, fmt.Errorf("period %q is out of bounds: at least 1, at most 100 years", text)
		}
		p.Count = n
	}
	for u, names := range units {
		if word == names.word || word == names.word+"s" || word != "" && word == names.letter {
			p.Unit = Unit(u)
			if p.Count > maxPeriod/second/names.seconds {
				return p, fmt.Errorf("period %q is longer than 100 years", text)
			}
			return p, nil
		}
	}
	return p, fmt.Errorf("unit %q is unknown; write s, m, h, d, week, month or year, or a number with one such as 5m", word)
}

// Duration is the length of the period outside a calendar.
func (p Period) Duration() time.Duration { return time.Duration(p.fixed()) }

// String is the period in words of the grammar: "hour", "5m", "2week".
func (p Period) String() string {
	if p.Count == 1 {
		return units[p.Unit].word
	}
	if l := units[p.Unit].letter; l != "" {
		return strconv.FormatInt(p.Count, 10) + l
	}
	return strconv.FormatInt(p.Count, 10) + units[p.Unit].word
}

// Words is the period as people read it: "hour", "5 minutes".
func (p Period) Words() string {
	if p.Count == 1 {
		return units[p.Unit].word
	}
	return strconv.FormatInt(p.Count, 10) + " " + units[p.Unit].word + "s"
}

func (p Period) fixed() int64 { return p.Count * units[p.Unit].seconds * second }

func (p Period) longest() int64 { return p.Count * units[p.Unit].longest * second }

// tag names a fixed length whatever way it was written: 60m is 1h.
func (p Period) tag() string {
	seconds := p.fixed() / second
	for u := Day; u > Second; u-- {
		if size := units[u].seconds; seconds%size == 0 {
			return strconv.FormatInt(seconds/size, 10) + units[u].letter
		}
	}
	return strconv.FormatInt(seconds, 10) + "s"
}

// checkAligned refuses windows of which a clock or calendar has no whole number.
func (p Period) checkAligned() error {
	whole := [...]int64{Second: 60, Minute: 60, Hour: 24, Day: 1, Week: 1, Month: 12, Year: 1}[p.Unit]
	if whole%p.Count != 0 {
		next := [...]string{Second: "a minute", Minute: "an hour", Hour: "a day", Month: "a year"}[min(p.Unit, Month)]
		if whole == 1 {
			return fmt.Errorf("calendar windows of %s have no place in a calendar; use one %s", p.Words(), units[p.Unit].word)
		}
		return fmt.Errorf("calendar windows of %s do not divide %s; without calendar, a window starts with the first call", p.Words(), next)
	}
	return nil
}

// span is one window, in nanoseconds: [start, end), after one that began at prev.
type span struct{ prev, start, end int64 }

// spanAt finds the window in which an instant lies. Windows tile time: no gap,
// no overlap, also where a zone's clock is set.
func (s *Spec) spanAt(now int64) span {
	if s.alg == sliding {
		p := s.period.fixed()
		start := now - now%p
		return span{start - p, start, start + p}
	}
	if sp := s.spans.Load(); sp != nil && sp.start <= now && now < sp.end {
		return *sp
	}
	var sp span
	sp.start, sp.end = s.bounds(now)
	sp.prev, _ = s.bounds(sp.start - 1)
	s.spans.Store(&sp)
	return sp
}

func (s *Spec) bounds(now int64) (start, end int64) {
	t := time.Unix(0, now)
	if s.alg == billing {
		return s.billingBounds(t)
	}
	t = t.In(s.loc)
	if s.period.Unit < Day {
		return s.clockBounds(t)
	}
	y, m, d := t.Date()
	n := int(s.period.Count)
	var from, to time.Time
	switch s.period.Unit {
	case Day:
		from, to = firstOf(y, m, d, s.loc), firstOf(y, m, d+1, s.loc)
	case Week:
		d -= (int(t.Weekday()) + 6) % 7
		from, to = firstOf(y, m, d, s.loc), firstOf(y, m, d+7, s.loc)
	case Month:
		m -= time.Month((int(m) - 1) % n)
		from, to = firstOf(y, m, 1, s.loc), firstOf(y, m+time.Month(n), 1, s.loc)
	case Year:
		from, to = firstOf(y, 1, 1, s.loc), firstOf(y+1, 1, 1, s.loc)
	}
	return from.UnixNano(), to.UnixNano()
}

// clockBounds finds windows of seconds, minutes and hours on a zone's clock. A
// window ends early where the clock is set, and a new one starts there.
func (s *Spec) clockBounds(t time.Time) (start, end int64) {
	length := s.period.fixed()
	h, m, sec := t.Clock()
	since := (int64(h)*3600+int64(m)*60+int64(sec))*second + int64(t.Nanosecond())
	start = t.UnixNano() - since%length
	end = start + length
	from, to := t.ZoneBounds()
	if !from.IsZero() {
		start = max(start, from.UnixNano())
	}
	if !to.IsZero() && to.Year() < 2262 {
		end = min(end, to.UnixNano())
	}
	return start, end
}

// firstOf is the first instant of a date in a zone: not always midnight, which
// on some dates comes twice and on some not at all.
func firstOf(y int, m time.Month, d int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	from, to := t.ZoneBounds()
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC) // the date, normalised
	if t.Day() != want.Day() {
		return to // midnight is skipped, and t stands before the clock was set
	}
	if t.Hour() != 0 || t.Minute() != 0 || t.Second() != 0 {
		return from // midnight is skipped, and t stands after
	}
	if from.IsZero() {
		return t
	}
	// Was it midnight of this date already before the clock was last set back?
	_, offset := t.Zone()
	_, before := from.Add(-1).Zone()
	if earlier := t.Add(time.Duration(offset-before) * time.Second); earlier.Before(from) && before > offset {
		return earlier
	}
	return t
}

// billingBounds counts whole periods from the anchor. Months and years that
// lack the anchor's day end on their last.
func (s *Spec) billingBounds(t time.Time) (start, end int64) {
	at := func(k int64) time.Time {
		switch s.period.Unit {
		case Month, Year:
			months := k * s.period.Count
			if s.period.Unit == Year {
				months *= 12
			}
			y, m, d := s.anchor.Date()
			last := time.Date(y, m+time.Month(months)+1, 0, 0, 0, 0, 0, time.UTC)
			return time.Date(last.Year(), last.Month(), min(d, last.Day()), 0, 0, 0, 0, time.UTC).Add(s.anchor.Sub(time.Date(y, m, d, 0, 0, 0, 0, time.UTC)))
		}
		return time.Unix(0, addSat(s.anchor.UnixNano(), k*s.period.fixed()))
	}
	k := (t.UnixNano() - s.anchor.UnixNano()) / s.period.fixed()
	for k > 0 && at(k).After(t) || k <= 0 && at(k).After(t) {
		k--
	}
	for !at(k + 1).After(t) {
		k++
	}
	return at(k).UnixNano(), at(k + 1).UnixNano()
}

// windowOf names the window that starts at an instant.
func windowOf(start int64) uint32 { return uint32(start / second) }

// windowStart is the instant at which a window starts, given that it is within
// 68 years of now.
func windowStart(window uint32, now int64) int64 {
	seconds := now / second
	return (seconds + int64(int32(window-uint32(seconds)))) * second
}

package plan

import (
	"archive/zip"
	"fmt"
	"go/build"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zoneNames are all zones of the IANA database that Go brings along, one name
// for each set of rules.
func zoneNames(t *testing.T) []string {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	rules := map[uint32]bool{}
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") && !rules[f.CRC32] {
			rules[f.CRC32] = true
			names = append(names, f.Name)
		}
	}
	if len(names) < 300 {
		t.Fatalf("only %d zones", len(names))
	}
	return names
}

// firstAt is the earliest instant at which a zone's clock shows at least a
// date, found by walking through the times for which its offset is constant.
func firstAt(y int, m time.Month, d int, loc *time.Location) time.Time {
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	for at := want.Add(-72 * time.Hour); ; {
		from, to := at.In(loc).ZoneBounds()
		_, offset := at.In(loc).Zone()
		begin := want.Add(-time.Duration(offset) * time.Second)
		if !from.IsZero() && begin.Before(from) {
			begin = from
		}
		if to.IsZero() || begin.Before(to) {
			return begin
		}
		at = to
	}
}

// changes are the instants within years at which a zone's clock is set.
func changes(loc *time.Location, from, to int) (all []time.Time) {
	at := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC)
	for {
		_, next := at.In(loc).ZoneBounds()
		if next.IsZero() || next.Year() > to {
			return all
		}
		_, before := next.Add(-1).In(loc).Zone()
		_, after := next.In(loc).Zone()
		if before != after { // else only the zone's abbreviation changes
			all = append(all, next)
		}
		at = next
	}
}

func calendarSpec(t *testing.T, unit string, loc *time.Location) *Spec {
	t.Helper()
	s, err := parse(strings.Fields("quota 9/" + unit + " calendar"))
	if err == nil {
		s.loc = loc
		err = s.constants()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// window checks the window of an instant: it holds the instant, every instant
// of it names the same window, and its neighbours touch it.
func window(t *testing.T, s *Spec, at time.Time) (start, end time.Time) {
	t.Helper()
	from, to := s.bounds(at.UnixNano())
	if now := at.UnixNano(); now < from || now >= to {
		t.Fatalf("%v %s: the window of %v is %v to %v", s.loc, s.period, at, time.Unix(0, from).In(s.loc), time.Unix(0, to).In(s.loc))
	}
	for _, inside := range []int64{from, from + 1, from + (to-from)/2, to - 1} {
		if f, e := s.bounds(inside); f != from || e != to {
			t.Fatalf("%v %s: %v to %v, but seen from %v within it %v to %v", s.loc, s.period,
				time.Unix(0, from).In(s.loc), time.Unix(0, to).In(s.loc), time.Unix(0, inside).In(s.loc), time.Unix(0, f).In(s.loc), time.Unix(0, e).In(s.loc))
		}
	}
	if f, _ := s.bounds(to); f != to {
		t.Fatalf("%v %s: a gap or an overlap at %v: the next window starts at %v", s.loc, s.period, time.Unix(0, to).In(s.loc), time.Unix(0, f).In(s.loc))
	}
	if _, e := s.bounds(from - 1); e != from {
		t.Fatalf("%v %s: a gap or an overlap at %v: the window before ends at %v", s.loc, s.period, time.Unix(0, from).In(s.loc), time.Unix(0, e).In(s.loc))
	}
	if sp := s.spanAt(at.UnixNano()); sp.start != from || sp.end != to {
		t.Fatalf("%v %s: span %v, bounds %d to %d", s.loc, s.period, sp, from, to)
	}
	if longest := s.period.longest(); to-from > longest || to-from < 1 {
		t.Fatalf("%v %s: a window of %v", s.loc, s.period, time.Duration(to-from))
	}
	return time.Unix(0, from).In(s.loc), time.Unix(0, to).In(s.loc)
}

// In every zone, calendar windows tile time without gap or overlap, and begin
// at the first instant at which the zone's clock shows their date: every month,
// quarter and year from 2015 to 2035, and the days and weeks around every change
// of a clock. Between two changes a zone's days are all alike.
func TestCalendarInEveryZone(t *testing.T) {
	windows, seen := 0, 0
	for _, name := range zoneNames(t) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		day, week, month, year := calendarSpec(t, "day", loc), calendarSpec(t, "week", loc), calendarSpec(t, "month", loc), calendarSpec(t, "year", loc)
		quarter := calendarSpec(t, "3month", loc)
		dates := func(s *Spec, at time.Time) {
			start, end := window(t, s, at)
			windows++
			y, m, d := at.In(loc).Date()
			var wantStart, wantEnd time.Time
			switch {
			case s == day:
				wantStart, wantEnd = firstAt(y, m, d, loc), firstAt(y, m, d+1, loc)
			case s == week:
				for time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday() != time.Monday {
					d--
				}
				wantStart, wantEnd = firstAt(y, m, d, loc), firstAt(y, m, d+7, loc)
			case s == month:
				wantStart, wantEnd = firstAt(y, m, 1, loc), firstAt(y, m+1, 1, loc)
			case s == quarter:
				m = (m-1)/3*3 + 1
				wantStart, wantEnd = firstAt(y, m, 1, loc), firstAt(y, m+3, 1, loc)
			case s == year:
				wantStart, wantEnd = firstAt(y, 1, 1, loc), firstAt(y+1, 1, 1, loc)
			}
			if !start.Equal(wantStart) || !end.Equal(wantEnd) {
				t.Fatalf("%s: the %s of %v is %v to %v, want %v to %v", name, s.period, at.In(loc), start, end, wantStart.In(loc), wantEnd.In(loc))
			}
		}
		for y := 2015; y <= 2035; y++ {
			for m := time.Month(1); m <= 12; m++ {
				dates(month, time.Date(y, m, 17, 11, 0, 0, 0, time.UTC))
				if m%3 == 2 {
					dates(quarter, time.Date(y, m, 28, 0, 0, 0, 0, time.UTC))
				}
			}
			dates(year, time.Date(y, 7, 1, 0, 0, 0, 0, time.UTC))
		}
		for _, change := range changes(loc, 2015, 2035) {
			seen++
			for _, near := range []time.Duration{-25 * time.Hour, -1, 0, 25 * time.Hour} {
				dates(day, change.Add(near))
			}
			dates(week, change.Add(-1))
			dates(week, change)
		}
	}
	t.Logf("%d windows, %d changes of clocks", windows, seen)
	if seen < 3000 {
		t.Fatalf("only %d changes of clocks", seen)
	}
}

// Windows of seconds, minutes and hours follow the zone's clock. Where it is set,
// a window ends early and another begins.
func TestClockWindowsInEveryZone(t *testing.T) {
	windows := 0
	for _, name := range zoneNames(t) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		var specs []*Spec
		for _, unit := range []string{"second", "20s", "minute", "15m", "hour", "12h"} {
			specs = append(specs, calendarSpec(t, unit, loc))
		}
		all := changes(loc, 2015, 2035)
		for _, change := range append(all, time.Date(2026, 7, 1, 12, 34, 56, 789, time.UTC)) {
			for _, s := range specs {
				length := time.Duration(s.period.fixed())
				for _, near := range []time.Duration{-length, -1, 0, length} {
					at := change.Add(near)
					start, end := window(t, s, at)
					windows++
					if start.Equal(change) || end.Equal(change) {
						if end.Sub(start) > length {
							t.Fatalf("%s %s: %v to %v", name, s.period, start, end)
						}
						continue
					}
					h, m, sec := start.Clock()
					if since := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec)*time.Second; since%length != 0 && !isChange(all, start) {
						t.Fatalf("%s %s: a window starts at %v", name, s.period, start)
					}
				}
			}
		}
	}
	t.Logf("%d windows", windows)
}

func isChange(all []time.Time, at time.Time) bool {
	for _, c := range all {
		if c.Equal(at) {
			return true
		}
	}
	return false
}

func TestCalendarKnownDates(t *testing.T) {
	const h = time.Hour
	for _, c := range []struct {
		zone, unit, at string
		start, end     string
		length         time.Duration
	}{
		{"America/New_York", "day", "2026-03-08T12:00:00-04:00", "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00", 23 * h},
		{"America/New_York", "day", "2026-11-01T12:00:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25 * h},
		{"Australia/Lord_Howe", "day", "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", 24*h + 30*time.Minute},
		{"Australia/Lord_Howe", "day", "2026-10-04T12:00:00+11:00", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00", 23*h + 30*time.Minute},
		{"America/Sao_Paulo", "day", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", 23 * h},
		{"America/Sao_Paulo", "day", "2018-02-17T23:30:00-02:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00", 25 * h},
		{"Africa/Cairo", "day", "2026-04-24T12:00:00+03:00", "2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00", 23 * h},
		{"America/Havana", "day", "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25 * h},
		{"America/Havana", "day", "2026-03-08T12:00:00-04:00", "2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00", 23 * h},
		{"Asia/Kathmandu", "day", "2026-06-01T00:00:00+05:45", "2026-06-01T00:00:00+05:45", "2026-06-02T00:00:00+05:45", 24 * h},
		{"UTC", "month", "2026-08-31T00:00:00Z", "2026-08-01T00:00:00Z", "2026-09-01T00:00:00Z", 31 * 24 * h},
		{"UTC", "month", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", 29 * 24 * h},
		{"UTC", "year", "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z", 366 * 24 * h},
		{"UTC", "week", "2026-11-29T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", 7 * 24 * h},
		{"Europe/Berlin", "week", "2026-10-25T23:00:00+01:00", "2026-10-19T00:00:00+02:00", "2026-10-26T00:00:00+01:00", 169 * h},
		{"Asia/Kolkata", "hour", "2026-06-01T00:15:00+05:30", "2026-06-01T00:00:00+05:30", "2026-06-01T01:00:00+05:30", h},
		{"UTC", "3month", "2026-05-31T00:00:00Z", "2026-04-01T00:00:00Z", "2026-07-01T00:00:00Z", 91 * 24 * h},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		instant := func(text string) time.Time {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		start, end := window(t, calendarSpec(t, c.unit, loc), instant(c.at))
		if !start.Equal(instant(c.start)) || !end.Equal(instant(c.end)) || end.Sub(start) != c.length {
			t.Errorf("%s %s of %s: %v to %v (%v), want %s to %s (%v)", c.zone, c.unit, c.at, start, end, end.Sub(start), c.start, c.end, c.length)
		}
	}
}

// Billing periods count from the account's own anchor. A month that lacks the
// anchor's day ends on its last, and the next has the day again.
func TestBillingPeriods(t *testing.T) {
	for _, clock := range []time.Duration{0, 13*time.Hour + 37*time.Minute + 11*time.Second} {
		for day := 27; day <= 31; day++ {
			for _, unit := range []string{"month", "3month", "year", "week", "day", "36h"} {
				s := parsed(t, "", "quota 9/"+unit+" billing")
				anchor := time.Date(2024, 1, day, 0, 0, 0, 0, time.UTC).Add(clock)
				s, err := s.Anchored(anchor)
				if err != nil {
					t.Fatal(err)
				}
				at := time.Date(2022, 5, 1, 0, 0, 0, 0, time.UTC) // some time before it
				for at.Year() < 2036 {
					start, end := window(t, s, at)
					if unit == "month" {
						y, m, _ := start.UTC().Date()
						last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
						want := time.Date(y, m, min(day, last), 0, 0, 0, 0, time.UTC).Add(clock)
						if !start.Equal(want) || end.Sub(start) < 28*24*time.Hour || end.Sub(start) > 31*24*time.Hour {
							t.Fatalf("anchor %v: a period from %v to %v, want it from %v", anchor, start, end, want)
						}
					}
					at = end.Add(time.Duration(at.UnixNano() % int64(48*time.Hour)))
				}
				if start, _ := window(t, s, anchor); !start.Equal(anchor) {
					t.Fatalf("the period of the anchor %v starts at %v", anchor, start)
				}
			}
		}
	}
	leap, err := parsed(t, "", "quota 9/year billing").Anchored(time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"2024-02-29 12:00 2025-02-28 12:00", "2027-02-28 12:00 2028-02-29 12:00"} {
		start, end := window(t, leap, mustTime(t, c[:16]))
		if got := start.UTC().Format("2006-01-02 15:04 ") + end.UTC().Format("2006-01-02 15:04"); got != c {
			t.Errorf("a year from 29 February: %s, want %s", got, c)
		}
	}
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestPeriodNames(t *testing.T) {
	for text, want := range map[string]string{
		"s": "second 1s second", "5m": "5m 5m 5 minutes", "60m": "60m 1h 60 minutes", "hour": "hour 1h hour", "24h": "24h 1d 24 hours",
		"2week": "2week 14d 2 weeks", "month": "month 30d month", "90s": "90s 90s 90 seconds", "days": "day 1d day",
	} {
		p, err := parsePeriod(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := fmt.Sprint(p, " ", p.tag(), " ", p.Words()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

package plan

import (
	"testing"
	"time"
)

// From any anchor, billing periods tile time: every one ends where the next
// begins, none is empty, and each begins on the anchor's day or, in a month that
// lacks it, on the last.
func TestBillingPeriodsTileTime(t *testing.T) {
	from, to := time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	var anchors []time.Time
	for day := 1; day <= 31; day++ {
		anchors = append(anchors, time.Date(2024, 1, day, 0, 0, 0, 0, time.UTC)) // a leap year
	}
	for _, year := range []int{1999, 2016, 2023, 2026, 2040} { // some before, some after it all
		for _, day := range []int{28, 29, 30, 31} {
			for _, month := range []time.Month{2, 4, 8, 12} {
				anchors = append(anchors, time.Date(year, month, day, 23, 59, 59, 0, time.UTC)) // 31 April is 1 May
			}
		}
	}
	periods := 0
	for _, unit := range []string{"month", "2month", "3month", "5month", "12month", "year", "2year"} {
		for _, anchor := range anchors {
			s, err := parsed(t, "", "quota 9/"+unit+" billing").Anchored(anchor)
			if err != nil {
				t.Fatal(err)
			}
			start, end := window(t, s, from)
			for start.Before(to) {
				periods++
				y, m, _ := start.UTC().Date()
				last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
				if hour, minute, sec := anchor.Clock(); start.UTC() != time.Date(y, m, min(anchor.Day(), last), hour, minute, sec, 0, time.UTC) {
					t.Fatalf("%s from %v: a period begins at %v", unit, anchor, start)
				}
				if s, e := window(t, s, end.Add(-1)); !s.Equal(start) || !e.Equal(end) {
					t.Fatalf("%s from %v: the last instant of %v to %v is in %v to %v", unit, anchor, start, end, s, e)
				}
				next, nextEnd := window(t, s, end)
				if !next.Equal(end) || !nextEnd.After(next) {
					t.Fatalf("%s from %v: after %v to %v comes %v to %v", unit, anchor, start, end, next, nextEnd)
				}
				start, end = next, nextEnd
			}
		}
	}
	if periods < 50_000 {
		t.Errorf("%d periods were looked at", periods)
	}
}

package dynamostore

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// replies are what a clock hears from a server whose Date is ahead of it.
type replies struct {
	*testing.T
	clock clock
	at    time.Time
	age   string
}

func newReplies(t *testing.T) *replies {
	r := &replies{T: t, at: time.Date(2027, 3, 14, 15, 9, 26, 535897932, time.UTC)}
	r.clock.local = func() int64 { return r.at.UnixNano() }
	r.clock.correct = true
	return r
}

func (r *replies) hear(ahead time.Duration) {
	header := http.Header{"Date": {r.at.Add(ahead).Format(http.TimeFormat)}}
	if r.age != "" {
		header.Set("Age", r.age)
	}
	err := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{Header: header}}}
	sent := r.clock.local()
	r.at = r.at.Add(7 * time.Millisecond)
	r.clock.observe(middleware.Metadata{}, err, sent)
}

// wantOff says by how much now is corrected, to a second: a Date is no better.
func (r *replies) wantOff(want time.Duration) {
	r.Helper()
	got := time.Duration(r.clock.now() - r.at.UnixNano())
	if (got-want).Abs() > time.Second || want == 0 && got != 0 {
		r.Errorf("now is corrected by %v, want %v", got, want)
	}
}

func TestClockIsCorrectedBeyondTwoSeconds(t *testing.T) {
	for _, ahead := range []time.Duration{0, 900 * time.Millisecond, -900 * time.Millisecond, 5 * time.Second, -5 * time.Second, 3 * time.Hour, -15 * time.Minute} {
		r := newReplies(t)
		for range 10 {
			r.hear(ahead)
		}
		want := ahead
		if ahead.Abs() < time.Second {
			want = 0
		}
		r.wantOff(want)
		if got := time.Duration(r.clock.measured.Load()); (got - ahead).Abs() > time.Second {
			t.Errorf("measured %v, want %v", got, ahead)
		}
		// Once corrected it stays still.
		now := r.clock.offset.Load()
		for range 20 {
			r.at = r.at.Add(137 * time.Millisecond)
			r.hear(ahead)
		}
		if r.clock.offset.Load() != now {
			t.Errorf("ahead by %v: the correction flickers", ahead)
		}
		// The machine's clock is set right.
		for range 10 {
			r.hear(0)
		}
		r.wantOff(0)
	}
}

// A Date that comes from a cache, or from one odd host, teaches nothing.
func TestCase_B037_StaleDateTeachesNothing(t *testing.T) {
	r := newReplies(t)
	r.age = "3600"
	for range 10 {
		r.hear(-time.Hour)
	}
	r.wantOff(0)
	if r.clock.measured.Load() != 0 {
		t.Error("the Date of a reply with an Age was measured")
	}
	r.age = ""
	for range 10 {
		r.hear(0)
		r.hear(-time.Hour)
		r.hear(-2 * time.Hour)
	}
	r.wantOff(0)
	for range 2 {
		r.hear(-time.Hour)
	}
	r.hear(0)
	r.wantOff(0)
}

func TestClockGivenByTheCallerIsBelieved(t *testing.T) {
	r := newReplies(t)
	r.clock.correct = false
	for range 10 {
		r.hear(time.Hour)
	}
	r.wantOff(0)
	if got := time.Duration(r.clock.measured.Load()); (got - time.Hour).Abs() > time.Second {
		t.Errorf("measured %v, want an hour", got)
	}
}

// A reply that took longer than a minute, or during which the clock was set,
// says nothing.
func TestClockIgnoresWhatItCannotJudge(t *testing.T) {
	r := newReplies(t)
	header := http.Header{"Date": {r.at.Add(time.Hour).Format(http.TimeFormat)}}
	err := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{Header: header}}}
	for _, took := range []time.Duration{2 * time.Minute, -time.Second} {
		for range 5 {
			r.clock.observe(middleware.Metadata{}, err, r.at.Add(-took).UnixNano())
		}
	}
	for _, date := range []string{"", "yesterday", "Sun, 14 Mar 2027"} {
		header.Set("Date", date)
		r.clock.observe(middleware.Metadata{}, err, r.at.UnixNano())
	}
	r.wantOff(0)
}

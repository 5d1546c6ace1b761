package answer

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		d       weir.Decision
		seconds int64
		ok      bool
	}{
		{weir.Decision{Allowed: true, RetryAfter: time.Second}, 0, false},
		{weir.Decision{Reason: weir.ReasonNever}, 0, false},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 0}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 1}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: time.Second}, 1, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: time.Second + 1}, 2, true},
		{weir.Decision{Reason: weir.ReasonLimit, RetryAfter: 1900 * time.Millisecond}, 2, true},
		{weir.Decision{Reason: weir.ReasonUnavailable}, 1, true},
	} {
		if seconds, ok := RetryAfter(&tt.d); seconds != tt.seconds || ok != tt.ok {
			t.Errorf("%+v: %d %v, want %d %v", tt.d, seconds, ok, tt.seconds, tt.ok)
		}
	}
}

// The time until more can be had, for a bucket of 10 at one unit in two seconds.
func TestUntil(t *testing.T) {
	limit, err := weir.ParseLimit("0.5/s burst 10")
	if err != nil {
		t.Fatal(err)
	}
	f := newFace(limit)
	for _, tt := range []struct {
		name string
		d    weir.Decision
		want time.Duration
	}{
		{"one used", weir.Decision{Allowed: true, Used: 1, ResetAfter: 2 * time.Second}, 2 * time.Second},
		{"five used", weir.Decision{Allowed: true, Used: 5, ResetAfter: 10 * time.Second}, 2 * time.Second},
		{"four and a bit", weir.Decision{Allowed: true, Used: 5, ResetAfter: 8500 * time.Millisecond}, 500 * time.Millisecond},
		{"empty", weir.Decision{Used: 10, ResetAfter: 20 * time.Second, RetryAfter: 2 * time.Second, Reason: weir.ReasonLimit}, 2 * time.Second},
		{"too little for a large cost", weir.Decision{Used: 8, ResetAfter: 15 * time.Second, RetryAfter: 5 * time.Second, Reason: weir.ReasonLimit}, 5 * time.Second},
		{"a cost that never fits", weir.Decision{Used: 8, ResetAfter: 15 * time.Second, Reason: weir.ReasonNever}, time.Second},
		{"in debt", weir.Decision{Used: 12, ResetAfter: 24 * time.Second, RetryAfter: 6 * time.Second, Reason: weir.ReasonLimit}, 6 * time.Second},
		{"charged into debt", weir.Decision{Allowed: true, Used: 12, ResetAfter: 24 * time.Second}, 6 * time.Second},
		{"full", weir.Decision{Allowed: true}, 0},
		{"not known", weir.Decision{Unknown: true, ResetAfter: time.Second}, 0},
	} {
		if got := f.until(&tt.d); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestStatusOfGRPC(t *testing.T) {
	for code, want := range map[string]int{"0": 200, "1": 499, "5": 404, "8": 429, "12": 501, "13": 500, "14": 503, "16": 401, "17": 500, "-1": 500, "": 500, "OK": 500} {
		if got := StatusOfGRPC(code); got != want {
			t.Errorf("%q: %d, want %d", code, got, want)
		}
	}
}

func TestIsGRPC(t *testing.T) {
	for kind, want := range map[string]bool{"application/grpc": true, "application/grpc+proto": true, "application/grpc;x=y": true,
		"application/grpc-web": false, "application/grpcx": false, "Application/gRPC": true, "APPLICATION/GRPC+Proto": true, " application/grpc ; x": true, "application/gRPC-Web+proto": false, "application/json": false, "": false} {
		if got := IsGRPC(kind); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
}

func TestMessagesArePercentEncodedForGRPC(t *testing.T) {
	if got := percent("100% für alle\n"); got != "100%25 f%C3%BCr alle%0A" {
		t.Error(got)
	}
}

func TestFacesAreBounded(t *testing.T) {
	var w Writer
	verdict := func(text string) *engine.Verdict {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return &engine.Verdict{Rule: &policy.Rule{Limit: limit}, Decision: weir.Decision{Limit: limit}}
	}
	for i := range 1000 { // policies of one rule each, as by reloads
		if f := w.face(verdict(fmt.Sprintf("quota %d/hour", i+1))); f.most != int64(i+1) {
			t.Fatalf("a limit of %d has the face of one of %d", i+1, f.most)
		}
	}
	one := verdict("1/s")
	if first, second := w.face(one), w.face(one); first != second {
		t.Error("a limit's face is made anew each time")
	}
	own := *one
	own.Limit = verdict("5/s").Limit
	if f := w.face(&own); f.max != "5" || w.face(one).max != "1" {
		t.Errorf("a caller's own limit is shown as %s, the rule's as %s", f.max, w.face(one).max)
	}
	if n := len(*w.faces.Load()); n != 1 {
		t.Errorf("%d faces", n)
	}
}

// What stands ready is what would be written.
func TestTextsThatStandReady(t *testing.T) {
	ready := 0
	for _, limit := range []string{"10/s", "10/s burst 40", "3/m", "1/h", "1000000/s burst 100000000000", "quota 5/day", "sliding 9/m"} {
		l, err := weir.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		f := new(Writer).face(&engine.Verdict{Rule: &policy.Rule{Limit: l}, Decision: weir.Decision{Limit: l}})
		for used := int64(0); used <= min(l.Max(), 50); used++ {
			for _, reset := range []time.Duration{0, 1, time.Millisecond, time.Second, time.Second + 1, 20 * time.Second, 41 * time.Second, time.Hour} {
				d := weir.Decision{Limit: l, Allowed: true, Used: used, Remaining: l.Max() - used, ResetAfter: reset}
				want := fmt.Sprintf("%q;r=%d", l.Name(), d.Remaining)
				if t := f.until(&d); t > 0 {
					want += fmt.Sprintf(";t=%d", engine.Seconds(t))
				}
				if got, appended := f.text(&d), string(f.append([]byte("a, "), &d)); got != want || appended != "a, "+want {
					t.Fatalf("%s, %d used, full in %v: %s and %s, want %s", limit, used, reset, got, appended, want)
				}
				if testing.AllocsPerRun(1, func() { f.text(&d) }) == 0 {
					ready++
				}
			}
		}
	}
	if ready < 50 {
		t.Errorf("only %d answers stood ready", ready)
	}
}

func TestSentence(t *testing.T) {
	for _, c := range []struct {
		rule        policy.Rule
		text, count string
	}{
		{policy.Rule{Name: "orders"}, "quota 50/hour", "50 orders per hour"},
		{policy.Rule{Name: "orders"}, "quota 1/hour", "1 order per hour"},
		{policy.Rule{Name: "orders.quota-month"}, "quota 100/month", "100 orders per month"},
		{policy.Rule{Name: "seat-bookings"}, "1/s", "1 seat booking per second"},
		{policy.Rule{Name: "partner.quota-day", Layer: policy.Gateway}, "quota 1/day", "1 request per day"},
		{policy.Rule{Name: "partner", Layer: policy.Gateway}, "10/s burst 20", "10 requests per second"},
		{policy.Rule{Name: "analyze", Operation: "analyze"}, "quota 1/5m", "1 analyze per 5 minutes"},
		{policy.Rule{Name: "bulk-exports.quota-day", Operation: "bulk-exports"}, "quota 2/day", "2 bulk exports per day"},
		{policy.Rule{Name: "queries"}, "1/m", "1 query per minute"},
		{policy.Rule{Name: "searches"}, "1/m", "1 search per minute"},
		{policy.Rule{Name: "addresses"}, "1/m", "1 address per minute"},
		{policy.Rule{Name: "access"}, "1/m", "1 access per minute"},
		{policy.Rule{Name: "status"}, "1/m", "1 status per minute"},
		{policy.Rule{Name: "s"}, "1/m", "1 s per minute"},
		{policy.Rule{Name: "exports"}, "0.5/day burst 1", "1 export per 2 days"},
		{policy.Rule{Name: "exports"}, "0.3/day burst 1", "1 export per 80 hours"},
		{policy.Rule{Name: "exports"}, "0.4/5m burst 1", "1 export per 13 minutes"},
		{policy.Rule{Name: "exports"}, "1.5/day burst 1", "1 export per day"},
		{policy.Rule{Name: "exports"}, "0.5/week burst 1", "1 export per 2 weeks"},
	} {
		l, err := weir.ParseLimit(c.text)
		if err != nil {
			t.Fatal(err)
		}
		count, unit := per(l)
		want := "Your plan allows " + c.count + ". Try again in 1 second."
		if got := sentence(&policy.MessageData{Count: count, Unit: unit, Wait: words(1)}, &c.rule); got != want {
			t.Errorf("%s of %s: %q, want %q", c.text, c.rule.Name, got, want)
		}
	}
	for seconds, want := range map[int64]string{1: "1 second", 2: "2 seconds", 3600: "3600 seconds", 3601: "1 hour 1 minute", 3660: "1 hour 1 minute",
		3661: "1 hour 2 minutes", 7200: "2 hours", 7201: "2 hours 1 minute", 86400: "24 hours",
		172800: "48 hours", 172801: "2 days 1 hour", 176400: "2 days 1 hour", 176401: "2 days 2 hours", 259200: "3 days", 2592000: "30 days", 2591999: "30 days"} {
		if got := words(seconds); got != want {
			t.Errorf("%d: %q, want %q", seconds, got, want)
		}
	}
}

// The window that RateLimit-Policy names is the time in which an empty bucket
// regains what q says, also where a unit takes no whole number of nanoseconds.
func TestThePolicyNamesTheRateThatIs(t *testing.T) {
	for text, want := range map[string]string{
		"60/s":                         `;q=60;w=1`,
		"3/s":                          `;q=3;w=1`,
		"300/s":                        `;q=300;w=1`,
		"7/m":                          `;q=7;w=60`,
		"11/day":                       `;q=11;w=86400`,
		"100/s burst 250":              `;q=250;w=3`,
		"0.5/s burst 10":               `;q=10;w=20`,
		"1000000/s burst 100000000000": `;q=100000000000;w=100000`,
		"quota 5/hour":                 `;q=5;w=3600`,
	} {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		named, err := limit.Named("a")
		if err != nil {
			t.Fatal(err)
		}
		if got := newFace(named).policy; got != `"a"`+want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

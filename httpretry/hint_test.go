package httpretry_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

const notRetried = -1 * time.Second

// The bubble's clock starts at midnight of 2000-01-01, UTC.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fields string // name: value, one a line
		want   time.Duration
	}{
		{"seconds", "Retry-After: 7", 7 * time.Second},
		{"leading zeros", "Retry-After: 007", 7 * time.Second},
		{"a date", "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT", 9 * time.Second},
		{"a date of RFC 850", "Retry-After: Saturday, 01-Jan-00 00:00:09 GMT", 9 * time.Second},
		{"a date of asctime", "Retry-After: Sat Jan  1 00:00:09 2000", 9 * time.Second},
		{"a server that lives in 2031", "Retry-After: Wed, 01 Jan 2031 00:00:04 GMT\nDate: Wed, 01 Jan 2031 00:00:00 GMT", 4 * time.Second},
		{"a server that lives in 1999", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\nDate: Fri, 31 Dec 1999 23:59:54 GMT", 5 * time.Second},
		{"a Date that is none", "Retry-After: Sat, 01 Jan 2000 00:00:09 GMT\nDate: today", 9 * time.Second},
		{"two, by a proxy", "Retry-After: 3\nRetry-After: 11", 11 * time.Second},
		{"two, the longer first", "Retry-After: 11\nRetry-After: 3", 11 * time.Second},
		{"two, one broken", "Retry-After: soon\nRetry-After: 11", 11 * time.Second},
		{"a fraction", "Retry-After: 1.5", notRetried},
		{"negative", "Retry-After: -5", notRetried},
		{"signed", "Retry-After: +5", notRetried},
		{"words", "Retry-After: in a minute", notRetried},
		{"empty", "Retry-After:", notRetried},
		{"nothing", "", notRetried},

		{"one policy", `RateLimit: "default";r=0;t=5`, 5 * time.Second},
		{"with a partition", `RateLimit: "default";r=0;t=5;pk=:dHJpYWwxMjEzMjM=:`, 5 * time.Second},
		{"spaces and unknown parameters", `RateLimit: "default"; r=0; t=5; acme="x"`, 5 * time.Second},
		{"the longest of the exhausted", `RateLimit: "minute";r=0;t=9, "second";r=0;t=1`, 9 * time.Second},
		{"on two lines", "RateLimit: \"minute\";r=0;t=9\nRateLimit: \"second\";r=0;t=1", 9 * time.Second},
		{"only the exhausted", `RateLimit: "day";r=50;t=80000, "second";r=0;t=2`, 2 * time.Second},
		{"none exhausted", `RateLimit: "day";r=50;t=3`, notRetried},
		{"exhausted, no time", `RateLimit: "in flight";r=0`, notRetried},
		{"one of the exhausted without time", `RateLimit: "second";r=0;t=2, "in flight";r=0`, notRetried},
		{"nothing about what is left", `RateLimit: "default";t=3`, notRetried},
		{"a decimal time", `RateLimit: "default";r=0;t=3.5`, notRetried},
		{"a negative time", `RateLimit: "default";r=0;t=-3`, notRetried},
		{"an inner list", `RateLimit: ("a" "b");r=0;t=3`, notRetried},
		{"a broken list", `RateLimit: "a";r=0;t=3,,`, notRetried},
		{"draft 7", `RateLimit: limit=100, remaining=0, reset=5`, notRetried},

		{"the trio", "RateLimit-Limit: 50\nRateLimit-Remaining: 0\nRateLimit-Reset: 6", 6 * time.Second},
		{"the reset alone", "RateLimit-Reset: 6", 6 * time.Second},
		{"the trio with some left", "RateLimit-Limit: 50\nRateLimit-Remaining: 3\nRateLimit-Reset: 6", notRetried},
		{"a broken reset", "RateLimit-Remaining: 0\nRateLimit-Reset: 6s", notRetried},
		{"a reset of another meaning", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 6", notRetried},

		{"Retry-After before RateLimit", "Retry-After: 3\nRateLimit: \"a\";r=0;t=8\nRateLimit-Reset: 9", 3 * time.Second},
		{"RateLimit before the trio", "RateLimit: \"a\";r=0;t=8\nRateLimit-Remaining: 0\nRateLimit-Reset: 9", 8 * time.Second},
		{"a broken field gives way", "Retry-After: x\nRateLimit: \"a\r=0\nRateLimit-Reset: 9", 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fields []string
				for line := range strings.Lines(tt.fields) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
					fields = append(fields, name, strings.TrimSpace(value))
				}
				s := refusing(1, 429, fields...)
				status, _, took := send(t, client(s), request(t, "GET", nil))
				if tt.want == notRetried {
					if status != 429 || took != 0 || s.sent() != 1 {
						t.Errorf("%d after %v and %d requests, want the refusal at once", status, took, s.sent())
					}
				} else if status != 200 || took != tt.want || s.sent() != 2 {
					t.Errorf("%d after %v and %d requests, want a retry after %v", status, took, s.sent(), tt.want)
				}
			})
		})
	}
}

// A wait of zero and a date gone by must not make a loop: there is a least wait,
// with chance on top, and an end.
func TestCase_B112_NoWaitIsNoInvitation(t *testing.T) {
	for _, fields := range [][]string{
		{"Retry-After", "0"},
		{"Retry-After", "Fri, 31 Dec 1999 23:00:00 GMT"},
		{"Retry-After", "Fri, 31 Dec 1999 23:00:00 GMT", "Date", "Fri, 31 Dec 1999 23:30:00 GMT"},
		{"RateLimit", `"a";r=0;t=0`},
		{"RateLimit-Remaining", "0", "RateLimit-Reset", "0"},
	} {
		for _, tt := range []struct {
			rand func(int64) int64
			want time.Duration
		}{{noChance, 100 * time.Millisecond}, {mostChance, 1100*time.Millisecond - 1}} {
			synctest.Test(t, func(t *testing.T) {
				s := refusing(always, 429, fields...)
				rt := client(s, func(o *httpretry.Options) { o.Rand = tt.rand })
				status, body, _ := send(t, rt, request(t, "GET", nil))
				if status != 429 || body != "refused" || s.sent() != 4 {
					t.Errorf("%q: %d %q after %d requests, want the fourth refusal", fields, status, body, s.sent())
				}
				for _, gap := range s.gaps() {
					if gap != tt.want {
						t.Errorf("%q: sent again after %v, want %v", fields, gap, tt.want)
					}
				}
			})
		}
	}
}

// A number that no type holds is a long wait, and not a missing, a negative or
// a short one.
func TestCase_B125_HugeWaitsDoNotWrap(t *testing.T) {
	for _, maxWait := range []time.Duration{0, time.Hour, math.MaxInt64} {
		for _, fields := range [][]string{
			{"Retry-After", "9223372036"}, // the last that a Duration holds
			{"Retry-After", "9223372037"},
			{"Retry-After", "18446744074"}, // 2^64 ns and a bit: wraps to 0.29 s
			{"Retry-After", "9223372036854775807"},
			{"Retry-After", "18446744073709551617"},
			{"Retry-After", strings.Repeat("9", 400)},
			{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"},
			{"RateLimit", `"a";r=0;t=999999999999999`},
			{"RateLimit-Reset", "18446744074"},
		} {
			synctest.Test(t, func(t *testing.T) {
				s := refusing(1, 429, fields...)
				rt := client(s, func(o *httpretry.Options) { o.MaxWait, o.MaxTotal, o.Rand = maxWait, maxWait, mostChance })
				if status, _, took := send(t, rt, request(t, "GET", nil)); status != 429 || took != 0 {
					// With no cap at all, a wait of centuries is what was asked for.
					if maxWait != math.MaxInt64 || took < 100*365*24*time.Hour {
						t.Errorf("%q, MaxWait %v: %d after %v", fields, maxWait, status, took)
					}
				}
			})
		}
	}
}

// A reset that is an instant and not a span is a wait of decades: the caller has
// the refusal at once, and nothing sleeps.
func TestCase_B107_InstantsAreNotSlept(t *testing.T) {
	for _, fields := range [][]string{
		{"RateLimit-Remaining", "0", "RateLimit-Reset", "1372700873"},
		{"RateLimit", `"a";r=0;t=1372700873`},
		{"Retry-After", "1372700873"},
		{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1372700873"},
		{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := refusing(1, 429, fields...)
			if status, _, took := send(t, client(s), request(t, "GET", nil)); status != 429 || took != 0 {
				t.Errorf("%q: %d after %v", fields, status, took)
			}
		})
	}
}

// Whatever the fields hold, the answer is either returned at once or waited for
// within the bounds.
func FuzzFields(f *testing.F) {
	f.Add("7", `"a";r=0;t=3`, "0", "5", "Sat, 01 Jan 2000 00:00:00 GMT")
	f.Add("Sat, 01 Jan 2000 00:00:09 GMT", "", "", "", "")
	f.Add("", `"a";r=0;t=3, ("b" "c");r=0, ?1;r=0;t=-1`, "", "", "")
	f.Add("", `@1;r=0;t=@5, %"x";r=0;t=2`, "", "99999999999999999999", "x")
	f.Fuzz(func(t *testing.T, retryAfter, rateLimit, remaining, reset, date string) {
		synctest.Test(t, func(t *testing.T) {
			s := refusing(1, 429, "Retry-After", retryAfter, "RateLimit", rateLimit,
				"RateLimit-Remaining", remaining, "RateLimit-Reset", reset, "Date", date)
			rt := client(s, func(o *httpretry.Options) { o.Rand = mostChance })
			status, _, took := send(t, rt, request(t, "GET", nil))
			switch {
			case status == 429 && took == 0 && s.sent() == 1:
			case status == 200 && took >= 1100*time.Millisecond-1 && took < 45*time.Second && s.sent() == 2:
			default:
				t.Errorf("%d after %v and %d requests", status, took, s.sent())
			}
		})
	})
}

package plan

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text            string
		alg             algorithm
		max             int64
		interval, depth int64 // of a bucket
		length          int64 // of a window
	}{
		{"0.5/s burst 10", bucket, 10, 2e9, 20e9, 0},
		{"10/s", bucket, 10, 1e8, 1e9, 0},
		{"0.25/s burst 7", bucket, 7, 4e9, 28e9, 0},
		{"0.25/s", bucket, 1, 4e9, 4e9, 0},
		{"2.9/s", bucket, 2, 344827587, 2 * 344827587, 0},
		{"10/13s burst 1", bucket, 1, 13e8, 13e8, 0},
		{"1000000/s burst 1", bucket, 1, 1000, 1000, 0},
		{"1/100year", bucket, 1, maxPeriod, maxPeriod, 0},
		{"  7/m   burst  3 ", bucket, 3, 8571428572, 3 * 8571428572, 0},
		{"quota 3/hour", quota, 3, 0, 0, 3600e9},
		{"quota 1000000000000000/year", quota, 1e15, 0, 0, 365 * 86400e9},
		{"quota 100/day calendar", calendar, 100, 0, 0, 86400e9},
		{"quota 100/day calendar Europe/Berlin", calendar, 100, 0, 0, 86400e9},
		{"quota 1/30m calendar", calendar, 1, 0, 0, 1800e9},
		{"quota 1/3month calendar", calendar, 1, 0, 0, 90 * 86400e9},
		{"quota 1/month billing", billing, 1, 0, 0, 30 * 86400e9},
		{"sliding 2000/5m", sliding, 2000, 0, 0, 300e9},
		{"sliding 1/1s", sliding, 1, 0, 0, 1e9},
		{"007/s", bucket, 7, 142857143, 7 * 142857143, 0},
		{"5/hours", bucket, 5, 720e9, 3600e9, 0},
	} {
		s, err := Parse(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		length := int64(0)
		if c.alg != bucket {
			length = s.period.fixed()
		}
		if s.alg != c.alg || s.max != c.max || s.interval != c.interval || s.depth != c.depth || length != c.length {
			t.Errorf("%q: alg %d max %d interval %d depth %d length %d, want %+v", c.text, s.alg, s.max, s.interval, s.depth, length, c)
		}
	}
}

// Every mistake is refused, with the word that is wrong and what may stand there.
func TestParseRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"":                                "empty",
		"10":                              "N/UNIT",
		"0/s":                             "zero",
		"0.0/s":                           "zero",
		"quota 0/day":                     "zero",
		"sliding 0/5m":                    "zero",
		"10/s burst 0":                    "zero",
		"-1/s":                            "not a count",
		"+1/s":                            "not a count",
		"NaN/s":                           "not a count",
		"Inf/s":                           "not a count",
		"1e400/s":                         "not a count",
		"1e3/s":                           "not a count",
		"0x10/s":                          "not a count",
		"1_000/s":                         "not a count",
		"1,5/s":                           "not a count",
		".5/s":                            "not a count",
		"5./s":                            "not a count",
		"1.2.3/s":                         "not a count",
		"٣/s":                             "not a count",
		"/s":                              "not a count",
		"1.5.burst/s":                     "not a count",
		"0.0000000001/s":                  "decimals",
		"99999999999999999999/s":          "1e15",
		"1000000000000001/year":           "1e15",
		"quota 1000000000000001/d":        "1e15",
		"10/s burst 10000000000000000":    "1e15",
		"quota 1.5/h":                     "whole number",
		"10/s burst 1.5":                  "whole number",
		"10/s burst -1":                   "not a count",
		"10/s burst":                      "burst needs",
		"1000001/s":                       "1,000,000",
		"1000000.5/s":                     "1,000,000",
		"1/year burst 101":                "100 years",
		"0.000000001/year":                "100 years",
		"10/":                             "unit",
		"10/5":                            "unit",
		"10/fortnight":                    "fortnight",
		"10/S":                            "unit",
		"10/0s":                           "out of bounds",
		"10/99999999999999999999s":        "out of bounds",
		"10/101year":                      "100 years",
		"quota 5/36501d":                  "100 years",
		"10/s burst 20 burst 30":          "burst",
		"10/s 20":                         "20",
		"10/s calendar":                   "calendar",
		"quota":                           "needs a count",
		"sliding":                         "needs a count",
		"quota 5":                         "N/UNIT",
		"quota 5/h burst 3":               "burst",
		"sliding 5/h calendar":            "calendar",
		"quota 5/h calendar Nowhere/Else": "Nowhere/Else",
		"quota 5/h calendar Local":        "every machine",
		"quota 5/h calendar UTC now":      "now",
		"quota 5/h billing UTC":           "UTC",
		"quota 5/7m calendar":             "an hour",
		"quota 5/90s calendar":            "a minute",
		"quota 5/5h calendar":             "a day",
		"quota 5/2day calendar":           "day",
		"quota 5/2week calendar":          "week",
		"quota 5/5month calendar":         "a year",
		"quota 5/2year calendar":          "year",
		"Quota 5/h":                       "N/UNIT",
	} {
		s, err := Parse(text)
		if err == nil {
			t.Errorf("%q is read as %s, interval %d", text, s, s.interval)
		} else if !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "limit ") {
			t.Errorf("%q: the message %q does not speak of %q", text, err, part)
		}
	}
}

func TestNames(t *testing.T) {
	s := parsed(t, "", "10/s")
	for _, name := range []string{"a", "orders", "free.render", "a-1.b-2", "seats.2", strings.Repeat("a", 32) + "." + strings.Repeat("b", 31)} {
		if n, err := s.Named(name); err != nil || n.Name() != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "A", "1a", "-a", "a b", "a.b.c", "a.", ".a", "a~", "a@b", "a#b", "a|b", "ä", "a\n", strings.Repeat("a", 33)} {
		if _, err := s.Named(name); err == nil {
			t.Errorf("%q is accepted as a name", name)
		}
	}
}

// Whatever is read is within the bounds on which the arithmetic relies, and its
// text can be read again as the same limit.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"0.5/s burst 10", "quota 3/hour", "quota 100/day calendar Europe/Berlin", "quota 1/month billing", "sliding 2000/5m", "999999.999999999/s burst 999999999999999", "1/100year", "10/s burst 1e9", "quota 9/1s calendar"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.max < 1 || s.max > maxCount || s.Horizon() < 1 || s.Horizon() > 2*maxPeriod {
			t.Fatalf("%q: max %d, horizon %d", text, s.max, s.Horizon())
		}
		if s.alg == bucket && (s.interval < minInterval || s.depth != s.interval*s.max || s.depth > maxPeriod) {
			t.Fatalf("%q: interval %d, depth %d", text, s.interval, s.depth)
		}
		again, err := Parse(s.String())
		if err != nil || again.max != s.max || again.interval != s.interval || again.period != s.period || again.id != s.id {
			t.Fatalf("%q reads as %q, and that as %v (%v)", text, s, again, err)
		}
		if s.Ready() != nil {
			return
		}
		var c Cells
		if v := s.Step(&c, base, s.max); !v.OK || v.Used != s.max {
			t.Fatalf("%q: a new limit does not give what it holds: %+v", text, v)
		}
		if v := s.Step(&c, base, 1); v.OK || v.Wait < 1 {
			t.Fatalf("%q: more than it holds: %+v", text, v)
		}
	})
}

package answer

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// message is what a refusal says to people, in which language, and what it is made
// of. The language is "" where the policy has not said.
func (w *Writer) message(o *engine.Outcome, a *policy.Attributes, v *engine.Verdict) (text, language string, data policy.MessageData) {
	seconds, again := RetryAfter(&v.Decision)
	m, language := (*policy.Message)(nil), ""
	if spoken(v) {
		m, language = v.Rule.Denied.In(a.Header["Accept-Language"])
	}
	data = w.dataOf(o, a, v, language)
	switch {
	case m != nil:
		own := data // so that only those who have words of their own need memory for it
		text = m.Text(&own)
	case v.Reason == weir.ReasonUnavailable:
		text = "This limit can't be checked right now. Try again in " + words(seconds) + "."
	case !again:
		text = "This request costs " + strconv.FormatInt(v.Cost, 10) + ", and no more than " +
			strconv.FormatInt(v.Limit.Max(), 10) + " can ever be allowed at once. Trying again does not help."
	case v.Rule.Layer == policy.Edge:
		text = "Too many requests. Try again in " + words(seconds) + "."
	case v.Reason == weir.ReasonInFlight:
		text = held(&data, v.Rule)
	default:
		text = sentence(&data, v.Rule)
	}
	return text, language, data
}

// sentence is what a refusal says where the policy has no words of its own:
// "Your plan allows 50 orders per hour. Try again in 6 seconds, or upgrade to
// remove this limit."
func sentence(d *policy.MessageData, r *policy.Rule) string {
	s := "Your plan allows " + strconv.FormatInt(d.Count, 10) + " " + noun(r, d.Count) + " per " + d.Unit +
		". Try again in " + d.Wait
	if d.UpgradeURL != "" {
		s += ", or upgrade to remove this limit"
	}
	return s + "."
}

// held is that sentence while calls under way have taken what is left: an upgrade
// is not what helps, and a moment may.
func held(d *policy.MessageData, r *policy.Rule) string {
	return "Your plan allows " + strconv.FormatInt(d.Count, 10) + " " + noun(r, d.Count) + " per " + d.Unit +
		", and calls under way have taken what is left. Try again in " + d.Wait + "."
}

// noun is what a limit counts, by its name, which is expected to be a plural.
func noun(r *policy.Rule, count int64) string {
	s := r.Operation
	switch {
	case r.Layer == policy.Gateway:
		s = "requests"
	case s == "":
		s, _, _ = strings.Cut(r.Name, ".") // further limits of a list have names such as orders.quota-month
	}
	s = strings.ReplaceAll(s, "-", " ")
	if count == 1 {
		return singular(s)
	}
	return s
}

// singular is one of what an English plural counts, by the rules that have few
// exceptions; what looks like no plural stays.
func singular(s string) string {
	for _, e := range []struct{ plural, one string }{
		{"ss", "ss"}, {"us", "us"}, {"is", "is"}, {"news", "news"}, {"series", "series"},
		{"ies", "y"}, {"sses", "ss"}, {"shes", "sh"}, {"ches", "ch"}, {"xes", "x"}, {"s", ""},
	} {
		if stem, ok := strings.CutSuffix(s, e.plural); ok && stem != "" {
			return stem + e.one
		}
	}
	return s
}

// per is a limit's rate as people say it, in whole numbers: 0.5/s is 30 per
// minute, and 0.5/day is 1 per 2 days. What is whole in no unit up to a day is
// rounded down, so that nobody is promised what he does not get.
func per(l weir.Limit) (count int64, unit string) {
	n, scale := l.Rate()
	p := l.Period()
	for p.Count == 1 && n%scale != 0 && p.Duration() < 24*time.Hour {
		longer := p
		longer.Unit++
		times := int64(longer.Duration() / p.Duration())
		if n > math.MaxInt64/times {
			break
		}
		n, p = n*times, longer
	}
	if n >= scale {
		return n / scale, p.Words()
	}
	// Less than one: one in a longer time, rounded up, of days to the hour.
	const hours = 24
	inDays := p.Duration() == time.Duration(p.Count)*hours*time.Hour
	if inDays {
		p.Unit, p.Count = p.Unit-1, p.Count*hours
	}
	p.Count = (p.Count*scale + n - 1) / n
	if inDays && p.Count%hours == 0 {
		p.Unit, p.Count = p.Unit+1, p.Count/hours
	}
	return 1, p.Words()
}

// words is a wait as people say it: in seconds up to an hour, in hours and
// minutes up to two days, above that in days and hours; rounded up.
func words(seconds int64) string {
	switch {
	case seconds <= 3600:
		return counted(seconds, "second")
	case seconds <= 48*3600:
		minutes := (seconds + 59) / 60
		return both(minutes/60, "hour", minutes%60, "minute")
	}
	hours := (seconds + 3599) / 3600
	return both(hours/24, "day", hours%24, "hour")
}

func both(n int64, unit string, rest int64, smaller string) string {
	if rest == 0 {
		return counted(n, unit)
	}
	return counted(n, unit) + " " + counted(rest, smaller)
}

func counted(n int64, unit string) string {
	s := strconv.FormatInt(n, 10) + " " + unit
	if n != 1 {
		s += "s"
	}
	return s
}

// clock is an instant by the clock of a zone, rounded up to the minute: "15:00",
// and with its date when it is not today.
func clock(now, at time.Time, zone *time.Location) string {
	now, at = now.In(zone), at.In(zone)
	if m := at.Truncate(time.Minute); m.Before(at) {
		at = m.Add(time.Minute)
	}
	if y, d := now.Year(), now.YearDay(); at.Year() != y || at.YearDay() != d {
		return at.Format("15:04 on 2 January 2006")
	}
	return at.Format("15:04")
}

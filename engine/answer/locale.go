package answer

import (
	"encoding/json"
	"html"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// units are the words for units of time in a language, one and several.
type units struct{ second, minute, hour, day, week, month, year [2]string }

// languages have words here. In any other, times are written with the symbols
// that need no translation: 6 s, 1 h 5 min.
var languages = map[string]*units{
	"de": {[2]string{"Sekunde", "Sekunden"}, [2]string{"Minute", "Minuten"}, [2]string{"Stunde", "Stunden"}, [2]string{"Tag", "Tagen"}, [2]string{"Woche", "Wochen"}, [2]string{"Monat", "Monate"}, [2]string{"Jahr", "Jahre"}},
	"fr": {[2]string{"seconde", "secondes"}, [2]string{"minute", "minutes"}, [2]string{"heure", "heures"}, [2]string{"jour", "jours"}, [2]string{"semaine", "semaines"}, [2]string{"mois", "mois"}, [2]string{"an", "ans"}},
	"es": {[2]string{"segundo", "segundos"}, [2]string{"minuto", "minutos"}, [2]string{"hora", "horas"}, [2]string{"día", "días"}, [2]string{"semana", "semanas"}, [2]string{"mes", "meses"}, [2]string{"año", "años"}},
	"it": {[2]string{"secondo", "secondi"}, [2]string{"minuto", "minuti"}, [2]string{"ora", "ore"}, [2]string{"giorno", "giorni"}, [2]string{"settimana", "settimane"}, [2]string{"mese", "mesi"}, [2]string{"anno", "anni"}},
	"pt": {[2]string{"segundo", "segundos"}, [2]string{"minuto", "minutos"}, [2]string{"hora", "horas"}, [2]string{"dia", "dias"}, [2]string{"semana", "semanas"}, [2]string{"mês", "meses"}, [2]string{"ano", "anos"}},
	"nl": {[2]string{"seconde", "seconden"}, [2]string{"minuut", "minuten"}, [2]string{"uur", "uur"}, [2]string{"dag", "dagen"}, [2]string{"week", "weken"}, [2]string{"maand", "maanden"}, [2]string{"jaar", "jaar"}},
}

var symbols = &units{[2]string{"s", "s"}, [2]string{"min", "min"}, [2]string{"h", "h"}, [2]string{"d", "d"}, [2]string{"week", "weeks"}, [2]string{"month", "months"}, [2]string{"year", "years"}}

// of is the words' entry for an English unit.
func (u *units) of(unit string) [2]string {
	return map[string][2]string{"second": u.second, "minute": u.minute, "hour": u.hour, "day": u.day, "week": u.week, "month": u.month, "year": u.year}[unit]
}

// translated puts English times into a language: "1 hour 5 minutes", "5 minutes",
// "hour".
func translated(text, language string) string {
	base, _, _ := strings.Cut(language, "-")
	u := languages[base]
	if u == nil {
		u = symbols
	}
	parts := strings.Fields(text)
	for i, p := range parts {
		unit := strings.TrimSuffix(p, "s")
		words := u.of(unit)
		if words[0] == "" {
			continue // a number
		}
		parts[i] = words[0]
		if i > 0 && parts[i-1] != "1" {
			parts[i] = words[1]
		}
	}
	return strings.Join(parts, " ")
}

// zoneOf is the clock by which a refusal says when: the file's, the caller's, or
// that of the limit's calendar.
func (w *Writer) zoneOf(o *engine.Outcome, a *policy.Attributes, v *engine.Verdict) *time.Location {
	z := &v.Rule.Denied.Zone
	name := ""
	switch {
	case z.Fixed != nil:
		return z.Fixed
	case z.Claim != "":
		if o.Identity != nil {
			name, _ = o.Identity.Claims[z.Claim].(string)
		}
	case z.Header != "" && len(a.Header[z.Header]) == 1:
		name = a.Header[z.Header][0]
	}
	if loc := w.zones.load(name); loc != nil {
		return loc
	}
	if loc := v.Limit.Location(); loc != nil {
		return loc
	}
	return time.UTC
}

// zoneCache remembers zones by the names that callers give, those of none too:
// looking one up may read a file.
type zoneCache struct {
	mu   sync.Mutex
	seen map[string]*time.Location
}

// maxZones is more than there are, and what a flood of names can make it hold.
const maxZones = 1024

func (c *zoneCache) load(name string) *time.Location {
	if name == "" || name == "Local" || len(name) > 64 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	loc, known := c.seen[name]
	if known {
		return loc
	}
	if len(c.seen) >= maxZones {
		c.seen = nil
	}
	if c.seen == nil {
		c.seen = map[string]*time.Location{}
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		loc = nil
	}
	c.seen[name] = loc
	return loc
}

// ownBody is the body that the policy has for a refusal, and its type.
func ownBody(o *engine.Outcome, v *engine.Verdict, b *body, data policy.MessageData) (text []byte, contentType string) {
	d := &v.Rule.Denied
	contentType = d.ContentType
	if contentType == "" {
		contentType = "text/plain; charset=utf-8"
	}
	data.Message, data.Code, data.DenialID = b.Message, b.Error, o.DenialID()
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	var escape func(string) string
	switch kind = strings.TrimSpace(kind); {
	case strings.HasSuffix(kind, "json"):
		escape = inJSON
	case strings.HasSuffix(kind, "html"), strings.HasSuffix(kind, "xml"):
		escape = html.EscapeString
	}
	return []byte(d.Body.Escaped(&data, escape)), contentType
}

// inJSON is a text as it stands between the quotes of a JSON string.
func inJSON(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(quoted[1 : len(quoted)-1])
}

// LimitExceeded is a refusal by a limit as a Go error.
type LimitExceeded struct {
	Operation         string    `json:"operation"` // of the plan; the limit's name outside plans
	Limit             int64     `json:"limit"`     // capacity of a bucket, count of a window
	Used              int64     `json:"used"`
	ResetsAt          time.Time `json:"resetsAt,omitzero"` // when the same call would pass, never before it; RFC 3339 in JSON and in Error; zero when no wait helps
	RetryAfterSeconds int64     `json:"retryAfterSeconds"`
	Message           string    `json:"-"` // for people
}

// Error is the message, or without one what the fields say.
func (e *LimitExceeded) Error() string {
	if e.Message != "" {
		return e.Message
	}
	text := e.Operation + ": " + strconv.FormatInt(e.Used, 10) + " of " + strconv.FormatInt(e.Limit, 10) + " used"
	if e.ResetsAt.IsZero() {
		return text + "; one call asks for more than the limit holds"
	}
	return text + "; resets at " + e.ResetsAt.Format(time.RFC3339)
}

// Exceeded is the refusal of an outcome as an error for code that stands behind
// no edge: a *LimitExceeded, or the *[policy.RequestError] of a call that was
// refused before any limit. It is nil for one that is served.
func (w *Writer) Exceeded(o *engine.Outcome, a *policy.Attributes) error {
	if o.Err != nil {
		return o.Err
	}
	v := o.Speaks()
	if o.Served() || v == nil {
		return nil
	}
	e := &LimitExceeded{Operation: v.Rule.Operation, Limit: v.Limit.Max(), Used: v.Used}
	if e.Operation == "" {
		e.Operation = v.Rule.Name
	}
	e.Message, _, _ = w.message(o, a, v)
	wait, helps := RetryAfter(&v.Decision)
	if e.RetryAfterSeconds = wait; helps {
		e.ResetsAt = time.Unix(ceilUnix(passesAt(o, v)), 0).UTC()
	}
	return e
}

var _ error = (*LimitExceeded)(nil)

// passesAt is when the same call would pass: the very end of the window, where it
// is that which the caller waits for.
func passesAt(o *engine.Outcome, v *engine.Verdict) time.Time {
	if v.RetryAfter == v.ResetAfter {
		return v.ResetAt(o.Time())
	}
	return o.Time().Add(v.RetryAfter)
}

// dataOf is what a message knows of a refusal.
func (w *Writer) dataOf(o *engine.Outcome, a *policy.Attributes, v *engine.Verdict, language string) policy.MessageData {
	seconds, _ := RetryAfter(&v.Decision)
	count, unit := per(v.Limit)
	data := policy.MessageData{
		Limit: v.Limit.String(), Count: count, Unit: unit,
		Name: v.Rule.Name, Operation: v.Rule.Operation, Plan: v.Rule.Plan,
		Wait: words(seconds), UpgradeURL: v.Rule.Denied.UpgradeURL,
		Seconds: seconds, Used: v.Used,
	}
	if d := &v.Rule.Denied; d.Message != nil || d.Locales != nil || d.Body != nil { // no sentence here says when
		data.At = clock(o.Time(), passesAt(o, v), w.zoneOf(o, a, v))
	}
	if language != "" {
		data.Wait, data.Unit = translated(data.Wait, language), translated(data.Unit, language)
	}
	return data
}

// spoken reports whether a limit's own words are shown: where waiting helps.
func spoken(v *engine.Verdict) bool {
	return v.Reason != weir.ReasonUnavailable && v.Reason != weir.ReasonNever && v.Rule.Layer != policy.Edge
}

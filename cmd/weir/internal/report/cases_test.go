package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// parseDecision reads a line of a decision log as a report does.
func parseDecision(line []byte, q *Request) string {
	var d engine.Record
	if why := decisions.Parse(line, &d); why != "" {
		return why
	}
	if !FromDecision(&d, q) {
		return "no decision"
	}
	return ""
}

// A field is found by its name, whatever stands before, behind and within others.
func TestCase_B239_FurtherColumnsShiftNoField(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 239))
	further := []string{
		`"":""`, `"x":"-"`, `"country":"DE"`, `"note":"\",\"path\":\"/x"`, `"tabs":"a\tb c"`, `"bytes":12`, `"none":null`, `"list":[{"status":"200"},"x"]`,
		`"more":{"path":"/x","ip":"203.0.113.9","clientIp":"203.0.113.9","status":"200","action":"ALLOW","time":"2000-01-01T00:00:00Z","allowed":true}`,
	}
	for name, log := range map[string]struct {
		line  string
		parse func([]byte, *Request) string
	}{
		"waf": {wafLineOf(half, "BLOCK", "rate-all", "198.18.0.1", "GET", "/a", "agent"), ParseWAF},
		"gateway": {`{"requestTimeEpoch":"1767225600000","requestTime":"01/Jan/2026:00:00:00 +0000","ip":"198.18.0.1","apiKeyId":"-","httpMethod":"GET",` +
			`"path":"/a","resourcePath":"/{id}","status":"429","responseType":"THROTTLED"}`, ParseGateway},
		"decisions": {decisionOf(half, policy.Application, "orders", "free", "user", 7), parseDecision},
	} {
		var fields map[string]json.RawMessage
		var want, got Request
		if err := json.Unmarshal([]byte(log.line), &fields); err != nil {
			t.Fatal(err)
		}
		if why := log.parse([]byte(log.line), &want); why != "" || !want.Refused {
			t.Fatalf("%s: %q, %+v", name, why, want)
		}
		for range 200 {
			columns := slices.Clone(further)
			for name, value := range fields {
				columns = append(columns, fmt.Sprintf("%q:%s", name, value))
			}
			random.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
			line := "{" + strings.Join(columns, ",\t ") + "}"
			if why := log.parse([]byte(line), &got); why != "" || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %q, %+v, want %+v: %s", name, why, got, want, line)
			}
		}
	}
}

// What a log escapes is what the request had, and what only looks like an escape
// stays as it is. An escape that JSON does not have is no line.
func TestCase_B241_EscapesAreThoseOfTheFormat(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 241))
	parts := []string{"", `"`, `\`, `\"`, `\\`, `\x22`, `\u0022`, `%22`, "a b", "\t\n\r", "\x00\x1b[31m\x7f", "é\u2028\U0001f39f", "<&>", `","status":"200`}
	texts := slices.Clone(parts)
	for range 1000 {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteString(parts[random.IntN(len(parts))])
			b.WriteRune(rune(random.IntN(0x250)))
		}
		texts = append(texts, b.String())
	}
	escaped := func(s string) string { // every unit of it, as no log needs to
		var b strings.Builder
		for _, r := range s {
			if r < 0x10000 {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04X\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			}
		}
		return `"` + b.String() + `"`
	}
	plain := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	waf := wafLineOf(half, "BLOCK", "rate-all", "198.18.0.1", "GET", "/PATH", "AGENT")
	const gateway = `{"requestTimeEpoch":"1767225600000","ip":"198.18.0.1","httpMethod":"GET","path":"/PATH","status":"429","responseType":"THROTTLED"}`
	var q Request
	for _, s := range texts {
		for _, write := range []func(string) string{plain, escaped} {
			line := strings.NewReplacer(`"/PATH"`, write("/"+s), `"AGENT"`, write(s)).Replace(waf)
			if why := ParseWAF([]byte(line), &q); why != "" || q.Path != "/"+s || q.Agent != s || q.Client != "198.18.0.1" || q.Method != "GET" {
				t.Errorf("%q: %q, %+v", s, why, q)
			}
			line = strings.Replace(gateway, `"/PATH"`, write("/"+s), 1)
			if why := ParseGateway([]byte(line), &q); why != "" || q.Path != "/"+s || q.Client != "198.18.0.1" || q.Method != "GET" {
				t.Errorf("%q: %q, %+v", s, why, q)
			}
		}
	}
	for _, path := range []string{`"/\x22"`, `"/\'"`, `"/\u22"`, "\"/\n\"", `"/""`} {
		for line, parse := range map[string]func([]byte, *Request) string{waf: ParseWAF, gateway: ParseGateway} {
			if why := parse([]byte(strings.Replace(line, `"/PATH"`, path, 1)), &q); why == "" {
				t.Errorf("%s is taken for a path: %+v", path, q)
			}
		}
	}
}

// A time says its zone, or is none: the zone of the machine that reads a log changes
// nothing.
func TestCase_B242_TimesHaveAZone(t *testing.T) {
	const gateway = `{"requestTime":"WHEN","ip":"198.18.0.1","httpMethod":"GET","path":"/a","status":"429","responseType":"THROTTLED"}`
	decision := decisionOf(half, policy.Application, "orders", "free", "user", 7)
	defer func(was *time.Location) { time.Local = was }(time.Local)
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("+14", 14*3600), time.FixedZone("-12", -12*3600)} {
		time.Local = zone
		for _, when := range []string{"01/Jan/2026:00:00:00 +0000", "01/Jan/2026:05:30:00 +0530", "31/Dec/2025:16:00:00 -0800"} {
			var q Request
			if why := ParseGateway([]byte(strings.Replace(gateway, "WHEN", when, 1)), &q); why != "" || !q.Time.Equal(half) {
				t.Errorf("%s: %q, %v", when, why, q.Time)
			}
		}
		for _, when := range []string{"01/Jan/2026:00:00:00", "01/Jan/2026:00:00:00 ", "01/Jan/2026:00:00:00 UTC", "2026-01-01 00:00:00", ""} {
			var q Request
			if why := ParseGateway([]byte(strings.Replace(gateway, "WHEN", when, 1)), &q); !strings.Contains(why, "zone") {
				t.Errorf("%q: %q, %v", when, why, q.Time)
			}
		}
		for when, want := range map[string]bool{"2026-01-01T00:00:00Z": true, "2026-01-01T05:30:00+05:30": true, "2026-01-01T00:00:00": false, "2026-01-01 00:00:00": false, "2026-01-01": false} {
			var q Request
			line := strings.Replace(decision, "2026-01-01T00:00:00Z", when, 1)
			if why := parseDecision([]byte(line), &q); (why == "") != want || want && !q.Time.Equal(half) {
				t.Errorf("%s: %q, %v", when, why, q.Time)
			}
		}
		// Days and months are those of UTC, in every zone.
		r := reportOf(t, []string{wafLineOf(half, "BLOCK", "rate-all", "198.18.0.1", "GET", "/a", "")}, nil, []string{decision})
		for _, l := range r.Layers {
			for _, m := range l.Months {
				if m.Month != "2026-01" {
					t.Errorf("%s, read at %v: %+v", l.Layer, zone, m)
				}
			}
			for _, d := range l.PlanDays {
				if d.Day != "2026-01-01" {
					t.Errorf("%s, read at %v: %+v", l.Layer, zone, d)
				}
			}
			if len(l.Months) != 1 || l.Layer == policy.Application && len(l.PlanDays) != 1 {
				t.Errorf("%s: %d months, %d days", l.Layer, len(l.Months), len(l.PlanDays))
			}
		}
	}
}

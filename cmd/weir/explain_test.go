package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlabs/weir"
)

// Whatever scenario of the demo: what weir explain says of a caller's first
// request is what the demo's proxy answers to it, field by field; and what it says
// of many at once is how the scenario ended.
func TestExplainAgreesWithTheDemo(t *testing.T) {
	c := &common{config: "../../" + exampleFile, format: "json", color: "never", stdout: io.Discard, stderr: io.Discard}
	d, err := newStage(c, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(d.policy.Auth().JWT.SecretEnv, d.secret)
	ended, err := d.start(t.Context(), c, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	_ = ended
	list, err := d.scenarios(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 10 {
		t.Fatalf("%d scenarios", len(list))
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for i := range list {
		sc := &list[i]
		var atOnce []int
		denials := map[string]*verdictReport{} // by limit
		for j := range sc.parts {
			p := sc.parts[j]
			q := &question{attributes: *p.attributes()}
			x, err := explain(t.Context(), d.policy, q, d.open.Store)
			if err != nil {
				t.Fatal(err)
			}
			said := x.report()
			n := p.calls
			if said.AtOnce != nil {
				n = min(n, *said.AtOnce)
				denials[said.FirstDenial.Limit] = said.FirstDenial
			}
			atOnce = append(atOnce, n)

			// A caller who is like this one, and nobody else: the scenario's own must
			// find its limits unused.
			other := p
			other.from = d.address()
			if p.from == office {
				other.from = office.Next()
			}
			other.header = d.twin(p.header)
			compareFirst(t, sc.name, d, client, &other, said)
			if len(p.header) > 0 && p.header.Get("Authorization") == "" { // a partner has one key for all calls
				l := weir.NewLimiter(d.open.Store, weir.Options{Limits: d.policy.Limits()})
				for _, key := range x.items() {
					if err := l.Reset(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		r, err := d.play(t.Context(), client, sc)
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK {
			t.Errorf("%s: %s", sc.name, r.Differs)
		}
		for j, n := range atOnce {
			if r.Expected.used || r.Expected.shared {
				continue
			}
			if want := r.Expected.min[j]; n != want {
				t.Errorf("%s, caller %d: %d at once, the demo counts on %d", sc.name, j+1, n, want)
			}
		}
		if (r.FirstDenial == nil) != (len(denials) == 0) {
			t.Errorf("%s: refusals %v, the demo's %v", sc.name, denials, r.FirstDenial)
			continue
		}
		if r.FirstDenial == nil {
			continue
		}
		var got refusalBody
		if err := json.Unmarshal(r.FirstDenial.Body, &got); err != nil {
			t.Fatal(err)
		}
		said := denials[got.Limit]
		if said == nil {
			t.Errorf("%s: %s refused, and was not said to", sc.name, got.Limit)
			continue
		}
		var body refusalBody
		if err := json.Unmarshal(said.Body, &body); err != nil {
			t.Fatal(err)
		}
		if said.Status != r.FirstDenial.Status || body.Error != got.Error || body.UpgradeURL != got.UpgradeURL || timeless(body.Message) != timeless(got.Message) {
			t.Errorf("%s: said %d %s, was %d %s", sc.name, said.Status, said.Body, r.FirstDenial.Status, r.FirstDenial.Body)
		}
		for name, value := range r.FirstDenial.Headers {
			if name == "RateLimit" { // also says what is left of limits that let the request pass, which depends on who came first
				continue
			}
			if timelessField(name, said.Headers[name]) != timelessField(name, value) {
				t.Errorf("%s: %s said to be %q, was %q", sc.name, name, said.Headers[name], value)
			}
		}
	}
}

// compareFirst sends one request and holds its answer against what was said.
func compareFirst(t *testing.T, name string, d *stage, client *http.Client, p *part, said *explainReport) {
	t.Helper()
	req, err := p.request(t.Context(), d.server.url())
	if err != nil {
		t.Fatal(err)
	}
	calls := d.storeCalls()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != p.status || !said.Verdict.Allowed {
		t.Errorf("%s: answered %d, said %+v", name, res.StatusCode, said.Verdict)
	}
	got := map[string]string{}
	for field, values := range res.Header {
		if limitHeader(field) && field != "Content-Type" {
			got[spelling(field)] = timelessField(field, values[0])
		}
	}
	want := map[string]string{}
	for field, value := range said.Verdict.Headers {
		want[field] = timelessField(field, value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the answer has %v, said %v", name, got, want)
	}
	if asked := d.storeCalls() - calls; asked != int64(min(1, said.StoreCalls)) { // in memory, decisions are counted and not items
		t.Errorf("%s: the store was asked %d times, said %d", name, asked, said.StoreCalls)
	}
}

// twin is the credentials of somebody else of the same kind.
func (d *stage) twin(h http.Header) http.Header {
	if h.Get("Authorization") == "" {
		return h
	}
	return d.token(randomHex(4), claimsOf(h))
}

// claimsOf are those of a token that the demo signed, without who it is.
func claimsOf(h http.Header) jwt.MapClaims {
	claims := decodeClaims(h.Get("Authorization"))
	for _, name := range []string{"sub", "exp", "iss", "aud"} {
		delete(claims, name)
	}
	if _, has := claims["agent"]; has {
		claims["agent"] = randomHex(4)
	}
	return claims
}

// decodeClaims reads a token without verifying it.
func decodeClaims(authorization string) jwt.MapClaims {
	claims := jwt.MapClaims{}
	_, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(authorization, "Bearer "), claims)
	if err != nil {
		return nil
	}
	return claims
}

// timeless takes out of a text what depends on when a request was sent.
func timeless(s string) string {
	s = regexp.MustCompile(`;t=\d+`).ReplaceAllString(s, ";t=T")
	s = clockTime.ReplaceAllString(s, "AT")
	return regexp.MustCompile(`in \d+ (second|hour|minute)s?( \d+ minutes?)?`).ReplaceAllString(s, "in N")
}

func timelessField(name, value string) string {
	if strings.EqualFold(name, "RateLimit-Reset") || strings.EqualFold(name, "Retry-After") {
		return "N"
	}
	return timeless(value)
}

// explainOf runs the command on a policy of one limit for addresses.
func explainOf(t *testing.T, limit string) string {
	t.Helper()
	file := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), "weir: 1\napplication:\n  limits:\n    - {name: all, match: GET /, by: ip, limit: "+limit+"}\n")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"explain", "-c", file}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	return out.String()
}

// The whole kind: whatever the grammar, both what passes at once and what passes
// after that stand there in numbers.
func TestCase_B247_ExplainPrintsSteadyRateAndBurst(t *testing.T) {
	for limit, want := range map[string]string{
		"6/m burst 1":                        "6/m burst 1: 1 at once, then 1 every 10s",
		"6/m":                                "6/m: 6 at once, then 1 every 10s",
		"0.5/s burst 10":                     "10 at once, then 1 every 2s",
		"1000/s burst 5":                     "5 at once, then 1 every 1ms",
		"quota 100/day":                      "100 in the day that begins with the first",
		"quota 50/2h":                        "50 in the 2h that begins with the first",
		"quota 9/month calendar Asia/Tokyo":  "9 in each month of the calendar",
		"sliding 2000/5m":                    "2000 in any 5m",
		"3/d burst 2":                        "2 at once, then 1 every 8h",
		"0.3/h":                              "1 at once, then 1 every 3h20m",
		"quota 1/week calendar Europe/Paris": "1 in each week of the calendar",
	} {
		if out := explainOf(t, limit); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", limit, want, out)
		}
	}
}

// The whole kind: what a burst is, is seen from when the first ten pass.
func TestCase_B248_ExplainPrintsATimeline(t *testing.T) {
	for limit, want := range map[string]string{
		"6/m burst 1":    "the first 10, sent as early as they pass: 0s 10s 20s 30s 40s 50s 1m 1m10s 1m20s 1m30s",
		"6/m":            "the first 10, sent as early as they pass: 0s 0s 0s 0s 0s 0s 10s 20s 30s 40s",
		"0.5/s burst 10": "the first 10, sent as early as they pass: 0s 0s 0s 0s 0s 0s 0s 0s 0s 0s",
		"quota 4/hour":   "the first 10, sent as early as they pass: 0s 0s 0s 0s 1h 1h 1h 1h 2h 2h",
	} {
		if out := explainOf(t, limit); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", limit, want, out)
		}
	}
	if out := explainOf(t, "0.5/s burst 10"); !strings.Contains(out, "at once: 10 such requests pass, then 429: ") {
		t.Errorf("no burst in\n%s", out)
	}
}

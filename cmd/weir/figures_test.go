package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The whole kind: whatever becomes of the example's limits, the demo's figures
// follow, and a limit that is reached first speaks for the others. The counts and
// the limits here are worked out by hand.
func TestDemoFollowsEveryEditOfTheExample(t *testing.T) {
	const (
		all    = "limit: sliding 2000/5m"
		login  = "limit: sliding 100/5m"
		book   = "limit: 0.5/s burst 10"
		anon   = "anonymous: 0.2/s burst 3"
		search = "limit: 2/s burst 5"
		free   = "{orders: quota 50/hour}"
		keys   = "[10/s burst 20, quota 100000/month]"
	)
	// SCENARIO ALLOWED LIMIT; ALLOWED+ is that many or a few more, which come back
	// while the calls are made.
	for name, c := range map[string]struct {
		edit []string // what, to what
		want []string
	}{
		"as shipped": {nil, []string{"reservations 10 reservations", "two-accounts 20 reservations", "anonymous 3 reservations", "auth-flood 100 rate-auth",
			"office 150 -", "partner-burst 20+ partner-basic", "orders 50 orders", "webhooks 300 -", "health 50 -", "agent 8+ searches"}},
		"an edge limit below every scenario": {[]string{all, "limit: sliding 2/5m"}, []string{"reservations 2 rate-all", "two-accounts 4 rate-all", "anonymous 2 rate-all",
			"auth-flood 2 rate-all", "office 150 -", "partner-burst 2 rate-all", "orders 2 rate-all", "webhooks 300 -", "agent 4 rate-all"}},
		"an edge limit below the longest":                      {[]string{all, "limit: sliding 60/5m"}, []string{"reservations 10 reservations", "auth-flood 60 rate-all", "orders 50 orders"}},
		"an edge limit that nobody reaches by what is allowed": {[]string{all, "limit: sliding 99/5m"}, []string{"auth-flood 99 rate-all", "orders 50 orders", "partner-burst 20+ partner-basic"}},
		"an edge limit of the same count":                      {[]string{all, "limit: sliding 150/5m"}, []string{"auth-flood 100 rate-auth", "orders 50 orders"}},
		"an edge limit at a scenario's own":                    {[]string{all, "limit: sliding 50/5m"}, []string{"orders 50 rate-all", "auth-flood 50 rate-all"}},
		"a bucket at the edge":                                 {[]string{all, "limit: 1/m burst 7"}, []string{"reservations 7 rate-all", "auth-flood 7 rate-all"}},
		"a quota at the edge":                                  {[]string{login, "limit: quota 20/hour"}, []string{"auth-flood 20 rate-auth"}},
		"a calendar at the edge":                               {[]string{login, "limit: quota 20/year calendar"}, []string{"auth-flood 20 rate-auth"}},
		"edge limits raised":                                   {[]string{login, "limit: sliding 170/5m"}, []string{"auth-flood 170 rate-auth"}},
		"a limit raised":                                       {[]string{book, "limit: 0.5/s burst 40"}, []string{"reservations 40 reservations", "two-accounts 80 reservations", "anonymous 3 reservations"}},
		"a limit of one":                                       {[]string{book, "limit: 1/hour"}, []string{"reservations 1 reservations", "two-accounts 2 reservations"}},
		"a quota for a bucket":                                 {[]string{book, "limit: quota 5/hour"}, []string{"reservations 5 reservations"}},
		"a sliding window":                                     {[]string{book, "limit: sliding 6/day"}, []string{"reservations 6 reservations"}},
		"a calendar month":                                     {[]string{book, "limit: quota 4/month calendar Europe/Berlin"}, []string{"reservations 4 reservations"}},
		"a list, the quota first":                              {[]string{book, "limit: [0.5/s burst 10, quota 6/hour]"}, []string{"reservations 6 reservations.quota-hour"}},
		"a list, both at once":                                 {[]string{book, "limit: [0.5/s burst 10, quota 10/hour]"}, []string{"reservations 10 reservations.quota-hour"}},
		"a list, the bucket first":                             {[]string{book, "limit: [0.1/s burst 3, quota 10/hour, sliding 20/day]"}, []string{"reservations 3 reservations"}},
		"a list for the anonymous":                             {[]string{anon, "anonymous: [0.2/s burst 3, quota 2/hour]"}, []string{"anonymous 2 reservations.quota-hour", "reservations 10 reservations"}},
		"a plan's list":                                        {[]string{free, "{orders: [quota 50/hour, quota 7/day]}"}, []string{"orders 7 orders.quota-day"}},
		"a plan's limit lowered":                               {[]string{free, "{orders: quota 1/hour}"}, []string{"orders 1 orders"}},
		"a plan without a limit":                               {[]string{free, "{orders: unlimited}", all, "limit: sliding 70/5m"}, []string{"orders 70 rate-all"}},
		"a partner's quota":                                    {[]string{keys, "[10/s burst 20, quota 4/month]"}, []string{"partner-burst 4 partner-basic.quota-month"}},
		"a partner's bucket":                                   {[]string{keys, "1/m burst 3"}, []string{"partner-burst 3 partner-basic"}},
		"one bucket for account and agent":                     {[]string{"by: [account+agent, account, ip]", "by: [account, ip]", search, "limit: 1/m burst 5"}, []string{"agent 5 searches"}},
		"one bucket for everybody":                             {[]string{"by: [account, ip]", "by: everyone", book, "limit: 1/m burst 10", anon, "cost: 1"}, []string{"reservations 10 reservations", "two-accounts 0 reservations"}},
		"a cost":                                               {[]string{anon, "cost: 3"}, []string{"reservations 3 reservations"}},
		"words of the policy's own":                            {[]string{"on_store_error: allow", `denied: {message: "{{.Count}} per {{.Unit}}: {{.Name}}, {{.Wait}}, {{.At}}"}`, "      denied: {upgrade_url: /billing}\n    - name", "    - name"}, []string{"reservations 10 reservations"}},
		"an office that is limited":                            {[]string{`, path: /api/auth/*, except_ips: [203.0.113.0/24, "2001:db8:100::/48"]`, ", path: /api/auth/*"}, []string{"office 100 rate-auth"}},
		"edge limits in the store":                             {[]string{"header_styles:", "edge_store: shared\nheader_styles:", all, "limit: sliding 30/5m"}, []string{"orders 30 rate-all", "reservations 10 reservations"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := playEdited(t, c.want, c.edit...)
			for _, want := range c.want {
				f := strings.Fields(want)
				i := slices.IndexFunc(got, func(r result) bool { return r.Name == f[0] })
				if i < 0 {
					t.Fatalf("no scenario %s", f[0])
				}
				count, more := strings.CutSuffix(f[1], "+")
				limit := "-"
				if d := got[i].FirstDenial; d != nil {
					var b refusalBody
					if err := json.Unmarshal(d.Body, &b); err != nil {
						t.Error(err)
					}
					limit = b.Limit
				}
				if is := fmt.Sprint(got[i].Allowed); is != count && !(more && got[i].Allowed >= got[i].Expected.AllowedMin && got[i].Allowed <= got[i].Expected.AllowedMax) || limit != f[2] {
					t.Errorf("%s: %s allowed, %s refused first, want %s and %s", f[0], is, limit, f[1], f[2])
				}
			}
			for _, r := range got {
				if !r.OK {
					t.Errorf("%s differs: %s", r.Name, r.Differs)
				}
			}
		})
	}
}

// The figures are no mirror of what the proxy did: whatever a refusal says wrongly
// differs.
func TestDemoSeesWhatDiffers(t *testing.T) {
	d := startStage(t, &common{stderr: io.Discard}, false)
	list, err := d.scenarios(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sc := &list[0]
	f, err := expect(t.Context(), d, sc, sc.order(), time.Now(), time.Millisecond)
	if err != nil || f.AllowedMin != 10 || f.AllowedMax != 10 || fmt.Sprint(f.Limits) != "[reservations]" {
		t.Fatalf("%+v, %v", f, err)
	}
	const body = `{"error":"rate_limited","message":"Your plan allows 30 reservations per minute. Try again in 2 seconds, or upgrade to remove this limit.","upgradeUrl":"/billing","limit":"reservations","retryAfterSeconds":2}`
	said := func() *denial {
		two := int64(2)
		return &denial{Status: 429, RetryAfter: &two, Body: json.RawMessage(body), Headers: map[string]string{
			"Retry-After": "2", "RateLimit-Limit": "10", "RateLimit-Remaining": "0", "RateLimit-Reset": "2", "x-ratelimit-limit": "10", "x-ratelimit-remaining": "0"}}
	}
	if differs := f.compare(said()); differs != "" {
		t.Fatal(differs)
	}
	swap := func(old, new string) func(*denial) {
		return func(d *denial) { d.Body = json.RawMessage(strings.Replace(body, old, new, 1)) }
	}
	for name, wrong := range map[string]func(*denial){
		"status":    func(d *denial) { d.Status = 503 },
		"wait":      func(d *denial) { *d.RetryAfter = 3 },
		"no wait":   func(d *denial) { d.RetryAfter = nil; delete(d.Headers, "Retry-After") },
		"body":      func(d *denial) { d.Body = json.RawMessage("null") },
		"limit":     swap(`"limit":"reservations"`, `"limit":"orders"`),
		"message":   swap("30 reservations", "31 reservations"),
		"error":     swap("rate_limited", "quota_exhausted"),
		"upgrade":   swap("/billing", "/"),
		"seconds":   swap(`Seconds":2`, `Seconds":3`),
		"count":     func(d *denial) { d.Headers["RateLimit-Limit"] = "11" },
		"remaining": func(d *denial) { d.Headers["RateLimit-Remaining"] = "1" },
		"reset":     func(d *denial) { delete(d.Headers, "RateLimit-Reset") },
		"x count":   func(d *denial) { d.Headers["x-ratelimit-limit"] = "30" },
	} {
		d := said()
		wrong(d)
		if f.compare(d) == "" {
			t.Errorf("a wrong %s passes for the policy's", name)
		}
	}
}

// playEdited plays scenarios of the example with some of its words replaced.
func playEdited(t *testing.T, scenarios []string, edit ...string) (results []result) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"weir.yaml", "partners.keys"} {
		b, err := os.ReadFile(filepath.Join("../../examples/little-stage", name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for i := 0; name == "weir.yaml" && i < len(edit); i += 2 {
			if !strings.Contains(text, edit[i]) {
				t.Fatalf("the example has no %q", edit[i])
			}
			text = strings.ReplaceAll(text, edit[i], edit[i+1])
		}
		writeFile(t, filepath.Join(dir, name), text)
	}
	d := startStage(t, &common{config: filepath.Join(dir, "weir.yaml"), stderr: io.Discard}, true)
	list, err := d.scenarios(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: mostAtOnce}}
	defer client.CloseIdleConnections()
	for i := range list {
		if !slices.ContainsFunc(scenarios, func(s string) bool { return strings.HasPrefix(s, list[i].name+" ") }) {
			continue
		}
		r, err := d.play(t.Context(), client, &list[i])
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	return results
}

// startStage serves the demo until the test ends.
func startStage(t *testing.T, c *common, chosen bool) *stage {
	t.Helper()
	d, err := newStage(c, chosen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended, err := d.start(ctx, c, "127.0.0.1:0")
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		<-ended
		d.close()
	})
	return d
}

package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/cost"
	"github.com/weirlabs/weir/cmd/weir/internal/decisions"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// half is the half year of the example.
var half = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func day(n int, at time.Duration) time.Time { return half.AddDate(0, 0, n).Add(at) }

// wafLineOf is a line as AWS WAF writes it, with what a report must pass over.
func wafLineOf(at time.Time, action, rule, ip, method, uri, agent string) string {
	b, err := json.Marshal(map[string]any{
		"timestamp": at.UnixMilli(), "formatVersion": 1, "webaclId": "arn:aws:wafv2:us-east-1:123456789012:regional/webacl/little-stage/1",
		"terminatingRuleId": rule, "terminatingRuleType": "RATE_BASED", "action": action,
		"httpSourceName": "APIGW", "rateBasedRuleList": []any{map[string]any{"rateBasedRuleName": rule, "limitKey": "IP"}},
		"httpRequest": map[string]any{"clientIp": ip, "country": "DE", "uri": uri, "args": "", "httpMethod": method,
			"headers": []any{map[string]any{"name": "User-Agent", "value": agent}}},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func decisionOf(at time.Time, layer policy.Layer, limit, plan, key string, wait int64) string {
	r := engine.Record{Time: at, Layer: layer, Limit: limit, Operation: limit, Plan: plan, KeyHash: key, Reason: "limit", Cost: 1, RetryAfterSeconds: wait, DenialID: "d", Weight: 1}
	return string(r.AppendJSON(nil))
}

// halfAYear writes the logs of six months with exactly 3 runs of credential
// stuffing, 1 scraper, 1 misconfigured monitoring bot, 2 partners in a retry loop
// and 40 users a day at the limit of their plan.
func halfAYear(r *rand.Rand) (waf, log []string) {
	jitter := func(d time.Duration) time.Duration { return time.Duration(r.Float64() * float64(d)) }
	for run, start := range []time.Time{day(12, 3*time.Hour), day(70, 22*time.Hour), day(140, 4*time.Hour)} {
		at := start
		for range 900 + 300*run {
			waf = append(waf, wafLineOf(at, "BLOCK", "rate-auth", fmt.Sprintf("198.18.1.%d", run), "POST", "/api/auth/login", "Mozilla/5.0"))
			at = at.Add(jitter(2 * time.Second))
		}
	}
	at := day(30, time.Hour)
	for i := range 4000 {
		waf = append(waf, wafLineOf(at, "BLOCK", "rate-all", "198.18.2.1", "GET", fmt.Sprintf("/events/%d", i), "python-requests/2.32"))
		at = at.Add(jitter(300 * time.Millisecond))
	}
	for i := range 5000 {
		waf = append(waf, wafLineOf(day(90, time.Duration(i)*10*time.Second), "BLOCK", "rate-all", "198.18.3.1", "GET", "/status", "uptime-check/1.0"))
	}
	for i := range 2000 { // what people did meanwhile
		waf = append(waf, wafLineOf(day(i%180, jitter(24*time.Hour)), "ALLOW", "Default_Action", fmt.Sprintf("198.18.9.%d", i%250), "GET", "/", "Mozilla/5.0"))
	}
	for partner, start := range []time.Time{day(50, 9*time.Hour), day(120, 2*time.Hour)} {
		for i := range 3000 {
			log = append(log, decisionOf(start.Add(time.Duration(i)*800*time.Millisecond+jitter(100*time.Millisecond)),
				policy.Gateway, "partner-basic", "partner-basic", fmt.Sprintf("partner%d", partner), 5))
		}
	}
	for d := range 180 {
		for u := range 40 {
			for range 1 + r.IntN(4) {
				log = append(log, decisionOf(day(d, jitter(23*time.Hour)), policy.Application, "orders", "free", fmt.Sprintf("user%d", (d+u)%300), 1800))
			}
		}
	}
	return waf, log
}

func reportOf(t *testing.T, waf, gateway, log []string) Report {
	t.Helper()
	prices, err := cost.In("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	c := New(time.Time{})
	var q Request
	add := func(lines []string, parse func([]byte, *Request) string) {
		for _, l := range lines {
			if why := parse([]byte(l), &q); why != "" {
				t.Fatalf("%s: %s", why, l)
			}
			if _, err := c.Add(&q); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(waf, ParseWAF)
	add(gateway, ParseGateway)
	add(log, func(line []byte, q *Request) string {
		var d engine.Record
		if why := decisions.Parse(line, &d); why != "" {
			return why
		}
		if !FromDecision(&d, q) {
			return "no decision"
		}
		return ""
	})
	return c.Report(Costs{Prices: prices, WAF: len(waf) > 0, Rules: 2, REST: len(gateway) > 0})
}

func kinds(l *Layer) string {
	var s []string
	for _, k := range l.Kinds {
		s = append(s, fmt.Sprintf("%d %s", k.Episodes, k.Kind))
	}
	return strings.Join(s, ", ")
}

// TestSpec_C06_ReportShowsExactlyWhatTheLogsHold.
func TestSpec_C06_ReportShowsExactlyWhatTheLogsHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	waf, log := halfAYear(rand.New(rand.NewPCG(seed, 1)))
	r := reportOf(t, waf, nil, log)
	if len(r.Layers) != 3 {
		t.Fatalf("%d layers, want 3", len(r.Layers))
	}
	edge, gateway, application := &r.Layers[0], &r.Layers[1], &r.Layers[2]
	if got, want := kinds(edge), "3 credential stuffing, 1 monitoring bot, 1 scraper"; got != want {
		t.Errorf("edge: %s; want %s", got, want)
	}
	if got, want := kinds(gateway), "2 retry loop"; got != want {
		t.Errorf("gateway: %s; want %s", got, want)
	}
	if len(application.Kinds) != 1 || application.Kinds[0].Kind != PlanLimit || len(application.PlanDays) != 180 || application.CallersPerDay != 40 {
		t.Errorf("application: %s on %d days with %v callers a day; want plan limits on 180 days with 40", kinds(application), len(application.PlanDays), application.CallersPerDay)
	}
	// The sums are those of the input.
	var blocked, inEpisodes int64
	for _, l := range waf {
		if strings.Contains(l, `"BLOCK"`) {
			blocked++
		}
	}
	for _, e := range edge.Episodes {
		inEpisodes += e.Denied
	}
	if edge.Denied != blocked || inEpisodes != blocked || int(edge.Requests) != len(waf) {
		t.Errorf("edge: %d refused, %d in episodes, %v requests; the log has %d and %d", edge.Denied, inEpisodes, edge.Requests, blocked, len(waf))
	}
	if gateway.Denied+application.Denied != int64(len(log)) {
		t.Errorf("%d and %d refused; the log has %d", gateway.Denied, application.Denied, len(log))
	}
	// Six months of a web ACL with two rules, and the requests.
	if got, want := edge.USD.String(), cost.Dollars(6*7+float64(len(waf))/1e6*0.6).String(); got != want {
		t.Errorf("edge cost %s, want %s", got, want)
	}
}

// TestReportDoesNotDependOnTheOrder: parts of rotated logs come in any order.
func TestReportDoesNotDependOnTheOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	waf, log := halfAYear(r)
	waf, log = waf[:3000], log[:4000]
	want, err := json.Marshal(reportOf(t, waf, nil, log))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r.Shuffle(len(waf), func(i, j int) { waf[i], waf[j] = waf[j], waf[i] })
		r.Shuffle(len(log), func(i, j int) { log[i], log[j] = log[j], log[i] })
		got, err := json.Marshal(reportOf(t, waf, nil, log))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatal("the same lines in another order give another report")
		}
	}
}

// What refusals take in memory is counted by their episodes too, each of which is
// written.
func TestEpisodesCount(t *testing.T) {
	size := func(gap time.Duration) int64 {
		c := New(time.Time{})
		for i := range 100 {
			if _, err := c.Add(&Request{Time: half.Add(time.Duration(i) * gap), Layer: policy.Edge, Refused: true, Weight: 1, Limit: "all", Client: "203.0.113.9"}); err != nil {
				t.Fatal(err)
			}
		}
		return c.bytes
	}
	if one, many := size(time.Second), size(EpisodeGap); one != 100*bytesOfHit+bytesOfGroup+bytesOfEpisode || many-one != 99*bytesOfEpisode {
		t.Errorf("100 refusals take %d bytes as one episode, %d as a hundred", one, many)
	}
}

// TestKinds: the shapes of runs, where a log shows paths and where it does not.
func TestKinds(t *testing.T) {
	run := func(n int, gap time.Duration, h hit) []hit {
		var all []hit
		for i := range n {
			h.at = half.Add(time.Duration(i) * gap).UnixNano()
			all = append(all, h)
		}
		return all
	}
	pages := func(n int, gap time.Duration) []hit {
		all := run(n, gap, hit{method: methodReads})
		for i := range all {
			all[i].path = uint64(i + 1)
		}
		return all
	}
	uneven := func(n int, h hit) []hit {
		all := run(n, 100*time.Millisecond, h)
		for i := range all {
			all[i].at += int64(i%7) * int64(i%5) * int64(200*time.Millisecond)
		}
		slices.SortFunc(all, func(a, b hit) int { return int(a.at - b.at) })
		return all
	}
	mixed := func(n int, gap time.Duration) []hit { // a page, its token, a try
		all := run(n, gap, hit{method: methodReads, hints: hintSignsIn})
		for i := range all {
			all[i].path = uint64(1 + i%3)
			if i%3 == 2 {
				all[i].method = methodWrites
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		layer policy.Layer
		limit string
		plan  bool
		run   []hit
		want  Kind
	}{
		"tries at a fixed pace":             {policy.Edge, "rate-auth", false, run(200, time.Second, hit{path: 1, method: methodWrites, hints: hintSignsIn}), CredentialStuffing},
		"tries, in a log without paths":     {policy.Edge, "rate-auth", false, run(200, time.Second, hit{}), CredentialStuffing},
		"tries met by the limit for all":    {policy.Edge, "rate-all", false, run(200, time.Second, hit{path: 1, method: methodWrites, hints: hintSignsIn}), CredentialStuffing},
		"tries with a page and a form each": {policy.Edge, "rate-auth", false, mixed(300, time.Second), CredentialStuffing},
		"a person who forgot the password":  {policy.Edge, "rate-auth", false, run(4, 9*time.Second, hit{path: 1, method: methodWrites, hints: hintSignsIn}), Unclear},
		"a monitor of the sign-in page":     {policy.Edge, "rate-auth", false, run(200, time.Second, hit{path: 1, method: methodReads, hints: hintSignsIn}), MonitoringBot},
		"pages at a fixed pace":             {policy.Edge, "rate-all", false, pages(100, 50*time.Millisecond), Scraper},
		"one page at a fixed pace":          {policy.Edge, "rate-all", false, run(100, 100*time.Millisecond, hit{path: 1, method: methodReads}), MonitoringBot},
		"one page at any pace":              {policy.Edge, "rate-all", false, uneven(100, hit{path: 1, method: methodReads}), MonitoringBot},
		"one thing changed over and over":   {policy.Edge, "rate-all", false, run(100, 100*time.Millisecond, hit{path: 1, method: methodWrites}), RetryLoop},
		"fast, in a log without paths":      {policy.Edge, "rate-all", false, run(500, 50*time.Millisecond, hit{}), Scraper},
		"each second, in a log without":     {policy.Edge, "rate-all", false, run(9000, time.Second, hit{}), Unclear},
		"thrice a second, in a log without": {policy.Edge, "rate-all", false, run(5000, 300*time.Millisecond, hit{}), Unclear},
		"for hours, in a log without":       {policy.Edge, "rate-all", false, run(500, 30*time.Second, hit{}), MonitoringBot},
		"two refusals":                      {policy.Edge, "rate-all", false, run(2, time.Second, hit{path: 1, method: methodReads}), Unclear},
		"a partner that does not wait":      {policy.Gateway, "partner-basic", true, run(500, time.Second, hit{retry: 60}), RetryLoop},
		"a partner that waits too little":   {policy.Application, "orders", false, run(50, 30*time.Second, hit{retry: 3600}), RetryLoop},
		"a partner that comes in minutes":   {policy.Gateway, "partner-basic", true, run(200, 5*time.Minute, hit{retry: 86_400}), RetryLoop},
		"a partner that waits as told":      {policy.Application, "orders", false, run(50, 2*time.Second, hit{retry: 2}), PlanLimit},
		"a customer who tries again":        {policy.Application, "orders", true, run(5, 10*time.Second, hit{retry: 1800}), PlanLimit},
		"a customer who does not believe":   {policy.Application, "orders", true, run(40, 3*time.Second, hit{retry: 1800}), PlanLimit},
		"the gateway's log names no wait":   {policy.Gateway, "throttled", true, run(50, 90*time.Second, hit{path: 1, method: methodWrites}), RetryLoop},
		"a stage's throttle":                {policy.Gateway, "throttled", false, run(3, time.Second, hit{path: 1, method: methodWrites}), Unclear},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := guess(&group{layer: c.layer, limit: c.limit, client: "c"}, c.plan, c.run); got != c.want || why == "" {
				t.Errorf("%q because %q; want %q", got, why, c.want)
			}
		})
	}
}

// TestEpisodesEndWhereTheClientIsQuiet: gaps of under 10 minutes join.
func TestEpisodesEndWhereTheClientIsQuiet(t *testing.T) {
	at := half
	var lines []string
	for _, gap := range []time.Duration{0, EpisodeGap - time.Nanosecond, EpisodeGap - time.Nanosecond, EpisodeGap, time.Second} {
		at = at.Add(gap)
		lines = append(lines, decisionOf(at, policy.Application, "orders", "free", "a", 60))
	}
	r := reportOf(t, nil, nil, lines)
	var sizes []int64
	for _, e := range r.Layers[0].Episodes {
		sizes = append(sizes, e.Denied)
	}
	if !slices.Equal(sizes, []int64{3, 2}) {
		t.Errorf("episodes of %v refusals, want 3 and 2", sizes)
	}
}

func TestBadLinesAreNeverGuessedAt(t *testing.T) {
	var q Request
	good := wafLineOf(half, "BLOCK", "rate-all", "198.18.0.1", "GET", "/", "")
	if why := ParseWAF([]byte(good), &q); why != "" || !q.Refused {
		t.Fatalf("a good line: %q, %+v", why, q)
	}
	for _, line := range []string{
		"", "{", "null", `"BLOCK"`, good[:len(good)-9],
		strings.Replace(good, `"timestamp"`, `"time"`, 1), strings.Replace(good, "BLOCK", "MAYBE", 1),
		strings.Replace(good, `"clientIp":"198.18.0.1"`, `"clientIp":""`, 1), strings.Replace(good, `"rate-all"`, `""`, -1),
	} {
		if why := ParseWAF([]byte(line), &q); why == "" {
			t.Errorf("taken for a line of AWS WAF: %s", line)
		}
	}
	const access = `{"requestTimeEpoch":"1767225600000","ip":"198.18.0.1","apiKeyId":"k1","httpMethod":"GET","path":"/a","status":"429","responseType":"THROTTLED"}`
	if why := ParseGateway([]byte(access), &q); why != "" || !q.Refused || q.Limit != "throttled" || q.Client != "k1" || !q.Time.Equal(half) {
		t.Fatalf("a good line: %q, %+v", why, q)
	}
	for _, line := range []string{
		strings.Replace(access, "1767225600000", "-", 1), strings.Replace(access, "1767225600000", "yesterday", 1), strings.Replace(access, `"429"`, `"-"`, 1),
		strings.Replace(access, `,"responseType":"THROTTLED"`, "", 1), strings.NewReplacer(`"k1"`, `"-"`, `"198.18.0.1"`, `"-"`).Replace(access),
	} {
		if why := ParseGateway([]byte(line), &q); why == "" {
			t.Errorf("taken for a line of API Gateway: %s", line)
		}
	}
	// A 429 of the service behind it is none of the gateway's.
	if why := ParseGateway([]byte(strings.Replace(access, "THROTTLED", "-", 1)), &q); why != "" || q.Refused {
		t.Errorf("a 429 of the service: %q, %+v", why, q)
	}
}

// TestAnOutageIsNoProductWorking: who was refused because the store did not answer
// has met no limit. Who cannot be told apart is nobody in particular.
func TestAnOutageIsNoProductWorking(t *testing.T) {
	var lines []string
	for i := range 50 {
		down := strings.Replace(decisionOf(half.Add(time.Duration(i)*time.Second), policy.Application, "orders", "free", fmt.Sprint("user", i), 1), `"reason":"limit"`, `"reason":"unavailable"`, 1)
		lines = append(lines, down, decisionOf(half.Add(time.Hour+time.Duration(i)*time.Second), policy.Application, "exports", "free", "", 60))
	}
	l := reportOf(t, nil, nil, lines).Layers[0]
	if got := kinds(&l); got != "50 store outage, 1 unclear" || len(l.PlanDays) != 0 || l.Denied != 100 {
		t.Errorf("%s, %d refused, plan limits on %d days; want 50 store outage, 1 unclear, 100 and none", got, l.Denied, len(l.PlanDays))
	}
}

// TestARunFromManyAddressesIsOneRun.
func TestARunFromManyAddressesIsOneRun(t *testing.T) {
	var lines []string
	for run := range 3 {
		for i := range 600 {
			lines = append(lines, wafLineOf(day(run*10, time.Duration(i)*time.Second), "BLOCK", "rate-auth", fmt.Sprintf("198.18.1.%d", i%5), "POST", "/api/auth/login", ""))
		}
	}
	k := reportOf(t, lines, nil, nil).Layers[0].Kinds
	if len(k) != 1 || k[0].Kind != CredentialStuffing || k[0].Episodes != 15 || k[0].Runs != 3 || k[0].Clients != 5 {
		t.Errorf("%+v; want 15 episodes of 5 clients in 3 runs", k)
	}
}

func TestWordsOfSigningIn(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/auth/login": true, "/oauth2/token": true, "rate-auth": true, "/sign/in": false, "/authors": false, "/tokens/17/search": false, "/hotpot": false, "/": false,
	} {
		if signsIn(path) != want {
			t.Errorf("%s: %v, want %v", path, !want, want)
		}
	}
}

// Callers are said to be at the limit of their plan where it is one.
func TestCallersAreAtTheLimitThatTheyMet(t *testing.T) {
	for want, plans := range map[string][]string{
		"about 1 caller a day at the limit of their plan: the product working":                      {"free"},
		"about 2 callers a day at a business limit: the product working":                            {"", ""},
		"about 3 callers a day at the limit of their plan or a business limit: the product working": {"free", "", "pro"},
		"": nil,
	} {
		c := New(time.Time{})
		for i, plan := range plans {
			if _, err := c.Add(&Request{Time: time.Unix(1_772_323_200+int64(i), 0), Layer: policy.Application, Refused: true, Weight: 1,
				Limit: "orders" + plan, Client: fmt.Sprint(i), Plan: plan != "", RetryAfter: 3600}); err != nil {
				t.Fatal(err)
			}
		}
		r := c.Report(Costs{})
		got := ""
		for i := range r.Layers {
			got += r.Layers[i].Callers()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

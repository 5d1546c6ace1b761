package generate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlabs/weir/cmd/weir/internal/report"
	"github.com/weirlabs/weir/policy"
)

// What AWS cannot do is an error that names the rule, its line and what comes
// nearest with its direction; with Approximate exactly that is generated.
func TestSpec_C01_C02_GapsNameWhatComesNearest(t *testing.T) {
	edge := func(rules ...string) string { return "weir: 1\nedge:\n  - " + strings.Join(rules, "\n  - ") + "\n" }
	gateway := func(match, plan string) string {
		return "weir: 1\ngateway:\n  match: " + match + "\n  plans:\n    p: " + plan + "\n"
	}
	many := func(n int, rule string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("{name: r%d, %s}", i, rule))
		}
		return out
	}
	for _, c := range []struct {
		policy string
		api    API
		gaps   string // of each: line rule nearest direction
		holds  string // a line of the template
	}{
		{edge("{name: a, limit: sliding 100/5m, by: ip}"), "", "", "Limit: 100"},
		{edge("{name: a, limit: sliding 5/5m, by: ip}"), "", "3 a sliding 10/10m looser", "EvaluationWindowSec: 600"},
		{edge("{name: a, limit: sliding 100/4m, by: ip}"), "", "3 a sliding 300/10m looser", "Limit: 300"},
		{edge("{name: a, limit: 10/s burst 20, by: ip}"), "", "3 a sliding 620/1m looser", "Limit: 620"},
		{edge("{name: a, limit: quota 100/5m, by: ip}"), "", "3 a sliding 300/10m looser", "Limit: 300"},
		{edge("{name: a, limit: sliding 3000000000/5m, by: ip}"), "", "3 a sliding 2000000000/5m stricter", "Limit: 2000000000"},
		{edge("{name: a, limit: sliding 100/5m, by: ip+header.x-a}"), "", "3 a by: ip stricter", "AggregateKeyType: IP"},
		{edge("{name: a, limit: sliding 100/5m, by: ip, path: /a%2Fb}"), "", "3 a the path as it is written differs", "${PathPrefix}/a/b"},
		{edge("{name: a, limit: sliding 100/5m, by: ip, path: /caf%C3%A9}"), "", "3 a the path as it is written differs", "${PathPrefix}/café"},
		{edge("{name: a, limit: sliding 100/5m, by: ip, mode: off}"), HTTP, "", "AWS::ApiGatewayV2::Api"},
		{edge("{name: a, limit: sliding 100/5m, by: ip}"), HTTP, "3 a leave it to each instance of the application looser", "AWS::ApiGatewayV2::Api"},
		{edge("{name: a, limit: sliding 100/5m, by: ip, path: /a}"), AppSync, "3 a limit the operation under application: looser", "AWS::AppSync::GraphQLApi"},
		{edge(many(12, "limit: sliding 100/5m, by: ip")...), "", "13 r10 leave it to the application, as the last by priority looser|14 r11 leave it to the application, as the last by priority looser", "Name: r9"},
		{gateway("GET /a", "[10/s burst 20, quota 100/day calendar]"), "", "", "Limit: 100"},
		{gateway("GET /a", "quota 100/day"), "", "5 p quota 100/day calendar differs", "Period: DAY"},
		{gateway("GET /a", "quota 100/day calendar Europe/Berlin"), "", "5 p quota 100/day calendar differs", "Period: DAY"},
		{gateway("GET /a", "quota 100/2day"), "", "5 p quota 1700/month calendar looser", "Period: MONTH"},
		{gateway("GET /a", "quota 3000000000/year"), "", "5 p leave it to the application looser", ""},
		{gateway("GET /a", "quota 100/hour"), "", "5 p 0.027778/s burst 200 looser", "RateLimit: 0.027778"},
		{gateway("GET /a", "sliding 100/m"), "", "5 p 1.666667/s burst 100 looser", "BurstLimit: 100"},
		{gateway("GET /a", "10/s burst 3000000000"), "", "5 p 10/s burst 2147483647 stricter", "BurstLimit: 2147483647"},
		{gateway("GET /a", "[10/s, 100/m]"), "", "5 p.minute leave it to the application looser", "RateLimit: 10"},
		{gateway("GET /a", "[quota 10/day calendar, quota 100/week calendar]"), "", "5 p.quota-week leave it to the application looser", "Limit: 10"},
		{gateway("GET /a", "10/s"), HTTP, "5 p leave the plans to the application, by partner looser", "AWS::ApiGatewayV2::Api"},
		{"weir: 1\ngateway: {plans: {p: 10/s burst 10}}\n", "", "2 p no usage plan; the application counts every key looser", "ApiKeyRequired: false"},
		{"weir: 1\ngateway: {match: GET /a, mode: shadow, plans: {p: 10/s burst 10}}\n", "", "2 p no usage plan; the application counts in shadow looser", "ApiKeyRequired: false"},
		{gateway(`["GET /{a}/b", GET /c]`, "10/s"), "", "5 p leave this route to the application looser", "PathPart: c"},
		{gateway(`["GET /a/{b}", "GET /a/{rest...}"]`, "10/s"), "", "5 p leave this route to the application looser", "PathPart: \"{b}\""},
		{gateway("PURGE /a", "10/s"), "", "5 p leave this route to the application looser", ""},
		{gateway("GET api.example.com/a", "10/s"), "", "5 p the path on every host stricter", "PathPart: a"},
		{gateway("GET /a+b", "10/s"), "", "5 p leave this route to the application looser", ""},
	} {
		p := load(t, fstest.MapFS{"weir.yaml": {Data: []byte(c.policy)}})
		_, err := CloudFormation(p, Options{API: c.api})
		var gaps Gaps
		if err != nil && !errors.As(err, &gaps) {
			t.Fatalf("%v", err)
		}
		var got []string
		for _, g := range gaps {
			got = append(got, fmt.Sprintf("%d %s %s %s", g.Line, g.Rule, g.Nearest, g.Direction))
		}
		if strings.Join(got, "|") != c.gaps {
			t.Errorf("%.120s\n got %s\nwant %s", c.policy, strings.Join(got, "|"), c.gaps)
		}
		out, err := CloudFormation(p, Options{API: c.api, Approximate: true})
		if err != nil || fmt.Sprint(out.Gaps) != fmt.Sprint(gaps) || !strings.Contains(string(out.Files[1].Text), c.holds) {
			t.Errorf("%.120s: %v, gaps %v; %q is not in\n%s", c.policy, err, out.Gaps, c.holds, out.Files[1].Text)
		}
		for _, f := range invariants(string(out.Files[1].Text)) {
			t.Errorf("%.120s: %s", c.policy, f)
		}
	}
}

// A web ACL has units for some 2,500 paths, less what decoding takes.
func TestSpec_C01_TheWebACLHasABudget(t *testing.T) {
	var paths []string
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("/p%d", i))
	}
	var all []EdgeRule
	for i := range 9 {
		all = append(all, EdgeRule{Paths: paths, source: &policy.Rule{Name: fmt.Sprintf("r%d", i), Line: i + 3}})
	}
	rules, gaps := fit(all)
	if len(rules) != 8 || capacity(rules) != 8*(2+2*300)+30 || len(gaps) != 1 || gaps[0].Rule != "r8" || gaps[0].Line != 11 || gaps[0].Direction != Looser || !strings.Contains(gaps[0].Problem, "5448 capacity units") {
		t.Errorf("%d rules of %d units, gaps %v", len(rules), capacity(rules), gaps)
	}
}

// A limit that all callers share is a throttle of its route, in front of the exact
// one; one with a condition or a cost is not what a throttle can do.
func TestSpec_A14_EveryoneIsThrottledAtTheStage(t *testing.T) {
	text := func(o Options, limits ...string) string {
		p := loadText(t, "weir: 1\nedge: [{name: e, limit: sliding 100/5m, by: ip}]\napplication:\n  limits:\n    - "+strings.Join(limits, "\n    - ")+"\n")
		o.Approximate = true
		out, err := CloudFormation(p, o)
		if err != nil {
			t.Fatal(err)
		}
		return string(out.Files[1].Text)
	}
	for _, c := range []struct {
		api   API
		limit string
		want  []string
	}{
		{REST, "{name: a, match: POST /sale, by: everyone, limit: 500/s burst 900}", []string{`ResourcePath: "/~1sale"`, "ThrottlingRateLimit: 500", "ThrottlingBurstLimit: 900", "ReservedConcurrency"}},
		{REST, "{name: a, by: everyone, limit: 500/s}", []string{`ResourcePath: "/*"`, `HttpMethod: "*"`}},
		{HTTP, "{name: a, match: POST /sale, by: everyone, limit: 30/m}", []string{`"POST /sale":`, "ThrottlingRateLimit: 0.5"}},
		{HTTP, "{name: a, match: POST /sale, by: everyone, limit: quota 60/m}", []string{"ThrottlingRateLimit: 1\n", "ThrottlingBurstLimit: 120", "nearest: 1/s burst 120 (looser)"}},
		{REST, "{name: a, match: POST /sale, by: everyone, limit: quota 60/m}", []string{"nearest: 1/s burst 120 (looser)"}},
		// Of several the lowest rate and the lowest burst, wherever they stand.
		{REST, "{name: a, match: POST /sale, by: everyone, limit: [500/s burst 600, 10/s burst 20]}", []string{"ThrottlingRateLimit: 10\n          ThrottlingBurstLimit: 20\n"}},
		{HTTP, "{name: a, match: POST /sale, by: everyone, limit: [500/s burst 600, 10/s burst 20]}", []string{"ThrottlingRateLimit: 10\n          ThrottlingBurstLimit: 20\n"}},
		{REST, "{name: a, match: POST /sale, by: everyone, limit: [10/s burst 900, 500/s burst 600]}", []string{"ThrottlingRateLimit: 10\n          ThrottlingBurstLimit: 600\n", "a.second: a stage has one rate and one burst, and a (10/s burst 900) holds beside 500/s burst 600; nearest: 10/s burst 600 (stricter)"}},
		{HTTP, "{name: a, match: POST /sale, by: everyone, limit: [10/s burst 900, 500/s burst 600]}", []string{"ThrottlingRateLimit: 10\n          ThrottlingBurstLimit: 600\n", "nearest: 10/s burst 600 (stricter)"}},
		// Below one place a variable has one name, whatever the policy calls it.
		{REST, "{name: a, match: [\"GET /a/{x}\", \"GET /a/{y}/c\", \"GET /a/{y}/d/{rest...}\", \"GET /a/{z}/d/{more...}\"], by: everyone, limit: 5/s}", []string{`"/~1a~1{x}~1c"`, `"/~1a~1{x}~1d~1{rest+}"`}},
		{HTTP, "{name: a, match: \"GET /a/{x}\", by: everyone, limit: 5/s burst 9}\n    - {name: b, match: \"GET /a/{y}\", by: everyone, limit: 3/s burst 4}", []string{"\"GET /a/{x}\":\n          ThrottlingRateLimit: 3\n          ThrottlingBurstLimit: 4\n", "RouteGETAX:"}},
		// A path's own settings stand in place of those of all paths.
		{REST, "{name: a, match: POST /sale, by: everyone, limit: 500/s burst 600}\n    - {name: b, by: everyone, limit: 20/s burst 30}", []string{"\"/~1sale\"\n          HttpMethod: POST\n          ThrottlingRateLimit: 20\n          ThrottlingBurstLimit: 30\n"}},
		{HTTP, "{name: a, match: POST /sale, by: everyone, limit: 500/s burst 600}\n    - {name: b, by: everyone, limit: 20/s burst 30}", []string{"\"POST /sale\":\n          ThrottlingRateLimit: 20\n          ThrottlingBurstLimit: 30\n"}},
		{REST, "{name: a, match: GET /sale/now, by: everyone, limit: 500/s burst 600}\n    - {name: b, match: /sale/, by: everyone, limit: 20/s burst 30}", []string{"\"/~1sale~1now\"\n          HttpMethod: HEAD\n          ThrottlingRateLimit: 20\n"}},
		{REST, "{name: a, match: /sale/, by: everyone, limit: 500/s burst 600}\n    - {name: b, match: GET /sale/now, by: everyone, limit: 20/s burst 30}", []string{"\"/~1sale~1{proxy+}\"\n          HttpMethod: GET\n          ThrottlingRateLimit: 500\n"}},
	} {
		got := text(Options{API: c.api}, c.limit)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %s holds no %s", c.limit, c.api, w)
			}
		}
		for _, f := range invariants(got) {
			t.Errorf("%s: %s: %s", c.limit, c.api, f)
		}
	}
	if got := text(Options{API: HTTP}, "{name: a, match: \"GET /a/{x}\", by: ip, limit: 5/s}", "{name: b, match: \"GET /a/{y}\", by: ip, limit: 3/s}"); strings.Contains(got, "{y}") {
		t.Error("two routes that only differ in the name of a variable are both there")
	}
	for _, limit := range []string{
		"{name: a, match: POST /sale, by: ip, limit: 5/s}", "{name: a, match: POST /sale, by: everyone, limit: 5/s, mode: shadow}",
		"{name: a, match: POST /sale, by: everyone, limit: 5/s, cost: 2}", "{name: a, match: POST /sale, by: everyone, limit: 5/s, when: plan == 'x'}",
		// It counts other calls than a stage would, or refuses none.
		"{name: a, match: POST /sale, by: everyone, limit: 5/s, count: on_success}", "{name: a, match: POST /sale, by: everyone, limit: quota 5/day, over: charge}",
		"{name: a, match: POST /sale, by: everyone, limit: 5/s, once: header.Idempotency-Key}",
	} {
		if got := text(Options{API: REST}, limit); strings.Contains(got, "Throttling") {
			t.Errorf("%s became a throttle", limit)
		}
	}
}

// Terraform sets a path's own throttle after that of all paths, which may undo it
// when both are made at once (hashicorp/terraform-provider-aws#41104).
func TestTerraformSetsAllPathsFirst(t *testing.T) {
	p := loadText(t, "weir: 1\napplication:\n  limits:\n    - {name: a, match: [POST /sale, PUT /sale], by: everyone, limit: 500/s}\n    - {name: b, by: everyone, limit: 20/s}\n")
	out, err := Terraform(p, Options{API: REST})
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for block := range strings.SplitSeq(string(out.Files[0].Text), "\nresource ") {
		if !strings.HasPrefix(block, `"aws_api_gateway_method_settings"`) {
			continue
		}
		all, after := strings.Contains(block, `"*/*"`), strings.Contains(block, "depends_on = [aws_api_gateway_method_settings.stage_3]")
		if all == after || all != strings.Contains(block, `"stage_3"`) {
			t.Errorf("of all paths %v, after it %v:\n%s", all, after, block)
		}
		if after {
			own++
		}
	}
	if own != 2 {
		t.Errorf("%d settings come after that of all paths", own)
	}
}

// What API Gateway logs is what `weir report` reads.
func TestAccessLogIsWhatReportReads(t *testing.T) {
	line := accessLine
	for variable, value := range map[string]string{
		"$context.requestTimeEpoch": "1796000000000", "$context.identity.sourceIp": "203.0.113.9", "$context.identity.apiKeyId": "k1",
		"$context.httpMethod": "GET", "$context.path": "/prod/partner/x", "$context.status": "429", "$context.error.responseType": "QUOTA_EXCEEDED",
	} {
		if !strings.Contains(line, `"`+variable+`"`) {
			t.Errorf("the format lacks %s", variable)
		}
		line = strings.Replace(line, variable, value, 1)
	}
	var r report.Request
	if why := report.ParseGateway([]byte(line), &r); why != "" || !r.Refused || r.Layer != policy.Gateway || r.Time.UnixMilli() != 1796000000000 {
		t.Errorf("%s: %s %+v", line, why, r)
	}
}

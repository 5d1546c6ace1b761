package policy

import (
	"fmt"
	"strings"
	"testing"
)

// The whole kind: an expression whose result no request can change is found, however
// it is written, and one that a request can change is not.
func TestSettledExpressionsAreFound(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{`match: GET /a, when: "false"`, "WEIR2111"},
		{`match: GET /a, when: "1 == 2"`, "WEIR2111"},
		{`match: GET /a, when: "!true"`, "WEIR2111"},
		{`match: GET /a, when: "'a' in ['b', 'c']"`, "WEIR2111"},
		{`match: GET /a, when: 'any([1, 2], # > 3)'`, "WEIR2111"},
		{`match: GET /a, when: 'method == "POST"'`, "WEIR2111] the limit `a` is never reached: its condition never holds for GET or HEAD"},
		{`match: GET /a, when: 'method == "get"'`, "WEIR2111"},
		{`match: [GET /a, PUT /b], when: 'method in ["POST", "PATCH"]'`, "WEIR2111"},
		{`match: [GET /a, PUT /b], when: 'method == "PUT"'`, ""},
		{`match: GET /a, when: 'method == "HEAD"'`, ""},
		{`match: /a, when: 'method == "POST"'`, ""},
		{`match: GET api.example/a, when: 'host == "www.example"'`, "WEIR2111"},
		{`match: GET api.example/a, when: 'host == "API.example"'`, "WEIR2111"},
		{`match: GET /a, when: 'host == "www.example"'`, ""},
		{`match: GET /a, when: 'plan == "gold"'`, "WEIR2111"},
		{`match: GET /a, when: 'plan == "pro"'`, ""},
		{`match: GET /a, when: 'plan in ["free", "pro"]'`, "WEIR2108] when: has no effect"},
		{`match: GET /a, when: 'plan == "gold" && claims.age > 3'`, "WEIR2111"},
		{`match: GET /a, when: 'method == "POST" && header("X") == "y"'`, "WEIR2111"},
		{`match: GET /a, when: 'method == "POST" || header("X") == "y"'`, ""},
		{`match: GET /a, when: 'claims.x.y == 1 && false'`, "WEIR2111"},
		{`match: GET /a, when: 'claims.x.y == 1 && method == "POST"'`, ""}, // without x it fails, and the limit acts
		{`match: GET /a, when: 'path == "/b"'`, ""},
		{`match: GET /a, when: 'ip == "192.0.2.1"'`, ""},
		{`match: GET /a, when: 'query("q") == ""'`, ""},
		{`match: GET /a, when: "true"`, "WEIR2108"},
		{`match: GET /a, when: "1 < 2"`, "WEIR2108"},
		{`match: GET /a, when: 'method in ["GET", "HEAD"]'`, "WEIR2108"},
		{`match: GET /a, when: "len(1..1000000000) > 1"`, "WEIR2112] when: fails for every request (memory budget exceeded"},
		{`match: GET /a, when: "false", mode: off`, ""},

		{`match: GET /a, cost: "2 - 7"`, "WEIR1206] a cost of -5 is not possible"},
		{`match: GET /a, cost: "0 / 0"`, "WEIR1206] a cost of NaN is not possible"},
		{`match: GET /a, cost: "1 / 0"`, "WEIR1206] a cost of +Inf is not possible"},
		{`match: GET /a, cost: "1/2"`, "WEIR1206] a cost is a whole number, not 0.5"},
		{`match: GET /a, cost: "len(1..1000000000)"`, "WEIR1206] the cost cannot be computed: memory budget exceeded"},
		{`match: GET /a, cost: "90 + 9"`, "WEIR1203"},
		{`match: GET /a, cost: "9 + 1"`, ""},
		{`match: GET /a, cost: "0 * 5"`, ""},
		{`match: GET /a, cost: 'method == "POST" ? 1 : 99'`, "WEIR2112] every call is refused"},
		{`match: GET /a, cost: 'method == "POST" ? 1 : 99', mode: shadow`, "WEIR2112] every call would be refused"},
		{`match: GET /a, cost: 'plan == "gold" ? 1 : -1'`, "WEIR2112] cost: fails for every request"},
		{`match: GET /a, cost: 'plan == "pro" ? 1 : 99'`, ""},
		{`match: GET /a, cost: 'plan == "pro" ? 1 : -1'`, ""},
		{`match: GET /a, cost: 'len(path) * 99'`, ""},
	} {
		// A second limit, so that the first is not one for everything.
		text := "weir: 1\napplication:\n  plans: {order: [free, pro], free: {op: 1/s}, pro: {op: 2/s}}\n  operations: {op: {match: GET /op}}\n  limits:\n    - {name: a, by: account, limit: 10/s, " + c.rule + "}\n"
		got := checked(t, text)
		code, message, _ := strings.Cut(c.want, "] ")
		if c.want == "" && got != "" || !strings.Contains(got, code) || !strings.Contains(got, message) || strings.Count(got, "[WEIR") > 1 {
			t.Errorf("%s\ngot:  %s\nwant: %s", c.rule, got, c.want)
		}
	}
	// The same of operations, and of one that its condition alone tells.
	for rule, want := range map[string]string{
		`match: GET /op, when: 'method == "POST"'`:          "WEIR2111",
		`when: 'plan == "gold"'`:                            "WEIR2111",
		`when: 'method == "POST"'`:                          "",
		`match: GET /op, cost: '3 * 4'`:                     "WEIR1203",
		`match: GET /op, cost: 'method == "POST" ? 1 : 12'`: "WEIR2112",
	} {
		got := checked(t, "weir: 1\napplication:\n  plans: {free: {op: 10/s}}\n  operations: {op: {"+rule+"}}\n  limits: [{name: other, match: GET /other, by: account, limit: 1/s}]\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

// The whole kind: which calls are refused is said as it is, with lists, plans without
// limit, and limits that watch or charge.
func TestCostBeyondLists(t *testing.T) {
	const cost = `cost: 'plan == "x" ? 50 : 60'`
	for _, c := range []struct{ free, pro, terms, mode, want string }{
		{"10/s", "20/s", "", "enforce", "every call is refused"},
		{"10/s", "unlimited", "", "enforce", "every call that it counts is refused"},
		{"10/s", "60/s", "", "enforce", ""},
		{"[10/s, quota 100/day]", "20/s", "", "enforce", "every call is refused"},
		{"[100/s, quota 100/day]", "20/s", "", "enforce", ""},
		{"[10/s, quota 100/day]", "[quota 100/day, 20/s]", "", "shadow", "every call would be refused"},
		{"10/s", "unlimited", ", mode: shadow", "enforce", "every call that it counts would be refused"},
		{"[10/s, quota 20/day]", "20/s", ", over: charge", "enforce", "every call is refused"},
		{"[10/s, quota 20/day]", "quota 20/day", ", over: charge", "enforce", ""},
		{"quota 10/day", "quota 20/day", ", over: charge", "enforce", ""},
	} {
		got := checked(t, fmt.Sprintf("weir: 1\nmode: %s\napplication:\n  plans: {order: [free, pro], free: {op: %s}, pro: {op: %s}}\n  operations: {op: {match: GET /op, %s%s}}\n  limits: [{name: other, match: GET /other, by: account, limit: 1/s}]\n", c.mode, c.free, c.pro, cost, c.terms))
		if said := strings.Contains(got, "WEIR2112"); said != (c.want != "") || !strings.Contains(got, c.want+":") && said {
			t.Errorf("%+v:\n%s", c, got)
		}
	}
	for limit, want := range map[string]bool{"[10/s, quota 100/day]": true, "[quota 100/day, 10/s], anonymous: 100/s": false, "[100/s, quota 100/day]": false} {
		if got := checked(t, "weir: 1\napplication:\n  limits:\n    - {name: a, match: GET /a, by: account, limit: "+limit+", "+cost+"}\n    - {name: other, match: GET /other, by: account, limit: 1/s}\n"); strings.Contains(got, "WEIR2112") != want {
			t.Errorf("%s:\n%s", limit, got)
		}
	}
}

// checked is what there is to say of a policy: mistakes, or findings.
func checked(t *testing.T, text string) string {
	t.Helper()
	if said := rendered(map[string]string{"weir.yaml": text}); said != "ok\n" {
		return said
	}
	return ""
}

// A cost that is computed when the policy is read counts as its number does.
func TestConstantCostIsItsNumber(t *testing.T) {
	p := load(t, "weir: 1\napplication:\n  limits:\n    - {name: a, match: GET /a, by: ip, limit: 100/s, cost: \"6 * 7\"}\n    - {name: b, match: GET /a, by: ip, limit: 100/s, cost: \"0 * 7\"}\n")
	m, err := p.Match(get("GET", "/a"))
	if err != nil {
		t.Fatal(err)
	}
	ops, err := p.Ops(&m, get("GET", "/a"), Identity{})
	if err != nil || len(ops) != 1 || ops[0].Cost != 42 || ops[0].Rule.Name != "a" {
		t.Errorf("%+v, %v", ops, err)
	}
}

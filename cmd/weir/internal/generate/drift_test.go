package generate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlabs/weir/policy"
)

const drifting = `
weir: 1
name: drifting
exempt: [{name: up, path: /healthz}]
edge:
  - {name: all, limit: sliding 2000/5m, by: ip, priority: 40, except_ips: [203.0.113.0/24]}
  - {name: login, limit: sliding 100/5m, by: ip, priority: 41, path: [/login, /api/Auth/*]}
gateway:
  match: GET /partner/
  plans:
    small: [10/s burst 20, quota 1000/day calendar]
application:
  limits: [{name: a, by: ip, limit: 1/s}]
`

// exportOf is what AWS would export of the generated settings.
func exportOf(t *testing.T, p *policy.Policy) Live {
	t.Helper()
	b, err := build(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	live := Live{PathPrefix: "/prod"}
	var plans []any
	for _, r := range b.stack.resources {
		v := exportValue(r.props)
		switch o, _ := v.(map[string]any); r.kind {
		case "AWS::WAFv2::WebACL":
			live.WebACL = marshal(t, map[string]any{"WebACL": v, "LockToken": "x"})
		case "AWS::WAFv2::IPSet":
			o["ARN"] = "arn:" + r.id
			live.IPSets = append(live.IPSets, marshal(t, map[string]any{"IPSet": o}))
		case "AWS::ApiGateway::UsagePlan":
			// The service's own names begin in lower case.
			plans = append(plans, map[string]any{"id": "x1", "name": o["UsagePlanName"], "throttle": o["Throttle"], "quota": o["Quota"],
				"apiStages": []any{map[string]any{"apiId": "a1", "stage": "prod"}}})
		}
	}
	live.UsagePlans = [][]byte{marshal(t, map[string]any{"items": plans})}
	live.Table = []byte(`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],
		"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},"DeletionProtectionEnabled":true}}`)
	live.TimeToLive = []byte(`{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expiresAt"}}`)
	return live
}

func exportValue(v any) any {
	switch v := v.(type) {
	case object:
		o := map[string]any{}
		for _, p := range v {
			name := p.name
			if name == "Arn" {
				name = "ARN"
			}
			if o[name] = exportValue(p.value); name == noteName {
				delete(o, name)
			}
			if plain, ok := p.value.(string); ok && name == "SearchString" {
				o[name] = base64.StdEncoding.EncodeToString([]byte(plain))
			}
		}
		return o
	case []any:
		out := []any{}
		for _, one := range v {
			out = append(out, exportValue(one))
		}
		return out
	case sub:
		return base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(v), "${PathPrefix}", "/prod")))
	case attr:
		return "arn:" + v.id
	case decimal:
		return json.Number(v)
	}
	return v
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDrift(t *testing.T) {
	p := loadText(t, drifting)
	if found, gaps, err := Drift(p, "", exportOf(t, p)); err != nil || len(found) != 0 || len(gaps) != 0 {
		t.Fatalf("of what is generated itself: %v %v %v", found, gaps, err)
	}
	path := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const waf, plans, table, ttl, set = "waf", "plans", "table", "ttl", "set"
	for _, c := range []struct {
		name, in, old, new string
		want               string // rule, what and side
	}{
		{"a higher limit", waf, `"Limit":100`, `"Limit":200`, "login limit policy"},
		{"a lower limit", waf, `"Limit":100`, `"Limit":50`, "login limit live"},
		{"the same rate in another window", waf, `"EvaluationWindowSec":300,"Limit":2000`, `"EvaluationWindowSec":600,"Limit":4000`, "all limit policy"},
		{"counted only", waf, `{"Block":{"CustomResponse":{"CustomResponseBodyKey":"rate_limited_300","ResponseCode":429,"ResponseHeaders":[{"Name":"Retry-After","Value":"300"}]}}},"Name":"all"`, `{"Count":{}},"Name":"all"`, "all mode policy"},
		{"refused with 403", waf, `"ResponseCode":429`, `"ResponseCode":403`, "all status "},
		{"allowed", waf, `"Block"`, `"Allow"`, "all action policy"},
		{"another priority", waf, `"Priority":40`, `"Priority":7`, "all priority "},
		{"a rule of another name", waf, `"Name":"login"`, `"Name":"signin"`, "login rule policy|signin rule live"},
		{"a path less", waf, path("/prod/login"), path("/prod/api/auth/"), "login path "},
		{"everybody together", waf, `"AggregateKeyType":"IP"`, `"AggregateKeyType":"CONSTANT"`, "all by live"},
		{"by a header", waf, `"AggregateKeyType":"IP"`, `"AggregateKeyType":"CUSTOM_KEYS"`, "all by "},
		{"something else exempt", waf, path("/prod/healthz"), path("/prod/health"), "all exempt "},
		{"no prefix", waf, path("/prod/login"), path("/login"), "login path "},
		{"not decoded", waf, `{"Priority":0,"Type":"URL_DECODE"},`, ``, "all path "},
		{"contains", waf, `"PositionalConstraint":"STARTS_WITH"`, `"PositionalConstraint":"CONTAINS"`, "login path |login path "},
		{"a statement of somebody's own", waf, `"IPSetReferenceStatement"`, `"GeoMatchStatement"`, "all scope |all except_ips live"},
		{"blocked by default", waf, `"DefaultAction":{"Allow":{}}`, `"DefaultAction":{"Block":{}}`, "* default action live"},
		{"more excepted", set, `"203.0.113.0/24"`, `"203.0.113.0/24","10.0.0.0/8"`, "all except_ips policy"},
		{"nobody excepted", set, `"203.0.113.0/24"`, ``, "all except_ips live"},
		{"an IP set that is not there", set, `"arn:ExceptAllV4"`, `"arn:Other"`, "all except_ips "},
		{"in a header", waf, `"UriPath":{}`, `"SingleHeader":{"Name":"x"}`, "all path "},
		{"in the query", waf, `"UriPath":{}`, `"QueryString":{}`, "all path "},
		{"decoded in another order", waf, `{"Priority":0,"Type":"URL_DECODE"}`, `{"Priority":9,"Type":"URL_DECODE"}`, "all path "},
		{"excepted by a header", waf, `"IPSetReferenceStatement":{`, `"IPSetReferenceStatement":{"IPSetForwardedIPConfig":{"HeaderName":"x"},`, "all except_ips policy"},
		{"let past", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Allow":{}},"Statement":{}},`, "own action policy"},
		{"let through behind all", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":99,"Action":{"Allow":{}},"Statement":{}},`, ""},
		{"blocked before", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Block":{}},"Statement":{}},`, "own action live"},
		{"blocked behind all", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":99,"Action":{"Block":{}},"Statement":{}},`, "own action live"},
		{"asked for proof", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Challenge":{}},"Statement":{}},`, "own action live"},
		// A rate-based one of one's own is of its action, and is told once.
		{"let past above a rate", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Allow":{}},"Statement":{"RateBasedStatement":{"Limit":100,"AggregateKeyType":"IP"}}},`, "own action policy"},
		{"let through above a rate, behind all", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":99,"Action":{"Allow":{}},"Statement":{"RateBasedStatement":{"Limit":100,"AggregateKeyType":"IP"}}},`, ""},
		{"asked for proof above a rate", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Captcha":{}},"Statement":{"RateBasedStatement":{"Limit":100,"AggregateKeyType":"IP"}}},`, "own action live"},
		{"a rule that is null", waf, `"Rules":[`, `"Rules":[null,`, "* rule "},
		{"counted before", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"Action":{"Count":{}},"Statement":{}},`, ""},
		{"a managed group", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"OverrideAction":{"None":{}},"Statement":{"ManagedRuleGroupStatement":{"VendorName":"AWS"}}},`, "own rule group live"},
		{"a group that counts", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":1,"OverrideAction":{"Count":{}},"Statement":{"ManagedRuleGroupStatement":{"VendorName":"AWS"}}},`, ""},
		{"a group of one's own", waf, `"Rules":[`, `"Rules":[{"Name":"own","Priority":99,"OverrideAction":{"None":{}},"Statement":{"RuleGroupReferenceStatement":{"ARN":"arn:g"}}},`, "own rule group live"},
		{"a group of the organization", waf, `"Rules":[`, `"PreProcessFirewallManagerRuleGroups":[{"Name":"org","Priority":0,"OverrideAction":{"None":{}}}],"Rules":[`, "org rule group live"},
		{"a group of the organization behind", waf, `"Rules":[`, `"PostProcessFirewallManagerRuleGroups":[{"Name":"org","Priority":0,"OverrideAction":{"None":{}}}],"Rules":[`, "org rule group live"},
		{"a shorter window that refuses more at once", waf, `"EvaluationWindowSec":300,"Limit":2000`, `"EvaluationWindowSec":60,"Limit":450`, "all limit "},
		{"a shorter window that refuses all of it", waf, `"EvaluationWindowSec":300,"Limit":2000`, `"EvaluationWindowSec":60,"Limit":400`, "all limit live"},
		{"a longer window", waf, `"EvaluationWindowSec":300,"Limit":2000`, `"EvaluationWindowSec":600,"Limit":2000`, "all limit live"},
		{"no whole number", waf, `"Limit":2000`, `"Limit":2000.7`, "all limit "},
		{"for no stage", plans, `"apiStages":[{"apiId":"a1","stage":"prod"}]`, `"apiStages":[]`, "small stages policy"},
		{"used at first", plans, `"quota":{`, `"quota":{"offset":5,`, "small quota live"},
		{"a throttle of a method", plans, `"stage":"prod"`, `"stage":"prod","throttle":{"/x/GET":{"burstLimit":1,"rateLimit":1}}`, "small rate "},
		{"two of a name", plans, `{"items":[`, `{"items":[{"name":"small","throttle":{"burstLimit":20,"rateLimit":1},"quota":{"limit":1000,"period":"DAY"},"apiStages":[{}]},`, "small rate live|small plan "},
		{"a bound of writes", table, `"BillingModeSummary"`, `"OnDemandThroughput":{"MaxReadRequestUnits":-1,"MaxWriteRequestUnits":5},"BillingModeSummary"`, "table MaxWriteRequestUnits live"},
		{"a higher rate", plans, `"RateLimit":10`, `"RateLimit":10.5`, "small rate policy"},
		{"a lower burst", plans, `"BurstLimit":20`, `"BurstLimit":5`, "small burst live"},
		{"a quota by the week", plans, `"Period":"DAY"`, `"Period":"WEEK"`, "small quota live"},
		{"no quota", plans, `"quota":{`, `"quotas":{`, "small quota policy"},
		{"no throttle", plans, `"throttle":{`, `"throttles":{`, "small rate policy|small burst policy"},
		{"a plan of another name", plans, `"name":"small"`, `"name":"tiny"`, "small plan policy|tiny plan live"},
		{"provisioned", table, `PAY_PER_REQUEST`, `PROVISIONED`, "table capacity "},
		{"not protected", table, `true`, `false`, "table deletion protection "},
		{"another key", table, `"KeySchema":[{"AttributeName":"pk"`, `"KeySchema":[{"AttributeName":"id"`, "table key "},
		{"a key that is a number", table, `"AttributeType":"S"`, `"AttributeType":"N"`, "table type of the key "},
		{"an expiry that is off", ttl, `ENABLED`, `DISABLED`, "table time to live "},
	} {
		live := exportOf(t, p)
		at := map[string]*[]byte{waf: &live.WebACL, plans: &live.UsagePlans[0], table: &live.Table, ttl: &live.TimeToLive, set: &live.IPSets[0]}[c.in]
		changed := strings.Replace(string(*at), c.old, c.new, 1)
		if changed == string(*at) {
			t.Errorf("%s: %q is not in %s", c.name, c.old, *at)
		}
		*at = []byte(changed)
		found, _, err := Drift(p, "", live)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var got []string
		for _, d := range found {
			got = append(got, fmt.Sprintf("%s %s %s", d.Rule, d.What, d.Stricter))
			if d.Policy == "" || d.Live == "" || d.Policy == d.Live {
				t.Errorf("%s: %+v", c.name, d)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q, want %q", c.name, strings.Join(got, "|"), c.want)
		}
	}
	for _, text := range []string{"", "{}", "[]", "null", `{"WebACL":3}`, `{"WebACL":{"Rules":[3,{"Statement":{"RateBasedStatement":{"ScopeDownStatement":[1]}}}]}}`} {
		if _, _, err := Drift(p, "", Live{UsagePlans: [][]byte{[]byte(text)}}); err == nil {
			t.Errorf("usage plans %q are taken", text)
		}
		Drift(p, "", Live{WebACL: []byte(text), IPSets: [][]byte{[]byte(`{"IPSet":{"Addresses":[]}}`)}}) // must not panic
	}
	for text, want := range map[string]string{`{"WebACL":{}}`: "waf", `{"IPSet":{}}`: "ipset", `{"items":[]}`: "usageplan", `{"Table":{}}`: "table", `{"TimeToLiveDescription":{}}`: "ttl", `{}`: ""} {
		if kind, err := Kind([]byte(text)); kind != want || err != nil {
			t.Errorf("%s is %q, %v", text, kind, err)
		}
	}
}

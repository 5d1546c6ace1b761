package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/policy"
)

// Disagreement is one thing in which live settings are not what the policy says.
type Disagreement struct {
	Layer    string `json:"layer"` // edge, gateway or application
	Rule     string `json:"rule"`
	What     string `json:"what"`
	Policy   string `json:"policy"`
	Live     string `json:"live"`
	Stricter string `json:"stricter"` // policy, live, or "" where neither is
}

// String is the disagreement in one line.
func (d Disagreement) String() string {
	side := "neither is stricter"
	if d.Stricter != "" {
		side = "the " + d.Stricter + " is stricter"
		if d.Stricter == "live" {
			side = "what is live is stricter"
		}
	}
	return fmt.Sprintf("%s: %s: %s: the policy says %s, live is %s: %s", d.Layer, d.Rule, d.What, d.Policy, d.Live, side)
}

// Live are exported settings, in JSON as AWS's command line prints them.
type Live struct {
	WebACL     []byte   // aws wafv2 get-web-acl
	IPSets     [][]byte // aws wafv2 get-ip-set, for each of its IP sets
	UsagePlans []byte   // aws apigateway get-usage-plans
	Table      []byte   // aws dynamodb describe-table
	TimeToLive []byte   // aws dynamodb describe-time-to-live

	// PathPrefix stands before every path that WAF sees, such as /prod.
	PathPrefix string
}

// Drift compares a policy with what is live, layer by layer; what is nil is not
// compared. Where a service cannot say what the policy does, what [CloudFormation]
// would generate is what counts; those gaps are returned too.
func Drift(p *policy.Policy, api API, live Live) (found []Disagreement, gaps Gaps, err error) {
	if api == "" {
		api = apiOf(p)
	}
	if live.WebACL != nil {
		want, edge := edgeOf(p, api)
		gaps = append(gaps, edge...)
		have, err := readLive(live)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, have.strange...)
		found = append(found, compareEdge(want, have.rules)...)
	}
	if live.UsagePlans != nil {
		want, plans := plansOf(p)
		gaps = append(gaps, plans...)
		list, err := exported(live.UsagePlans, "items")
		if err != nil {
			return nil, nil, fmt.Errorf("usage plans: %w", err)
		}
		var have []UsagePlan
		for _, one := range items(list) {
			have = append(have, usagePlan(one))
		}
		found = append(found, comparePlans(want, have)...)
	}
	table, err := compareTable(live)
	return append(found, table...), gaps, err
}

// exported parses JSON and gives the value of one of its fields.
func exported(text []byte, name string) (any, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	one := field(v, name)
	if one == nil {
		return nil, fmt.Errorf("it has no field %s: is it what aws prints?", name)
	}
	return one, nil
}

type liveEdge struct {
	rules   []EdgeRule
	strange []Disagreement
}

func readLive(live Live) (liveEdge, error) {
	r := &reader{prefix: live.PathPrefix, sets: map[string][]netip.Prefix{}, coded: true}
	for _, text := range live.IPSets {
		set, err := exported(text, "IPSet")
		if err != nil {
			return liveEdge{}, fmt.Errorf("IP set: %w", err)
		}
		list, err := ipSet(set)
		if err != nil {
			return liveEdge{}, err
		}
		r.sets[address(field(set, "ARN"))] = list
	}
	acl, err := exported(live.WebACL, "WebACL")
	if err != nil {
		return liveEdge{}, fmt.Errorf("web ACL: %w", err)
	}
	if field(acl, "DefaultAction", "Allow") == nil {
		r.say("*", "default action", "allow", "block", "live")
	}
	rules := r.webACL(acl)
	return liveEdge{rules, r.strange}, nil
}

// compareEdge compares rules by their names.
func compareEdge(want, have []EdgeRule) (found []Disagreement) {
	add := func(rule, what, policy, live string, d int) {
		side := [...]string{"policy", "", "live"}[d+1]
		found = append(found, Disagreement{"edge", rule, what, policy, live, side})
	}
	byName := func(list []EdgeRule, name string) *EdgeRule {
		if i := slices.IndexFunc(list, func(e EdgeRule) bool { return e.Name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for i := range want {
		w := &want[i]
		h := byName(have, w.Name)
		if h == nil {
			add(w.Name, "rule", w.limit(), "no rule of this name", -1)
			continue
		}
		if w.Requests != h.Requests || w.Window != h.Window {
			add(w.Name, "limit", w.limit(), h.limit(), new(big.Rat).SetFrac64(w.Requests, int64(w.Window)).Cmp(new(big.Rat).SetFrac64(h.Requests, int64(h.Window))))
		}
		if w.Shadow != h.Shadow {
			add(w.Name, "mode", modeOf(w), modeOf(h), sign(w.Shadow, h.Shadow))
		}
		if w.Everyone != h.Everyone {
			add(w.Name, "by", byOf(w), byOf(h), sign(h.Everyone, w.Everyone))
		}
		// What is counted more of is stricter, what is left out more of is looser.
		if d, same := within(canonical(w.Paths), canonical(h.Paths), true); !same {
			add(w.Name, "path", list(w.Paths), list(h.Paths), d)
		}
		if d, same := within(canonical(w.Exempt), h.Exempt, false); !same {
			add(w.Name, "exempt", list(w.Exempt), list(h.Exempt), -d)
		}
		if d, same := within(w.Except, h.Except, false); !same {
			add(w.Name, "except_ips", list(w.Except), list(h.Except), -d)
		}
		if w.Priority != h.Priority {
			add(w.Name, "priority", fmt.Sprint(w.Priority), fmt.Sprint(h.Priority), 0)
		}
	}
	for i := range have {
		if h := &have[i]; byName(want, h.Name) == nil {
			add(h.Name, "rule", "no rule of this name", h.limit(), 1)
		}
	}
	return found
}

func modeOf(e *EdgeRule) string {
	if e.Shadow {
		return "shadow"
	}
	return "enforce"
}

func byOf(e *EdgeRule) string {
	if e.Everyone {
		return "everyone"
	}
	return "ip"
}

// sign is 1 where the first is set and the second is not, -1 the other way.
func sign(a, b bool) int {
	switch {
	case a && !b:
		return 1
	case b && !a:
		return -1
	}
	return 0
}

func list[T any](l []T) string {
	if len(l) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(l), "[]")
}

// canonical writes paths as they are read back: decoded and in lower case.
func canonical(paths []string) []string {
	var out []string
	for _, p := range paths {
		text, prefix := search(p)
		if prefix {
			text += "*"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// within compares two sets: 1 where the second holds the first and more, -1 the
// other way, 0 where neither does. emptyIsAll says that an empty set means
// everything.
func within[T comparable](a, b []T, emptyIsAll bool) (d int, same bool) {
	holds := func(big, small []T) bool {
		return !slices.ContainsFunc(small, func(x T) bool { return !slices.Contains(big, x) })
	}
	if emptyIsAll && (len(a) == 0) != (len(b) == 0) {
		return sign(len(b) == 0, len(a) == 0), false
	}
	more, less := holds(b, a), holds(a, b)
	return sign(more, less), more && less
}

func comparePlans(want, have []UsagePlan) (found []Disagreement) {
	add := func(plan, what, policy, live, stricter string) {
		found = append(found, Disagreement{"gateway", plan, what, policy, live, stricter})
	}
	for _, w := range want {
		i := slices.IndexFunc(have, func(h UsagePlan) bool { return h.Name == w.Name })
		if i < 0 {
			add(w.Name, "plan", list(w.limits()), "no usage plan of this name", "policy")
			continue
		}
		h := have[i]
		if w.Rate != h.Rate {
			add(w.Name, "rate", per(w.Rate), per(h.Rate), lower(number(w.Rate), number(h.Rate)))
		}
		if w.Burst != h.Burst {
			add(w.Name, "burst", fmt.Sprint(w.Burst), fmt.Sprint(h.Burst), lower(count(w.Burst), count(h.Burst)))
		}
		if w.Quota != h.Quota || w.Period != h.Period {
			add(w.Name, "quota", quotaOf(w), quotaOf(h), lower(perDay(w), perDay(h)))
		}
	}
	for _, h := range have {
		if !slices.ContainsFunc(want, func(w UsagePlan) bool { return h.Name == w.Name }) {
			add(h.Name, "plan", "no plan of this name", list(h.limits()), "live")
		}
	}
	return found
}

func per(rate string) string {
	if rate == "" {
		return "none"
	}
	return rate + "/s"
}

func quotaOf(u UsagePlan) string {
	if u.Quota == 0 {
		return "none"
	}
	return u.quota()
}

// number reads a rate; nil is none.
func number(rate string) *big.Rat {
	r, ok := new(big.Rat).SetString(rate)
	if !ok {
		return nil
	}
	return r
}

func count(n int64) *big.Rat {
	if n == 0 {
		return nil
	}
	return new(big.Rat).SetInt64(n)
}

func perDay(u UsagePlan) *big.Rat {
	for _, c := range calendarOf {
		if u.Period == c.name && u.Quota > 0 {
			return big.NewRat(u.Quota, c.days)
		}
	}
	return nil
}

// lower says which of two bounds is the stricter; nil is no bound.
func lower(policy, live *big.Rat) string {
	switch {
	case policy == nil && live == nil:
		return ""
	case live == nil, policy != nil && policy.Cmp(live) < 0:
		return "policy"
	case policy == nil, policy.Cmp(live) > 0:
		return "live"
	}
	return ""
}

// compareTable looks at the table that the store needs.
func compareTable(live Live) (found []Disagreement, err error) {
	def := dynamostore.Definition()
	add := func(what, policy, is string) {
		if policy != is {
			found = append(found, Disagreement{Layer: "application", Rule: "table", What: what, Policy: policy, Live: is})
		}
	}
	if live.Table != nil {
		t, err := exported(live.Table, "Table")
		if err != nil {
			return nil, fmt.Errorf("table: %w", err)
		}
		var key []string
		for _, k := range items(field(t, "KeySchema")) {
			key = append(key, text(field(k, "AttributeName"))+" "+text(field(k, "KeyType")))
		}
		add("key", def.Key+" HASH", strings.Join(key, ", "))
		for _, a := range items(field(t, "AttributeDefinitions")) {
			if text(field(a, "AttributeName")) == def.Key {
				add("type of the key", def.KeyType, text(field(a, "AttributeType")))
			}
		}
		mode := text(field(t, "BillingModeSummary", "BillingMode"))
		if mode == "" {
			mode = "PROVISIONED"
		}
		add("capacity", def.BillingMode, mode)
		protected, _ := field(t, "DeletionProtectionEnabled").(bool)
		add("deletion protection", "true", fmt.Sprint(protected))
	}
	if live.TimeToLive != nil {
		t, err := exported(live.TimeToLive, "TimeToLiveDescription")
		if err != nil {
			return nil, fmt.Errorf("time to live: %w", err)
		}
		status := text(field(t, "TimeToLiveStatus"))
		if status == "ENABLING" {
			status = "ENABLED"
		}
		add("time to live", def.Expiry+" ENABLED", strings.TrimSpace(text(field(t, "AttributeName"))+" "+status))
	}
	return found, nil
}

// Kind says what an export is, by its fields: "" for none that is known.
func Kind(export []byte) (string, error) {
	var v map[string]any
	if err := json.Unmarshal(export, &v); err != nil {
		return "", errors.New("it is no JSON that aws prints")
	}
	for _, k := range []struct{ field, kind string }{{"WebACL", "waf"}, {"IPSet", "ipset"}, {"items", "usageplan"}, {"Table", "table"}, {"TimeToLiveDescription", "ttl"}} {
		if v[k.field] != nil {
			return k.kind, nil
		}
	}
	return "", nil
}

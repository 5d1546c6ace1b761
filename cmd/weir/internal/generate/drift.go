package generate

import (
	"encoding/json"
	"errors"
	"fmt"
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
	UsagePlans [][]byte // aws apigateway get-usage-plans, each page; or get-usage-plan, for those that are to be compared
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
		have, err := readLive(live, want)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, have.strange...)
		found = append(found, compareEdge(want, have.rules, have.unset)...)
	}
	if live.UsagePlans != nil {
		want, plans := plansOf(p)
		gaps = append(gaps, plans...)
		have, all, err := readPlans(live.UsagePlans)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, comparePlans(want, have, all)...)
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
	unset   map[string]bool
	strange []Disagreement
}

func readLive(live Live, want []EdgeRule) (liveEdge, error) {
	r := &reader{prefix: live.PathPrefix, sets: map[string][]netip.Prefix{}, coded: true, wanted: map[string]bool{}}
	for _, e := range want {
		r.wanted[e.Name] = true
	}
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
	return liveEdge{rules, r.unset, r.strange}, nil
}

// compareEdge compares rules by their names; those in unset except networks that
// are not known.
func compareEdge(want, have []EdgeRule, unset map[string]bool) (found []Disagreement) {
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
			add(w.Name, "limit", w.limit(), h.limit(), sign(h.within(w), w.within(h)))
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
		if d, same := within(w.Except, h.Except, false); !same && !unset[w.Name] {
			add(w.Name, "except_ips", list(w.Except), list(h.Except), -d)
		}
		if w.Priority != h.Priority {
			add(w.Name, "priority", fmt.Sprint(w.Priority), fmt.Sprint(h.Priority), 0)
		}
	}
	for i := range have {
		if h := &have[i]; byName(want, h.Name) == nil {
			d := 1
			if h.Shadow {
				d = 0 // it refuses nothing
			}
			add(h.Name, "rule", "no rule of this name", h.limit(), d)
		}
	}
	return found
}

// within reports whether whatever passes e passes other too: the count of the
// windows of e that a window of other can touch when both begin together.
func (e *EdgeRule) within(other *EdgeRule) bool {
	windows := int64((other.Window + e.Window - 1) / e.Window)
	return e.Requests <= other.Requests/windows
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
		for _, what := range []string{"MaxReadRequestUnits", "MaxWriteRequestUnits"} {
			if most := integer(field(t, "OnDemandThroughput", what)); most > 0 { // -1 is none
				found = append(found, Disagreement{"application", "table", what, "none", fmt.Sprint(most), "live"})
			}
		}
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
	if v["name"] != nil && (v["throttle"] != nil || v["quota"] != nil || v["apiStages"] != nil) {
		return "usageplan", nil // of get-usage-plan
	}
	for _, k := range []struct{ field, kind string }{{"WebACL", "waf"}, {"IPSet", "ipset"}, {"items", "usageplan"}, {"Table", "table"}, {"TimeToLiveDescription", "ttl"}} {
		if v[k.field] != nil {
			return k.kind, nil
		}
	}
	return "", nil
}

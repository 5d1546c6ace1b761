package generate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader reads settings of AWS back into the policy's terms: those of a template,
// and those that the services export, which write the same names in another case.
type reader struct {
	prefix string // what stands before every path
	sets   map[string][]netip.Prefix
	coded  bool // texts to search for are in base64, as in exports

	// wanted are the names of the policy's rules; nil takes every rate-based rule for
	// one of these.
	wanted map[string]bool

	unset   map[string]bool // rules that refer to an IP set which is not in sets
	strange []Disagreement  // what weir does not generate, and cannot compare
}

// field is a field of an object, whatever the case of its name.
func field(v any, names ...string) any {
	for _, name := range names {
		o, _ := v.(map[string]any)
		v = nil
		for have, value := range o {
			if strings.EqualFold(have, name) {
				v = value
			}
		}
	}
	return v
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}

// text is a text, also one in which references stand.
func text(v any) string {
	if s, ok := field(v, "Fn::Sub").(string); ok {
		return strings.ReplaceAll(s, "${!", "${")
	}
	s, _ := v.(string)
	return s
}

func integer(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

// webACL reads the rate-based rules of a web ACL. Rules of other kinds are
// somebody's own, and said to be there.
func (r *reader) webACL(acl any) []EdgeRule {
	var out []EdgeRule
	for _, group := range items(field(acl, "PreProcessFirewallManagerRuleGroups")) {
		r.group(group, ", before all rules")
	}
	for _, group := range items(field(acl, "PostProcessFirewallManagerRuleGroups")) {
		r.group(group, "")
	}
	for _, rule := range items(field(acl, "Rules")) {
		rate := field(rule, "Statement", "RateBasedStatement")
		if rule == nil {
			r.say("*", "rule", "rules", "null, which aws does not print", "")
			continue
		}
		refuses := field(rule, "Action", "Block") != nil || field(rule, "Action", "Count") != nil
		if rate == nil || !refuses && r.wanted != nil && !r.wanted[text(field(rule, "Name"))] {
			r.own(acl, rule)
			continue
		}
		if n, ok := field(rate, "Limit").(float64); ok && n != math.Trunc(n) {
			r.say(text(field(rule, "Name")), "limit", "a whole number", strconv.FormatFloat(n, 'f', -1, 64), "")
		}
		e := EdgeRule{Name: text(field(rule, "Name")), Priority: integer(field(rule, "Priority")), Requests: integer(field(rate, "Limit")), Window: 5 * time.Minute}
		if w := integer(field(rate, "EvaluationWindowSec")); w > 0 {
			e.Window = time.Duration(w) * time.Second
		}
		block := field(rule, "Action", "Block")
		switch {
		case field(rule, "Action", "Count") != nil:
			e.Shadow = true
		case block == nil:
			r.say(e.Name, "action", "block", "another action", "policy")
		case integer(field(block, "CustomResponse", "ResponseCode")) != 429:
			r.say(e.Name, "status", "429", strconv.FormatInt(max(403, integer(field(block, "CustomResponse", "ResponseCode"))), 10), "")
		}
		switch key := text(field(rate, "AggregateKeyType")); key {
		case "IP":
		case "CONSTANT":
			e.Everyone = true
		default:
			r.say(e.Name, "by", "ip or everyone", key, "")
		}
		r.scope(&e, field(rate, "ScopeDownStatement"))
		slices.Sort(e.Paths)
		if slices.Contains(e.Paths, "/*") {
			e.Paths = nil
		}
		slices.Sort(e.Exempt)
		e.Except = networks(e.Except)
		out = append(out, e)
	}
	return out
}

// own says what a rule that is not rate-based does to the policy's: what is allowed
// is not looked at by the rules behind it, and what is refused the policy may have
// allowed. What a rule group does is not in the export; most refuse.
func (r *reader) own(acl, rule any) {
	var behind []string
	for _, other := range items(field(acl, "Rules")) {
		if field(other, "Statement", "RateBasedStatement") != nil && integer(field(other, "Priority")) > integer(field(rule, "Priority")) {
			behind = append(behind, text(field(other, "Name")))
		}
	}
	before := ""
	if len(behind) > 0 {
		before = ", before " + strings.Join(behind, ", ")
	}
	name := text(field(rule, "Name"))
	statement, action := field(rule, "Statement"), field(rule, "Action")
	switch {
	case field(action, "Allow") != nil && before != "":
		r.say(name, "action", "no rule that allows", "allow"+before, "policy")
	case field(action, "Block") != nil:
		r.say(name, "action", "no rule that blocks", "block"+before, "live")
	case field(action, "Captcha") != nil, field(action, "Challenge") != nil:
		r.say(name, "action", "no rule that asks for proof", "a captcha or challenge"+before, "live")
	case field(statement, "RuleGroupReferenceStatement") != nil, field(statement, "ManagedRuleGroupStatement") != nil:
		r.group(rule, before)
	}
}

// group says that a rule group is there, unless it only counts.
func (r *reader) group(rule any, before string) {
	if field(rule, "OverrideAction", "Count") == nil {
		r.say(text(field(rule, "Name")), "rule group", "none", "one whose rules are not in the export"+before, "live")
	}
}

func (r *reader) say(rule, what, policy, live, stricter string) {
	r.strange = append(r.strange, Disagreement{Layer: "edge", Rule: rule, What: what, Policy: policy, Live: live, Stricter: stricter})
}

// scope reads what a rule counts: paths, without exemptions and networks.
func (r *reader) scope(e *EdgeRule, statement any) {
	if statement == nil {
		return
	}
	parts := []any{statement}
	if and := field(statement, "AndStatement"); and != nil {
		parts = items(field(and, "Statements"))
	}
	for _, part := range parts {
		not := field(part, "NotStatement", "Statement")
		switch {
		case field(part, "ByteMatchStatement") != nil:
			e.Paths = append(e.Paths, r.path(e.Name, field(part, "ByteMatchStatement")))
		case field(part, "OrStatement") != nil:
			for _, one := range items(field(part, "OrStatement", "Statements")) {
				e.Paths = append(e.Paths, r.path(e.Name, field(one, "ByteMatchStatement")))
			}
		case field(not, "ByteMatchStatement") != nil:
			e.Exempt = append(e.Exempt, r.path(e.Name, field(not, "ByteMatchStatement")))
		case field(not, "IPSetReferenceStatement") != nil:
			id := address(field(not, "IPSetReferenceStatement", "Arn"))
			list, known := r.sets[id]
			if !known {
				if r.unset == nil {
					r.unset = map[string]bool{}
				}
				r.unset[e.Name] = true
				r.say(e.Name, "except_ips", "networks of the policy", "the IP set "+id+", which is not among the inputs: add --from ipset=FILE", "")
			}
			if field(not, "IPSetReferenceStatement", "IPSetForwardedIPConfig") != nil {
				r.say(e.Name, "except_ips", "by the address of the connection", "by an address in a header, which a client can write", "policy")
			}
			e.Except = append(e.Except, list...)
		default:
			r.say(e.Name, "scope", "paths, exemptions and networks", "a statement that weir does not generate", "")
		}
	}
}

// address is the id or the ARN that a value refers to.
func address(v any) string {
	if parts := items(field(v, "Fn::GetAtt")); len(parts) > 0 {
		return text(parts[0])
	}
	return text(v)
}

// path reads what a statement looks for, in the form of `path:`.
func (r *reader) path(rule string, match any) string {
	s := text(field(match, "SearchString"))
	if r.coded {
		if decoded, err := base64.StdEncoding.DecodeString(s); err == nil {
			s = string(decoded)
		}
	}
	if rest, ok := strings.CutPrefix(s, r.prefix); ok {
		s = rest
	} else if s != "/" || text(field(match, "PositionalConstraint")) != "STARTS_WITH" { // which every path does

		r.say(rule, "path", "a path after "+r.prefix, s, "")
	}
	if looked, _ := field(match, "FieldToMatch").(map[string]any); field(looked, "UriPath") == nil {
		r.say(rule, "path", "looks at the path", "looks at "+cmp.Or(strings.Join(slices.Sorted(maps.Keys(looked)), ", "), "nothing"), "")
	}
	var steps []string
	transformations := slices.Clone(items(field(match, "TextTransformations")))
	slices.SortStableFunc(transformations, func(a, b any) int {
		return cmp.Compare(integer(field(a, "Priority")), integer(field(b, "Priority")))
	})
	for _, t := range transformations {
		steps = append(steps, text(field(t, "Type")))
	}
	if !slices.Equal(steps, decoding) {
		r.say(rule, "path", "decoded by "+strings.Join(decoding, ", "), "decoded by "+strings.Join(steps, ", "), "")
	}
	switch how := text(field(match, "PositionalConstraint")); how {
	case "STARTS_WITH":
		s += "*"
	case "EXACTLY":
	default:
		r.say(rule, "path", "a path, or what begins with it", how+" "+s, "")
	}
	return s
}

// ipSet reads the addresses of an IP set.
func ipSet(set any) (out []netip.Prefix, err error) {
	for _, a := range items(field(set, "Addresses")) {
		p, err := netip.ParsePrefix(text(a))
		if err != nil {
			return nil, fmt.Errorf("the IP set holds %q, which is no network", text(a))
		}
		out = append(out, p)
	}
	return out, nil
}

// usagePlan reads one usage plan.
func usagePlan(v any) UsagePlan {
	u := UsagePlan{Name: text(field(v, "UsagePlanName")), Quota: integer(field(v, "Quota", "Limit")), Period: text(field(v, "Quota", "Period"))}
	if u.Name == "" {
		u.Name = text(field(v, "Name"))
	}
	if t := field(v, "Throttle"); t != nil {
		u.Burst = integer(field(t, "BurstLimit"))
		rate := new(big.Rat)
		switch n := field(t, "RateLimit").(type) {
		case int64:
			rate.SetInt64(n)
		case float64:
			rate.SetString(strconv.FormatFloat(n, 'f', -1, 64))
		}
		u.Rate, _ = decimalUp(rate)
	}
	return u
}

package generate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// decoding is what WAF does to a path before it looks at it, in this order. What
// is encoded twice, or hidden behind a semicolon, stays hidden.
var decoding = []string{"URL_DECODE", "NORMALIZE_PATH", "LOWERCASE"}

// pathPrefix is the parameter for what stands before a path in the requests that
// WAF sees.
const pathPrefix = "PathPrefix"

// webACL adds the web ACL of the edge rules, and gives its id, or "" without any.
// target is the ARN of what it protects.
func (b *builder) webACL(rules []EdgeRule, target any) string {
	if len(rules) == 0 {
		return ""
	}
	s := b.stack
	if slices.ContainsFunc(rules, func(e EdgeRule) bool { return e.Paths != nil || e.Exempt != nil }) {
		s.parameter(parameter{name: pathPrefix, kind: "String", value: "/prod",
			about: "What stands before a path where WAF sees it - /STAGE on the API's own address, empty behind a domain of your own"})
	}
	sets := map[string]string{} // ids of IP sets by their networks
	for i := range rules {
		e := &rules[i]
		for _, v4 := range []bool{true, false} {
			if list := family(e.Except, v4); len(list) > 0 && sets[fmt.Sprint(list)] == "" {
				sets[fmt.Sprint(list)] = b.ipSet(e, list, v4)
			}
		}
	}
	acl := s.add(&resource{id: s.free("WebAcl"), kind: "AWS::WAFv2::WebACL"})
	acl.about = []string{
		"Edge: abuse, by address, path and headers.",
		"Accuracy: WAF estimates rates and does not admit exactly the count. Delay: it looks about every 10 s, and a",
		"breach may pass for some 30 s, rarely minutes. Granularity: one address; an IPv6 caller has many (weir counts a /64).",
		fmt.Sprintf("Capacity: %d of %d units, %d of them in the base price. Retry-After is a constant.", capacity(rules), mostUnits, basicUnits),
		"Paths are decoded once: what is encoded twice or hidden behind ; passes here, and is limited by the application.",
	}
	var bodies object
	var list []any
	for i := range rules {
		e := &rules[i]
		seconds := int64(e.Window.Seconds())
		key := fmt.Sprintf("rate_limited_%d", seconds)
		if bodies.get(key) == nil {
			bodies = bodies.with(key, object{{"ContentType", "APPLICATION_JSON"}, {"Content", edgeBody(seconds)}})
		}
		action := object{{"Block", object{{"CustomResponse", object{
			{"ResponseCode", int64(429)}, {"CustomResponseBodyKey", key},
			{"ResponseHeaders", []any{object{{"Name", "Retry-After"}, {"Value", fmt.Sprint(seconds)}}}},
		}}}}}
		if e.Shadow {
			action = object{{"Count", object{}}}
		}
		list = append(list, object{
			{noteName, b.from(e.source.Line, e.source.Name)},
			{"Name", e.Name}, {"Priority", e.Priority}, {"Action", action},
			{"VisibilityConfig", visibility(e.Name)},
			{"Statement", object{{"RateBasedStatement", e.statement(sets)}}},
		})
	}
	acl.props = object{
		{"Scope", "REGIONAL"}, {"DefaultAction", object{{"Allow", object{}}}},
		{"VisibilityConfig", visibility(s.name)}, {"CustomResponseBodies", bodies}, {"Rules", list},
	}
	b.webACLLogs(acl.id)
	s.add(&resource{id: s.free("WebAclAssociation"), kind: "AWS::WAFv2::WebACLAssociation",
		props: object{{"ResourceArn", target}, {"WebACLArn", attr{acl.id, "Arn"}}}})
	return acl.id
}

func visibility(metric string) object {
	return object{{"SampledRequestsEnabled", true}, {"CloudWatchMetricsEnabled", true}, {"MetricName", metric}}
}

func edgeBody(seconds int64) string {
	return fmt.Sprintf(`{"error":"rate_limited","message":"Too many requests. Try again in %d seconds.","retryAfterSeconds":%d}`, seconds, seconds)
}

func (b *builder) ipSet(e *EdgeRule, list []netip.Prefix, v4 bool) string {
	version, short := "IPV6", "v6"
	if v4 {
		version, short = "IPV4", "v4"
	}
	r := b.stack.add(&resource{id: b.stack.free("Except", e.Name, short), kind: "AWS::WAFv2::IPSet",
		about: []string{"Addresses for which the rule does not hold.", b.from(e.source.Line, e.Name)}})
	var addresses []any
	for _, p := range list {
		addresses = append(addresses, p.String())
	}
	r.props = object{{"Scope", "REGIONAL"}, {"IPAddressVersion", version}, {"Addresses", addresses}}
	return r.id
}

// statement is the rate-based statement. What is exempt and whom the rule does
// not hold for are left out of the count by its scope: an Allow rule before it
// would let them past every later rule too.
func (e *EdgeRule) statement(sets map[string]string) object {
	o := object{{"Limit", e.Requests}, {"EvaluationWindowSec", int64(e.Window.Seconds())}}
	if e.Everyone {
		o = o.with("AggregateKeyType", "CONSTANT")
	} else {
		o = o.with("AggregateKeyType", "IP")
	}
	var all []any
	switch paths := e.Paths; {
	case len(paths) == 0 && e.Everyone && e.Exempt == nil && e.Except == nil:
		all = append(all, match("/", "STARTS_WITH")) // a constant key needs a scope
	case len(paths) == 1:
		all = append(all, byteMatch(paths[0]))
	case len(paths) > 1:
		var any []any
		for _, p := range paths {
			any = append(any, byteMatch(p))
		}
		all = append(all, object{{"OrStatement", object{{"Statements", any}}}})
	}
	for _, v4 := range []bool{true, false} {
		if list := family(e.Except, v4); len(list) > 0 {
			all = append(all, not(object{{"IPSetReferenceStatement", object{{"Arn", attr{sets[fmt.Sprint(list)], "Arn"}}}}}))
		}
	}
	for _, path := range e.Exempt {
		all = append(all, not(byteMatch(path)))
	}
	switch len(all) {
	case 0:
		return o
	case 1:
		return o.with("ScopeDownStatement", all[0])
	}
	return o.with("ScopeDownStatement", object{{"AndStatement", object{{"Statements", all}}}})
}

func not(statement object) object {
	return object{{"NotStatement", object{{"Statement", statement}}}}
}

func byteMatch(path string) object {
	text, prefix := search(path)
	how := "EXACTLY"
	if prefix {
		how = "STARTS_WITH"
	}
	return match(sub("${"+pathPrefix+"}"+escaped(text)), how)
}

// match looks for a text in the path.
func match(text any, how string) object {
	var steps []any
	for i, t := range decoding {
		steps = append(steps, object{{"Priority", int64(i)}, {"Type", t}})
	}
	return object{{"ByteMatchStatement", object{
		{"FieldToMatch", object{{"UriPath", object{}}}}, {"PositionalConstraint", how},
		{"SearchString", text}, {"TextTransformations", steps},
	}}}
}

// webACLLogs keeps what was blocked or counted, without what could identify a
// caller or be used in his name.
func (b *builder) webACLLogs(acl string) {
	s := b.stack
	group := s.add(&resource{id: s.free("WebAclLog"), kind: "AWS::Logs::LogGroup", fate: "Delete",
		about: []string{"What the edge refused, for `weir report --from waf=FILE`."},
		props: object{{"LogGroupName", sub("aws-waf-logs-${AWS::StackName}")}, {"RetentionInDays", int64(180)}}})
	var redacted []any
	for _, h := range []string{"authorization", "x-api-key", "cookie"} {
		redacted = append(redacted, object{{"SingleHeader", object{{"Name", h}}}})
	}
	if k := b.policy.Auth().APIKeys; k != nil && !slices.Contains([]string{"Authorization", "X-Api-Key", "Cookie"}, k.Header) {
		redacted = append(redacted, object{{"SingleHeader", object{{"Name", strings.ToLower(k.Header)}}}})
	}
	redacted = append(redacted, object{{"QueryString", object{}}})
	condition := func(action string) object { return object{{"ActionCondition", object{{"Action", action}}}} }
	s.add(&resource{id: s.free("WebAclLogging"), kind: "AWS::WAFv2::LoggingConfiguration", props: object{
		{"ResourceArn", attr{acl, "Arn"}},
		{"LogDestinationConfigs", []any{sub("arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:${" + group.id + "}")}},
		{"RedactedFields", redacted},
		{"LoggingFilter", object{{"DefaultBehavior", "DROP"}, {"Filters", []any{object{
			{"Behavior", "KEEP"}, {"Requirement", "MEETS_ANY"}, {"Conditions", []any{condition("BLOCK"), condition("COUNT")}},
		}}}}},
	}})
}

// jsonText is a value as JSON text, for the bodies that services take as texts.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // structs of texts and numbers always encode
	}
	return string(text)
}

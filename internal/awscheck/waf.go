package awscheck

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// webACLs looks at what WAF refuses, or worse accepts and never matches.
func (c *check) webACLs() {
	for _, acl := range c.Of("AWS::WAFv2::WebACL") {
		bodies := object(acl.Properties["CustomResponseBodies"])
		for key, b := range bodies {
			c.oneOf(acl, "waf-body", "the content type of the body "+key, at(b, "ContentType"), "TEXT_PLAIN", "TEXT_HTML", "APPLICATION_JSON")
			if n := len(str(at(b, "Content"))); n == 0 || n > 4096 {
				c.wrong(acl, "waf-body", "the body %s has %d bytes, and may have 1 to 4096", key, n)
			}
		}
		if len(object(acl.Properties["DefaultAction"])) != 1 {
			c.wrong(acl, "waf-action", "a web ACL has one default action")
		}
		if at(acl.Properties, "DefaultAction", "Allow") == nil {
			c.wrong(acl, "waf-action", "it refuses whatever no rule looks at: its default action is not Allow")
		}
		names, priorities := map[string]bool{}, map[string]bool{}
		rates := 0
		for _, rule := range list(acl.Properties["Rules"]) {
			name := str(at(rule, "Name"))
			priority := fmt.Sprint(at(rule, "Priority"))
			if names[name] || name == "" {
				c.wrong(acl, "waf-name", "two rules are named %q", name)
			}
			if priorities[priority] {
				c.wrong(acl, "waf-priority", "rule %s has the priority %s of another rule", name, priority)
			}
			names[name], priorities[priority] = true, true
			if at(rule, "VisibilityConfig") == nil {
				c.wrong(acl, "waf-visibility", "rule %s has no VisibilityConfig", name)
			}
			c.action(acl, name, object(at(rule, "Action")), bodies)
			statement := object(at(rule, "Statement"))
			if rate := object(statement["RateBasedStatement"]); rate != nil {
				rates++
				c.rate(acl, name, rate)
				statement = object(rate["ScopeDownStatement"])
			}
			c.statement(acl, name, statement)
		}
		if rates > 10 {
			c.wrong(acl, "waf-rules", "%d rate-based rules, and a web ACL has 10 at most", rates)
		}
	}
}

func (c *check) action(acl *Resource, name string, action, bodies map[string]any) {
	if len(action) != 1 || action["Allow"] != nil {
		c.wrong(acl, "waf-action", "rule %s must have one action, and not Allow", name)
	}
	block, blocks := action["Block"]
	if !blocks {
		return
	}
	custom := object(at(block, "CustomResponse"))
	if custom == nil {
		c.wrong(acl, "waf-response", "rule %s blocks with 403: it has no custom response", name)
		return
	}
	if code, _ := number(custom["ResponseCode"]); code != 429 {
		c.wrong(acl, "waf-response", "rule %s answers %v, and a limit answers 429", name, custom["ResponseCode"])
	}
	if key := str(custom["CustomResponseBodyKey"]); bodies[key] == nil {
		c.wrong(acl, "waf-body", "rule %s wants a body %q, which is not there", name, key)
	}
	headers := list(custom["ResponseHeaders"])
	if len(headers) > 10 {
		c.wrong(acl, "waf-response", "rule %s sets %d headers, and may set 10", name, len(headers))
	}
	retry := false
	for _, h := range headers {
		switch header := strings.ToLower(str(at(h, "Name"))); header {
		case "content-type":
			c.wrong(acl, "waf-response", "rule %s sets content-type, which comes from the body", name)
		case "retry-after":
			seconds, ok := number(at(h, "Value"))
			retry = ok && seconds >= 1
		}
	}
	if !retry {
		c.wrong(acl, "waf-response", "rule %s says no whole seconds in Retry-After", name)
	}
}

func (c *check) rate(acl *Resource, name string, rate map[string]any) {
	c.between(acl, "waf-rate", "Limit of "+name, rate["Limit"], 10, 2e9)
	c.oneOf(acl, "waf-rate", "EvaluationWindowSec of "+name, rate["EvaluationWindowSec"], "60", "120", "300", "600")
	c.oneOf(acl, "waf-rate", "AggregateKeyType of "+name, rate["AggregateKeyType"], "IP", "CONSTANT")
	if rate["AggregateKeyType"] == "CONSTANT" && rate["ScopeDownStatement"] == nil {
		c.wrong(acl, "waf-rate", "rule %s counts everybody together, which needs a scope", name)
	}
}

// statement looks at a statement below the top of a rule.
func (c *check) statement(acl *Resource, rule string, statement map[string]any) {
	walk(statement, nil, func(o map[string]any, path []string) {
		if len(path) > 0 && path[len(path)-1] == "ByteMatchStatement" {
			c.byteMatch(acl, rule, o)
		}
		if o["RateBasedStatement"] != nil {
			c.wrong(acl, "waf-nesting", "rule %s has a rate-based statement within another statement", rule)
		}
		for _, join := range []string{"AndStatement", "OrStatement"} {
			if n := len(list(at(o[join], "Statements"))); o[join] != nil && n < 2 {
				c.wrong(acl, "waf-nesting", "rule %s has %s of %d statement, and it joins two or more", rule, join, n)
			}
		}
		if ref := object(o["IPSetReferenceStatement"]); ref != nil {
			set := c.Resources[refersTo(ref["Arn"])]
			switch {
			case set == nil || set.Type != "AWS::WAFv2::IPSet":
				c.wrong(acl, "waf-ip-set", "rule %s refers to no IP set", rule)
			case set.Properties["Scope"] != acl.Properties["Scope"]:
				c.wrong(acl, "waf-scope", "rule %s refers to %s, which has another scope", rule, set.ID)
			}
		}
	})
}

func (c *check) byteMatch(acl *Resource, rule string, match map[string]any) {
	var order []string
	priorities := map[string]bool{}
	steps := slices.Clone(list(match["TextTransformations"]))
	slices.SortStableFunc(steps, func(a, b any) int {
		x, _ := number(at(a, "Priority"))
		y, _ := number(at(b, "Priority"))
		return int(x - y)
	})
	for _, s := range steps {
		p := fmt.Sprint(at(s, "Priority"))
		if priorities[p] {
			c.wrong(acl, "waf-transformation", "rule %s has two transformations of priority %s", rule, p)
		}
		priorities[p] = true
		order = append(order, str(at(s, "Type")))
	}
	if at(match, "FieldToMatch", "UriPath") == nil {
		c.wrong(acl, "waf-field", "rule %s looks for a path in %v", rule, match["FieldToMatch"])
	}
	if !slices.Equal(order, []string{"URL_DECODE", "NORMALIZE_PATH", "LOWERCASE"}) {
		c.wrong(acl, "waf-transformation", "rule %s reads a path after %v: encoded, doubled or upper-case paths pass it", rule, order)
	}
	text := textOf(match["SearchString"])
	if at := strings.LastIndex(text, "}"); at >= 0 {
		text = text[at+1:]
	}
	if text != strings.ToLower(text) {
		c.wrong(acl, "waf-search", "rule %s looks for %q in what is in lower case", rule, text)
	}
	if !strings.HasPrefix(text, "/") {
		c.wrong(acl, "waf-search", "rule %s looks for %q, and a path begins with a slash", rule, text)
	}
	how := str(match["PositionalConstraint"])
	c.oneOf(acl, "waf-search", "the constraint of "+rule, how, "STARTS_WITH", "EXACTLY")
	if how == "STARTS_WITH" && !strings.HasSuffix(text, "/") {
		c.wrong(acl, "waf-search", "rule %s looks for what begins with %q: a name that goes on matches too", rule, text)
	}
}

func (c *check) ipSets() {
	for _, set := range c.Of("AWS::WAFv2::IPSet") {
		addresses := list(set.Properties["Addresses"])
		if len(addresses) > 10_000 {
			c.wrong(set, "waf-ip-set", "%d networks, and an IP set holds 10,000", len(addresses))
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(str(a))
			switch {
			case err != nil:
				c.wrong(set, "waf-ip-set", "%v is no network, such as 192.0.2.0/24", a)
			case p != p.Masked():
				c.wrong(set, "waf-ip-set", "%s names an address within a network: it is %s", p, p.Masked())
			case p.Bits() == 0:
				c.wrong(set, "waf-ip-set", "%s is everybody, which an IP set may not hold", p)
			case p.Addr().Is4() != (set.Properties["IPAddressVersion"] == "IPV4"):
				c.wrong(set, "waf-ip-set", "%s is not of the version %v", p, set.Properties["IPAddressVersion"])
			}
		}
	}
}

// webACLTargets: a web ACL protects what it can, from its own scope.
func (c *check) webACLTargets() {
	for _, a := range c.Of("AWS::WAFv2::WebACLAssociation") {
		acl := c.Resources[refersTo(a.Properties["WebACLArn"])]
		if acl == nil || acl.Type != "AWS::WAFv2::WebACL" {
			c.wrong(a, "waf-target", "it associates no web ACL of the template")
			continue
		}
		if acl.Properties["Scope"] != "REGIONAL" {
			c.wrong(a, "waf-scope", "%s has the scope %v: CloudFront names its web ACL itself", acl.ID, acl.Properties["Scope"])
		}
		target := textOf(a.Properties["ResourceArn"])
		var types []string
		for _, id := range append(references(object(a.Properties["ResourceArn"])), refersTo(a.Properties["ResourceArn"])) {
			if r := c.Resources[id]; r != nil {
				types = append(types, r.Type)
			}
		}
		stage := slices.Contains(types, "AWS::ApiGateway::RestApi") && slices.Contains(types, "AWS::ApiGateway::Stage") &&
			strings.Contains(target, ":apigateway:") && strings.Contains(target, "::/restapis/") && strings.Contains(target, "/stages/")
		if !stage && !slices.Contains(types, "AWS::AppSync::GraphQLApi") {
			c.wrong(a, "waf-target", "a web ACL is for a stage of a REST API, as arn:...::/restapis/ID/stages/NAME, or for AppSync, and not for %s", target)
		}
	}
}

func (c *check) webACLLogs() {
	logged := map[string]bool{}
	for _, l := range c.Of("AWS::WAFv2::LoggingConfiguration") {
		logged[refersTo(l.Properties["ResourceArn"])] = true
		for _, d := range list(l.Properties["LogDestinationConfigs"]) {
			text := textOf(d)
			if strings.HasSuffix(text, ":*") || refersTo(d) != "" && text == "" {
				c.wrong(l, "waf-log", "the ARN of the log group ends in :*, which WAF does not take")
			}
			group := false
			for _, id := range references(object(d)) {
				if r := c.Resources[id]; r != nil && r.Type == "AWS::Logs::LogGroup" {
					group = true
					if !strings.HasPrefix(textOf(r.Properties["LogGroupName"]), "aws-waf-logs-") {
						c.wrong(r, "waf-log", "the name of a log group for WAF begins with aws-waf-logs-")
					}
				}
			}
			if !group {
				c.wrong(l, "waf-log", "it logs to no log group of the template")
			}
		}
		var hidden []string
		for _, f := range list(l.Properties["RedactedFields"]) {
			hidden = append(hidden, strings.ToLower(str(at(f, "SingleHeader", "Name"))))
		}
		for _, h := range []string{"authorization", "cookie", "x-api-key"} {
			if !slices.Contains(hidden, h) {
				c.wrong(l, "waf-log", "the log shows the header %s", h)
			}
		}
		var kept []string
		for _, filter := range list(at(l.Properties, "LoggingFilter", "Filters")) {
			conditions := list(at(filter, "Conditions"))
			if at(filter, "Behavior") != "KEEP" || at(filter, "Requirement") != "MEETS_ANY" && len(conditions) > 1 {
				continue
			}
			for _, condition := range conditions {
				kept = append(kept, str(at(condition, "ActionCondition", "Action")))
			}
		}
		if at(l.Properties, "LoggingFilter", "DefaultBehavior") != "DROP" || !slices.Contains(kept, "BLOCK") || !slices.Contains(kept, "COUNT") {
			c.wrong(l, "waf-log", "it does not keep BLOCK and COUNT, and drop the rest")
		}
	}
	for _, acl := range c.Of("AWS::WAFv2::WebACL") {
		if !logged[acl.ID] {
			c.wrong(acl, "waf-log", "nothing logs what it blocks")
		}
	}
}

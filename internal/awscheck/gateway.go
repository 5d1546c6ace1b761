package awscheck

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

func (c *check) gatewayResponses() {
	byAPI := map[string][]string{}
	for _, r := range c.Of("AWS::ApiGateway::GatewayResponse") {
		kind := str(r.Properties["ResponseType"])
		c.oneOf(r, "gateway-response", "ResponseType", kind, "THROTTLED", "QUOTA_EXCEEDED")
		byAPI[refersTo(r.Properties["RestApiId"])] = append(byAPI[refersTo(r.Properties["RestApiId"])], kind)
		if r.Properties["StatusCode"] != "429" {
			c.wrong(r, "gateway-response", `StatusCode is %v, and must be "429"`, r.Properties["StatusCode"])
		}
		for name, v := range object(r.Properties["ResponseParameters"]) {
			text := str(v)
			inner := strings.Trim(text, "'")
			if !strings.HasPrefix(name, "gatewayresponse.header.") {
				c.wrong(r, "gateway-response", "%s is no header of a gateway response", name)
			}
			if len(text) < 3 || text != "'"+inner+"'" || strings.Contains(inner, "'") {
				c.wrong(r, "gateway-response", "%s is %s: a fixed value stands in single quotes", name, text)
			}
			if strings.HasSuffix(name, ".Retry-After") {
				if n, ok := number(inner); !ok || n < 1 {
					c.wrong(r, "gateway-response", "Retry-After is %s, and must be whole seconds", text)
				}
			}
		}
		if kind == "THROTTLED" && at(r.Properties, "ResponseParameters", "gatewayresponse.header.Retry-After") == nil {
			c.wrong(r, "gateway-response", "a throttled client is not told when to come back")
		}
		body := str(at(r.Properties, "ResponseTemplates", "application/json"))
		if !json.Valid([]byte(body)) {
			c.wrong(r, "gateway-response", "the body is no JSON: %s", body)
		}
	}
	for _, p := range c.Of("AWS::ApiGateway::UsagePlan") {
		for _, stage := range list(p.Properties["ApiStages"]) {
			for _, kind := range []string{"THROTTLED", "QUOTA_EXCEEDED"} {
				if api := refersTo(at(stage, "ApiId")); !slices.Contains(byAPI[api], kind) {
					c.wrong(p, "gateway-response", "%s has no response %s of its own", api, kind)
				}
			}
		}
	}
}

func (c *check) usagePlans() {
	for _, a := range c.Of("AWS::ApiGateway::RestApi") {
		if len(c.Of("AWS::ApiGateway::UsagePlan")) > 0 && a.Properties["ApiKeySourceType"] != "HEADER" {
			c.wrong(a, "usage-plan", "ApiKeySourceType is %v: keys are in a header", a.Properties["ApiKeySourceType"])
		}
	}
	stages := map[string][]string{} // by plan
	for _, p := range c.Of("AWS::ApiGateway::UsagePlan") {
		for _, s := range list(p.Properties["ApiStages"]) {
			stage := c.Resources[refersTo(at(s, "Stage"))]
			if stage == nil || stage.Type != "AWS::ApiGateway::Stage" || refersTo(stage.Properties["RestApiId"]) != refersTo(at(s, "ApiId")) {
				c.wrong(p, "usage-plan", "its stage is not one of its API")
				continue
			}
			stages[p.ID] = append(stages[p.ID], stage.ID)
		}
		if len(stages[p.ID]) == 0 {
			c.wrong(p, "usage-plan", "the plan is for no stage, and limits nothing")
		}
		throttle, quota := object(p.Properties["Throttle"]), object(p.Properties["Quota"])
		if throttle == nil && quota == nil {
			c.wrong(p, "usage-plan", "the plan has neither a rate nor a quota")
		}
		if throttle != nil {
			c.between(p, "usage-plan", "RateLimit", throttle["RateLimit"], 1e-6, 1e9)
			c.between(p, "usage-plan", "BurstLimit", throttle["BurstLimit"], 1, 1<<31-1)
		}
		if quota != nil {
			c.between(p, "usage-plan", "the quota's Limit", quota["Limit"], 1, 1<<31-1)
			c.oneOf(p, "usage-plan", "the quota's Period", quota["Period"], "DAY", "WEEK", "MONTH")
		}
	}
	taken := map[[2]string]string{} // plan by key and stage
	for _, k := range c.Of("AWS::ApiGateway::UsagePlanKey") {
		c.oneOf(k, "usage-plan", "KeyType", k.Properties["KeyType"], "API_KEY")
		plan, key := refersTo(k.Properties["UsagePlanId"]), refersTo(k.Properties["KeyId"])
		if r := c.Resources[plan]; r == nil || r.Type != "AWS::ApiGateway::UsagePlan" {
			c.wrong(k, "usage-plan", "it puts a key into no plan of the template")
		}
		for _, s := range stages[plan] {
			if other := taken[[2]string{key, s}]; other != "" {
				c.wrong(k, "usage-plan", "%s is in %s already, which has the same stage", key, other)
			}
			taken[[2]string{key, s}] = plan
		}
	}
	for _, k := range c.Of("AWS::ApiGateway::ApiKey") {
		if k.Properties["Value"] != nil {
			c.wrong(k, "secret", "the value of the key stands in the template")
		}
		if k.Properties["Enabled"] != true {
			c.wrong(k, "usage-plan", "the key is not enabled")
		}
	}
}

// deployments: what is not in a deployment is not live.
func (c *check) deployments() {
	named := regexp.MustCompile(`[0-9a-f]{8,}$`)
	for _, d := range c.Of("AWS::ApiGateway::Deployment") {
		api := refersTo(d.Properties["RestApiId"])
		if !named.MatchString(strings.ToLower(d.ID)) {
			c.wrong(d, "deployment", "the id holds no hash of what is deployed: changes stay undeployed")
		}
		for _, kind := range []string{"AWS::ApiGateway::Method", "AWS::ApiGateway::GatewayResponse"} {
			for _, r := range c.Of(kind) {
				if refersTo(r.Properties["RestApiId"]) == api && !slices.Contains(d.DependsOn, r.ID) {
					c.wrong(d, "deployment", "it may be made before %s, which is then not live", r.ID)
				}
			}
		}
	}
	for _, s := range c.Of("AWS::ApiGateway::Stage") {
		d := c.Resources[refersTo(s.Properties["DeploymentId"])]
		if d == nil || refersTo(d.Properties["RestApiId"]) != refersTo(s.Properties["RestApiId"]) {
			c.wrong(s, "deployment", "the stage has no deployment of its API")
		}
		for _, m := range list(s.Properties["MethodSettings"]) {
			path, method := str(at(m, "ResourcePath")), str(at(m, "HttpMethod"))
			switch {
			case path == "/*" && method == "*":
			case path != "/" && (len(path) < 4 || !strings.HasPrefix(path, "/~1") || strings.Contains(path[1:], "/")):
				c.wrong(s, "method-settings", "ResourcePath %s: a path is written as /~1orders~1{id}, the root as /, and all as /* with the method *", path)
			case !c.hasMethod(refersTo(s.Properties["RestApiId"]), path, method):
				c.wrong(s, "method-settings", "the API has no method %s %s", method, path)
			}
			c.between(s, "method-settings", "ThrottlingRateLimit", at(m, "ThrottlingRateLimit"), 0, 1e9)
			c.between(s, "method-settings", "ThrottlingBurstLimit", at(m, "ThrottlingBurstLimit"), 0, 1<<31-1)
		}
		if log := object(s.Properties["AccessLogSetting"]); log != nil && log["Fn::If"] == nil {
			c.wrong(s, "access-log", "an access log needs a role of the account: it must be an option")
		}
	}
}

// apiMethods are what a method ANY stands for.
var apiMethods = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// hasMethod reports whether an API has a method at a path as method settings write
// it.
func (c *check) hasMethod(api, path, method string) bool {
	return slices.ContainsFunc(c.Of("AWS::ApiGateway::Method"), func(m *Resource) bool {
		has := str(m.Properties["HttpMethod"])
		if refersTo(m.Properties["RestApiId"]) != api || has != method && !(has == "ANY" && slices.Contains(apiMethods, method)) {
			return false
		}
		var parts []string
		for r := c.Resources[refersTo(m.Properties["ResourceId"])]; r != nil && r.Type == "AWS::ApiGateway::Resource" && len(parts) <= len(c.Resources); r = c.Resources[refersTo(r.Properties["ParentId"])] {
			parts = append(parts, str(r.Properties["PathPart"]))
		}
		slices.Reverse(parts)
		if len(parts) == 0 {
			return path == "/"
		}
		return path == "/~1"+strings.Join(parts, "~1")
	})
}

func (c *check) methods() {
	children := map[string][]*Resource{}
	for _, r := range c.Of("AWS::ApiGateway::Resource") {
		parent := refersTo(r.Properties["ParentId"])
		for _, other := range children[parent] {
			a, b := str(r.Properties["PathPart"]), str(other.Properties["PathPart"])
			if a == b || strings.HasPrefix(a, "{") && strings.HasPrefix(b, "{") {
				c.wrong(r, "path", "%s and %s stand below the same path", a, b)
			}
		}
		children[parent] = append(children[parent], r)
	}
	seen := map[[2]string]string{}
	for _, m := range c.Of("AWS::ApiGateway::Method") {
		at2 := [2]string{refersTo(m.Properties["ResourceId"]), str(m.Properties["HttpMethod"])}
		if seen[at2] != "" {
			c.wrong(m, "path", "%s is the same method", seen[at2])
		}
		seen[at2] = m.ID
		if at2[1] == "HEAD" {
			if get := c.Resources[seen[[2]string{at2[0], "GET"}]]; get != nil && get.Properties["ApiKeyRequired"] != m.Properties["ApiKeyRequired"] {
				c.wrong(get, "usage-plan", "GET and HEAD of one path: one needs a key and the other none")
			}
		}
		i := object(m.Properties["Integration"])
		if i["Type"] == "AWS_PROXY" && i["IntegrationHttpMethod"] != "POST" {
			c.wrong(m, "integration", "a function is called with POST, and not with %v", i["IntegrationHttpMethod"])
		}
		c.timeout(m, i["TimeoutInMillis"], 29_000)
		if uri := textOf(i["Uri"]); !strings.Contains(uri, ":lambda:path/2015-03-31/functions/") || !strings.HasSuffix(uri, "/invocations") {
			c.wrong(m, "integration", "%s is no function that API Gateway can call", uri)
		}
	}
	if len(c.Of("AWS::ApiGateway::UsagePlan")) > 0 && !slices.ContainsFunc(c.Of("AWS::ApiGateway::Method"), func(m *Resource) bool { return m.Properties["ApiKeyRequired"] == true }) {
		c.wrong(c.Of("AWS::ApiGateway::UsagePlan")[0], "usage-plan", "no method needs a key, so that no call is counted")
	}
}

// timeout: the API must wait longer than the function may take.
func (c *check) timeout(r *Resource, v any, most float64) {
	if v == nil {
		return
	}
	c.between(r, "integration", "TimeoutInMillis", v, 50, most)
	n, _ := number(v)
	for _, f := range c.Of("AWS::Lambda::Function") {
		if t, ok := number(f.Properties["Timeout"]); ok && t*1000 >= n {
			c.wrong(r, "integration", "the API gives up after %v ms, and %s may take %v s", n, f.ID, t)
		}
	}
}

// routes are those of HTTP APIs.
func (c *check) routes() {
	for _, i := range c.Of("AWS::ApiGatewayV2::Integration") {
		c.timeout(i, i.Properties["TimeoutInMillis"], 30_000)
		if i.Properties["PayloadFormatVersion"] != "2.0" {
			c.wrong(i, "integration", "PayloadFormatVersion is %v, and the function reads 2.0", i.Properties["PayloadFormatVersion"])
		}
	}
	form := regexp.MustCompile(`^(\$default|[A-Z]+ /\S*)$`)
	keys := map[string]string{}
	for _, r := range c.Of("AWS::ApiGatewayV2::Route") {
		key := str(r.Properties["RouteKey"])
		if !form.MatchString(key) {
			c.wrong(r, "route", "%q is no route: METHOD /PATH, or $default", key)
		}
		if keys[key] != "" {
			c.wrong(r, "route", "%s has the same key", keys[key])
		}
		keys[key] = r.ID
		if (r.Properties["AuthorizationType"] == "JWT") != (r.Properties["AuthorizerId"] != nil) {
			c.wrong(r, "route", "AuthorizationType JWT and an authorizer go together")
		}
		if !strings.HasPrefix(textOf(r.Properties["Target"]), "integrations/") {
			c.wrong(r, "route", "its target is no integration")
		}
	}
	for _, s := range c.Of("AWS::ApiGatewayV2::Stage") {
		for key := range object(s.Properties["RouteSettings"]) {
			if id := keys[key]; id == "" || !slices.Contains(s.DependsOn, id) {
				c.wrong(s, "route", "it has settings for %s, which may not be there yet", key)
			}
		}
	}
}

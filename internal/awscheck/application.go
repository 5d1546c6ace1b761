package awscheck

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func (c *check) tables() {
	for _, t := range c.Of("AWS::DynamoDB::Table") {
		p := t.Properties
		keys := list(p["KeySchema"])
		if len(keys) != 1 || at(keys[0], "AttributeName") != "pk" || at(keys[0], "KeyType") != "HASH" {
			c.wrong(t, "table", "its key is not pk alone")
		}
		attributes := list(p["AttributeDefinitions"])
		if len(attributes) != 1 || at(attributes[0], "AttributeName") != "pk" || at(attributes[0], "AttributeType") != "S" {
			c.wrong(t, "table", "pk is no string")
		}
		if at(p, "TimeToLiveSpecification", "AttributeName") != "expiresAt" || at(p, "TimeToLiveSpecification", "Enabled") != true {
			c.wrong(t, "table", "items do not expire by expiresAt")
		}
		if p["BillingMode"] != "PAY_PER_REQUEST" {
			c.wrong(t, "table", "it is not paid per request")
		}
		if (p["DeletionProtectionEnabled"] == true) != (t.Fate == "Retain") {
			c.wrong(t, "table", "it is protected from deletion, and deleted with the stack, or neither")
		}
		if p["TableName"] != nil {
			c.wrong(t, "table", "a table with a fixed name cannot be replaced")
		}
	}
}

// needed are the actions that roles of a template may have, by service.
var needed = map[string][]string{
	"dynamodb": {"dynamodb:UpdateItem", "dynamodb:GetItem"},
	"logs":     {"logs:CreateLogStream", "logs:PutLogEvents"},
	"lambda":   {"lambda:InvokeFunction"},
}

// kinds are what the actions of a service are allowed on.
var kinds = map[string]string{
	"dynamodb": "AWS::DynamoDB::Table", "logs": "AWS::Logs::LogGroup", "lambda": "AWS::Lambda::Function",
}

// roles may do what they need on one resource of the template, and no more.
func (c *check) roles() {
	for _, r := range c.Of("AWS::IAM::Role") {
		for _, s := range list(at(r.Properties, "AssumeRolePolicyDocument", "Statement")) {
			if at(s, "Action") != "sts:AssumeRole" || at(s, "Effect") != "Allow" {
				c.wrong(r, "role", "its trust is not an Allow of sts:AssumeRole")
			}
			c.oneOf(r, "role", "who takes the role", at(s, "Principal", "Service"), "lambda.amazonaws.com", "appsync.amazonaws.com")
		}
		if r.Properties["ManagedPolicyArns"] != nil {
			c.wrong(r, "role", "a managed policy allows more than is needed")
		}
		writes := 0
		for _, p := range list(r.Properties["Policies"]) {
			for _, s := range list(at(p, "PolicyDocument", "Statement")) {
				if at(s, "Effect") != "Allow" {
					c.wrong(r, "role", "Effect is %v", at(s, "Effect"))
				}
				on := c.Resources[refersTo(at(s, "Resource"))]
				actions := list(at(s, "Action"))
				if one := str(at(s, "Action")); one != "" {
					actions = []any{one}
				}
				for _, a := range actions {
					action := str(a)
					service, _, _ := strings.Cut(action, ":")
					if !slices.Contains(needed[service], action) {
						c.wrong(r, "role", "%s is more than is needed, or no action", action)
						continue
					}
					if on == nil || on.Type != kinds[service] {
						c.wrong(r, "role", "%s is allowed on %v, and not on one %s of the template", action, at(s, "Resource"), kinds[service])
					}
					if service == "dynamodb" {
						writes++
					}
				}
			}
		}
		if n := len(needed["dynamodb"]); writes != 0 && writes != n {
			c.wrong(r, "role", "a decision needs %s", strings.Join(needed["dynamodb"], " and "))
		}
	}
}

func (c *check) functions() {
	for _, f := range c.Of("AWS::Lambda::Function") {
		p := f.Properties
		c.oneOf(f, "function", "Runtime", p["Runtime"], "provided.al2023")
		c.oneOf(f, "function", "Handler", p["Handler"], "bootstrap")
		c.between(f, "function", "Timeout", p["Timeout"], 5, 29) // a cold start and a slow store take some
		c.between(f, "function", "MemorySize", p["MemorySize"], 128, 10_240)
		table := c.Resources[refersTo(at(p, "Environment", "Variables", "BUCKET_TABLE"))]
		if table == nil || table.Type != "AWS::DynamoDB::Table" {
			c.wrong(f, "function", "BUCKET_TABLE names no table of the template")
			continue
		}
		role := c.Resources[refersTo(p["Role"])]
		allowed := false
		if role != nil {
			walk(role.Properties, nil, func(o map[string]any, _ []string) {
				actions := list(o["Action"])
				allowed = allowed || slices.Contains(actions, any("dynamodb:UpdateItem")) && refersTo(o["Resource"]) == table.ID
			})
		}
		if !allowed {
			c.wrong(f, "function", "its role may not write to %s", table.ID)
		}
		if v := p["ReservedConcurrentExecutions"]; v != nil && object(v)["Fn::If"] == nil {
			c.wrong(f, "function", "reserved concurrency fails on small accounts: it must be an option")
		}
		for name, v := range object(at(p, "Environment", "Variables")) {
			secret := strings.Contains(name, "SECRET") || strings.Contains(name, "LOG_KEY")
			if secret && c.Parameters[refersTo(v)]["NoEcho"] != true {
				c.wrong(f, "secret", "%s is not a parameter that is hidden", name)
			}
		}
	}
}

func (c *check) permissions() {
	for _, p := range c.Of("AWS::Lambda::Permission") {
		c.oneOf(p, "permission", "Action", p.Properties["Action"], "lambda:InvokeFunction")
		c.oneOf(p, "permission", "Principal", p.Properties["Principal"], "apigateway.amazonaws.com")
		if f := c.Resources[refersTo(p.Properties["FunctionName"])]; f == nil || !c.called(f.ID) {
			c.wrong(p, "permission", "FunctionName is %v, which the API does not call", p.Properties["FunctionName"])
		}
		if arn := textOf(p.Properties["SourceArn"]); !strings.Contains(arn, ":execute-api:") || !strings.HasSuffix(arn, "/*") {
			c.wrong(p, "permission", "whoever may call is not one API: SourceArn is %q", arn)
		}
	}
	called := len(c.Of("AWS::ApiGateway::Method"))+len(c.Of("AWS::ApiGatewayV2::Integration")) > 0
	if called && len(c.Of("AWS::Lambda::Permission")) == 0 {
		c.wrong(c.Of("AWS::Lambda::Function")[0], "permission", "the API may not call the function")
	}
}

// called reports whether an API calls a function.
func (c *check) called(id string) bool {
	calls := func(r *Resource) bool {
		for _, v := range []any{at(r.Properties, "Integration", "Uri"), r.Properties["IntegrationUri"]} {
			if slices.Contains(references(object(v)), id) {
				return true
			}
		}
		return false
	}
	return c.Resources[id].Type == "AWS::Lambda::Function" &&
		(slices.ContainsFunc(c.Of("AWS::ApiGateway::Method"), calls) || slices.ContainsFunc(c.Of("AWS::ApiGatewayV2::Integration"), calls))
}

// written are the metrics that lambdalimit writes in the namespace weir.
var written = []string{"Allowed", "Denied", "Degraded", "StoreMs", "SkewMs", "ColdStart"}

func (c *check) alarms() {
	for _, a := range c.Of("AWS::CloudWatch::Alarm") {
		p := a.Properties
		of, _ := number(p["EvaluationPeriods"])
		if at, ok := number(p["DatapointsToAlarm"]); ok && at > of {
			c.wrong(a, "alarm", "%v of %v periods can never be bad", at, of)
		}
		c.oneOf(a, "alarm", "TreatMissingData", p["TreatMissingData"], "notBreaching")
		if p["ComparisonOperator"] != "GreaterThanThreshold" {
			c.wrong(a, "alarm", "ComparisonOperator is %v: it would ring in peace", p["ComparisonOperator"])
		}
		if p["Threshold"] == nil {
			c.wrong(a, "alarm", "it has no threshold")
		}
		metrics := list(p["Metrics"])
		if len(metrics) == 0 {
			c.metric(a, p, p["Period"], of)
			continue
		}
		if p["MetricName"] != nil || p["Period"] != nil {
			c.wrong(a, "alarm", "it has a metric and Metrics")
		}
		returned, ids := 0, map[string]bool{}
		for _, m := range metrics {
			id := str(at(m, "Id"))
			if ids[id] || !regexp.MustCompile(`^[a-z][a-zA-Z0-9_]*$`).MatchString(id) {
				c.wrong(a, "alarm", "%q is no id of a metric, or is there twice", id)
			}
			ids[id] = true
			if at(m, "ReturnData") == true {
				returned++
			}
			if stat := object(at(m, "MetricStat")); stat != nil {
				c.metric(a, object(stat["Metric"]), stat["Period"], of)
			}
		}
		for _, m := range metrics {
			expression := str(at(m, "Expression"))
			if most, ok := number(p["Threshold"]); ok && strings.Contains(expression, "100 *") && at(m, "ReturnData") == true && most >= 100 {
				c.wrong(a, "alarm", "no share is more than %v percent", most)
			}
			if strings.Contains(expression, "SEARCH") {
				c.wrong(a, "alarm", "an alarm cannot search for metrics")
			}
			for _, word := range regexp.MustCompile(`\b[a-z][a-zA-Z0-9_]*`).FindAllString(expression, -1) {
				if !ids[word] {
					c.wrong(a, "alarm", "its expression uses %s, which is none of its metrics", word)
				}
			}
		}
		if returned != 1 {
			c.wrong(a, "alarm", "it looks at %d metrics, and must look at one", returned)
		}
	}
}

// metric must be one that somebody writes, in exactly these dimensions.
func (c *check) metric(a *Resource, m map[string]any, period any, of float64) {
	seconds, _ := number(period)
	if int(seconds) != 10 && int(seconds) != 30 && (seconds < 60 || int(seconds)%60 != 0) {
		c.wrong(a, "alarm", "Period is %v: 10, 30 or a multiple of 60 seconds", period)
	}
	if seconds*of > 86_400 {
		c.wrong(a, "alarm", "%v periods of %v s are more than a day", of, period)
	}
	var names []string
	for _, d := range list(m["Dimensions"]) {
		names = append(names, str(at(d, "Name")))
		if at(d, "Name") == "Service" {
			if f := c.Resources[refersTo(at(d, "Value"))]; f == nil || f.Type != "AWS::Lambda::Function" {
				c.wrong(a, "alarm", "Service is %v, and metrics are written under the function's name", at(d, "Value"))
			}
		}
		if at(d, "Name") == "TableName" {
			if t := c.Resources[refersTo(at(d, "Value"))]; t == nil || t.Type != "AWS::DynamoDB::Table" {
				c.wrong(a, "alarm", "TableName is %v, which is no table of the template", at(d, "Value"))
			}
		}
	}
	switch m["Namespace"] {
	case "weir":
		c.oneOf(a, "alarm", "the metric", m["MetricName"], written...)
		c.oneOf(a, "alarm", "the dimensions", fmt.Sprint(names), "[Service]", "[Service Limit]")
	case "AWS/DynamoDB":
		c.oneOf(a, "alarm", "the metric", m["MetricName"], "WriteThrottleEvents", "ThrottledRequests")
		c.oneOf(a, "alarm", "the dimensions", fmt.Sprint(names), "[TableName]")
	default:
		c.wrong(a, "alarm", "nobody writes metrics of %v", m["Namespace"])
	}
}

func (c *check) dashboards() {
	for _, d := range c.Of("AWS::CloudWatch::Dashboard") {
		var body struct {
			Widgets []struct {
				Type       string
				Properties struct {
					Region  string
					Metrics [][]any
				}
			}
		}
		text := textOf(d.Properties["DashboardBody"])
		if err := json.Unmarshal([]byte(text), &body); err != nil || len(body.Widgets) == 0 {
			c.wrong(d, "dashboard", "the body is no JSON with widgets: %v", err)
			continue
		}
		for i, w := range body.Widgets {
			if w.Type != "metric" || w.Properties.Region == "" || len(w.Properties.Metrics) == 0 {
				c.wrong(d, "dashboard", "widget %d shows no metric, or of no region", i)
			}
			for _, m := range w.Properties.Metrics {
				if len(m) < 4 || len(m)%2 != 0 {
					c.wrong(d, "dashboard", "widget %d: %v is no namespace and metric with dimensions in pairs", i, m)
				} else if m[0] == "weir" && !slices.Contains(written, fmt.Sprint(m[1])) {
					c.wrong(d, "dashboard", "widget %d: nobody writes %v", i, m[1])
				}
			}
		}
	}
}

// refuses is where a resolver makes an error of what the function answers.
var refuses = regexp.MustCompile(`util\.(error|appendError)\((\w+\.)?errorMessage\b`)

// resolvers are those of AppSync.
func (c *check) resolvers() {
	seen := map[string]string{}
	for _, r := range c.Of("AWS::AppSync::Resolver") {
		p := r.Properties
		field := str(p["TypeName"]) + "." + str(p["FieldName"])
		if seen[field] != "" {
			c.wrong(r, "resolver", "%s resolves the same field", seen[field])
		}
		seen[field] = r.ID
		if (p["Code"] == nil) == (p["CodeS3Location"] == nil) || at(p, "Runtime", "Name") != "APPSYNC_JS" {
			c.wrong(r, "resolver", "it has no code of APPSYNC_JS")
		}
		if code := str(p["Code"]); code != "" && (!strings.Contains(code, "export function request") || !strings.Contains(code, "export function response") || !refuses.MatchString(code)) {
			c.wrong(r, "resolver", "its code does not turn refusals into errors")
		}
		schema := slices.ContainsFunc(r.DependsOn, func(id string) bool {
			return c.Resources[id] != nil && c.Resources[id].Type == "AWS::AppSync::GraphQLSchema"
		})
		if !schema {
			c.wrong(r, "resolver", "it may be made before the schema")
		}
		if s := c.Resources[refersTo(p["DataSourceName"])]; s == nil || s.Type != "AWS::AppSync::DataSource" {
			c.wrong(r, "resolver", "its data source is not one of the template")
		}
	}
}

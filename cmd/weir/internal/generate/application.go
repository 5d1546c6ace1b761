package generate

import (
	"slices"
	"strings"

	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/policy"
)

// table adds the table that holds every counter.
func (b *builder) table() string {
	s, def := b.stack, dynamostore.Definition()
	fate := "Retain"
	if b.options.LoseData {
		fate = "Delete"
	}
	return s.add(&resource{id: s.free("Limits"), kind: "AWS::DynamoDB::Table", fate: fate,
		about: []string{
			"Application: business limits, by account, plan and operation.",
			"Accuracy: exact. Delay: none. Granularity: as the policy says. One item for each caller.",
		},
		props: object{
			{"BillingMode", def.BillingMode},
			{"AttributeDefinitions", []any{object{{"AttributeName", def.Key}, {"AttributeType", def.KeyType}}}},
			{"KeySchema", []any{object{{"AttributeName", def.Key}, {"KeyType", "HASH"}}}},
			{"TimeToLiveSpecification", object{{"AttributeName", def.Expiry}, {"Enabled", true}}},
			{"DeletionProtectionEnabled", !b.options.LoseData},
			{"SSESpecification", object{{"SSEEnabled", true}}},
		}}).id
}

// assume lets a service take a role.
func assume(service string, conditions object) object {
	statement := object{{"Effect", "Allow"}, {"Principal", object{{"Service", service}}}, {"Action", "sts:AssumeRole"}}
	if conditions != nil {
		statement = statement.with("Condition", conditions)
	}
	return object{{"Version", "2012-10-17"}, {"Statement", []any{statement}}}
}

func rolePolicy(name string, statements ...any) []any {
	return []any{object{{"PolicyName", name}, {"PolicyDocument", object{{"Version", "2012-10-17"}, {"Statement", statements}}}}}
}

func allow(actions []string, on any) object {
	return object{{"Effect", "Allow"}, {"Action", texts(actions)}, {"Resource", on}}
}

// function adds the function with its role and its log.
func (b *builder) function(table string) string {
	s := b.stack
	bucket := s.parameter(parameter{name: "CodeBucket", kind: "String", about: "Bucket with the function's zip"})
	key := s.parameter(parameter{name: "CodeKey", kind: "String", about: "Key of the zip; a new version needs a new key"})
	architecture := s.parameter(parameter{name: "Architecture", kind: "String", value: "arm64", allowed: []any{"arm64", "x86_64"}, about: "What the function is built for; arm64 is the cheaper one"})
	log := s.add(&resource{id: s.free("Logs"), kind: "AWS::Logs::LogGroup", fate: "Delete", props: object{{"RetentionInDays", int64(30)}}})
	role := s.add(&resource{id: s.free("Role"), kind: "AWS::IAM::Role",
		about: []string{"What a decision does, on that one table, and no more."},
		props: object{
			{"AssumeRolePolicyDocument", assume("lambda.amazonaws.com", nil)},
			{"Policies", rolePolicy("limits",
				allow(dynamostore.Definition().Actions, attr{table, "Arn"}),
				allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, attr{log.id, "Arn"}))},
		}})
	variables := object{{"BUCKET_TABLE", ref(table)}}
	for _, v := range b.options.Environment {
		name := camel(strings.ToLower(v.Name))
		variables = variables.with(v.Name, s.parameter(parameter{name: name, kind: "String", value: v.Value, about: "The function's " + v.Name, variable: v.Name}))
	}
	variables = variables.with("WEIR_LOG_KEY", s.parameter(parameter{name: "LogKey", kind: "String", value: "", secret: true,
		about: "The secret under which callers are hashed in logs; random for each process without one"}))
	if j := b.policy.Auth().JWT; j != nil && j.SecretEnv != "" {
		variables = variables.with(j.SecretEnv, s.parameter(parameter{name: "JwtSecret", kind: "String", secret: true, about: "The secret under which tokens are signed, of 32 bytes or more"}))
	}
	f := s.add(&resource{id: s.free("Function"), kind: "AWS::Lambda::Function", props: object{
		{"Runtime", "provided.al2023"}, {"Handler", "bootstrap"}, {"Architectures", []any{architecture}}, {"MemorySize", int64(256)}, {"Timeout", int64(10)},
		{"Role", attr{role.id, "Arn"}}, {"Code", object{{"S3Bucket", bucket}, {"S3Key", key}}},
		{"LoggingConfig", object{{"LogGroup", ref(log.id)}, {"LogFormat", "JSON"}}},
		{"Environment", object{{"Variables", variables}}},
	}})
	if len(b.everyone) > 0 {
		s.parameter(parameter{name: "ReservedConcurrency", kind: "Number", value: int64(0), off: int64(0),
			about: "Calls that may run at once, exempt ones among them; 0 for no bound of its own; small accounts have none to reserve"})
		f.props = f.props.with("ReservedConcurrentExecutions", when{"ReservedConcurrency", ref("ReservedConcurrency")})
	}
	return f.id
}

// metricsOf is where lambdalimit writes its metrics, by the function's name.
const metricsOf = "weir"

// watch adds the alarms and the dashboard.
func (b *builder) watch(table, function string, rules []EdgeRule) {
	s := b.stack
	s.parameter(parameter{name: "AlarmTopic", kind: "String", value: "none", off: "none", about: "ARN of the SNS topic that alarms tell"})
	service := []any{object{{"Name", "Service"}, {"Value", ref(function)}}}
	alarm := func(id, about string, props object) {
		props = append(object{{"AlarmDescription", about}}, props...)
		props = append(props, object{
			{"ComparisonOperator", "GreaterThanThreshold"}, {"TreatMissingData", "notBreaching"},
			{"AlarmActions", when{"AlarmTopic", []any{ref("AlarmTopic")}}},
		}...)
		s.add(&resource{id: s.free("Alarm", id), kind: "AWS::CloudWatch::Alarm", props: props})
	}
	single := func(namespace, metric, statistic string, dimensions []any, period, of, at int64, threshold int64) object {
		return object{{"Namespace", namespace}, {"MetricName", metric}, {"Dimensions", dimensions}, {"Statistic", statistic},
			{"Period", period}, {"EvaluationPeriods", of}, {"DatapointsToAlarm", at}, {"Threshold", threshold}}
	}
	alarm("Degraded", "The store could not be asked: limits fell back to what on_store_error says",
		single(metricsOf, "Degraded", "Sum", service, 60, 3, 2, 0))
	query := func(id, metric string) object {
		return object{{"Id", id}, {"ReturnData", false}, {"MetricStat", object{
			{"Metric", object{{"Namespace", metricsOf}, {"MetricName", metric}, {"Dimensions", service}}}, {"Period", int64(300)}, {"Stat", "Sum"}}}}
	}
	alarm("DeniedShare", "More than a fifth of the calls is refused",
		object{{"Metrics", []any{
			object{{"Id", "share"}, {"Expression", "IF(allowed + denied > 0, 100 * denied / (allowed + denied), 0)"}, {"Label", "refused, in percent"}, {"ReturnData", true}},
			query("allowed", "Allowed"), query("denied", "Denied"),
		}}, {"EvaluationPeriods", int64(3)}, {"DatapointsToAlarm", int64(3)}, {"Threshold", int64(20)}})
	alarm("ThrottledKeys", "DynamoDB throttles writes: a key is hotter than one partition can serve",
		single("AWS/DynamoDB", "WriteThrottleEvents", "Sum", []any{object{{"Name", "TableName"}, {"Value", ref(table)}}}, 60, 1, 1, 0))
	alarm("Skew", "A clock is off by more than two seconds: buckets refill too early or too late",
		single(metricsOf, "SkewMs", "Maximum", service, 300, 3, 3, 2000))
	s.add(&resource{id: s.free("Dashboard"), kind: "AWS::CloudWatch::Dashboard",
		props: object{{"DashboardBody", sub(b.dashboard(table, function, rules))}}})
	s.outputs = append(s.outputs, output{"LimitsTable", ref(table)})
}

// widget is one graph of a dashboard.
type widget struct {
	Type   string `json:"type"`
	X      int    `json:"x"`
	Y      int    `json:"y"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Graph  graph  `json:"properties"`
}

type graph struct {
	Title   string     `json:"title"`
	Region  string     `json:"region"`
	Stat    string     `json:"stat"`
	Period  int        `json:"period"`
	Metrics [][]string `json:"metrics"`
}

func (b *builder) dashboard(table, function string, rules []EdgeRule) string {
	var names []string
	for _, r := range b.policy.Rules() {
		if r.Layer != policy.Edge && r.Mode != policy.Off && !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	byLimit := func(metric string) (out [][]string) {
		for _, n := range names {
			out = append(out, []string{metricsOf, metric, "Service", "${" + function + "}", "Limit", n})
		}
		return out
	}
	var widgets []widget
	add := func(title, stat string, metrics [][]string) {
		if len(metrics) > 0 {
			n := len(widgets)
			widgets = append(widgets, widget{"metric", n % 2 * 12, n / 2 * 6, 12, 6, graph{title, "${AWS::Region}", stat, 300, metrics}})
		}
	}
	add("Allowed, by limit", "Sum", byLimit("Allowed"))
	add("Refused, by limit", "Sum", byLimit("Denied"))
	add("Decided without the store", "Sum", byLimit("Degraded"))
	add("Time at the store, in milliseconds", "p99", byLimit("StoreMs"))
	add("Writes and throttled writes", "Sum", [][]string{
		{"AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", "${" + table + "}"},
		{"AWS/DynamoDB", "WriteThrottleEvents", "TableName", "${" + table + "}"}})
	var edge [][]string
	for _, e := range rules {
		metric := "BlockedRequests"
		if e.Shadow {
			metric = "CountedRequests"
		}
		edge = append(edge, []string{"AWS/WAFV2", metric, "WebACL", b.stack.name, "Rule", e.Name, "Region", "${AWS::Region}"})
	}
	add("Refused at the edge", "Sum", edge)
	lines := make([]string, len(widgets))
	for i, w := range widgets {
		lines[i] = jsonText(w)
	}
	return "{\"widgets\":[\n" + strings.Join(lines, ",\n") + "\n]}\n"
}

// keyedOf are the routes that need a key, of those that API Gateway can have.
func keyedOf(r *policy.Rule, gaps []Gap) ([]route, []Gap) {
	if r.Patterns == nil {
		return nil, append(gaps, gapOf(r, Looser, "no usage plan; the application counts every key", "API Gateway counts a key only where a method needs one; name the routes with gateway: {match: ...}"))
	}
	trial := &place{}
	trial.at([]string{"{proxy+}"})
	var out []route
	for _, pattern := range r.Patterns {
		one := routeOf(pattern)
		one.source = r
		problem := one.possible()
		if problem == "" && !trial.takes(one) {
			problem = "API Gateway has one variable below each part of a path, and " + pattern + " wants another one there"
		}
		if problem != "" {
			gaps = append(gaps, gapOf(r, Looser, "leave this route to the application", "%s", problem))
			continue
		}
		if hosted(pattern) {
			gaps = append(gaps, gapOf(r, Stricter, "the path on every host", "a route of API Gateway has no host, and %s names one", pattern))
		}
		out = append(out, one)
	}
	return out, gaps
}

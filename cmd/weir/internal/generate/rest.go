package generate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// restAPI adds a REST API in front of the function: the only kind that usage
// plans and a web ACL can be put before.
func (b *builder) restAPI(plans []UsagePlan, function string) (api, stage string) {
	s := b.stack
	first := len(s.resources)
	b.stack.parameter(parameter{name: "StageName", kind: "String", value: "prod", about: "The stage of the API, in lower case"})
	a := s.add(&resource{id: s.free("Api"), kind: "AWS::ApiGateway::RestApi",
		about: []string{
			"Gateway: fairness between integrators, by API key.",
			"Accuracy: best effort; API Gateway may let more through. Delay: none promised. Granularity: an API key (weir",
			"counts an owner, who may have several). Paths are compared with their case: another spelling needs no key here,",
			"and is refused by the application.",
		},
		props: object{{"Name", s.name}, {"ApiKeySourceType", "HEADER"}, {"EndpointConfiguration", object{{"Types", []any{"REGIONAL"}}}}}})
	methods := b.place(a.id, function, b.root, attr{a.id, "RootResourceId"}, nil)
	var after []string
	for _, m := range methods {
		after = append(after, m.id)
	}
	if len(plans) > 0 {
		for _, r := range b.gatewayResponses(a.id, plans) {
			after = append(after, r.id)
		}
	}
	// Methods and responses are live only with a deployment after them, and a
	// deployment is made only when it has a name of its own.
	d := s.add(&resource{id: s.free("Deployment", digest(s.resources[first:])), kind: "AWS::ApiGateway::Deployment", after: after,
		about: []string{"The name holds a hash of all above: whatever changes there is deployed."},
		props: object{{"RestApiId", ref(a.id)}}})
	b.deployment = d.id
	st := s.add(&resource{id: s.free("Stage"), kind: "AWS::ApiGateway::Stage"})
	st.props = object{{"RestApiId", ref(a.id)}, {"DeploymentId", ref(d.id)}, {"StageName", ref("StageName")}, {"TracingEnabled", true}}
	if settings := b.throttles(st); len(settings) > 0 {
		st.props = st.props.with("MethodSettings", settings)
	}
	s.parameter(parameter{name: "AccessLogs", kind: "String", value: "false", allowed: []any{"true", "false"}, off: "false",
		about: "Log every call at the gateway; needs the account's CloudWatch role for API Gateway"})
	log := s.add(&resource{id: s.free("AccessLog"), kind: "AWS::Logs::LogGroup", fate: "Delete", props: object{{"RetentionInDays", int64(180)}}})
	st.props = st.props.with("AccessLogSetting", when{"AccessLogs", object{{"DestinationArn", attr{log.id, "Arn"}}, {"Format", accessLine}}})
	b.usagePlans(a.id, st.id, plans)
	s.add(&resource{id: s.free("MayInvoke"), kind: "AWS::Lambda::Permission", props: object{
		{"Action", "lambda:InvokeFunction"}, {"FunctionName", ref(function)}, {"Principal", "apigateway.amazonaws.com"},
		{"SourceArn", sub("arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${" + a.id + "}/*")},
	}})
	s.outputs = append(s.outputs, output{"Url", sub("https://${" + a.id + "}.execute-api.${AWS::Region}.${AWS::URLSuffix}/${" + st.id + "}")})
	return a.id, st.id
}

// accessLine is what `weir report --from gateway=FILE` reads.
const accessLine = `{"requestTimeEpoch":"$context.requestTimeEpoch","ip":"$context.identity.sourceIp","apiKeyId":"$context.identity.apiKeyId",` +
	`"httpMethod":"$context.httpMethod","path":"$context.path","status":"$context.status","responseType":"$context.error.responseType"}`

// place adds the methods of one place, and all below it.
func (b *builder) place(api, function string, p *place, resourceID any, path []string) (methods []*resource) {
	s := b.stack
	for _, m := range slices.Sorted(maps.Keys(p.needsKey)) {
		methods = append(methods, s.add(&resource{id: s.free(append(append([]string{"Method"}, path...), m)...), kind: "AWS::ApiGateway::Method",
			props: object{
				{"RestApiId", ref(api)}, {"ResourceId", resourceID}, {"HttpMethod", m}, {"AuthorizationType", "NONE"}, {"ApiKeyRequired", p.needsKey[m]},
				{"Integration", object{
					{"Type", "AWS_PROXY"}, {"IntegrationHttpMethod", "POST"}, {"TimeoutInMillis", int64(11_000)},
					{"Uri", sub("arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${" + function + ".Arn}/invocations")},
				}},
			}}))
	}
	for _, below := range p.below {
		at := append(slices.Clone(path), below.part)
		r := s.add(&resource{id: s.free(append([]string{"Path"}, at...)...), kind: "AWS::ApiGateway::Resource",
			props: object{{"RestApiId", ref(api)}, {"ParentId", resourceID}, {"PathPart", below.part}}})
		methods = append(methods, b.place(api, function, below, ref(r.id), at)...)
	}
	return methods
}

// gatewayResponses adds what a refused key is answered. The service has one
// answer of each kind, whatever the plan.
func (b *builder) gatewayResponses(api string, plans []UsagePlan) []*resource {
	throttled, exceeded := "Your plan's rate is used up. Try again in 1 second.", "Your plan's quota is used up."
	if len(plans) == 1 {
		if u := plans[0]; u.Rate != "" {
			throttled = fmt.Sprintf("Your plan allows %s requests per second. Try again in 1 second.", u.Rate)
		}
		if u := plans[0]; u.Quota > 0 {
			exceeded = fmt.Sprintf("Your plan allows %d requests per %s.", u.Quota, strings.ToLower(u.Period))
		}
	}
	var headers object
	if origins := b.policy.CORS(); len(origins) > 0 {
		headers = object{
			{"gatewayresponse.header.Access-Control-Allow-Origin", "'" + origins[0] + "'"},
			{"gatewayresponse.header.Access-Control-Expose-Headers", "'Retry-After'"},
			{"gatewayresponse.header.Vary", "'Origin'"},
		}
		for _, o := range origins[1:] {
			b.note("API Gateway answers one origin: pages of " + o + " cannot read its refusals, those of " + origins[0] + " can")
		}
	}
	add := func(id, kind, code, message string, headers object) *resource {
		r := b.stack.add(&resource{id: b.stack.free(id), kind: "AWS::ApiGateway::GatewayResponse", props: object{
			{"RestApiId", ref(api)}, {"ResponseType", kind}, {"StatusCode", "429"}}})
		if len(headers) > 0 {
			r.props = r.props.with("ResponseParameters", headers)
		}
		body := jsonText(struct {
			Error   string `json:"error"`
			Message string `json:"message"`
		}{code, message})
		r.props = r.props.with("ResponseTemplates", object{{"application/json", body}})
		return r
	}
	one := add("Throttled", "THROTTLED", "rate_limited", throttled, append(object{{"gatewayresponse.header.Retry-After", "'1'"}}, headers...))
	one.about = []string{"One body for all plans, and for the stage's own throttle: the service has no more."}
	two := add("QuotaExceeded", "QUOTA_EXCEEDED", "quota_exhausted", exceeded, headers)
	two.about = []string{"The service cannot say when a quota begins anew, so there is no Retry-After."}
	return []*resource{one, two}
}

// usagePlans adds the plans and the keys that the policy's file names, without
// their values: the service makes these.
func (b *builder) usagePlans(api, stage string, plans []UsagePlan) {
	s := b.stack
	ids := map[string]string{}
	for _, u := range plans {
		r := s.add(&resource{id: s.free("Plan", u.Name), kind: "AWS::ApiGateway::UsagePlan", about: []string{b.from(u.Line, u.Name)}})
		ids[u.Name] = r.id
		r.props = object{{"UsagePlanName", u.Name}, {"ApiStages", []any{object{{"ApiId", ref(api)}, {"Stage", ref(stage)}}}}}
		if u.Rate != "" {
			r.props = r.props.with("Throttle", object{{"RateLimit", decimal(u.Rate)}, {"BurstLimit", u.Burst}})
		}
		if u.Quota > 0 {
			r.props = r.props.with("Quota", object{{"Limit", u.Quota}, {"Period", u.Period}})
		}
	}
	if b.policy.Auth().APIKeys == nil || len(plans) == 0 {
		return
	}
	for _, k := range b.policy.Auth().APIKeys.All() {
		plan := ids[k.Plan]
		if plan == "" {
			continue
		}
		key := s.add(&resource{id: s.free("Key", k.Owner), kind: "AWS::ApiGateway::ApiKey",
			about: []string{"Its value is not here: aws apigateway get-api-key --include-value --api-key ID, and put its SHA-256 into the policy's file of keys."},
			props: object{{"Name", k.Owner}, {"Enabled", true}}})
		s.add(&resource{id: s.free("Key", k.Owner, "Plan"), kind: "AWS::ApiGateway::UsagePlanKey",
			props: object{{"KeyId", ref(key.id)}, {"KeyType", "API_KEY"}, {"UsagePlanId", ref(plan)}}})
	}
}

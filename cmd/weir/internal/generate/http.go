package generate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// httpAPI adds an HTTP API in front of the function: a route for every pattern
// that the policy names, and none else. A route that asks for a token lets no
// anonymous caller through, so that those need routes of their own.
func (b *builder) httpAPI(function string) {
	s := b.stack
	api := s.add(&resource{id: s.free("Api"), kind: "AWS::ApiGatewayV2::Api",
		about: []string{"An HTTP API has no web ACL and no usage plans: all limits are the function's."},
		props: object{{"Name", s.name}, {"ProtocolType", "HTTP"}}}).id
	stage := s.add(&resource{id: s.free("Stage"), kind: "AWS::ApiGatewayV2::Stage",
		props: object{{"ApiId", ref(api)}, {"StageName", "$default"}, {"AutoDeploy", true}}})
	target := s.add(&resource{id: s.free("Integration"), kind: "AWS::ApiGatewayV2::Integration", props: object{
		{"ApiId", ref(api)}, {"IntegrationType", "AWS_PROXY"}, {"IntegrationUri", attr{function, "Arn"}},
		{"PayloadFormatVersion", "2.0"}, {"TimeoutInMillis", int64(11_000)}}}).id
	authorizer := ""
	if tokens(b.policy) {
		issuer := s.parameter(parameter{name: "JwtIssuer", kind: "String", about: "Issuer of the tokens, https://..."})
		audience := s.parameter(parameter{name: "JwtAudience", kind: "String", value: s.name, about: "Audience of the tokens"})
		authorizer = s.add(&resource{id: s.free("Authorizer"), kind: "AWS::ApiGatewayV2::Authorizer", props: object{
			{"ApiId", ref(api)}, {"Name", "token"}, {"AuthorizerType", "JWT"}, {"IdentitySource", []any{"$request.header.Authorization"}},
			{"JwtConfiguration", object{{"Issuer", issuer}, {"Audience", []any{audience}}}}}}).id
		b.note("a route with a token answers anonymous callers 401, also where the policy limits them by address; --open 'POST /PATH' leaves a route open")
	}
	made := map[string]string{}
	for _, key := range b.routeKeys() {
		r := &resource{id: s.free("Route", key.text), kind: "AWS::ApiGatewayV2::Route",
			props: object{{"ApiId", ref(api)}, {"RouteKey", key.text}, {"Target", sub("integrations/${" + target + "}")}}}
		if key.source != nil {
			r.about = []string{b.from(key.source.Line, key.source.Name)}
		}
		if authorizer != "" && !key.open {
			r.props = r.props.with("AuthorizationType", "JWT").with("AuthorizerId", ref(authorizer))
		}
		made[key.text] = s.add(r).id
	}
	if settings, after := b.routeThrottles(stage, made); len(settings) > 0 {
		stage.after = after // a stage may only have settings for routes that exist
		stage.props = stage.props.with("RouteSettings", settings)
	}
	s.add(&resource{id: s.free("MayInvoke"), kind: "AWS::Lambda::Permission", props: object{
		{"Action", "lambda:InvokeFunction"}, {"FunctionName", ref(function)}, {"Principal", "apigateway.amazonaws.com"},
		{"SourceArn", sub("arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${" + api + "}/*")}}})
	s.outputs = append(s.outputs, output{"Url", attr{api, "ApiEndpoint"}})
}

// routeKey is a route of an HTTP API.
type routeKey struct {
	text   string
	open   bool // asks for no token
	source *policy.Rule
}

// routeKeys are the routes that the policy names, in its order: those of its
// limits, those of Options.Open, and what is exempt, which brings no token.
func (b *builder) routeKeys() []routeKey {
	var open []route
	for _, pattern := range b.options.Open {
		open = append(open, routeOf(pattern))
	}
	var out []routeKey
	add := func(r route, isOpen bool) {
		for _, text := range keysOf(r) {
			if !slices.ContainsFunc(out, func(k routeKey) bool { return unnamed(k.text) == unnamed(text) }) {
				out = append(out, routeKey{text, isOpen, r.source})
			}
		}
	}
	for _, r := range b.policy.Rules() {
		if r.Layer != policy.Application || r.Mode == policy.Off {
			continue
		}
		patterns := r.Patterns
		if patterns == nil {
			patterns = []string{"/"}
		}
		for _, pattern := range patterns {
			one := routeOf(pattern)
			one.source = r
			add(one, slices.ContainsFunc(open, func(o route) bool {
				return o.method == one.method && slices.Equal(o.parts, one.parts) && o.rest == one.rest
			}))
		}
	}
	for _, o := range open {
		add(o, true)
	}
	for _, x := range b.exempt {
		add(x.route, true)
		for _, e := range b.everyone { // a route of the same method comes before one of any
			if e.method != "ANY" && e.meets(x.route) {
				add(route{method: e.method, parts: x.parts, rest: x.rest}, true)
			}
		}
	}
	return out
}

// keysOf writes a route as an HTTP API's route keys.
func keysOf(r route) []string {
	var out []string
	for _, m := range r.methods() {
		for _, parts := range r.paths() {
			if key := keyOf(r, m, parts); !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// variable is a part of a route key that stands for anything.
var variable = regexp.MustCompile(`\{[^}+]*`)

// unnamed is a route key without the names of its variables: two routes that differ
// in these alone are one.
func unnamed(key string) string { return variable.ReplaceAllString(key, "{") }

// keyOf is the route key of one of a route's paths and methods.
func keyOf(r route, method string, parts []string) string {
	if len(r.parts) == 0 && r.rest != "" && r.method == "ANY" {
		return "$default"
	}
	return method + " /" + strings.Join(parts, "/")
}

// tokens reports whether anything in the application is known by a token.
func tokens(p *policy.Policy) bool {
	var known []string
	for _, c := range p.CallerSources() {
		if strings.HasPrefix(c.From, "jwt.") {
			known = append(known, c.Name)
		}
	}
	for _, r := range p.Rules() {
		if r.Layer != policy.Application || r.Mode == policy.Off {
			continue
		}
		for _, word := range strings.FieldsFunc(r.By, func(c rune) bool { return c == ',' || c == '+' || c == ' ' }) {
			if slices.Contains(known, word) {
				return true
			}
		}
	}
	return false
}

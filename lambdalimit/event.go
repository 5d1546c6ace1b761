package lambdalimit

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlabs/weir/policy"
)

// shape is the form of an event, and so that of its answer.
type shape uint8

const (
	unknownShape  shape = iota
	httpV2              // HTTP API with payload 2.0, function URL
	httpV1              // REST API, HTTP API with payload 1.0
	balancer            // ALB with single headers
	balancerMulti       // ALB with multi-value headers
	appSync             // direct resolver
	authorizerV1        // of a REST API, or of an HTTP API with payload 1.0
	authorizerV2        // of an HTTP API with payload 2.0
	authorizerAppSync
)

func (s shape) isHTTP() bool { return s >= httpV2 && s <= balancerMulti }

func (s shape) isAuthorizer() bool { return s >= authorizerV1 }

// event is all that is read of any event. What the handler gets is the payload
// itself, so nothing is lost that stands in no field here.
type event struct {
	Version        string   `json:"version"`
	RawPath        string   `json:"rawPath"`
	RawQueryString string   `json:"rawQueryString"`
	Cookies        []string `json:"cookies"`

	HTTPMethod                      string              `json:"httpMethod"`
	Path                            string              `json:"path"`
	Headers                         map[string]string   `json:"headers"`
	MultiValueHeaders               map[string][]string `json:"multiValueHeaders"`
	QueryStringParameters           map[string]string   `json:"queryStringParameters"`
	MultiValueQueryStringParameters map[string][]string `json:"multiValueQueryStringParameters"`
	Body                            any                 `json:"body"`
	IsBase64Encoded                 bool                `json:"isBase64Encoded"`

	RequestContext requestContext `json:"requestContext"`

	// AppSync
	Info struct {
		FieldName      string `json:"fieldName"`
		ParentTypeName string `json:"parentTypeName"`
	} `json:"info"`
	Identity map[string]any `json:"identity"`
	Request  struct {
		Headers    map[string]string `json:"headers"`
		DomainName string            `json:"domainName"`
	} `json:"request"`

	// authorizers
	Type               string  `json:"type"`
	MethodARN          string  `json:"methodArn"`
	RouteARN           string  `json:"routeArn"`
	AuthorizationToken *string `json:"authorizationToken"`

	// RequestHeaders are those of an AppSync authorizer.
	RequestHeaders map[string]string `json:"requestHeaders"`

	shape   shape
	payload []byte
}

type requestContext struct {
	ELB          *struct{} `json:"elb"`
	DomainName   string    `json:"domainName"`
	Stage        string    `json:"stage"`
	APIID        string    `json:"apiId"`
	ConnectionID string    `json:"connectionId"`
	QueryString  *string   `json:"queryString"` // the query of an AppSync authorizer
	HTTP         *struct {
		Method   string `json:"method"`
		SourceIP string `json:"sourceIp"`
	} `json:"http"`
	Identity   *restIdentity  `json:"identity"`
	Authorizer map[string]any `json:"authorizer"`
}

type restIdentity struct {
	SourceIP    string `json:"sourceIp"`
	APIKeyID    string `json:"apiKeyId"`
	CognitoID   string `json:"cognitoIdentityId"`
	CognitoType string `json:"cognitoAuthenticationType"`
	User        string `json:"user"`
	Caller      string `json:"caller"`
	UserARN     string `json:"userArn"`
	AccountID   string `json:"accountId"`
}

// An UnknownEvent is an event that no adapter of this package reads, so that
// nothing of it can be limited. It is the answer to the event unless
// [Options.PassUnknown] is set.
type UnknownEvent struct {
	Reason string // what is wrong with it
}

func (e *UnknownEvent) Error() string {
	return "lambdalimit: this event cannot be limited: " + e.Reason +
		"; connect the function to a REST or HTTP API, a function URL, a load balancer or AppSync, or set Options.PassUnknown to serve other events without limits"
}

// read decodes an event and finds its shape.
func read(payload []byte) (*event, error) {
	e := &event{payload: payload}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(e); err != nil {
		return nil, &UnknownEvent{"it has not the form of any: " + err.Error()}
	}
	if e.shape = e.findShape(); e.shape == unknownShape {
		return nil, &UnknownEvent{e.whatItIs()}
	}
	return e, nil
}

func (e *event) findShape() shape {
	rc := &e.RequestContext
	switch {
	case rc.ConnectionID != "" && rc.HTTP == nil && rc.ELB == nil:
		return unknownShape
	case e.Type == "TOKEN" && e.MethodARN != "", e.Type == "REQUEST" && e.MethodARN != "":
		return authorizerV1
	case e.Type == "REQUEST" && e.RouteARN != "" && e.Version == "2.0" && rc.HTTP != nil:
		return authorizerV2
	case e.AuthorizationToken != nil && rc.APIID != "" && rc.QueryString != nil && e.Type == "":
		return authorizerAppSync
	case rc.ELB != nil && e.HTTPMethod != "":
		if e.MultiValueHeaders != nil {
			return balancerMulti
		}
		return balancer
	case e.Version == "2.0" && rc.HTTP != nil && rc.HTTP.Method != "":
		return httpV2
	case rc.Identity != nil && e.HTTPMethod != "" && (e.Version == "" || e.Version == "1.0"):
		return httpV1
	case e.Info.FieldName != "" && e.Info.ParentTypeName != "":
		return appSync
	}
	return unknownShape
}

func (e *event) whatItIs() string {
	switch {
	case e.RequestContext.ConnectionID != "":
		return "it is of a WebSocket API, whose messages have no path and whose connections no method"
	case e.Version != "" && e.Version != "1.0" && e.Version != "2.0":
		return "its payload version " + strconv.Quote(e.Version) + " is not known"
	case e.Info.FieldName != "":
		return "it names a field but not its parent type: pass the whole context of the resolver"
	}
	return "it is of none of the kinds that are known"
}

// attributes is what a policy sees of the event.
func (e *event) attributes(o *Options) policy.Attributes {
	switch e.shape {
	case httpV2, authorizerV2:
		return e.attributesV2()
	case appSync:
		return e.attributesAppSync()
	case authorizerAppSync:
		a := policy.Attributes{Method: http.MethodPost, Path: "/graphql", Header: header(e.RequestHeaders, nil)}
		if host := a.Header["Host"]; len(host) > 0 {
			a.Host = host[0]
		}
		return a
	case balancer, balancerMulti:
		return e.attributesBalancer(o.TrustForwardedFor)
	}
	return e.attributesV1()
}

func (e *event) attributesV2() policy.Attributes {
	rc := &e.RequestContext
	a := policy.Attributes{
		Method: strings.ToUpper(rc.HTTP.Method), Host: rc.DomainName,
		Path: escaped(withoutStage(e.RawPath, rc.Stage)), RawQuery: e.RawQueryString,
		Header: header(e.Headers, nil), Peer: address(rc.HTTP.SourceIP),
	}
	if len(e.Cookies) > 0 {
		a.Header["Cookie"] = []string{strings.Join(e.Cookies, "; ")}
	}
	return a
}

func (e *event) attributesV1() policy.Attributes {
	rc := &e.RequestContext
	a := policy.Attributes{
		Method: strings.ToUpper(e.HTTPMethod), Host: rc.DomainName, Path: e.Path,
		Header: header(e.Headers, e.MultiValueHeaders),
	}
	if rc.Identity != nil {
		a.Peer = address(rc.Identity.SourceIP)
	}
	if e.Version == "1.0" { // only HTTP APIs say a version, and only they leave the stage in the path
		a.Path = withoutStage(a.Path, rc.Stage)
	}
	if e.HTTPMethod == "" { // TOKEN: arn:aws:execute-api:REGION:ACCOUNT:API/STAGE/METHOD/PATH
		if parts := strings.SplitN(e.MethodARN, "/", 4); len(parts) >= 3 {
			a.Method = strings.ToUpper(parts[2])
			a.Path = "/" + strings.Join(parts[3:], "/")
		}
	}
	a.Path = escaped(a.Path)
	if a.Host == "" && len(a.Header["Host"]) > 0 {
		a.Host = a.Header["Host"][0]
	}
	query := url.Values{} // decoded by the gateway
	for name, value := range e.QueryStringParameters {
		query.Set(name, value)
	}
	for name, values := range e.MultiValueQueryStringParameters {
		query[name] = values
	}
	a.RawQuery = query.Encode()
	return a
}

// attributesBalancer reads what an ALB passes on as it came, the query too. The
// only address is that of the peer, which the balancer appends to
// X-Forwarded-For; whoever else reaches the function could write it, so that it
// is believed only where the operator says so. What stands before it is for the
// policy's trusted_proxies.
func (e *event) attributesBalancer(trust bool) policy.Attributes {
	a := policy.Attributes{
		Method: strings.ToUpper(e.HTTPMethod), Path: escaped(e.Path), Header: header(e.Headers, e.MultiValueHeaders),
	}
	if host := a.Header["Host"]; len(host) > 0 {
		a.Host = host[0]
	}
	query := map[string][]string{}
	for name, value := range e.QueryStringParameters {
		query[name] = []string{value}
	}
	for name, values := range e.MultiValueQueryStringParameters {
		query[name] = values
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			pairs = append(pairs, name+"="+value)
		}
	}
	a.RawQuery = strings.Join(pairs, "&")
	if trust {
		hops := strings.Split(strings.Join(a.Header["X-Forwarded-For"], ","), ",")
		a.Peer = peerOf(&a, hops)
	}
	return a
}

// attributesAppSync names a field as a path. AppSync lists in sourceIp the
// addresses of X-Forwarded-For, which the client can begin, and last the peer.
func (e *event) attributesAppSync() policy.Attributes {
	a := policy.Attributes{
		Method: http.MethodPost, Host: e.Request.DomainName,
		Path:   "/" + url.PathEscape(e.Info.ParentTypeName) + "/" + url.PathEscape(e.Info.FieldName),
		Header: header(e.Request.Headers, nil),
	}
	switch ip := e.Identity["sourceIp"].(type) {
	case string:
		a.Peer = peerOf(&a, []string{ip})
	case []any:
		var hops []string
		for _, one := range ip {
			text, _ := one.(string)
			hops = append(hops, text)
		}
		a.Peer = peerOf(&a, hops)
	default:
		delete(a.Header, "X-Forwarded-For")
	}
	return a
}

// peerOf takes the last hop for the peer, and leaves the others in
// X-Forwarded-For.
func peerOf(a *policy.Attributes, hops []string) netip.Addr {
	delete(a.Header, "X-Forwarded-For")
	if len(hops) == 0 {
		return netip.Addr{}
	}
	last := len(hops) - 1
	if last > 0 {
		a.Header["X-Forwarded-For"] = []string{strings.Join(hops[:last], ", ")}
	}
	return address(hops[last])
}

// address reads an address, which may have a port or brackets. What cannot be
// read is no address.
func address(s string) netip.Addr {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.Addr()
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		a, _ := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return a
	}
	return netip.Addr{}
}

// withoutStage takes off the stage that HTTP APIs leave in front of a path.
func withoutStage(path, stage string) string {
	if stage == "" || stage == "$default" {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+stage)
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return path
	case rest == "":
		return "/"
	}
	return rest
}

// escaped makes a path of one that the gateway may have decoded: a byte that no
// path may hold is escaped, and so is a % that begins no escape.
func escaped(path string) string {
	if path == "" {
		return "/"
	}
	const digits = "0123456789ABCDEF"
	var b []byte
	for i := range len(path) {
		c := path[i]
		bad := c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '%' && !(i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]))
		switch {
		case bad && b == nil:
			b = append(make([]byte, 0, len(path)+8), path[:i]...)
			fallthrough
		case bad:
			b = append(b, '%', digits[c>>4], digits[c&15])
		case b != nil:
			b = append(b, c)
		}
	}
	if b == nil {
		return path
	}
	return string(b)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// header makes net/http's form of the two maps in which events carry fields. A
// name that is in both is that of the multi-value map.
func header(single map[string]string, multi map[string][]string) map[string][]string {
	h := make(map[string][]string, max(len(single), len(multi)))
	for _, name := range slices.Sorted(maps.Keys(multi)) {
		key := http.CanonicalHeaderKey(name)
		h[key] = append(h[key], multi[name]...)
	}
	fromMulti := len(h) > 0
	for _, name := range slices.Sorted(maps.Keys(single)) {
		key := http.CanonicalHeaderKey(name)
		if _, there := h[key]; there && fromMulti {
			continue
		}
		h[key] = append(h[key], single[name])
	}
	return h
}

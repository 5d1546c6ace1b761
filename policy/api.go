package policy

import (
	"net/netip"

	"github.com/weirlabs/weir"
)

// Attributes is what an edge knows of one request: the only form in which a
// policy sees HTTP, gRPC or Lambda. Header names are in canonical MIME form.
type Attributes struct {
	Method   string // upper case
	Host     string // as received
	Path     string // as received: still escaped, without the query
	RawQuery string // as received
	Header   map[string][]string
	Peer     netip.Addr // the socket's peer, or the address that a gateway vouches for
}

// Identity is who is calling, from verified sources only.
type Identity struct {
	Claims   map[string]any // of a verified token; nil without one
	KeyOwner string         // owner of a verified API key; "" without one
	KeyPlan  string         // the gateway plan of that key; "" for none
}

// Layer is where a limit is enforced.
type Layer string

// The layers, from the outside in.
const (
	Edge        Layer = "edge"
	Gateway     Layer = "gateway"
	Application Layer = "application"
)

// Rule is one limit of the policy as it speaks to people and to logs: all that
// is known of it before a request. Rules are shared and never changed.
type Rule struct {
	Layer     Layer
	Name      string // the limit's name, which is also its counter's
	Operation string // of a plan; "" for other limits
	Plan      string // the plan whose limit this is; "" for other limits
	Limit     weir.Limit
	OnSuccess bool // counts only calls that succeed: count: on_success
	Success   StatusRange
	Headers   []HeaderStyle
	Denied    Denied
}

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ From, To int }

// Holds reports whether a status lies in the range.
func (r StatusRange) Holds(status int) bool { return r.From <= status && status <= r.To }

// HeaderStyle names a way to write a decision into response headers.
type HeaderStyle string

// The header styles; see the contract for what each writes.
const (
	StyleIETF   HeaderStyle = "ietf"
	StyleDraft6 HeaderStyle = "draft6"
	StyleX      HeaderStyle = "x"
	StyleGitHub HeaderStyle = "github"
	StyleOpenAI HeaderStyle = "openai"
	StyleNone   HeaderStyle = "none"
)

// Op is one limit to be taken for one request.
type Op struct {
	weir.Op
	Rule *Rule
}

// Match is what the policy makes of a request before anybody is identified.
// It holds no reference to the request.
type Match struct {
	Exempt         string // the exemption's name; then nothing else is set
	Client         netip.Addr
	Edge           []Op // taken first, from this process's memory
	NeedsIdentity  bool // a gateway limit, a limit or an operation applies
	NeedsKey       bool // a gateway route: without an API key the answer is 401

	app matched // what Ops needs; private to this package
}

// A RequestError is a request that weir answers itself, before any limit.
type RequestError struct {
	Status int    // 400, 401, 403 or 405
	Code   string // for machines: "bad_request", "unauthorized", ...
	Reason string // for people; safe to show to the client
}

func (e *RequestError) Error() string { return e.Code + ": " + e.Reason }

// The package's entry points, implemented beside this file:
//
//	func Load(fsys fs.FS, name string, o Options) (*Policy, error)
//	    Reads, checks and compiles; error is Problems, all mistakes at once. FS serves the
//	    policy itself and the files it names (API keys, public key).
//	func FromLimit(limit, by string) (*Policy, []byte, error)
//	    The policy of `weir proxy --limit L --by C` and its equivalent YAML.
//	func (p *Policy) Match(a *Attributes) (Match, error)
//	    error is *RequestError. Pure, concurrent, no store call.
//	func (p *Policy) Ops(m *Match, a *Attributes, id Identity) ([]Op, error)
//	    Gateway and application ops in one list. error is *RequestError.
//	func (p *Policy) Limits() []weir.Limit       // every limit that may share an item in the store
//	func (p *Policy) Rules() []*Rule
//	func (p *Policy) Auth() Auth                 // jwt and api key settings; keys of the file are loaded
//	func (p *Policy) Name() string, Revision() uint64, Store() string, LogKeys() string, CORS() []string, Replicas are options of the engine
//	func (p *Policy) UsageOps(a *Attributes, client netip.Addr, id Identity) ([]Op, error) // every limit that a caller of this identity has, for /.weir/usage
//	func (p *Policy) Warnings() []Problem

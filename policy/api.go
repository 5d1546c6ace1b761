package policy

import (
	"net/netip"

	"github.com/weirlabs/weir"
)

// Attributes is what an edge knows of one request: the only form in which a
// policy sees HTTP, gRPC or Lambda. Header names are in canonical MIME form.
type Attributes struct {
	Method   string // in any case; whoever identifies is given it in upper case
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

	// Accounts are what records say of those who this request is from, at most
	// one for each kind of caller; see [Policy.AppendCallers].
	Accounts []*Account
	// Now is the instant, in Unix nanoseconds, that decides which version of a
	// plan a new account has; 0 is the machine's.
	Now int64

	// entitled are plans in place of what from: makes of the rest; see
	// [Policy.IdentityOf].
	entitled []string
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
	Version   int    // of the plan, from 1; 0 for a plan without versions, and for other limits
	Limit     weir.Limit
	OnSuccess bool // counts only calls that succeed: count: on_success
	Success   StatusRange
	Headers   []HeaderStyle
	Denied    Denied
	Anonymous bool   // the limit of callers known by their address only: anonymous:
	By        string // who shares a counter, as the file says it: "account", "account+path.event"

	// What follows is what the file says of the rule, for whoever shows policies,
	// compares them or writes them in other forms.

	Line         int            // of the file, where the limit stands, from 1
	Patterns     []string       // of match:, or of path: at the edge; nil for every request
	ExactCase    bool           // literals of Patterns compare with their case
	Priority     int            // of an edge rule, lower ones first; -1 without one, and elsewhere
	ExceptIPs    []netip.Prefix // for which an edge rule does not hold
	Mode         Mode
	Cost         string           // units a call: "1", "header.X-Units" or an expression
	When         string           // the condition under which the rule holds; "" for none
	OnError      string           // what happens when an expression fails: "apply", "skip" or "deny"
	OnStoreError weir.FailureMode // FailAllow, FailDeny or FailLocal

	// Share says, with FailLocal, which part of Limit one process enforces while
	// the store does not answer: 1/Share, see [Divided]. 0 stands for an equal
	// part for each process.
	Share int

	Terms

	billing bool // Limit's windows begin with the account's anchor
	place   int
}

// Place is the rule's index in [Policy.Rules]. It tells apart the rules of one
// policy, not of two.
func (r *Rule) Place() int { return r.place }

// CallerSource is one entry of `callers:`.
type CallerSource struct {
	Name string // in `by:`, and the kind in keys
	From string // "jwt.CLAIM", "api_key.owner" or "client_ip"
}

// Mode says whether a rule acts.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // counts and logs, and never refuses
	Off     Mode = "off"    // no request meets it
)

// Exemption names paths that no layer limits.
type Exemption struct {
	Name    string
	Paths   []string // in the form of path:
	Because string   // the reason that the file gives, or ""
	Line    int      // of the file, from 1
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

	Overridden bool // Limit is the caller's own, in place of the rule's
	FromRecord bool // without the caller's record the limit is a guess: see [Policy.AppendCallers]

	rank uint8 // of equally narrow keys, a higher one is asked later
}

// Match is what the policy makes of a request before anybody is identified.
// It holds no reference to the request.
type Match struct {
	Exempt        string // the exemption's name; then no limit applies
	Client        netip.Addr
	NeedsIdentity bool // a gateway limit, a limit or an operation applies
	NeedsKey      bool // a gateway route: without an API key the answer is 401

	found matched
}

// A RequestError is a request that weir answers itself, before any limit.
type RequestError struct {
	Status int    // 400, 401, 403 or 405
	Code   string // for machines: "bad_request", "unauthorized", ...
	Reason string // for people, whole sentences; safe to show to the client; "" for none
}

func (e *RequestError) Error() string {
	if e.Reason == "" {
		return e.Code
	}
	return e.Code + ": " + e.Reason
}

package lambdalimit

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// call is one event on its way through the policy.
type call struct {
	m          *middleware
	ctx        context.Context // what the handler is given: after decide the decision is in it
	event      *event
	attributes policy.Attributes
	cold       bool

	// whoCalls is asked once at most, where a limit applies.
	whoCalls func(ctx context.Context) (policy.Identity, error)
	asked    bool
	broken   error // the event and the policy do not fit together

	outcome engine.Outcome
	storeNS atomic.Int64         // what trips to the store took
	skew    func() time.Duration // how far the clock of a store that tells is ahead; nil without
	mu      sync.Mutex           // held while the outcome is settled
}

type callKey struct{}

func (m *middleware) begin(ctx context.Context, e *event) *call {
	c := &call{m: m, event: e, cold: !m.called.Swap(true)}
	c.attributes = e.attributes(&m.o)
	c.whoCalls = func(context.Context) (policy.Identity, error) { return e.identity(m.listClaims()), nil }
	c.ctx = context.WithValue(ctx, callKey{}, c)
	return c
}

func (m *middleware) listClaims() []string { return m.o.listClaims(m.engine.Policy()) }

// listClaims are the claims that may hold a list as "a,b".
func (o *Options) listClaims(p *policy.Policy) []string {
	lists := append([]string{"cognito:groups"}, o.ListClaims...)
	if plans := p.PlansClaim(); plans != "" {
		lists = append(lists, plans)
	}
	return lists
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// decide asks the policy. An error is no refusal: the function must be mended.
func (c *call) decide() error {
	if !c.attributes.Peer.IsValid() {
		if err := c.edgeWithoutAddress(); err != nil {
			return err
		}
	}
	c.m.engine.Decide(c.ctx, &c.attributes, &c.outcome)
	if c.broken == nil && !c.asked && c.beyondEdge() {
		c.broken = errNotWired
	}
	if c.broken != nil {
		return c.broken
	}
	c.m.lines.write(c)
	if d, ok := c.outcome.Decision(); ok {
		c.ctx = weir.NewContext(c.ctx, d)
	}
	return nil
}

func (c *call) beyondEdge() bool {
	for i := range c.outcome.Verdicts {
		if c.outcome.Verdicts[i].Rule.Layer != policy.Edge {
			return true
		}
	}
	return false
}

// who answers the engine. own is asked for callers whom the event does not know.
func (c *call) who(ctx context.Context, a *policy.Attributes, own identify) (policy.Identity, error) {
	c.asked = true
	id, err := c.whoCalls(ctx)
	if err == nil && own != nil && id.Claims == nil && id.KeyOwner == "" {
		id, err = own(ctx, a)
	}
	if err == nil && !a.Peer.IsValid() {
		if c.broken = c.withoutAddress(id); c.broken != nil {
			// The engine must not ask the store; what it would answer is not shown.
			err = &policy.RequestError{Status: http.StatusServiceUnavailable, Code: "no_caller", Reason: "It cannot be told who calls."}
		}
	}
	return id, err
}

// A NoCaller is an event of which the caller cannot be told from any other, under
// a limit that counts callers. One counter for all of them would be wrong, and so
// would be none.
type NoCaller struct {
	Limit string // the limit's name
}

func (e *NoCaller) Error() string {
	return "lambdalimit: limit " + e.Limit + " counts by a caller that this event does not have, and by address where there is none; " +
		"count by: everyone or by an api_key.owner, use an authorizer that names the caller, or behind a load balancer set Options.TrustForwardedFor"
}

// nobody is the text of the key that all callers without an address would share.
const nobody = "ip#unknown"

func (c *call) edgeWithoutAddress() error {
	p := c.m.engine.Policy()
	m, err := p.Match(&c.attributes)
	if err != nil {
		return nil // the engine answers that
	}
	return shared(p.AppendEdge(nil, &m, &c.attributes))
}

func (c *call) withoutAddress(id policy.Identity) error {
	p := c.m.engine.Policy()
	m, err := p.Match(&c.attributes)
	if err != nil {
		return nil
	}
	ops, err := p.Ops(&m, &c.attributes, id)
	if err != nil {
		return nil
	}
	return shared(ops)
}

func shared(ops []policy.Op) error {
	for i := range ops {
		if key := ops[i].Key.String(); key == nobody || strings.HasPrefix(key, nobody+"|") {
			return &NoCaller{Limit: ops[i].Rule.Name}
		}
	}
	return nil
}

// The margin before the end of a call in which what it took is given back while
// there is still time to ask the store.
const (
	maxMargin   = 500 * time.Millisecond
	marginShare = 10 // of what is left
)

// guard watches over what the program does with a call: the func that it returns
// must be deferred. It settles a call when there is a panic, which goes on, or
// when the function is about to time out. From here on the outcome belongs to
// whoever holds the call's lock, until it is settled. Nothing is left of a guard
// when the func has returned.
func (c *call) guard() func() {
	if !c.outcome.MustSettle() {
		return func() {}
	}
	stop := func() bool { return true }
	if end, ok := c.ctx.Deadline(); ok {
		left := time.Until(end)
		stop = time.AfterFunc(left-min(maxMargin, left/marginShare), func() { c.settle(http.StatusGatewayTimeout) }).Stop
	}
	return func() {
		stop()
		if r := recover(); r != nil {
			c.settle(http.StatusInternalServerError)
			panic(r)
		}
	}
}

// settle says how the call ended; only the first word counts. It waits for a
// settlement that is under way, so that none is left when the function returns.
func (c *call) settle(status int) { c.settleBy(status, nil) }

// settleBy is settle with the header of the answer, which may hold the real cost.
func (c *call) settleBy(status int, header func(name string) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.outcome.SettleBy(c.ctx, status, header) // the engine logs an error; the answer is the handler's either way
}

// release says that nothing more will be said of the call.
func (c *call) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.Release()
}

func (c *call) requestID() string {
	if lc, ok := lambdacontext.FromContext(c.ctx); ok {
		return lc.AwsRequestID
	}
	return ""
}

// Usage is what the caller of the event has used of each limit, without taking
// anything: the document of /.weir/usage. ctx is that of a handler behind [Wrap]
// or [WrapHTTP]; in [WrapBatch] there is a caller for each element, and no usage.
// The error is a *[policy.RequestError] when the question itself is refused.
func Usage(ctx context.Context) ([]byte, error) {
	c := callOf(ctx)
	if c == nil {
		return nil, &policy.RequestError{Status: http.StatusInternalServerError, Code: "not_wrapped", Reason: "Usage is known to a handler behind lambdalimit.Wrap or WrapHTTP only."}
	}
	var o engine.Outcome
	body := c.m.engine.Usage(ctx, &c.attributes, &o)
	switch {
	case c.broken != nil:
		return nil, c.broken
	case o.Err != nil:
		return nil, o.Err
	case !o.Served():
		return nil, &policy.RequestError{Status: o.Status, Code: "rate_limited", Reason: "Too many requests. Try again later."}
	}
	return body, nil
}

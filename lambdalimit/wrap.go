package lambdalimit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
)

// Options say how events are read and answered. The zero value is right for
// most functions.
type Options struct {
	// PassUnknown serves events of other triggers without any limit. Default: such
	// an event fails with an [UnknownEvent], as it always does in WrapHTTP and
	// WrapBatch, whose handlers could not take it.
	PassUnknown bool

	// TrustForwardedFor takes the last hop of X-Forwarded-For for the peer of a
	// load balancer's event, which names no address elsewhere. Set it only when
	// nothing but the balancer may invoke the function, and the balancer appends
	// to the field (its default). Default: such an event has no address.
	TrustForwardedFor bool

	// ListClaims are claims that may hold a list as "a,b", beside cognito:groups and
	// the claim that the policy's plans: from names. Lists in brackets need no name.
	ListClaims []string

	// ReturnErrors makes a refusal in AppSync a *[LimitExceeded] that the function
	// returns, and leaves results as they are; of a [Result] with Costs the Data is
	// returned. Batches ignore it: one error would fail all their elements.
	ReturnErrors bool

	// Metrics gets a line in CloudWatch's embedded metric format for every limited
	// call, mostly os.Stdout. Default: none.
	Metrics io.Writer

	// Service is the dimension Service of the metrics. Default:
	// AWS_LAMBDA_FUNCTION_NAME of the environment, and "weir" without it.
	Service string
}

func (o Options) withDefaults() Options {
	o.Service = cmp.Or(o.Service, os.Getenv("AWS_LAMBDA_FUNCTION_NAME"), "weir")
	return o
}

// Func is a handler for lambda.Start.
type Func = func(ctx context.Context, payload json.RawMessage) (any, error)

// Wrap puts the policy of an engine, which [NewEngine] made, in front of a
// handler of HTTP or AppSync events. The handler gets the event as it came, and
// finds the decision with [weir.FromContext]. Its answer gets the limit fields,
// where it is one of HTTP; an [io.Reader] is sent as it is, as package lambda
// does, and has succeeded. Of an AppSync batch the handler is called for each
// element by itself, one after the other.
//
// The Func returns an error when the handler does, and an [UnknownEvent] or a
// [NoCaller] when the event and the policy do not fit together.
func Wrap[In, Out any](handler func(context.Context, In) (Out, error), e *engine.Engine, o Options) Func {
	m := newMiddleware(e, o)
	next := decoding(handler)
	return func(ctx context.Context, payload json.RawMessage) (any, error) {
		if !isBatch(payload) {
			return m.serve(ctx, payload, next)
		}
		out, err := m.batch(ctx, payload, each(next))
		if m.o.PassUnknown && err != nil { // no list of AppSync's: nothing has been decided or served
			return next(ctx, payload)
		}
		return out, err
	}
}

// nextFunc is what stands behind a limit.
type nextFunc func(ctx context.Context, payload []byte) (any, error)

func decoding[In, Out any](handler func(context.Context, In) (Out, error)) nextFunc {
	return func(ctx context.Context, payload []byte) (any, error) {
		var in In
		if err := json.Unmarshal(payload, &in); err != nil {
			return nil, err
		}
		return handler(ctx, in)
	}
}

// middleware is what all calls of a function share.
type middleware struct {
	engine *engine.Engine
	o      Options
	writer answer.Writer
	called atomic.Bool // the environment's first call is over, or under way
	lines  metricLines
}

func newMiddleware(e *engine.Engine, o Options) *middleware {
	o = o.withDefaults()
	return &middleware{engine: e, o: o, lines: metricLines{w: o.Metrics, service: o.Service}}
}

func isBatch(payload []byte) bool {
	trimmed := bytes.TrimLeft(payload, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '['
}

// serve is the way of one event.
func (m *middleware) serve(ctx context.Context, payload []byte, next nextFunc) (any, error) {
	e, err := read(payload)
	if err == nil && e.shape.isAuthorizer() {
		err = &UnknownEvent{"it asks for an authorization: use WrapAuthorizer"}
	}
	if err != nil {
		if m.o.PassUnknown {
			return next(ctx, payload)
		}
		return nil, err
	}
	c := m.begin(ctx, e)
	defer c.release()
	if err := c.decide(); err != nil {
		return nil, err
	}
	if !c.outcome.Served() {
		return c.refusal()
	}
	defer c.guard()() // over the answer too: encoding it may be the program's own code
	out, err := next(c.ctx, c.event.payload)
	if c.event.shape == appSync {
		r, own, err := c.result(out, err)
		switch {
		case err != nil:
			return nil, err
		case c.m.o.ReturnErrors && (!own || r.Costs != nil && r.ErrorMessage == ""):
			return r.Data, nil
		}
		return r, nil
	}
	if err != nil {
		c.settle(http.StatusInternalServerError)
		return nil, err
	}
	return c.response(out)
}

func (c *call) refusal() (any, error) {
	if c.event.shape != appSync {
		return encode(c.event.shape, c.m.writer.Refusal(http.Header{}, &c.outcome, &c.attributes)), nil
	}
	if c.m.o.ReturnErrors {
		return nil, c.limitExceeded()
	}
	return c.refusedResult(), nil
}

// errNotWired is a mistake of the program around the engine.
var errNotWired = errors.New("lambdalimit: the engine does not ask who calls: make it with lambdalimit.NewEngine, which sets engine.Options.Identify")

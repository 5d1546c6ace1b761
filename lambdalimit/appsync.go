package lambdalimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync"

	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

// Result is what a direct resolver returns behind [Wrap] and [WrapBatch]: the
// handler's own result as Data, or an error in the other fields. A resolver's
// response handler turns it back into a value or a GraphQL error. A handler may
// return a Result itself; one with an ErrorMessage has failed, and has the
// ErrorType "Error" unless it names one: AppSync's util.error ignores what has
// none.
type Result struct {
	Data         any    `json:"data"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	ErrorType    string `json:"errorType,omitempty"`
	ErrorInfo    any    `json:"errorInfo,omitempty"`

	// Costs are what the call really cost, by the field that settle: of the policy
	// names ("X-Tokens-Used"), in place of the header that an answer over HTTP would
	// have. A limit whose field is not here, or below 0, costs what was taken. They
	// are not sent.
	Costs map[string]int64 `json:"-"`
}

// cost finds a cost as a header would hold it.
func (r *Result) cost(name string) string {
	for have, n := range r.Costs {
		if http.CanonicalHeaderKey(have) == name {
			return strconv.FormatInt(n, 10)
		}
	}
	return ""
}

// LimitExceeded is a refusal as a Go error, whose type AppSync may show to the
// client: see [Options.ReturnErrors]. It also is the errorInfo of a [Result].
type LimitExceeded = answer.LimitExceeded

// The errorType of refusals. Others are a policy.RequestError's: "unauthorized".
const (
	typeLimitExceeded    = "LimitExceeded"
	typeLimitUnavailable = "LimitUnavailable" // fail-closed, and the store did not answer
	typeOther            = "Error"            // of whoever fails without saying how
)

// result settles a call by what its handler returned, as a Result that can be
// encoded. own reports that the handler made one itself.
func (c *call) result(out any, err error) (r Result, own bool, _ error) {
	if err == nil {
		r, own, err = resultOf(out)
	}
	status := http.StatusOK
	if err != nil || r.ErrorMessage != "" {
		status = http.StatusInternalServerError
	}
	c.settleBy(status, r.cost)
	return r, own, err
}

func resultOf(out any) (r Result, own bool, err error) {
	r, own = out.(Result)
	if p, isPointer := out.(*Result); isPointer && p != nil {
		r, own = *p, true
	}
	if !own {
		r.Data = out
	}
	if r.ErrorMessage != "" {
		r.ErrorType = cmp.Or(r.ErrorType, typeOther)
	}
	if r.Data, err = textOf(r.Data); err == nil {
		_, err = marshal(r.ErrorInfo)
	}
	return r, own, err
}

func (c *call) refusedResult() Result {
	r := Result{ErrorMessage: c.message(), ErrorType: typeLimitExceeded}
	switch v := c.outcome.Speaks(); {
	case c.outcome.Err != nil:
		r.ErrorType = c.outcome.Err.Code
	case v != nil:
		if c.outcome.Status == http.StatusServiceUnavailable {
			r.ErrorType = typeLimitUnavailable
		}
		r.ErrorInfo = c.limitExceeded()
	}
	return r
}

// limitExceeded is the refusal as an error.
func (c *call) limitExceeded() error {
	plain := policy.Attributes{Method: http.MethodPost} // of a client that asks for no other language
	if err := c.m.writer.Exceeded(&c.outcome, &plain); err != nil {
		return err
	}
	return &LimitExceeded{Message: c.message()}
}

// message is what the refusal says to people.
func (c *call) message() string {
	plain := policy.Attributes{Method: http.MethodPost} // of a client that asks for no other language
	switch err := c.m.writer.Exceeded(&c.outcome, &plain).(type) {
	case *LimitExceeded:
		return err.Message
	case *policy.RequestError:
		if err.Reason != "" { // why somebody is banned, only his record says
			return err.Reason
		}
	}
	return http.StatusText(c.outcome.Status)
}

// returned is what a handler returned for one element of a batch.
type returned struct {
	out any
	err error
}

// batchFunc serves the elements of a batch that are allowed, in order. Its error
// is that of all of them.
type batchFunc func(ctx context.Context, calls []*call) ([]returned, error)

// WrapBatch is [Wrap] for a resolver that AppSync invokes with a batch and that
// answers all its elements at once. Every element is a call of its own: those
// that a limit refuses are left out, and the handler gets the others in their
// order. It must return as many results as it gets elements; one that is a
// [Result] with an ErrorMessage has failed by itself, an error fails them all.
// Its context holds no decision, since there is one for each element.
func WrapBatch[In, Out any](handler func(context.Context, []In) ([]Out, error), e *engine.Engine, o Options) Func {
	m := newMiddleware(e, o)
	next := func(ctx context.Context, calls []*call) ([]returned, error) {
		all := make([]returned, len(calls))
		var in []In
		var at []int
		for i, c := range calls {
			var one In
			if all[i].err = json.Unmarshal(c.event.payload, &one); all[i].err == nil {
				in, at = append(in, one), append(at, i)
			}
		}
		if len(in) == 0 {
			return all, nil
		}
		out, err := handler(ctx, in)
		if err == nil && len(out) != len(in) {
			err = fmt.Errorf("lambdalimit: the resolver was given %d elements and returned %d results; it must return one for each, in order", len(in), len(out))
		}
		if err != nil {
			return nil, err
		}
		for i := range out {
			all[at[i]].out = out[i]
		}
		return all, nil
	}
	return func(ctx context.Context, payload json.RawMessage) (any, error) {
		if isBatch(payload) {
			return m.batch(ctx, payload, next)
		}
		results, err := m.results(ctx, []json.RawMessage{payload}, next)
		if err != nil {
			return nil, err
		}
		return results[0], nil
	}
}

// each serves the elements one by one.
func each(next nextFunc) batchFunc {
	return func(_ context.Context, calls []*call) ([]returned, error) {
		all := make([]returned, len(calls))
		for i, c := range calls {
			all[i].out, all[i].err = next(c.ctx, c.event.payload)
		}
		return all, nil
	}
}

func (m *middleware) batch(ctx context.Context, payload []byte, next batchFunc) (any, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(payload, &elements); err != nil {
		return nil, &UnknownEvent{"it is no list of events: " + err.Error()}
	}
	results, err := m.results(ctx, elements, next)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// results decides every element, all at the same time so that those of one
// caller share a write, and serves those that are allowed. None is settled
// before all are served: when the function fails on the way, AppSync gets the
// result of none. The error is an [UnknownEvent] where no element is AppSync's,
// else it comes from next.
func (m *middleware) results(ctx context.Context, elements []json.RawMessage, next batchFunc) ([]Result, error) {
	calls, broken := make([]*call, len(elements)), make([]error, len(elements))
	known := 0
	for i, element := range elements {
		e, err := read(element)
		if err == nil && e.shape != appSync {
			err = &UnknownEvent{"only AppSync sends events that stand in a list, or go to a batch resolver"}
		}
		if broken[i] = err; err == nil {
			calls[i] = m.begin(ctx, e)
			known++
		}
	}
	if known == 0 && len(elements) > 0 {
		return nil, broken[0]
	}
	var all sync.WaitGroup
	for i, c := range calls {
		if c != nil {
			all.Go(func() { broken[i] = c.decide() })
		}
	}
	all.Wait()
	results := make([]Result, len(calls))
	var allowed []*call
	var at []int
	for i, c := range calls {
		if c != nil {
			defer c.release()
		}
		switch {
		case broken[i] != nil:
			results[i] = failed(broken[i])
		case !c.outcome.Served():
			results[i] = c.refusedResult()
		default:
			allowed, at = append(allowed, c), append(at, i)
		}
	}
	if len(allowed) == 0 {
		return results, nil
	}
	for _, c := range allowed {
		defer c.guard()()
	}
	served, err := next(ctx, allowed)
	if err != nil {
		for _, c := range allowed {
			c.settle(http.StatusInternalServerError)
		}
		return nil, err
	}
	for i, c := range allowed {
		r, _, err := c.result(served[i].out, served[i].err)
		if err != nil {
			r = failed(err)
		}
		results[at[i]] = r
	}
	return results, nil
}

// failed is an element of a batch that has failed by itself.
func failed(err error) Result {
	var own messages.InvokeResponse_Error // by which a handler names the type
	if p := (*messages.InvokeResponse_Error)(nil); errors.As(err, &p) && p != nil {
		own = *p
	} else if !errors.As(err, &own) {
		own.Message, own.Type = err.Error(), typeName(err)
	}
	return Result{ErrorMessage: cmp.Or(own.Message, own.Type, typeOther), ErrorType: cmp.Or(own.Type, typeOther)}
}

// typeName is an error's type as package lambda tells it.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

package lambdalimit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"

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

// result settles a call by its handler's result, and wraps it.
func (c *call) result(out any) Result {
	r, ok := out.(Result)
	if p, isPointer := out.(*Result); isPointer && p != nil {
		r, ok = *p, true
	}
	if !ok {
		r = Result{Data: out}
	}
	status := http.StatusOK
	if r.ErrorMessage != "" {
		status = http.StatusInternalServerError
		r.ErrorType = cmp.Or(r.ErrorType, typeOther)
	}
	c.settle(status)
	return r
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

// batchFunc serves the elements of a batch that are allowed, in order.
type batchFunc func(ctx context.Context, calls []*call) ([]Result, error)

// WrapBatch is [Wrap] for a resolver that AppSync invokes with a batch and that
// answers all its elements at once. Every element is a call of its own: those
// that a limit refuses are left out, and the handler gets the others in their
// order. It must return as many results as it gets elements; one that is a
// [Result] with an ErrorMessage has failed by itself, an error fails them all.
func WrapBatch[In, Out any](handler func(context.Context, []In) ([]Out, error), e *engine.Engine, o Options) Func {
	m := newMiddleware(e, o)
	next := func(ctx context.Context, calls []*call) ([]Result, error) {
		in := make([]In, len(calls))
		for i, c := range calls {
			if err := json.Unmarshal(c.event.payload, &in[i]); err != nil {
				return nil, err
			}
			defer c.guard()()
		}
		out, err := handler(ctx, in)
		if err == nil && len(out) != len(in) {
			err = fmt.Errorf("lambdalimit: the resolver was given %d elements and returned %d results; it must return one for each, in order", len(in), len(out))
		}
		if err != nil {
			for _, c := range calls {
				c.settle(http.StatusInternalServerError)
			}
			return nil, err
		}
		results := make([]Result, len(out))
		for i, c := range calls {
			results[i] = c.result(out[i])
		}
		return results, nil
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
	return func(_ context.Context, calls []*call) ([]Result, error) {
		results := make([]Result, len(calls))
		for i, c := range calls {
			out, err := c.run(next)
			if err != nil {
				c.settle(http.StatusInternalServerError)
				results[i] = Result{ErrorMessage: err.Error(), ErrorType: typeName(err)}
				continue
			}
			results[i] = c.result(out)
		}
		return results, nil
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
// caller share a write, and serves those that are allowed.
func (m *middleware) results(ctx context.Context, elements []json.RawMessage, next batchFunc) ([]Result, error) {
	calls := make([]*call, len(elements))
	for i, element := range elements {
		e, err := read(element)
		if err == nil && e.shape != appSync {
			err = &UnknownEvent{"only AppSync sends events that stand in a list, or go to a batch resolver"}
		}
		if err != nil {
			return nil, err
		}
		calls[i] = m.begin(ctx, e)
	}
	broken := make([]error, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { broken[i] = c.decide() })
	}
	all.Wait()
	for _, c := range calls {
		defer c.release()
	}
	results := make([]Result, len(calls))
	var allowed []*call
	var at []int
	for i, c := range calls {
		switch {
		case broken[i] != nil:
			results[i] = Result{ErrorMessage: broken[i].Error(), ErrorType: typeName(broken[i])}
		case !c.outcome.Served():
			results[i] = c.refusedResult()
		default:
			allowed, at = append(allowed, c), append(at, i)
		}
	}
	if len(allowed) == 0 {
		return results, nil
	}
	served, err := next(ctx, allowed)
	if err != nil {
		for _, c := range allowed {
			c.settle(http.StatusInternalServerError)
		}
		return nil, err
	}
	for i, r := range served {
		results[at[i]] = r
	}
	return results, nil
}

// typeName is an error's type as package lambda tells it.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return cmp.Or(t.Name(), typeOther)
}

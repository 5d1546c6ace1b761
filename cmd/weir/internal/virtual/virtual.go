// Package virtual runs a policy at a time of its own: the production engine on
// counters in memory, where a clock stands until it is set and callers are who
// they are said to be. What it decides is what weir would decide, with nothing
// counted anywhere.
//
// Counters begin empty, or as a copy of what a store holds: [Engine.Copy].
package virtual

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Engine decides at virtual time. It is for one goroutine.
type Engine struct {
	engine *engine.Engine
	store  *copied
	look   *weir.Limiter
	writer answer.Writer
	now    int64
	who    func() (policy.Identity, error)
}

// New returns an engine whose clock stands at now, in Unix nanoseconds.
func New(p *policy.Policy, now int64) (*Engine, error) {
	e := &Engine{now: now}
	clock := func() int64 { return e.now }
	e.store = &copied{Store: memstore.New(memstore.Options{Now: clock})}
	e.look = weir.NewLimiter(e.store, weir.Options{Now: clock})
	var err error
	e.engine, err = engine.New(engine.Options{
		Policy: p, Store: e.store, Now: clock, CanGiveBack: true,
		Identify: func(context.Context, *policy.Attributes) (policy.Identity, error) { return e.who() },
		Logger:   slog.New(slog.DiscardHandler), LogKey: []byte("nothing is logged"),
	})
	return e, err
}

// Close releases what the engine holds.
func (e *Engine) Close() error { return e.engine.Close() }

// Now is the clock, in Unix nanoseconds.
func (e *Engine) Now() int64 { return e.now }

// Set moves the clock. It never goes back.
func (e *Engine) Set(now int64) { e.now = max(e.now, now) }

// Decide decides about one request, at the clock's time. who is asked as
// [engine.Options.Identify] is: where a limit depends on it.
func (e *Engine) Decide(ctx context.Context, a *policy.Attributes, who func() (policy.Identity, error)) *engine.Outcome {
	e.who = who
	o := new(engine.Outcome)
	e.engine.Decide(ctx, a, o)
	return o
}

// Refusal is the answer to a request that is not served.
func (e *Engine) Refusal(o *engine.Outcome, a *policy.Attributes) answer.Response {
	return e.writer.Refusal(http.Header{}, o, a)
}

// Fields are the limit fields that the answer to a served request has.
func (e *Engine) Fields(o *engine.Outcome) map[string][]string {
	h := map[string][]string{}
	e.writer.Fields(h, o, nil)
	return h
}

// Copy fills counters with what a store holds of some items, and sets the clock
// to the store's. What the store's records say of callers is read when it is
// needed. The store itself is only read.
func (e *Engine) Copy(ctx context.Context, from weir.Store, items ...weir.Key) error {
	e.store.from, _ = from.(weir.Records)
	for _, item := range items {
		var state weir.Cells
		_, now, err := from.Apply(ctx, item, nil, &state)
		if err != nil {
			return fmt.Errorf("the store cannot be read: %w", err)
		}
		e.Set(now)
		cells, _ := e.store.Lock(item)
		cells.CopyFrom(&state)
		e.store.Unlock(item)
	}
	return nil
}

// copied is a store in memory whose records are those of another one, but for
// what was written since.
type copied struct {
	*memstore.Store
	from weir.Records // nil: none
}

// Get implements weir.Records.
func (c *copied) Get(ctx context.Context, key string) (value []byte, version string, err error) {
	value, version, err = c.Store.Get(ctx, key)
	if err != nil || version != "" || c.from == nil {
		return value, version, err
	}
	return c.from.Get(ctx, key)
}

// Put implements weir.Records. It takes the place of what the other store holds.
func (c *copied) Put(ctx context.Context, key string, value []byte, _ string, expiresAt time.Time) error {
	_, version, err := c.Store.Get(ctx, key)
	if err != nil {
		return err
	}
	return c.Store.Put(ctx, key, value, version, expiresAt)
}

// Look is what ops would be told one by one, with nothing taken. Only what the
// store would count is seen: edge rules that are counted in the proxy's memory
// are looked at as if nobody had called.
func (e *Engine) Look(ctx context.Context, ops []policy.Op) ([]weir.Decision, error) {
	asked := make([]weir.Op, len(ops))
	for i := range ops {
		asked[i] = ops[i].Op
	}
	return e.look.Peek(ctx, asked...)
}

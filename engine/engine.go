// Package engine is a policy at work: it takes what an edge knows of a request
// and says what the edge must do.
//
// One request takes one way, always the same. An exemption ends it before
// anything is asked. Edge rules come next, from a bounded memory of this
// process. Then, only where a gateway limit, a limit or an operation applies,
// the caller is identified, and everything else that the policy holds against
// this request is taken in one call to the store, all of it or nothing. The
// answer is an [Outcome], the same for every edge; package engine/answer turns
// it into header fields and bodies. A policy of one limit, by address, has a
// shorter way, which says the same.
//
// The engine keeps no counters of its own. [Engine.Reload] therefore swaps one
// policy for the next while requests go on, and nobody's balance changes.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// Options says what an Engine works with. Policy and Store are required.
type Options struct {
	Policy *policy.Policy
	Store  weir.Store // of gateway and application limits; closing it stays the caller's task

	// Identify says who calls, from verified sources only. It is asked only
	// where a limit or an operation applies. A *[policy.RequestError] is
	// answered as it is, any other error as 503. Default: everybody is anonymous.
	Identify func(context.Context, *policy.Attributes) (policy.Identity, error)

	// Replicas is how many processes share the traffic: rate and burst of edge
	// rules are divided by it, and those of limits that are counted locally while
	// the store does not answer. Default 1.
	Replicas int

	// Deadline bounds one decision of Store, after which on_store_error decides:
	// see [weir.Options]. The default is its.
	Deadline time.Duration

	// CanGiveBack lets the edge call [Outcome.GiveBack]. It costs an
	// allocation a request, so only an edge that can lose its service sets it.
	CanGiveBack bool

	// Shadow makes every limit watch only: nothing is refused.
	Shadow bool

	Logger *slog.Logger // default: slog.Default()

	// LogKey is the secret under which callers' keys are hashed in logs, so
	// that several processes write the same hash. Default: random.
	LogKey []byte

	// Decisions hears of every refusal and of AllowedShare (0 to 1) of what was
	// allowed, in the goroutine that decided. Default: nobody.
	Decisions    func(Record)
	AllowedShare float64

	// KeepDenials notes in the store's records, where it has any, why requests were
	// refused, bounded in number and in time, and not in the request: see [FindDenial].
	// What edge rules refuse from this process's memory is not kept.
	KeepDenials bool

	// Noticed hears of every mark of a quota that a call reaches, and of what is
	// used beyond a metered one, in the goroutine that decided. Both are logged, and
	// in the decision log, without it.
	Noticed func(context.Context, Notice)

	// Decided hears of every outcome once, before the edge acts on it. It must
	// not keep the Outcome.
	Decided func(context.Context, *Outcome)

	Observer *weir.Observer // of both limiters
	Now      func() int64   // Unix nanoseconds, for logs, answers and the edge's memory; default: the wall clock
}

// Engine decides by a policy. It is safe for concurrent use and runs no
// goroutine of its own, but one with [Options.KeepDenials].
type Engine struct {
	o       Options
	short   bool            // what a request takes stays taken, unless its limit says otherwise
	silent  bool            // nobody hears of what was allowed
	memory  *memstore.Store // of edge rules
	edge    *weir.Limiter   // of edge rules, on memory
	rest    *weir.Limiter   // of everything else, on the store
	state   atomic.Pointer[state]
	lines   lines
	usage   usageCache
	open    openCalls
	lookups perSecond // of the ids of refused requests
	denials *denials  // nil when nobody asked for that
	failure failures
	book    *account.Book // nil when the store keeps no records
}

// state is what a reload replaces as a whole.
type state struct {
	engine *Engine
	policy *policy.Policy
	who    func(context.Context, *policy.Attributes) (policy.Identity, error) // Options.Identify, or what ReloadWith was given
	edge   *weir.Limiter                                                      // the engine's edge, or its rest where the policy shares edge rules
	keep   func(weir.Key) time.Duration

	// parts are, by the place of a rule, what this replica enforces of it by itself: of
	// an edge rule that is counted here at all times, of a rule that says so while the
	// store does not answer. Others have none.
	parts []weir.Limit
}

// New returns an engine for a policy. It refuses a policy with a period that
// the store cannot keep.
func New(o Options) (*Engine, error) {
	if o.Policy == nil || o.Store == nil {
		return nil, errors.New("engine: Policy and Store are required")
	}
	if o.AllowedShare < 0 || o.AllowedShare > 1 {
		return nil, fmt.Errorf("engine: AllowedShare is %v; it is a share from 0 to 1", o.AllowedShare)
	}
	o.Replicas = max(1, o.Replicas)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	random := len(o.LogKey) == 0
	if random {
		o.LogKey = make([]byte, 32)
		rand.Read(o.LogKey)
	}
	e := &Engine{o: o, short: !o.Shadow && !o.CanGiveBack, silent: o.Decisions == nil && o.Decided == nil}
	e.memory = memstore.New(memstore.Options{Now: o.Now, Lost: func(total uint64) {
		o.Logger.Error("the edge rules' memory is full: callers start over with a full limit", "callers", total)
	}})
	e.lines.log, e.lines.now = o.Logger, e.now
	if r, ok := o.Store.(weir.Records); ok {
		if o.KeepDenials {
			e.denials = newDenials(r, e.now)
		}
		e.book = account.NewBook(account.Options{Records: r, Deadline: o.Deadline, MaxKeep: o.Store.Caps().MaxKeep, Logger: o.Logger, Now: o.Now})
	}
	e.edge = weir.NewLimiter(e.memory, weir.Options{Observer: o.Observer})
	e.rest = weir.NewLimiter(o.Store, weir.Options{
		KeepFor:  func(item weir.Key) time.Duration { return e.state.Load().keep(item) },
		Observer: e.observer(), Now: o.Now, Deadline: o.Deadline,
	})
	if err := e.Reload(o.Policy); err != nil {
		return nil, err
	}
	if random && o.Policy.LogKeys() == logHash {
		o.Logger.Info("callers are hashed in logs under a key made for this process; set WEIR_LOG_KEY to compare logs of several processes or runs")
	}
	return e, nil
}

// Close writes what is still to be kept of refusals, within a second, and releases
// the edge's memory. The store must still be open. No call may follow it.
func (e *Engine) Close() error {
	if e.denials != nil {
		e.denials.close()
	}
	return e.memory.Close()
}

// Stats says what stands in front of the store has saved and met since the start.
// A store in this process has nothing in front of it.
func (e *Engine) Stats() weir.Stats { return e.rest.Stats() }

// Policy is the one in force.
func (e *Engine) Policy() *policy.Policy { return e.state.Load().policy }

// Reload puts another policy in force. Requests under way end under the one
// they began with. Counters stay: they belong to the store and to the edge's
// memory; so does what this process knows of the store, such as that it is away
// and what it has let through since. On an error the policy in force stays.
func (e *Engine) Reload(p *policy.Policy) error {
	who := e.o.Identify
	if st := e.state.Load(); st != nil {
		who = st.who
	}
	return e.ReloadWith(p, who)
}

// ReloadWith is Reload of a policy by which callers are verified in another way.
// Both change at once: no request is judged by one and verified for the other.
func (e *Engine) ReloadWith(p *policy.Policy, identify func(context.Context, *policy.Attributes) (policy.Identity, error)) error {
	if e.book == nil && p.NeedsRecords() {
		return errors.New("the policy has versions of plans, or plans from account.plan, and this store keeps no records of accounts; memory:, bolt:, redis:// and dynamodb: stores do")
	}
	st := &state{engine: e, policy: p, who: identify, edge: e.edge, keep: e.keepFor(p)}
	rules := p.Rules()
	st.parts = make([]weir.Limit, len(rules))
	var edge []weir.Limit
	for i, r := range rules {
		inMemory := r.Layer == policy.Edge && !p.EdgeShared()
		by := r.Share
		if inMemory || by == 0 {
			by = e.o.Replicas
		}
		if !inMemory && r.OnStoreError != weir.FailLocal {
			continue
		}
		part, err := policy.Divided(r.Limit, by)
		if err != nil {
			return fmt.Errorf("limit %s: %w", r.Name, err)
		}
		if st.parts[i] = part; inMemory {
			edge = append(edge, part)
		}
	}
	if p.EdgeShared() {
		st.edge = e.rest
	}
	if err := errors.Join(e.edge.Check(edge...), e.rest.Check(p.Limits()...)); err != nil {
		return err
	}
	e.state.Store(st)
	return nil
}

// observer remembers why the store failed, because a fail-open decision carries
// no error and its log line must name the cause.
func (e *Engine) observer() *weir.Observer {
	var o weir.Observer
	if e.o.Observer != nil {
		o = *e.o.Observer
	}
	told := o.Failed
	o.Failed = func(ctx context.Context, op weir.Op, err error) {
		e.failed(err, op.Key)
		if told != nil {
			told(ctx, op, err)
		}
	}
	return &o
}

// failed remembers why the store could not be asked of a key.
func (e *Engine) failed(err error, of weir.Key) { e.failure.add(of, e.nameless(err, of)) }

// nameless is an error as it may be logged: a key in its text is shown as log_keys
// says. Errors of records name whose they are, and those of a store may.
func (e *Engine) nameless(err error, of ...weir.Key) error {
	text := err.Error()
	for _, key := range of {
		if k := key.String(); k != "" && strings.Contains(text, k) {
			text = strings.ReplaceAll(text, k, cmp.Or(e.keyHash(e.state.Load().policy, key), "a caller"))
		}
	}
	return nameless{text, err}
}

type nameless struct {
	text string
	err  error
}

func (n nameless) Error() string { return n.text }
func (n nameless) Unwrap() error { return n.err }

func (e *Engine) now() int64 {
	if e.o.Now != nil {
		return e.o.Now()
	}
	return time.Now().UnixNano()
}

package engine

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

// consult finds out what the records say of those who a request is from, and
// puts it into o.Identity. It reports whether the request may go on: who is
// banned is refused. missing is why nothing is known of somebody.
func (e *Engine) consult(ctx context.Context, m *policy.Match, o *Outcome) (missing error, ok bool) {
	p := o.st.policy
	if e.book == nil || !m.NeedsIdentity {
		return nil, true
	}
	if p.NeedsRecords() {
		o.who().Now = o.at()
	}
	maxAge := p.AccountsAge()
	var room [4]policy.Caller
	var account *policy.Caller // whose plan may have versions
	callers := p.AppendCallers(room[:0], m, o.Identity, e.book.Silent(maxAge))
	for i := range callers {
		c := &callers[i]
		said, err := e.book.Look(ctx, *c, maxAge)
		switch {
		case err != nil && ctx.Err() != nil:
			o.refuse(ctx, err)
			return nil, false
		case err != nil:
			missing = e.nameless(err, c.Key)
			continue
		case said.Banned && !e.o.Shadow:
			o.refuse(ctx, banned)
			return nil, false
		}
		o.learn(said, c.Key)
		if c.Needed && c.Kind == policy.AccountKind {
			account = c
		}
	}
	if account == nil || missing != nil {
		return missing, true
	}
	if pin, unpinned := p.Unpinned(m, o.Identity); unpinned {
		said, err := e.book.Pin(ctx, *account, pin)
		switch {
		case err != nil && ctx.Err() != nil:
			o.refuse(ctx, err)
			return nil, false
		case err != nil:
			return e.nameless(err, account.Key), true
		}
		o.learn(said, account.Key)
	}
	return nil, true
}

// banned is the answer to who is banned. Why, only the record says.
var banned = &policy.RequestError{Status: http.StatusForbidden, Code: "banned"}

// learn notes what is known of one caller, in place of what was known before.
func (o *Outcome) learn(said account.Caller, of weir.Key) {
	if said.Stale != nil {
		o.Degraded = true
		o.st.engine.failed(said.Stale, of)
		o.st.engine.lines.stale(o.st.engine.nameless(said.Stale, of))
	}
	if said.Account == nil {
		return
	}
	id := o.who()
	for i, a := range id.Accounts {
		if a.Kind == said.Account.Kind {
			id.Accounts[i] = said.Account
			return
		}
	}
	id.Accounts = append(id.Accounts, said.Account)
}

// who is the outcome's identity, to be completed.
func (o *Outcome) who() *policy.Identity {
	if o.Identity == nil {
		o.Identity = new(policy.Identity)
	}
	return o.Identity
}

// blind decides the ops whose callers nothing is known of, as if their store had
// failed, which it has. on_store_error: deny refuses. allow lets the call pass, and
// counts it only where the limit is the policy's own whatever a record may say:
// a guessed plan could refuse somebody whose plan allows more. local goes on with
// the guess. It returns the ops that are still to be taken.
func (e *Engine) blind(ctx context.Context, ops []policy.Op, missing error, o *Outcome) (left []policy.Op, refused bool) {
	o.Degraded = true
	for i := range ops {
		op := e.own(&ops[i], o)
		d := weir.Decision{Limit: op.Limit, Cost: max(op.Cost, 1), Allowed: true, Degraded: true, Unknown: true}
		switch {
		case op.OnFail == weir.FailDeny && !op.Shadow:
			d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonUnavailable, time.Second
			refused = true
		case op.OnFail == weir.FailAllow && ops[i].FromRecord:
		default:
			left = append(left, ops[i])
			continue
		}
		e.failed(missing, op.Key)
		o.add(ops[i].Rule, op, &d, 0)
	}
	if len(ops) == 0 || len(left) > 0 {
		e.lines.stale(missing)
	}
	return left, refused
}

// keepFor is how long an item is kept after a call: as long as the policy's
// limits, and those that stand in for them, need.
func (e *Engine) keepFor(p *policy.Policy) func(weir.Key) time.Duration {
	if e.book == nil {
		return p.KeepFor
	}
	return func(item weir.Key) time.Duration {
		return max(p.KeepFor(item), e.book.KeepFor(item))
	}
}

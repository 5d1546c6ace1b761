package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/cmd/weir/internal/virtual"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

func newExplain(c *common) *cobra.Command {
	var f questionFlags
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Follow one request through all layers",
		Long: `Say what the policy makes of one request: which rules hold and why the others do
not, whose counters it uses, what the answer is and which headers it has, and how
the next requests would fare. Nothing is counted.

With --store, and only then, it starts from what that store holds of the caller. The
rules of the edge are counted by each proxy in its own memory, which nobody else
sees: they are taken as unused.
` + fmt.Sprintf(exitHelp, "the request would be refused"),
		Example: `  weir explain --method POST --path /orders --token '{"sub":"maya","plans":["free"]}'
  weir explain --curl 'curl -X POST https://shop.example/orders -H "X-Api-Key: KEY"'
  weir explain --event event.json --store 'dynamodb:little-stage?region=eu-central-1'`,
		Annotations: map[string]string{formatsKey: "text,json"},
		Args:        noArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return runExplain(cmd, c, &f) },
	}
	f.add(cmd)
	return cmd
}

func runExplain(cmd *cobra.Command, c *common, f *questionFlags) error {
	p, err := c.policyOf(cmd)
	if err != nil {
		return err
	}
	q, err := f.question(cmd, p)
	if err != nil {
		return err
	}
	var store weir.Store
	if c.store != "" {
		s, err := openStore(cmd.Context(), c.store, storeOptions{existing: true, looks: true})
		if err != nil {
			return err
		}
		defer s.Close() // nothing was written
		store = s.Store
	}
	x, err := explain(cmd.Context(), p, q, store)
	if err != nil {
		return err
	}
	if c.format == "json" {
		err = writeJSON(c.stdout, x.report())
	} else {
		err = x.write(c)
	}
	if err == nil && !x.outcome.Served() {
		return errNo{errors.New("the request would be refused"), true}
	}
	return err
}

// policyOf loads the policy of -c.
func (c *common) policyOf(cmd *cobra.Command) (*policy.Policy, error) {
	if _, err := os.Stat(c.config); errors.Is(err, fs.ErrNotExist) {
		return nil, usage("weir init -c "+shellWord(c.config), "there is no policy file %s", c.config)
	}
	return c.loadPolicy(c.config)
}

// explained is all that is known of a request.
type explained struct {
	question *question
	policy   *policy.Policy
	found    policy.Explanation
	identity policy.Identity
	unknown  *policy.RequestError           // what who calls says of himself is not true; nil when it is
	before   map[*policy.Rule]weir.Decision // what the limits would say one by one
	outcome  *engine.Outcome
	answer   answer.Response // of the request: limit fields only, when it is served
	course   course
	store    bool // counters are those of a store
}

// course is how requests of the same kind fare that follow one another.
type course struct {
	AtOnce  int              // how many pass at one instant; at most maxAtOnce, 1 where nothing counts
	Served  []time.Duration  // when the first ten are served, sent as early as they pass
	refused *engine.Outcome  // the first at the first instant; nil for none
	answer  *answer.Response // to it
}

const (
	maxAtOnce  = 10_000
	firstCalls = 10
)

// explain decides about a request as the proxy would, on counters that are a copy.
func explain(ctx context.Context, p *policy.Policy, q *question, store weir.Store) (*explained, error) {
	x := &explained{question: q, policy: p, before: map[*policy.Rule]weir.Decision{}, store: store != nil}
	a := &q.attributes
	m, err := p.Match(a)
	var unknown error // who calls
	if err == nil && m.NeedsIdentity {
		if x.identity, unknown = q.who(ctx, p); unknown != nil && !isAnswer(unknown) {
			return nil, unknown
		}
	}
	switch {
	case errors.As(unknown, &x.unknown): // after the edge he is refused for what he says of himself
		x.found, err = p.ExplainUnknown(a, x.unknown)
	case err == nil:
		x.found, err = p.Explain(a, x.identity)
	}
	if err != nil && !isAnswer(err) {
		return nil, err
	}
	who := func() (policy.Identity, error) { return x.identity, unknown }
	e, err := x.engine(ctx, store)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	x.outcome = e.Decide(ctx, a, who)
	if x.outcome.Served() {
		x.answer = answer.Response{Header: e.Fields(x.outcome)}
	} else {
		x.answer = e.Refusal(x.outcome, a)
	}
	again, err := x.engine(ctx, store)
	if err != nil {
		return nil, err
	}
	defer again.Close()
	if known := x.outcome.Identity; known != nil && len(known.Accounts) > 0 { // what records say of who it is
		if x.found, err = p.Explain(a, *known); err != nil && !isAnswer(err) {
			return nil, err
		}
	}
	ops := slices.Concat(x.found.Edge, x.found.Ops)
	looks, err := again.Look(ctx, ops)
	if err != nil {
		return nil, err
	}
	for i := range ops {
		x.before[ops[i].Rule] = looks[i]
	}
	x.course = follow(ctx, again, a, who)
	return x, nil
}

func isAnswer(err error) bool {
	var re *policy.RequestError
	return errors.As(err, &re)
}

// engine is one with the counters that the request would meet.
func (x *explained) engine(ctx context.Context, store weir.Store) (*virtual.Engine, error) {
	e, err := virtual.New(x.policy, time.Now().UnixNano())
	if err != nil || store == nil {
		return e, err
	}
	return e, e.Copy(ctx, store, x.items()...)
}

// items are those that the store is asked for, in their order.
func (x *explained) items() []weir.Key {
	ops := x.found.Ops
	if x.policy.EdgeShared() {
		ops = slices.Concat(x.found.Edge, ops)
	}
	var keys []weir.Key
	seen := map[weir.Key]bool{}
	for i := range ops {
		if !seen[ops[i].Key] {
			seen[ops[i].Key] = true
			keys = append(keys, ops[i].Key)
		}
	}
	return keys
}

// storeCalls is how many calls to the store this decision costs: one for each item
// that is asked, and one to give back for each that was taken before another
// refused. Limits that count only success cost one more when the call fails.
func (x *explained) storeCalls() int {
	asked, taken := map[weir.Key]bool{}, map[weir.Key]bool{}
	for i := range x.outcome.Verdicts {
		v := &x.outcome.Verdicts[i]
		if v.Reason == weir.ReasonNotAsked || v.Rule.Layer == policy.Edge && !x.policy.EdgeShared() {
			continue
		}
		if !asked[v.Key] {
			asked[v.Key], taken[v.Key] = true, true
		}
		taken[v.Key] = taken[v.Key] && (v.Allowed || v.Shadow)
	}
	n := len(asked)
	if x.outcome.Limited() {
		for key := range taken {
			if taken[key] && x.outcome.Speaks() != nil && x.outcome.Speaks().Rule.Layer != policy.Edge {
				n++
			}
		}
	}
	return n
}

// follow sends requests one after the other, each when the last one has succeeded:
// first all at one instant, and then each as early as it passes.
func follow(ctx context.Context, e *virtual.Engine, a *policy.Attributes, who func() (policy.Identity, error)) (c course) {
	begin := e.Now()
	for n := 0; n < maxAtOnce; n++ {
		o := e.Decide(ctx, a, who)
		if !o.Served() {
			r := e.Refusal(o, a)
			c.refused, c.answer = o, &r
			break
		}
		c.AtOnce++
		_ = o.Settle(ctx, http.StatusOK) // in memory this cannot fail
		if len(o.Verdicts) == 0 {
			break // nothing counts, and nothing ever will
		}
		if len(c.Served) < firstCalls {
			c.Served = append(c.Served, 0)
		}
	}
	for tries := 0; len(c.Served) < firstCalls && c.refused != nil && tries < 4*firstCalls; tries++ {
		o := e.Decide(ctx, a, who)
		if o.Served() {
			_ = o.Settle(ctx, http.StatusOK)
			c.Served = append(c.Served, time.Duration(e.Now()-begin))
			continue
		}
		d, _ := o.Decision()
		if _, again := answer.RetryAfter(&d); !o.Limited() || !again {
			break
		}
		e.Set(e.Now() + max(1, int64(d.RetryAfter)))
	}
	return c
}

// message is what a refusal says to people.
func message(r *answer.Response) string {
	var b struct{ Message, Detail string }
	if json.Unmarshal(r.Body, &b) != nil {
		return http.StatusText(r.Status)
	}
	return b.Message + b.Detail
}

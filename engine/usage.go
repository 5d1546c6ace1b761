package engine

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// Usage is what one caller has used of one limit.
type Usage struct {
	Layer     policy.Layer `json:"layer"`
	Name      string       `json:"name"`
	Operation string       `json:"operation"`              // "" outside plans
	Plan      string       `json:"plan"`                   // "" outside plans
	Version   int          `json:"plan_version,omitempty"` // of the plan; none where plans have no versions
	Limit     int64        `json:"limit"`                  // capacity of a bucket, count of a window
	Used      int64        `json:"used"`
	Remaining int64        `json:"remaining"`
	Period    string       `json:"period"`   // of the limit as written: "hour", "5m"
	ResetAt   time.Time    `json:"reset_at"` // when the bucket is full or the window over; now when nothing is used
	Override  *string      `json:"override"` // the limit that stands in for the policy's; null without one
}

// usageReport is the document of /.weir/usage.
type usageReport struct {
	SchemaVersion int     `json:"schema_version"`
	Limits        []Usage `json:"limits"`
}

// usageAge is how old an answer may be: a caller who polls costs the store one
// read a second and item.
const usageAge = time.Second

// maxUsage bounds the answers that are kept.
const maxUsage = 4096

// usageCache holds the last answer to each caller.
type usageCache struct {
	mu      sync.Mutex
	answers map[string]*usageAnswer
}

type usageAnswer struct {
	mu   sync.Mutex // held while the store is asked, so that others wait for the same answer
	at   int64
	body []byte
}

// Usage answers a caller's question what it has used, without taking anything:
// the JSON of /.weir/usage. The edge rules apply to the question itself. When o
// is not [Outcome.Served] it says what to answer instead: a refusal, 401 for a
// caller without valid credentials where the policy has any, or 503.
func (e *Engine) Usage(ctx context.Context, a *policy.Attributes, o *Outcome) []byte {
	o.begin(e)
	body := e.answerUsage(ctx, a, o)
	if o.Limited() {
		o.denial = rand.Uint64()
		e.observe(ctx, o)
	}
	e.record(o)
	if e.o.Decided != nil {
		e.o.Decided(ctx, o)
	}
	return body
}

func (e *Engine) answerUsage(ctx context.Context, a *policy.Attributes, o *Outcome) []byte {
	p := o.st.policy
	m, err := p.Match(a)
	if err != nil {
		o.refuse(ctx, err)
		return nil
	}
	o.Client, o.Exempt = m.Client, m.Exempt
	if !e.admit(ctx, p.AppendEdge(nil, &m, a), o) || !e.identify(ctx, a, o) {
		return nil
	}
	if auth := p.Auth(); (auth.JWT != nil || auth.APIKeys != nil) && (o.Identity == nil || o.Identity.Claims == nil && o.Identity.KeyOwner == "") {
		o.refuse(ctx, &policy.RequestError{Status: http.StatusUnauthorized, Code: "unauthorized",
			Reason: "Usage is shown to its caller only: send a valid token or API key."})
		return nil
	}
	all := p.UsageMatch(m.Client)
	missing, ok := e.consult(ctx, &all, o)
	if !ok {
		return nil
	}
	if missing != nil {
		o.refuse(ctx, missing)
		return nil
	}
	ops, err := p.UsageOps(a, m.Client, *o.who())
	if err != nil {
		o.refuse(ctx, err)
		return nil
	}
	body, err := e.usageOf(ctx, ops, o)
	if err != nil {
		o.refuse(ctx, e.nameless(err, keysOf(ops)...))
		return nil
	}
	o.judge(false)
	return body
}

// usageOf peeks, or returns what it saw less than a second ago.
func (e *Engine) usageOf(ctx context.Context, ops []policy.Op, o *Outcome) ([]byte, error) {
	c := e.usage.of(ops, o.at())
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := o.at() - c.at; c.body != nil && age >= 0 && age < int64(usageAge) {
		return c.body, nil
	}
	report := usageReport{SchemaVersion: 1, Limits: []Usage{}}
	for _, edge := range []bool{true, false} {
		lim := e.rest
		if edge {
			lim = o.st.edge
		}
		var asked []*policy.Op
		var list []weir.Op
		for i := range ops {
			if (ops[i].Rule.Layer == policy.Edge) == edge {
				asked = append(asked, &ops[i])
				list = append(list, *e.own(&ops[i], o))
			}
		}
		if len(list) == 0 {
			continue
		}
		seen, err := lim.Peek(ctx, list...)
		if err != nil {
			return nil, err
		}
		for i, d := range seen {
			report.Limits = append(report.Limits, UsageOf(asked[i], &d, o.Time()))
		}
	}
	body, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	c.at, c.body = o.at(), append(body, '\n')
	return c.body, nil
}

// UsageOf is what a decision, of [weir.Limiter.Peek] at an instant, says of an op.
func UsageOf(op *policy.Op, d *weir.Decision, at time.Time) Usage {
	r := op.Rule
	u := Usage{
		Layer: r.Layer, Name: r.Name, Operation: r.Operation, Plan: r.Plan, Version: r.Version,
		Limit: d.Limit.Max(), Used: d.Used, Remaining: d.Remaining,
		Period: d.Limit.Period().String(), ResetAt: d.ResetAt(at).UTC(),
	}
	if op.Overridden {
		text := d.Limit.String()
		u.Override = &text
	}
	return u
}

// of returns the place of a caller's answer. Callers are told apart by all the
// items and limits that they have.
func (c *usageCache) of(ops []policy.Op, now int64) *usageAnswer {
	var b strings.Builder
	for i := range ops {
		b.WriteString(ops[i].Key.String())
		b.WriteByte(' ')
		b.WriteString(ops[i].Limit.Name())
		b.WriteByte(' ')
		b.WriteString(ops[i].Limit.String())
		b.WriteByte('\n')
	}
	key := b.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[key]; a != nil {
		return a
	}
	if len(c.answers) >= maxUsage {
		c.forget(now)
	}
	if c.answers == nil {
		c.answers = map[string]*usageAnswer{}
	}
	a := new(usageAnswer)
	c.answers[key] = a
	return a
}

// forget makes room: answers that are too old go first, then any half of the
// rest. Who loses a fresh one merely costs one more read.
func (c *usageCache) forget(now int64) {
	for pass := 0; pass < 2 && len(c.answers) > maxUsage/2; pass++ {
		for key, a := range c.answers {
			if len(c.answers) <= maxUsage/2 {
				return
			}
			if !a.mu.TryLock() {
				continue // being filled
			}
			if pass > 0 || now-a.at >= int64(usageAge) {
				delete(c.answers, key)
			}
			a.mu.Unlock()
		}
	}
}

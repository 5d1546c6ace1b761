package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir/cmd/weir/internal/auth"
	"github.com/weirlabs/weir/cmd/weir/internal/virtual"
	"github.com/weirlabs/weir/engine/answer"
	"github.com/weirlabs/weir/policy"
)

// Result is how one case ended.
type Result struct {
	Name    string
	Line    int
	Allowed int
	Denied  int
	Differs []string // in what it is not as expected; none when it is
	Steps   []Step   // what became of each call, in order
}

// OK reports whether all is as expected.
func (r *Result) OK() bool { return len(r.Differs) == 0 }

// Step is one call.
type Step struct {
	At         time.Duration // since the start
	Status     int           // of a refusal; 0 when the service was asked
	Exempt     string        // the exemption under which nothing was asked
	Limit      string        // that speaks; "" for none
	Remaining  int64         // of that limit
	RetryAfter int64         // seconds; 0 for none
	Why        string        // of a refusal, for people
}

// Run makes the calls of all cases by a policy, in the order of their times.
func Run(ctx context.Context, p *policy.Policy, f *File) ([]Result, error) {
	start := f.Start.UnixNano()
	e, err := virtual.New(p, start)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	results := make([]Result, len(f.Cases))
	tests := make([]*test, len(f.Cases))
	type call struct {
		at   time.Duration
		test *test
	}
	var calls []call
	for i := range f.Cases {
		c := &f.Cases[i]
		t, err := newTest(c, p)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", c.Line, c.Name, err)
		}
		t.result = &results[i]
		*t.result = Result{Name: c.Name, Line: c.Line}
		tests[i] = t
		for n := range c.times {
			calls = append(calls, call{c.at + time.Duration(n)*c.every, t})
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return int(min(max(a.at-b.at, -1), 1)) })
	for _, c := range calls {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e.Set(start + int64(c.at))
		c.test.call(ctx, e, c.at)
	}
	for _, t := range tests {
		t.judge()
	}
	return results, nil
}

// test is a case under way.
type test struct {
	*Case
	attributes policy.Attributes
	identity   policy.Identity
	jwt        *policy.JWT // whose rules the claims of the token obey
	unknown    error       // who calls cannot be verified
	result     *Result
	denial     *answer.Response // the first
	limit      string           // that gave it
	left       int64            // of the last call's limit
	known      bool             // what is left
}

func newTest(c *Case, p *policy.Policy) (*test, error) {
	t := &test{Case: c}
	r, a := &c.Request, &t.attributes
	a.Method, a.Host, a.Header = strings.ToUpper(or(r.Method, http.MethodGet)), r.Host, http.Header{}
	a.Path, a.RawQuery, _ = strings.Cut(or(r.Path, "/"), "?")
	a.Peer = netip.MustParseAddr(or(r.From, "192.0.2.1"))
	for name, value := range r.Headers {
		if name = http.CanonicalHeaderKey(name); name == "Host" {
			a.Host = value
		} else {
			a.Header[name] = []string{value}
		}
	}
	claims, err := r.claims()
	if err != nil {
		return nil, err
	}
	if t.identity.Claims, err = plain(claims); err != nil {
		return nil, err
	}
	t.jwt = p.Auth().JWT
	t.plan(p)
	owner, plan, err := r.key()
	if err != nil {
		return nil, err
	}
	if r.Token == invalid {
		t.unknown = unauthorized("The token is not valid.")
	}
	if owner == "" {
		return t, nil
	}
	keys := p.Auth().APIKeys
	if keys != nil { // how the policy sees that a key was sent
		a.Header[keys.Header] = []string{"the key of " + owner}
	}
	if owner == invalid {
		t.unknown = unauthorized("The API key is not known.")
		return t, nil
	}
	t.identity.KeyOwner, t.identity.KeyPlan = owner, plan
	if plan != "" {
		return t, nil
	}
	if keys == nil {
		return nil, fmt.Errorf("api_key: the policy has no auth.api_keys; write {owner: %s, plan: PLAN}", owner)
	}
	plans := plansOf(keys, owner)
	switch len(plans) {
	case 0:
		return nil, fmt.Errorf("api_key: no key of the policy's file is of %s; write {owner: %s, plan: PLAN}", owner, owner)
	case 1:
		t.identity.KeyPlan = plans[0]
		return t, nil
	}
	return nil, fmt.Errorf("api_key: the keys of %s have the plans %s; write {owner: %s, plan: %s}", owner, strings.Join(plans, " and "), owner, plans[0])
}

// plansOf are the plans of an owner's keys.
func plansOf(keys *policy.APIKeys, owner string) (plans []string) {
	for _, k := range keys.All() {
		if k.Owner == owner && !slices.Contains(plans, k.Plan) {
			plans = append(plans, k.Plan)
		}
	}
	return plans
}

// plan lets token: {plan: free} say the plan, wherever the policy takes it from.
func (t *test) plan(p *policy.Policy) {
	name, ok := t.identity.Claims["plan"].(string)
	if !ok {
		return
	}
	if claim := p.PlansClaim(); claim == "" {
		t.identity.Accounts = []*policy.Account{{Kind: policy.AccountKind, Plans: []string{name}}}
	} else if _, said := t.identity.Claims[claim]; !said {
		t.identity.Claims[claim] = name
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func unauthorized(reason string) error {
	return &policy.RequestError{Status: http.StatusUnauthorized, Code: "unauthorized", Reason: reason}
}

// plain gives values the types that they have in a verified token.
func plain(v map[string]any) (map[string]any, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("token: the claims are no JSON: %w", err)
	}
	var out map[string]any
	return out, json.Unmarshal(b, &out)
}

// who is who calls at an instant, by which a token may have expired.
func (t *test) who(now time.Time) (id policy.Identity, err error) {
	id = t.identity
	if id.Claims != nil {
		if id.Claims, err = auth.Claims(t.jwt, now, id.Claims); err != nil {
			return policy.Identity{}, err
		}
	}
	return id, t.unknown
}

// call makes one call.
func (t *test) call(ctx context.Context, e *virtual.Engine, at time.Duration) {
	o := e.Decide(ctx, &t.attributes, func() (policy.Identity, error) { return t.who(time.Unix(0, e.Now())) })
	s := Step{At: at, Status: o.Status, Exempt: o.Exempt}
	if o.Served() {
		t.result.Allowed++
		_ = o.Settle(ctx, t.service) // in memory this cannot fail
	} else {
		t.result.Denied++
		r := e.Refusal(o, &t.attributes)
		s.Why = words(&r)
		if t.denial == nil {
			t.denial = &r
		}
	}
	t.known = false
	if v := o.Speaks(); v != nil {
		s.Limit, s.Remaining = v.Rule.Name, v.Remaining
		t.left, t.known = v.Remaining, !v.Unknown
		if seconds, ok := answer.RetryAfter(&v.Decision); ok {
			s.RetryAfter = seconds
		}
		if !o.Served() && t.limit == "" && o.Limited() {
			t.limit = v.Rule.Name
		}
	}
	t.result.Steps = append(t.result.Steps, s)
}

// words are what a refusal says to people.
func words(r *answer.Response) string {
	var b struct{ Message, Detail, Error string }
	if json.Unmarshal(r.Body, &b) != nil {
		return http.StatusText(r.Status)
	}
	return or(b.Message+b.Detail, b.Error)
}

// judge compares what came of it with what was expected.
func (t *test) judge() {
	r, e := t.result, &t.Expect
	differ := func(format string, args ...any) { r.Differs = append(r.Differs, fmt.Sprintf(format, args...)) }
	if e.Allowed != nil && *e.Allowed != r.Allowed {
		differ("%d allowed, want %d", r.Allowed, *e.Allowed)
	}
	if e.Denied != nil && *e.Denied != r.Denied {
		differ("%d denied, want %d", r.Denied, *e.Denied)
	}
	switch {
	case e.Remaining == nil:
	case !t.known:
		differ("no limit says what remains, want %d", *e.Remaining)
	case *e.Remaining != t.left:
		differ("%d remain, want %d", t.left, *e.Remaining)
	}
	d := e.FirstDenial
	if d == nil {
		return
	}
	if t.denial == nil {
		differ("nothing was denied, and a first denial is expected")
		return
	}
	got := t.denial
	if d.Status != 0 && d.Status != got.Status {
		differ("first denial: status %d, want %d", got.Status, d.Status)
	}
	if d.RetryAfter != nil {
		if said, want := got.Header.Get("Retry-After"), strconv.FormatInt(*d.RetryAfter, 10); said != want {
			differ("first denial: Retry-After %q, want %s", said, want)
		}
	}
	if d.Limit != "" && d.Limit != t.limit {
		differ("first denial: by the limit %q, want %q", t.limit, d.Limit)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if said := strings.Join(got.Header.Values(name), ", "); said != d.Headers[name] {
			differ("first denial: header %s is %q, want %q", name, said, d.Headers[name])
		}
	}
	t.judgeBody(got.Body, differ)
}

func (t *test) judgeBody(body []byte, differ func(string, ...any)) {
	if len(t.Expect.FirstDenial.Body) == 0 {
		return
	}
	want, err := plain(t.Expect.FirstDenial.Body)
	if err != nil {
		differ("first denial: the body that is expected is no JSON: %v", err)
		return
	}
	var got map[string]any
	if err := json.Unmarshal(bytes.TrimSpace(body), &got); err != nil {
		differ("first denial: the body %q is no JSON object", body)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value, there := got[name]; !there {
			differ("first denial: the body has no %s, want %s", name, text(want[name]))
		} else if !reflect.DeepEqual(value, want[name]) {
			differ("first denial: the body's %s is %s, want %s", name, text(value), text(want[name]))
		}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// Timeline tells of all calls in lines. Calls of one instant with one outcome
// share a line.
func (r *Result) Timeline() []string {
	var lines []string
	for i := 0; i < len(r.Steps); {
		s, j := &r.Steps[i], i
		for j < len(r.Steps) && r.Steps[j].like(s) {
			j++
		}
		last := &r.Steps[j-1]
		which := fmt.Sprintf("call %d", i+1)
		if j-i > 1 {
			which = fmt.Sprintf("calls %d to %d", i+1, j)
		}
		lines = append(lines, fmt.Sprintf("%-10s %-16s %s", "+"+s.At.String(), which, last.outcome()))
		i = j
	}
	return lines
}

func (s *Step) like(o *Step) bool {
	return s.At == o.At && s.Status == o.Status && s.Exempt == o.Exempt && s.Limit == o.Limit && s.RetryAfter == o.RetryAfter && s.Why == o.Why
}

func (s *Step) outcome() string {
	switch {
	case s.Exempt != "":
		return "allowed: exempt as " + s.Exempt
	case s.Status == 0 && s.Limit == "":
		return "allowed: no limit applies"
	case s.Status == 0:
		return fmt.Sprintf("allowed: %d of %s remain", s.Remaining, s.Limit)
	case s.Limit == "":
		return fmt.Sprintf("denied: %d, %s", s.Status, s.Why)
	case s.RetryAfter == 0:
		return fmt.Sprintf("denied: %d by %s, for good: %s", s.Status, s.Limit, s.Why)
	}
	return fmt.Sprintf("denied: %d by %s, Retry-After %d: %s", s.Status, s.Limit, s.RetryAfter, s.Why)
}

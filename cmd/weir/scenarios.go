package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// scenario is one story that the demo plays: one or several callers, all at
// once.
type scenario struct {
	name  string
	layer string
	parts []part
	// free: nobody may be refused, and the store may not be asked.
	free bool
	// wholeAnswer: every field of the refusal is compared, not only its wait.
	wholeAnswer bool
}

// part is one caller with the calls that it makes.
type part struct {
	from   netip.Addr
	header http.Header // credentials
	method string
	path   string
	body   string
	status int // of the shop's answer
	calls  int
}

// figures are what the policy says of a scenario, worked out from its limits
// as they stand in the file.
type figures struct {
	AllowedMin int `json:"allowed_min"`
	AllowedMax int `json:"allowed_max"`

	waits [2]int64 // the least and the most seconds that a refusal may say
	rule  *policy.Rule
}

// loopback is where the demo's calls come from, and the proxy that it trusts.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// attributes is the call as the policy sees it.
func (p *part) attributes() *policy.Attributes {
	h := p.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("X-Forwarded-For", p.from.String())
	path, query, _ := strings.Cut(p.path, "?")
	return &policy.Attributes{Method: p.method, Path: path, RawQuery: query, Header: h, Peer: loopback}
}

func (p *part) request(ctx context.Context, base string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, p.method, base+p.path, strings.NewReader(p.body))
	if err != nil {
		return nil, err
	}
	r.Header = p.attributes().Header
	if p.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// opsOf are the limits that apply to a part: those of the edge, then the rest.
func opsOf(ctx context.Context, s *server, p *part) (edge, rest []policy.Op, err error) {
	a := p.attributes()
	pol := s.engine.Policy()
	m, err := pol.Match(a)
	if err != nil || m.Exempt != "" {
		return nil, nil, err
	}
	var id policy.Identity
	if m.NeedsIdentity {
		if id, err = s.verifier.Load().Identify(ctx, a.Header); err != nil {
			return nil, nil, err
		}
	}
	rest, err = pol.Ops(&m, a, id)
	return pol.AppendEdge(nil, &m, a), rest, err
}

// capacity is the smallest number of calls that a fresh caller can make at
// once; ok is false when nothing limits them.
func capacity(ctx context.Context, s *server, p *part) (n int64, ok bool, err error) {
	edge, rest, err := opsOf(ctx, s, p)
	for _, op := range slices.Concat(edge, rest) {
		if !op.Shadow {
			if fits := op.Limit.Max() / max(1, op.Cost); !ok || fits < n {
				n, ok = fits, true
			}
		}
	}
	return n, ok, err
}

// expect plays a part on limits of its own with a clock of its own: once with
// all calls at the first instant, once with all that the measured time can have
// added. What the real proxy allowed lies between.
func expect(ctx context.Context, s *server, p *part, began time.Time, took time.Duration) (figures, error) {
	edge, rest, err := opsOf(ctx, s, p)
	if err != nil {
		return figures{}, err
	}
	const steps = 100
	var f figures
	for _, spread := range []bool{false, true} {
		now := began.UnixNano()
		t := newTwin(s.engine.Policy(), func() int64 { return now })
		allowed := 0
		for step := range steps + 1 {
			if spread {
				now = began.UnixNano() + int64(took)*int64(step)/steps
			}
			for allowed < p.calls {
				d, rule, err := t.take(ctx, edge, rest)
				if err != nil {
					return figures{}, err
				}
				if !d.Allowed {
					f.rule = rule
					f.waits[1] = max(f.waits[1], engine.Seconds(d.RetryAfter))
					if !spread {
						f.waits[0] = max(1, engine.Seconds(d.RetryAfter-took))
					}
					break
				}
				allowed++
			}
			if !spread {
				break
			}
		}
		if spread {
			f.AllowedMax = allowed
		} else {
			f.AllowedMin = allowed
		}
	}
	if f.AllowedMax > f.AllowedMin {
		f.waits[0] = 1 // a refusal may have come just before the next unit
	}
	return f, nil
}

// twin decides as the engine does, on two memories of its own.
type twin struct{ edge, rest *weir.Limiter }

func newTwin(p *policy.Policy, now func() int64) twin {
	limiter := func() *weir.Limiter {
		return weir.NewLimiter(memstore.New(memstore.Options{Now: now, MaxKeys: 1024}), weir.Options{Limits: p.Limits(), Now: now})
	}
	return twin{limiter(), limiter()}
}

func (t twin) take(ctx context.Context, edge, rest []policy.Op) (d weir.Decision, rule *policy.Rule, err error) {
	d.Allowed = true
	for _, layer := range []struct {
		l   *weir.Limiter
		ops []policy.Op
	}{{t.edge, edge}, {t.rest, rest}} {
		if len(layer.ops) == 0 {
			continue
		}
		ops := make([]weir.Op, len(layer.ops))
		for i := range ops {
			ops[i] = layer.ops[i].Op
		}
		if d, err = layer.l.Take(ctx, ops...); err != nil || !d.Allowed {
			if int(d.Op) < len(layer.ops) {
				rule = layer.ops[d.Op].Rule
			}
			return d, rule, err
		}
	}
	return d, nil, nil
}

// result is one line of the demo's table, and of its JSON.
type result struct {
	Name        string  `json:"name"`
	Layer       string  `json:"layer"`
	Sent        int     `json:"sent"`
	Allowed     int     `json:"allowed"`
	Denied      int     `json:"denied"`
	FirstDenial *denial `json:"first_denial"`
	Seconds     float64 `json:"seconds"`
	StoreCalls  int64   `json:"store_calls"`
	Expected    figures `json:"expected"`
	OK          bool    `json:"ok"`
	Differs     string  `json:"differs,omitempty"` // in what, when it does
}

// play sends a scenario's calls, all at once, and compares the answers with
// the policy's figures.
func (d *stage) play(ctx context.Context, client *http.Client, sc *scenario) (result, error) {
	s := d.server
	r := result{Name: sc.name, Layer: sc.layer}
	// Callers take turns, so that none is through before the others begin.
	var order []int
	for round := 0; len(order) < sc.calls(); round++ {
		for i := range sc.parts {
			if round < sc.parts[i].calls {
				order = append(order, i)
			}
		}
	}
	calls, degraded := d.storeCalls(), d.degraded.Load()
	began := time.Now()
	answers, took := volley(ctx, client, len(order), d.atOnce(), func(ctx context.Context, i int) (*http.Request, error) {
		return sc.parts[order[i]].request(ctx, s.url())
	})
	if ctx.Err() != nil {
		return r, errInterrupted
	}
	r.StoreCalls = d.storeCalls() - calls
	r.Sent, r.Seconds, r.FirstDenial = len(answers), took.Seconds(), firstDenial(answers)

	allowed, denied := make([]int, len(sc.parts)), make([]int, len(sc.parts))
	for i, a := range answers {
		p := &sc.parts[order[i]]
		switch {
		case a.err != nil:
			return r, fmt.Errorf("scenario %s: %w", sc.name, a.err)
		case refused(a.status):
			denied[order[i]]++
		case a.status == p.status:
			allowed[order[i]]++
		default:
			r.differ("%s %s answered %d, not %d", p.method, p.path, a.status, p.status)
		}
	}
	if n := d.degraded.Load() - degraded; n > 0 {
		r.differ("the store did not answer %d times in time, and on_store_error decided", n)
	}
	for i := range sc.parts {
		f, err := expect(ctx, s, &sc.parts[i], began, took)
		if err != nil {
			return r, err
		}
		r.Allowed += allowed[i]
		r.Denied += denied[i]
		r.Expected.AllowedMin += f.AllowedMin
		r.Expected.AllowedMax += f.AllowedMax
		if allowed[i] < f.AllowedMin || allowed[i] > f.AllowedMax {
			r.differ("caller %d of %d: %d allowed, the policy says %s", i+1, len(sc.parts), allowed[i], between(f.AllowedMin, f.AllowedMax))
		}
		if sc.free && denied[i] > 0 {
			r.differ("%d refused, and none may be", denied[i])
		}
		if f.rule != nil && r.Expected.rule == nil {
			r.Expected.rule, r.Expected.waits = f.rule, f.waits
		}
	}
	if sc.free && r.StoreCalls > 0 {
		r.differ("the store was asked %d times", r.StoreCalls)
	}
	r.compareDenial(sc.wholeAnswer)
	r.OK = r.Differs == ""
	return r, nil
}

func (sc *scenario) calls() (n int) {
	for i := range sc.parts {
		n += sc.parts[i].calls
	}
	return n
}

func (r *result) differ(format string, args ...any) {
	if r.Differs == "" {
		r.Differs = fmt.Sprintf(format, args...)
	}
}

func between(lo, hi int) string {
	if lo == hi {
		return strconv.Itoa(lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}

// compareDenial holds the first refusal against the limit that must have
// refused.
func (r *result) compareDenial(whole bool) {
	d, f := r.FirstDenial, &r.Expected
	if d == nil {
		return
	}
	if f.rule == nil {
		r.differ("refused, and no limit of the policy can have done it")
		return
	}
	var body struct {
		Error, Message, Limit string
		UpgradeURL            string `json:"upgradeUrl"`
		RetryAfterSeconds     int64  `json:"retryAfterSeconds"`
	}
	if err := json.Unmarshal(d.Body, &body); err != nil || body.Message == "" {
		r.differ("the refusal has no message: %s", d.Body)
		return
	}
	switch {
	case d.Status != http.StatusTooManyRequests:
		r.differ("refused with %d, not 429", d.Status)
	case d.RetryAfter == nil || *d.RetryAfter < f.waits[0] || *d.RetryAfter > f.waits[1]:
		r.differ("Retry-After %s, the policy says %s seconds", d.Headers["Retry-After"], between(int(f.waits[0]), int(f.waits[1])))
	case body.Limit != f.rule.Name:
		r.differ("limit %q refused, the policy says %q", body.Limit, f.rule.Name)
	case whole && body.RetryAfterSeconds != *d.RetryAfter:
		r.differ("the body says %d seconds, Retry-After %d", body.RetryAfterSeconds, *d.RetryAfter)
	case whole && body.UpgradeURL != f.rule.Denied.UpgradeURL:
		r.differ("upgradeUrl %q, the policy says %q", body.UpgradeURL, f.rule.Denied.UpgradeURL)
	case whole && sentence(f.rule, *d.RetryAfter) != "" && body.Message != sentence(f.rule, *d.RetryAfter):
		r.differ("message %q, the policy says %q", body.Message, sentence(f.rule, *d.RetryAfter))
	case whole && slices.Contains(f.rule.Headers, policy.StyleDraft6):
		for name, want := range map[string]int64{"RateLimit-Limit": f.rule.Limit.Max(), "RateLimit-Remaining": 0, "RateLimit-Reset": *d.RetryAfter} {
			if d.Headers[name] != strconv.FormatInt(want, 10) {
				r.differ("%s is %q, the policy says %d", name, d.Headers[name], want)
			}
		}
	}
}

// sentence is what a quota's refusal says where the policy has no text of its
// own; "" where it has, and for waits that are said in hours.
func sentence(rule *policy.Rule, wait int64) string {
	if rule.Denied.Message != nil || !rule.Limit.IsQuota() || rule.Limit.Period().Count != 1 || wait > 3600 || wait < 2 || rule.Limit.Max() == 1 {
		return ""
	}
	s := fmt.Sprintf("Your plan allows %d %s per %s. Try again in %d seconds", rule.Limit.Max(), rule.Name, rule.Limit.Period(), wait)
	if rule.Denied.UpgradeURL != "" {
		s += ", or upgrade to remove this limit"
	}
	return s + "."
}

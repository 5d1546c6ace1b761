package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// inTurn: every call waits for the answer to the one before. Of calls at once
	// that count only success, a refused one is told to come back in a moment.
	inTurn bool
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

// opsOf are the limits that apply to a part, those of the edge and the rest, and
// who calls.
func opsOf(ctx context.Context, s *server, p *part) (edge, rest []policy.Op, id policy.Identity, err error) {
	a := p.attributes()
	pol := s.engine.Policy()
	m, err := pol.Match(a)
	if err != nil || m.Exempt != "" {
		return nil, nil, id, err
	}
	if m.NeedsIdentity {
		if id, err = s.verifier.Load().Identify(ctx, a.Header); err != nil {
			return nil, nil, id, err
		}
	}
	rest, err = pol.Ops(&m, a, id)
	return pol.AppendEdge(nil, &m, a), rest, id, err
}

// capacity is the smallest number of calls that a fresh caller can make at
// once; ok is false when nothing limits them.
func capacity(ctx context.Context, s *server, p *part) (n int64, ok bool, err error) {
	edge, rest, _, err := opsOf(ctx, s, p)
	for _, op := range slices.Concat(edge, rest) {
		if !op.Shadow {
			if fits := op.Limit.Max() / max(1, op.Cost); !ok || fits < n {
				n, ok = fits, true
			}
		}
	}
	return n, ok, err
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

// play sends a scenario's calls, all at once or in turn, and compares the answers with
// the policy's figures.
func (d *stage) play(ctx context.Context, client *http.Client, sc *scenario) (result, error) {
	s := d.server
	r := result{Name: sc.name, Layer: sc.layer}
	order := sc.order()
	calls, degraded := d.storeCalls(), d.degraded.Load()
	began := time.Now()
	atOnce := d.atOnce()
	if sc.inTurn {
		atOnce = 1
	}
	answers, took := volley(ctx, client, len(order), atOnce, func(ctx context.Context, i int) (*http.Request, error) {
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
	f, err := expect(ctx, d, sc, order, began, took)
	if err != nil {
		return r, err
	}
	r.Expected = f
	for i := range sc.parts {
		r.Allowed += allowed[i]
		r.Denied += denied[i]
		if lo, hi := f.min[i], f.max[i]; !f.shared && (allowed[i] < lo || allowed[i] > hi) {
			r.differ("caller %d of %d: %d allowed, the policy says %s", i+1, len(sc.parts), allowed[i], between(lo, hi))
		}
		if sc.free && denied[i] > 0 {
			r.differ("%d refused, and none may be", denied[i])
		}
	}
	if r.Allowed < f.AllowedMin || r.Allowed > f.AllowedMax {
		r.differ("%d allowed, the policy says %s", r.Allowed, between(f.AllowedMin, f.AllowedMax))
	}
	if sc.free && r.StoreCalls > 0 {
		r.differ("the store was asked %d times", r.StoreCalls)
	}
	if r.FirstDenial != nil {
		if differs := f.compare(r.FirstDenial); differs != "" {
			r.differ("%s", differs)
		}
	}
	r.OK = r.Differs == ""
	return r, nil
}

// order says whose call is which. Callers take turns, so that none is through
// before the others begin.
func (sc *scenario) order() (order []int) {
	for round, more := 0, true; more; round++ {
		more = false
		for i := range sc.parts {
			if round < sc.parts[i].calls {
				order, more = append(order, i), true
			}
		}
	}
	return order
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

package policy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// matched is what Ops needs of a Match.
type matched struct {
	ip      weir.Key // of the address, if an edge rule made it
	gateway bool     // the gateway's limits apply to a caller with a plan there
	path    string   // the first reading, for expressions
	hits    []appHit // operations and limits
}

// appHit is an operation or a limit that a request matched.
type appHit struct {
	*rule
	pattern *pattern
	path    string // the reading that matched, with its case where that counts
}

// Match says what the policy makes of a request before anybody is identified.
//
// A path is read as a strict server reads it (each escape decoded once) and, if
// that makes a difference, as a lenient one does (escapes within escapes,
// backslashes, parameters after ;). A limit applies when any reading matches,
// an exemption only when all do.
//
// The error is a *[RequestError]. Match asks no store.
func (p *Policy) Match(a *Attributes) (Match, error) {
	var m Match
	method := strings.ToUpper(a.Method)
	if method == http.MethodConnect || method == http.MethodTrace {
		return m, &RequestError{http.StatusMethodNotAllowed, "method_not_allowed", method + " is not served"}
	}
	paths, err := readPath(a.Path)
	if err != nil {
		return m, err
	}
	m.Client = clientAddress(a.Peer, a.Header["X-Forwarded-For"], p.proxies)
	q := request{method: method, host: normalHost(a.Host), preflight: method == http.MethodOptions && isPreflight(a)}
	var room [16]hit
	hits := room[:0]
	for i := range paths.all() {
		q.path, q.reading = &paths.r[i], int16(i)
		hits = p.trie.find(&q, hits)
	}
	for _, n := range p.always {
		if !q.preflight || p.targets[n].kind == edgeRule {
			hits = append(hits, hit{target: n})
		}
	}
	// The lenient reading comes first: of the many spellings of one resource it
	// makes one value, and so one counter.
	slices.SortFunc(hits, func(a, b hit) int {
		switch {
		case a.target != b.target:
			return int(a.target - b.target)
		case a.reading != b.reading:
			return int(b.reading - a.reading)
		case a.pattern == nil || b.pattern == nil:
			return 0
		}
		return a.pattern.order - b.pattern.order
	})
	if m.Exempt = p.exempted(hits, paths.n); m.Exempt != "" {
		return m, nil
	}
	m.app.path = paths.r[0].text
	var found [2][2]int // operations by reading, as the path is and with another last slash: index of the hit + 1
	route := false
	for i := range hits {
		h := &hits[i]
		t := &p.targets[h.target]
		switch {
		case t.kind == operation:
			at := &found[h.reading][0]
			if h.loose {
				at = &found[h.reading][1]
			}
			if *at == 0 || moreSpecific(h.pattern, hits[*at-1].pattern) {
				*at = i + 1
			}
		case t.kind == gatewayRoute:
			route = true
		case t.kind == edgeRule && first(hits, i):
			if t.except == nil || !m.Client.IsValid() || !t.except.Contains(m.Client) {
				m.Edge = p.edgeOps(m.Edge, t.rule, &m, a)
			}
		}
	}
	for _, n := range operations(hits, [2]int{operationOf(hits, found[0]), operationOf(hits, found[1])}) {
		if n > 0 {
			m.app.add(p, &hits[n-1], &paths)
		}
	}
	for i := range hits {
		if p.targets[hits[i].target].kind == limit && first(hits, i) {
			m.app.add(p, &hits[i], &paths)
		}
	}
	m.NeedsKey = route
	m.app.gateway = p.gateway != nil && (route || !p.gatewayMatch && !q.preflight)
	m.NeedsIdentity = route || len(m.app.hits) > 0 || m.app.gateway && p.sentKey(a)
	return m, nil
}

// first reports whether a hit is the first of its target: each applies once.
func first(hits []hit, i int) bool { return i == 0 || hits[i].target != hits[i-1].target }

func (m *matched) add(p *Policy, h *hit, paths *readings) {
	r := p.targets[h.target].rule
	path := paths.r[h.reading].text
	if r.exact {
		path = paths.r[h.reading].exact
	}
	m.hits = append(m.hits, appHit{r, h.pattern, path})
}

// exempted returns the name of the exemption when every reading has one. The
// hits are in order, exemptions first.
func (p *Policy) exempted(hits []hit, readings int) string {
	name, found := "", [2]bool{}
	for _, h := range hits {
		t := &p.targets[h.target]
		if t.kind != exemption {
			break
		}
		if found[h.reading] = true; name == "" {
			name = t.name
		}
	}
	if !found[0] || readings == 2 && !found[1] {
		return ""
	}
	return name
}

// operations drops the operation of one reading when the other's is the same
// or a more specific one. When neither is, both apply: a server may read the
// path either way.
func operations(hits []hit, best [2]int) [2]int {
	if best[0] == 0 || best[1] == 0 {
		return best
	}
	a, b := &hits[best[0]-1], &hits[best[1]-1]
	switch {
	case a.target == b.target:
		best[1] = 0
	case a.pattern.host == b.pattern.host && a.pattern.within(b.pattern):
		best[1] = 0
	case a.pattern.host == b.pattern.host && b.pattern.within(a.pattern):
		best[0] = 0
	}
	return best
}

// operationOf chooses between the best pattern that matches a path as it is and
// the best that matches with another last slash: the latter only where it is
// the more specific one, as /a/ is for /a beside a pattern for everything.
func operationOf(hits []hit, found [2]int) int {
	if found[0] == 0 || found[1] == 0 {
		return max(found[0], found[1])
	}
	strict, loose := hits[found[0]-1].pattern, hits[found[1]-1].pattern
	if loose.overrules(strict) {
		return found[1]
	}
	return found[0]
}

// overrules reports whether a pattern that ignores a path's last slash is more
// specific than one that takes the path as it is.
func (p *pattern) overrules(strict *pattern) bool {
	if (p.host == "") != (strict.host == "") {
		return strict.host == "" && strict.tail == multi
	}
	return p.within(strict)
}

// moreSpecific compares two patterns that the same path matches.
func moreSpecific(p, q *pattern) bool {
	if (p.host == "") != (q.host == "") {
		return p.host != ""
	}
	return p.generals > q.generals
}

// isPreflight reports whether an OPTIONS is a browser's question whether it may
// call.
func isPreflight(a *Attributes) bool {
	return len(a.Header["Origin"]) > 0 && len(a.Header["Access-Control-Request-Method"]) > 0
}

// sentKey reports whether the request carries an API key.
func (p *Policy) sentKey(a *Attributes) bool {
	return p.auth.APIKeys != nil && len(a.Header[p.auth.APIKeys.Header]) > 0
}

// edgeOps appends the ops of an edge rule.
func (p *Policy) edgeOps(ops []Op, r *rule, m *Match, a *Attributes) []Op {
	res := resolver{p: p, client: m.Client, a: a, ip: m.app.ip}
	// Without callers from a token nothing can go wrong here.
	c, err := res.counter(&r.by, nil)
	if err != nil {
		return ops
	}
	m.app.ip = res.ip
	for _, one := range r.full {
		ops = append(ops, Op{weir.Op{Limit: one.Limit, Key: c.key, Cost: 1, Shadow: r.shadow, OnFail: r.onFail}, one})
	}
	return ops
}

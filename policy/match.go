package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlabs/weir"
)

// matched is what the ops of a Match are made of.
type matched struct {
	ip      weir.Key // of the address, once an edge rule made it
	gateway bool     // the gateway's limits apply to a caller with a plan there
	all     bool     // it stands for every request
	path    string   // the first reading, for expressions
	edge    few[*rule]
	app     few[appHit] // operations and limits
	trace   *trace      // nil but for who explains
	once    *weir.Op    // that remembers the request's id; nil without one
}

// few is a list whose first elements, mostly all there are, need no memory of
// their own.
type few[T any] struct {
	n     int
	first [2]T
	more  []T
}

func (f *few[T]) add(x T) {
	if f.n < len(f.first) {
		f.first[f.n] = x
	} else {
		f.more = append(f.more, x)
	}
	f.n++
}

func (f *few[T]) at(i int) *T {
	if i < len(f.first) {
		return &f.first[i]
	}
	return &f.more[i-len(f.first)]
}

// appHit is an operation or a limit that a request matched.
type appHit struct {
	*rule
	pattern *pattern
	path    string // the reading that matched, with its case where that counts
}

// Match says what the policy makes of a request before anybody is identified.
//
// A path is read as a strict server reads it (each escape decoded once) and, where
// that makes a difference, as others do: those that find segments after decoding, those
// that take a backslash for a slash, and lenient ones (escapes within escapes too,
// parameters after ; gone), with dot segments resolved. Where there are any, each of
// these is joined by one in which they are segments like any other, as they are to
// routers that resolve none, and beside empty segments by one in which a .. goes back
// by one of these, as of RFC 3986. A limit applies when any reading matches, an
// exemption only when all do.
//
// The error is a *[RequestError]. Match asks no store.
func (p *Policy) Match(a *Attributes) (m Match, err error) {
	err = p.match(a, &m, nil)
	return m, err
}

// MatchInto is Match with room for its result.
func (p *Policy) MatchInto(m *Match, a *Attributes) error {
	*m = Match{}
	return p.match(a, m, nil)
}

// Sole is the op of a request of which it is known at once, because the policy has
// one limit, for every path, that counts addresses: it is the only one that
// [Policy.AppendOps] would append for a caller without records, and is never a
// shadow's, metered, to be settled or to be told of. The op is shared and must not
// be changed; its key is the one beside it. It is nil where there may be more, or
// nothing, or an error.
func (p *Policy) Sole(a *Attributes) (op *Op, client netip.Addr, key weir.Key) {
	if p.sole == nil || !usualMethod(a.Method) || !plain(a.Path) || a.Path == "" || a.Path[0] != '/' {
		return nil, client, key
	}
	client = p.addresses.client(a)
	return p.sole, client, p.addresses.key(client)
}

// usualMethod reports whether a method is served, as it is written, whatever else
// the request says.
func usualMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead:
		return true
	}
	return false
}

// match tells tr, unless it is nil, what becomes of every pattern.
func (p *Policy) match(a *Attributes, m *Match, tr *trace) error {
	method := strings.ToUpper(a.Method)
	if method == http.MethodConnect || method == http.MethodTrace {
		return &RequestError{http.StatusMethodNotAllowed, "method_not_allowed", "The method " + method + " is not served."}
	}
	var paths readings
	if err := paths.read(a.Path); err != nil {
		return err
	}
	m.Client = p.addresses.client(a)
	host := ""
	if p.trie.hosts {
		host = normalHost(a.Host)
	}
	q := request{method: method, host: host, preflight: method == http.MethodOptions && isPreflight(a), trace: tr}
	var room [8]hit
	hits := room[:0]
	for i := range paths.n {
		q.path, q.reading = paths.at(i), int16(i)
		hits = p.trie.find(&q, hits)
	}
	for _, n := range p.always {
		if !q.preflight || p.targets[n].kind == edgeRule {
			hits = append(hits, hit{target: n})
		}
	}
	// The lenient reading comes first, those that resolve as of RFC 3986 later, and
	// those with dot segments as written last: of the many spellings of one resource that makes one value, and so one
	// counter.
	if len(hits) > 1 {
		slices.SortFunc(hits, inOrder)
	}
	if tr != nil {
		m.found.trace = tr
		tr.request(method, host, q.preflight)
		for i := range paths.n {
			tr.reading(paths.at(i).text, paths.at(i).slash)
		}
		tr.hits = slices.Clone(hits)
	}
	if m.Exempt = p.exempted(hits, paths.n); m.Exempt != "" {
		return nil
	}
	m.found.path = paths.at(0).text
	route := false
	if len(hits) == 1 && p.targets[hits[0].target].kind == limit {
		m.found.app.add(p.appHit(&hits[0], &paths)) // as most requests have it
	} else {
		route = p.choose(m, hits, &paths)
	}
	m.NeedsKey = route
	m.found.gateway = p.gateway != nil && (route || !p.gatewayMatch && !q.preflight)
	m.NeedsIdentity = route || m.found.app.n > 0 || m.found.gateway && p.sentKey(a)
	return nil
}

// choose finds which of the rules that hits lead to apply, and whether one is a
// gateway route.
func (p *Policy) choose(m *Match, hits []hit, paths *readings) (route bool) {
	var found [maxReadings][2]int // operations by reading, as the path is and with another last slash: index of the hit + 1
	operated, conditional := false, false
	for i := range hits {
		h := &hits[i]
		t := &p.targets[h.target]
		switch {
		case t.kind == operation && h.pattern == nil:
			conditional = true
		case t.kind == operation:
			operated = true
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
				m.found.edge.add(t.rule)
			}
		}
	}
	if operated {
		var best [maxReadings]int
		for i := range paths.n {
			best[i] = operationOf(hits, found[i])
		}
		for _, n := range operations(hits, best) {
			if n > 0 {
				m.found.app.add(p.appHit(&hits[n-1], paths))
			}
		}
	}
	for i := 0; conditional && i < len(hits); i++ { // those that `when:` alone tells, after those of a pattern
		if p.targets[hits[i].target].kind == operation && hits[i].pattern == nil {
			m.found.app.add(p.appHit(&hits[i], paths))
		}
	}
	for i := range hits {
		if p.targets[hits[i].target].kind == limit && first(hits, i) {
			m.found.app.add(p.appHit(&hits[i], paths))
		}
	}
	return route
}

func inOrder(a, b hit) int {
	switch {
	case a.target != b.target:
		return int(a.target - b.target)
	case a.dots != b.dots:
		return int(a.dots) - int(b.dots)
	case a.last != b.last:
		return int(b.last) - int(a.last)
	case a.pattern == nil || b.pattern == nil:
		return 0
	}
	return a.pattern.order - b.pattern.order
}

// first reports whether a hit is the first of its target: each applies once.
func first(hits []hit, i int) bool { return i == 0 || hits[i].target != hits[i-1].target }

func (p *Policy) appHit(h *hit, paths *readings) appHit {
	r := p.targets[h.target].rule
	path := paths.at(int(h.reading)).text
	if r.exact {
		path = paths.at(int(h.reading)).exact
	}
	return appHit{r, h.pattern, path}
}

// exempted returns the name of the exemption when every reading has one. The
// hits are in order, exemptions first.
func (p *Policy) exempted(hits []hit, readings int) string {
	name, found, exempt := "", [maxReadings]bool{}, 0
	for _, h := range hits {
		t := &p.targets[h.target]
		if t.kind != exemption {
			break
		}
		if name == "" {
			name = t.name
		}
		if !found[h.reading] {
			found[h.reading] = true
			exempt++
		}
	}
	if exempt < readings {
		return ""
	}
	return name
}

// operations drops the operation of a reading when another's is the same or a
// more specific one. What is left applies: a server may read the path in any way.
func operations(hits []hit, best [maxReadings]int) [maxReadings]int {
	for i := range best {
		for j := range best {
			if i == j || best[i] == 0 || best[j] == 0 {
				continue
			}
			a, b := &hits[best[i]-1], &hits[best[j]-1]
			if a.target == b.target && i < j || a.target != b.target && a.pattern.host == b.pattern.host && a.pattern.within(b.pattern) {
				best[j] = 0
			}
		}
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

// AppendEdge appends to room, which may be nil, the ops of the edge rules that
// a request matched. They are to be taken first, from this process's memory.
func (p *Policy) AppendEdge(room []Op, m *Match, a *Attributes) []Op {
	if m.found.edge.n == 0 {
		return room
	}
	res := resolver{p: p, client: m.Client, header: a.Header, rawQuery: a.RawQuery, id: nobody, ip: m.found.ip}
	for i := range m.found.edge.n {
		r := *m.found.edge.at(i)
		// Without callers from a token nothing can go wrong here.
		c, err := res.counter(&r.by, nil)
		if err != nil {
			continue
		}
		for _, one := range r.full {
			room = r.ask(room, one, c.key, 1, 0)
		}
	}
	m.found.ip = res.ip
	return room
}

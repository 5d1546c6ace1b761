package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirlabs/weir"
)

// source says where a caller's id comes from: verified sources only.
type source uint8

const (
	fromAddress source = iota
	fromClaim
	fromKeyOwner
	fromKeyPlan // of plans: from: only
	fromRecord  // likewise
	fromExpression
)

// caller is one entry of `callers:`.
type caller struct {
	name  string
	from  source
	claim string // of fromClaim

	program Expression // of fromExpression: of plans only
	written string     // likewise, as the file has it
}

// text is the source as the file writes it.
func (c *caller) text() string {
	if c.from == fromExpression {
		return c.written
	}
	return [...]string{fromAddress: "client_ip", fromClaim: "jwt." + c.claim, fromKeyOwner: "api_key.owner", fromKeyPlan: "api_key.plan", fromRecord: "account.plan"}[c.from]
}

// sourceOf reads jwt.CLAIM, api_key.owner, api_key.plan, account.plan or client_ip. What
// cannot be read is taken for a claim, so that the rest is checked as usual. It
// stands in field and is for what.
func (l *loader) sourceOf(n *node, field, what string, known ...string) (caller, bool) {
	if !l.is(n, scalar, field) {
		return caller{from: fromClaim}, false
	}
	switch claim, isClaim := strings.CutPrefix(n.text, "jwt."); {
	case isClaim && claim != "":
		return caller{from: fromClaim, claim: claim}, true
	case n.text == "client_ip" && contains(known, n.text):
		return caller{from: fromAddress}, true
	case n.text == "api_key.owner" && contains(known, n.text):
		return caller{from: fromKeyOwner}, true
	case n.text == "api_key.plan" && contains(known, n.text):
		return caller{from: fromKeyPlan}, true
	case n.text == "account.plan" && contains(known, n.text):
		return caller{from: fromRecord}, true
	}
	advice := ""
	if strings.HasPrefix(n.text, "header.") || strings.HasPrefix(n.text, "query.") {
		advice = "whoever calls chooses it; use what is verified: jwt.CLAIM, " + strings.Join(known, ", ")
	}
	l.wrong(n, codeSource, suggest(n.text, append([]string{"jwt.sub"}, known...), advice), "%s is not a source for %s", show(n.text), what)
	return caller{from: map[string]source{"client_ip": fromAddress, "api_key.owner": fromKeyOwner, "api_key.plan": fromKeyPlan, "account.plan": fromRecord, "": fromClaim}[nearest(n.text, known)]}, false
}

// id is a caller's id in a request, or "" when he is not present there. The
// error is a *RequestError: a token that claims what cannot be an id.
func (c *caller) id(d *addressing, id *Identity, client netip.Addr) (string, error) {
	switch c.from {
	case fromClaim:
		return claimText(c.claim, id.Claims[c.claim])
	case fromKeyOwner:
		return id.KeyOwner, nil
	}
	return d.id(client), nil
}

// claimText is a claim as an id. Whole numbers are ids in many systems.
func claimText(name string, v any) (string, error) {
	text := ""
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		text = v
	case json.Number:
		text = v.String()
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return "", unauthorized("The claim " + name + " of the token is not an id.")
		}
		text = strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return "", unauthorized("The claim " + name + " of the token is not a text.")
	}
	if len(text) > maxID {
		return "", unauthorized("The claim " + name + " of the token is too long.")
	}
	return text, nil
}

func unauthorized(reason string) error {
	return &RequestError{Status: http.StatusUnauthorized, Code: "unauthorized", Reason: reason}
}

// sharing is a compiled `by:`: who shares a counter.
type sharing struct {
	text   string
	forms  []form
	single bool // no form has parts of a request
}

// form is one of the forms that `by:` lists: callers that must all be present,
// and parts of the request that tell their counters apart.
type form struct {
	everyone bool
	callers  []int // indexes of Policy.callers
	parts    []part
	rank     uint8 // of what is broader: a higher one is asked later
}

type partKind uint8

const (
	pathPart partKind = iota
	headerPart
	queryPart
)

type part struct {
	from partKind
	name string // of the wildcard, header or query parameter
	kind string // in keys
}

// Ranks of ops that are as narrow as each other: callers come in the order of
// the file, before the gateway's and what is everyone's.
const (
	rankGateway  = 254
	rankEveryone = 255
)

// everyoneID is the id of what all callers share.
const everyoneID = "all"

// sharingOf reads a `by:`. Wildcards must be in every pattern.
func (l *loader) sharingOf(n *node, layer Layer, callers []caller, patterns []*pattern) sharing {
	s := sharing{single: true}
	if n == nil {
		return s
	}
	var texts []string
	l.each("by", value{read: func(n *node) {
		if !l.is(n, scalar, "by") {
			return
		}
		f, ok := l.form(n, layer, callers, patterns)
		if !ok {
			return
		}
		if len(s.forms) > 0 {
			last := s.forms[len(s.forms)-1]
			if last.everyone || onlyAddress(last, callers) {
				l.doubt(n, codeUnreachedForm, "put "+show(texts[len(texts)-1])+" last", "%s is never reached: %s is always present", show(n.text), show(texts[len(texts)-1]))
			}
		}
		l.checkWays(n, &s, &f, callers)
		texts = append(texts, n.text)
		s.forms = append(s.forms, f)
		s.single = s.single && len(f.parts) == 0
	}}).read(n)
	s.text = strings.Join(texts, ", ")
	return s
}

// maxKeyParts bounds the parts of the request in one key.
const maxKeyParts = 6

// checkWays reports a form of which a key could be another form's, or another
// part's: whoever calls could then choose a part so that it names another
// caller's counter.
func (l *loader) checkWays(n *node, s *sharing, f *form, callers []caller) {
	if len(f.parts) > maxKeyParts {
		l.wrong(n, codeKeyForm, "leave some out", "a key has %d parts of the request; at most %d are possible", len(f.parts), maxKeyParts)
		return
	}
	taken := map[string]string{}
	for i := range s.forms {
		for kinds, sources := range s.forms[i].ways(callers) {
			taken[kinds] = sources
		}
	}
	for kinds, sources := range f.ways(callers) {
		if other, ok := taken[kinds]; ok && other != sources {
			l.wrong(n, codeSameKeys, "give the part another name than a caller or another part has", "%s and %s would make the same keys", show(other), show(sources))
			return
		}
		taken[kinds] = sources
	}
}

// ways yields the kinds of every key that a form can make, as they stand there
// and joined by |, and what they are taken from. A part that a request lacks is
// left out.
func (f *form) ways(callers []caller) iter.Seq2[string, string] {
	return func(yield func(kinds, sources string) bool) {
		for some := range 1 << len(f.parts) {
			var kinds, sources []string
			if f.everyone {
				kinds, sources = append(kinds, "everyone"), append(sources, "everyone")
			}
			for _, c := range f.callers {
				kinds, sources = append(kinds, callers[c].name), append(sources, callers[c].name)
			}
			for i, p := range f.parts {
				if some>>i&1 == 1 {
					kinds, sources = append(kinds, escaped(p.kind)), append(sources, p.from.String()+"."+p.kind)
				}
			}
			if !yield(strings.Join(kinds, "|"), strings.Join(sources, "+")) {
				return
			}
		}
	}
}

func (k partKind) String() string { return [...]string{"path", "header", "query"}[k] }

func onlyAddress(f form, callers []caller) bool {
	for _, c := range f.callers {
		if callers[c].from != fromAddress {
			return false
		}
	}
	return len(f.callers) > 0
}

func (l *loader) form(n *node, layer Layer, callers []caller, patterns []*pattern) (form, bool) {
	f := form{}
	names := []string{"everyone"}
	for _, c := range callers {
		names = append(names, c.name)
	}
	words := strings.Split(n.text, "+")
	for i, word := range words {
		words[i] = strings.TrimSpace(word)
		word = words[i]
		kind, name, dotted := strings.Cut(word, ".")
		switch {
		case word == "":
			l.wrong(n, codeKeyForm, "write account+path.NAME, account+agent, ...", "a word is missing beside the +")
			return f, false
		case contains(words[:i], word):
			l.wrong(n, codeKeyForm, "keep one of the two", "%s stands twice in one key", show(word))
			return f, false
		case dotted && (kind == "path" || kind == "header" || kind == "query"):
			if i == 0 {
				l.wrong(n, codeUnproven, "write account+"+word+", or ip+"+word, "%s alone is chosen by whoever calls", show(word))
				return f, false
			}
			if layer == Edge && kind == "path" {
				l.wrong(n, codeEdgeSees, "use ip, ip+header.NAME or ip+query.NAME", "path: of the edge has no names for %s to refer to", show(word))
				return f, false
			}
			p, ok := l.part(n, kind, name, patterns)
			if !ok {
				return f, false
			}
			f.parts = append(f.parts, p)
		case word == "everyone":
			if i > 0 {
				l.wrong(n, codeKeyForm, "write everyone first", "everyone follows a +")
				return f, false
			}
			f.everyone, f.rank = true, rankEveryone
		default:
			at := -1
			for j, c := range callers {
				if c.name == word {
					at = j
				}
			}
			if at < 0 {
				l.wrong(n, codeUnknownCaller, suggest(word, names, ""), "%s is not one of the callers", show(word))
				return f, false
			}
			if layer == Edge && callers[at].from != fromAddress {
				l.wrong(n, codeEdgeSees, "write by: ip, or move the limit to application.limits", "the edge sees addresses, paths and headers, but no %s", word)
				return f, false
			}
			if f.everyone {
				l.wrong(n, codeKeyForm, "write "+word+" alone", "everyone and a caller cannot be one item")
				return f, false
			}
			f.callers = append(f.callers, at)
			f.rank = max(f.rank, uint8(min(at, 200)))
		}
	}
	return f, true
}

func (l *loader) part(n *node, kind, name string, patterns []*pattern) (part, bool) {
	switch kind {
	case "path":
		for _, p := range patterns {
			if !contains(p.names(), name) {
				if l.lacked == name {
					return part{}, false
				}
				l.lacked = name
				l.wrong(n, codePathPart, suggest(name, p.names(), "write the pattern with {"+name+"}"), "pattern %s has no {%s}", show(p.text), name)
				return part{}, false
			}
		}
		if len(patterns) == 0 && !l.flawed && l.lacked != name {
			l.lacked = name
			l.wrong(n, codePathPart, "add match: with a pattern that has {"+name+"}", "path.%s needs a pattern that names it", name)
			return part{}, false
		}
		return part{pathPart, name, name}, true
	case "header":
		canonical := l.headerName(n, name)
		return part{headerPart, canonical, strings.ToLower(name)}, canonical != ""
	}
	if name == "" {
		l.wrong(n, codeKeyForm, "write query.NAME", "the name of the query parameter is missing")
	}
	return part{queryPart, name, name}, name != ""
}

// longPrefix marks a value that is written as its hash. A value that begins
// with it is hashed too, so that nobody can write another's hash.
const longPrefix = "sha256:"

// idPart is a value of the request as part of a key, with bounded length.
func idPart(v string, most int) string {
	if len(v) <= most && !strings.HasPrefix(v, longPrefix) {
		return v
	}
	sum := sha256.Sum256([]byte(v))
	return longPrefix + hex.EncodeToString(sum[:])
}

// keyOf joins kinds and ids. Where escapes would make the key too long, long
// ids are hashed.
func keyOf(pairs []string) weir.Key {
	k := weir.NewKey(pairs[0], pairs[1], pairs[2:]...)
	for most := 64; !k.Valid() && most >= 16; most /= 2 {
		short := make([]string, len(pairs))
		copy(short, pairs)
		for i := 1; i < len(short); i += 2 {
			short[i] = idPart(short[i], most)
		}
		k = weir.NewKey(short[0], short[1], short[2:]...)
	}
	return k
}

// part is what a part of a request says, or "" without one.
func (r *resolver) part(p *part, h *appHit) string {
	var v string
	switch p.from {
	case pathPart:
		if h != nil && h.pattern != nil {
			v = h.pattern.value(h.path, p.name)
		}
	case headerPart:
		v = strings.Join(r.header[p.name], ", ")
	case queryPart:
		if r.query == nil {
			r.query, _ = url.ParseQuery(r.rawQuery)
		}
		v = r.query.Get(p.name)
	}
	return idPart(v, maxID)
}

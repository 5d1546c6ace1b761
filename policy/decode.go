package policy

import (
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// maxID is the longest name of a caller in bytes. Longer path, header and
// query values are hashed; a longer subject of a token is refused.
const maxID = 256

// loader reads one policy. Every method that reads a node reports what is
// wrong with it and returns a usable value, so that one pass finds everything.
type loader struct {
	document
	fsys    fs.FS
	name    string         // the policy's file within fsys
	proxies []netip.Prefix // trusted beside those of the file

	checkStore  func(string, []weir.Limit) error // nil: any store may be named
	expressions Compiler                         // nil: there may be none
	onlyAuth    bool

	environment string   // to be in force; "" for none
	envNames    []string // that the file knows
	others      Problems // of environments that are not in force
	files       []string // that were read

	flawed bool   // a pattern of the rule at hand is a mistake, which is said of it already
	lacked string // the wildcard that a pattern of the rule lacks, likewise
}

// needed shows what a missing field may look like.
var needed = map[string]string{
	"weir":  "begin the file with weir: 1",
	"name":  "counters belong to the name: write name: orders",
	"by":    "say who shares a counter: by: account, by: [account, ip] or by: ip",
	"limit": "write limit: 10/s burst 20, or limit: quota 100/day",
	"match": "write match: POST /orders",
	"path":  "write path: /webhooks/*",
	"file":  "name the file with one OWNER PLAN SHA256HEX a line",
	"plans": "name the plans and their limits",
}

// advice says what to write for names that other products use.
var advice = map[string]string{
	"burst":    "the burst is part of the limit: 10/s burst 20",
	"rate":     "a rate is written in one piece: limit: 10/s burst 20",
	"window":   "the window is part of the limit: quota 100/day, or sliding 2000/5m",
	"period":   "the period is part of the limit: quota 100/day",
	"requests": "a rate is written in one piece: limit: 10/s burst 20",
	"key":      "who shares a counter is said by `by:`",
	"match":    "paths are named by `path:` here, such as /api/*",
	"path":     "routes are named by `match:` here, such as POST /orders",
	"methods":  "the method is part of the pattern: match: POST /orders",
	"method":   "the method is part of the pattern: match: POST /orders",
	"dry_run":  "write mode: shadow",
	"enabled":  "write mode: enforce, shadow or off",
}

func find(rows []row, name string) *row {
	for i := range rows {
		if rows[i].name == name {
			return &rows[i]
		}
	}
	return nil
}

// suggest is the fix for an unknown word: the nearest known one, else advice,
// else all that are known.
func suggest(word string, known []string, advice string) string {
	if best := nearest(word, known); best != "" {
		return "did you mean " + show(best) + "?"
	}
	if advice != "" {
		return advice
	}
	if len(known) == 0 {
		return ""
	}
	return "known here: " + strings.Join(known, ", ")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

var shapeNames = map[shape]string{scalar: "a text", integer: "a number", list: "a list", object: "a set of fields"}

// is reports a node of another shape than the wanted one.
func (l *loader) is(n *node, want shape, what string) bool {
	if n.shape == want || want == scalar && n.shape == integer {
		return true
	}
	if n.shape != broken {
		hint := ""
		if n.flow && n.shape == object && want == scalar {
			hint = "a text that begins with { needs quotes"
		}
		l.wrong(n, codeShape, hint, "%s must be %s, and %s stands here", what, shapeNames[want], shapeNames[n.shape])
	}
	return false
}

// text reads a scalar that is not empty.
func (l *loader) text(what string, to *string) value {
	return value{textForm, func(n *node) {
		if !l.is(n, scalar, what) {
			return
		}
		if strings.TrimSpace(n.text) == "" {
			l.wrong(n, codeEmptyText, "", "%s is empty", what)
			return
		}
		*to = n.text
	}}
}

// keep leaves a scalar for later, when more of the file is known.
func keep(to **node) value { return value{textForm, func(n *node) { *to = n }} }

// namePattern is the form of a name, for the schema: what plan.IsWord takes.
const namePattern = `^[a-z][a-z0-9-]{0,31}$`

// checkName reports a name that cannot be part of keys and counters.
func (l *loader) checkName(n *node, what string) bool {
	if !l.is(n, scalar, "the name of "+what) {
		return false
	}
	if !plan.IsWord(n.text) {
		l.wrong(n, codeName, "use a lower-case letter, then up to 31 letters, digits or -", "%s is not a name for %s", show(n.text), what)
		return false
	}
	return true
}

// word reads one of a few words.
func (l *loader) word(what string, to *string, known ...string) value {
	return value{func() *schema { return &schema{Type: "string", Enum: known} }, func(n *node) {
		if !l.is(n, scalar, what) {
			return
		}
		if !contains(known, n.text) {
			l.wrong(n, codeWord, suggest(n.text, known, ""), "%s is not a value of %s", show(n.text), what)
			*to = nearest(n.text, known) // what is meant, so that nothing follows from the slip
			return
		}
		*to = n.text
	}}
}

// number reads an integer within bounds.
func (l *loader) number(what string, to *int64, least, most int64) value {
	return value{func() *schema { return &schema{Type: "integer", Minimum: &least, Maximum: &most} }, func(n *node) {
		v, err := strconv.ParseInt(n.text, 10, 64)
		if n.shape != integer || err != nil || v < least || v > most {
			if l.is(n, scalar, what) {
				l.wrong(n, codeRange, "", "%s is not a whole number from %d to %d", show(n.text), least, most)
			}
			return
		}
		*to = v
	}}
}

// time reads a length of time within bounds. It stands in the file as in a limit:
// 30s, 5m.
func (l *loader) time(what string, to *time.Duration, least, most time.Duration) value {
	return value{textForm, func(n *node) {
		if !l.is(n, scalar, what) {
			return
		}
		per, err := weir.ParseLimit("1/" + n.text)
		if err == nil {
			*to = per.Period().Duration()
		}
		if err != nil || *to < least || *to > most {
			l.wrong(n, codeRange, "write "+what+": 30s", "%s is not a time from %s to %s", show(n.text), shortTime(least), shortTime(most))
		}
	}}
}

// shortTime is 1h and not 1h0m0s.
func shortTime(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// each reads a list, or one value in place of a list.
func (l *loader) each(what string, v value) value {
	return value{func() *schema { return oneOrList(v.form()) }, func(n *node) {
		if n.shape != list {
			v.read(n)
			return
		}
		l.items(n, what, v.read)
	}}
}

// listed reads a list that may not be a single value.
func (l *loader) listed(what string, v value) value {
	return value{func() *schema { return listOf(v.form()) }, func(n *node) {
		if l.is(n, list, what) {
			l.items(n, what, v.read)
		}
	}}
}

func (l *loader) items(n *node, what string, read func(*node)) {
	if len(n.items) == 0 {
		l.wrong(n, codeEmptyList, "remove the line if none is meant", "%s is an empty list", what)
	}
	for _, i := range n.items {
		if i.shape != broken {
			read(i)
		}
	}
}

var styleNames = []string{"ietf", "draft6", "x", "github", "openai", "none"}

func (l *loader) styles(to *[]HeaderStyle) value {
	return l.each("header_styles", value{l.word("header_styles", nil, styleNames...).form, func(n *node) {
		var s string
		l.word("header_styles", &s, styleNames...).read(n)
		for _, have := range *to {
			if (s == "none") != (have == StyleNone) && s != "" {
				l.wrong(n, codeStyles, "write none alone", "header style none stands beside another one")
				return
			}
			if string(have) == s {
				l.wrong(n, codeRepeated, "keep one of the two", "%s is given twice", show(s))
				return
			}
		}
		if s != "" {
			*to = append(*to, HeaderStyle(s))
		}
	}})
}

// prefixes reads networks, or single addresses.
func (l *loader) prefixes(what string, to **bart.Lite, also func(*node, netip.Prefix)) value {
	return l.each(what, value{networkForm, func(n *node) {
		if !l.is(n, scalar, what) {
			return
		}
		p, err := netip.ParsePrefix(n.text)
		if err != nil {
			a, aerr := netip.ParseAddr(n.text)
			if aerr != nil || a.Zone() != "" {
				l.wrong(n, codeNetwork, "write 10.0.0.0/8, 2001:db8::/32 or one address", "%s is not a network", show(n.text))
				return
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p = unmapped(p); p.Addr().Is4In6() {
			l.wrong(n, codeNetwork, "write the IPv4 network itself", "%s mixes IPv4 and IPv6", show(n.text))
			return
		}
		if p != p.Masked() {
			l.doubt(n, codeHostBits, "write "+p.Masked().String()+", or one address without /", "%s names one address, and means the whole network", show(n.text))
		}
		if *to == nil {
			*to = new(bart.Lite)
		}
		(*to).Insert(p.Masked())
		if also != nil {
			also(n, p.Masked())
		}
	}})
}

// unmapped makes an IPv4 network of one that is written as IPv6, where it is
// one.
func unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}

// limit is one limit of the file, and where it stands.
type limitAt struct {
	weir.Limit
	at *node
}

// limits reads a limit, or a list of limits.
func (l *loader) limits(to *[]limitAt) value {
	return l.each("a limit", value{limitForm, func(n *node) {
		if !l.is(n, scalar, "a limit") {
			return
		}
		parsed, err := weir.ParseLimit(n.text)
		if err != nil {
			hint := ""
			if n.text == "unlimited" {
				hint = "only a plan may say so; elsewhere remove the limit, or use mode: off"
			} else if n.shape == integer {
				hint = "write the time too: " + n.text + "/s"
			}
			l.wrong(n, codeLimit, hint, "%s", strings.TrimPrefix(err.Error(), "weir: "))
			return
		}
		if anchored, err := parsed.Anchored(noAnchor); err == nil {
			parsed = anchored // until an account says what its own is
		}
		*to = append(*to, limitAt{parsed, n})
	}})
}

// nameAll gives the limits of one list their names: the first has the list's,
// further ones get .UNIT or .quota-UNIT.
func (l *loader) nameAll(limits []limitAt, name string, revision uint32) []weir.Limit {
	var out []weir.Limit
	seen := map[string]bool{}
	for i, lim := range limits {
		full := name
		if i > 0 {
			unit := lim.Period().String()
			if lim.IsQuota() {
				unit = "quota-" + unit
			}
			full += "." + unit
		}
		if seen[full] {
			l.wrong(lim.at, codeOneCounter, "write a limit of its own, with a name of its own", "two limits of %s would both be counted as %s", show(name), show(full))
			continue
		}
		seen[full] = true
		named, err := lim.Named(full)
		if err != nil {
			l.wrong(lim.at, codeOneCounter, "", "%s", strings.TrimPrefix(err.Error(), "weir: "))
			continue
		}
		out = append(out, named.Revised(revision, weir.KeepUsed))
	}
	return out
}

package policy

import (
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gaissmai/bart"
)

// config is the file as it was read, field by field, before it means anything.
type config struct {
	name, store, logKeys string
	revision             int64
	edgeStore            string
	storeAt              *node
	styles               []HeaderStyle
	origins              []string
	auth                 authConf
	callers              []callerConf
	proxies              *bart.Lite
	exempt, edge         []*ruleConf
	gateway              ruleConf // what holds for all its plans
	gatewayPlans         []planLimits
	plansAt              *node
	from                 *node
	order                []*node
	plans                []planConf
	operations, limits   []*ruleConf
	accountsAge          time.Duration
}

type authConf struct {
	jwt      *JWT
	header   string
	headerAt *node
	keyFile  *node
}

type callerConf struct{ name, source *node }

type planLimits struct {
	name      *node
	limits    []limitAt
	unlimited bool
}

// planConf is one version of a plan.
type planConf struct {
	name       *node
	operations []planLimits
	number     int  // of the version
	versioned  bool // the file says which
	since      int64
	sinceAt    *node
}

// ruleConf holds the fields of everything that limits: exemptions, edge rules,
// the gateway, operations and limits. Each has only some of them.
type ruleConf struct {
	at, name     *node
	matchAt      *node
	match, path  []*node
	by           *node
	limit, anon  []limitAt
	anonAt       *node
	priority     int64
	except       *bart.Lite
	exceptIPs    []netip.Prefix
	cost, when   *node
	mode         string
	onFail       string
	shareAt      *node
	share        int // 0: by the number of replicas
	count        string
	successAt    *node
	success      StatusRange
	styles       []HeaderStyle
	deniedAt     *node
	denied       Denied
	letters      string // case: exact
	because      string
	priorityNode *node
}

// read reads the whole document.
func (l *loader) read(root *node) *config {
	c := &config{logKeys: "hash"}
	var version string
	var at *node
	l.object(root, "a policy",
		row{"weir", true, func(n *node) {
			at = n
			l.text("weir", &version)(n)
		}},
		row{"name", false, l.named("the policy", &c.name)},
		row{"revision", false, l.number("revision", &c.revision, 0, math.MaxUint32)},
		row{"store", false, func(n *node) {
			c.storeAt = n
			l.text("store", &c.store)(n)
		}},
		row{"edge_store", false, l.word("edge_store", &c.edgeStore, "memory", "shared")},
		row{"log_keys", false, l.word("log_keys", &c.logKeys, "hash", "plain", "none")},
		row{"header_styles", false, l.styles(&c.styles)},
		row{"cors", false, func(n *node) {
			l.object(n, "cors", row{"origins", true, l.each("origins", func(n *node) { l.origin(n, &c.origins) })})
		}},
		row{"auth", false, func(n *node) { l.readAuth(n, &c.auth) }},
		row{"accounts", false, func(n *node) { l.readAccounts(n, c) }},
		row{"callers", false, func(n *node) { l.readCallers(n, c) }},
		row{"trusted_proxies", false, l.prefixes("trusted_proxies", &c.proxies, l.wideProxy)},
		row{"exempt", false, l.listed("exempt", func(n *node) { c.exempt = append(c.exempt, l.readExempt(n)) })},
		row{"edge", false, l.listed("edge", func(n *node) { c.edge = append(c.edge, l.readEdge(n)) })},
		row{"gateway", false, func(n *node) { l.readGateway(n, c) }},
		row{"application", false, func(n *node) {
			l.object(n, "application",
				row{"plans", false, func(n *node) { l.readPlans(n, c) }},
				row{"operations", false, func(n *node) { l.readOperations(n, c) }},
				row{"limits", false, l.listed("limits", func(n *node) { c.limits = append(c.limits, l.readLimit(n)) })},
			)
		}},
	)
	if at != nil && version != "" && version != "1" {
		l.wrong(at, "write weir: 1", "version %s of the policy form is unknown to this program", show(version))
	}
	return c
}

func (l *loader) named(what string, to *string) func(*node) {
	return func(n *node) {
		if l.checkName(n, what) {
			*to = n.text
		}
	}
}

func (l *loader) origin(n *node, to *[]string) {
	if !l.is(n, scalar, "an origin") {
		return
	}
	u, err := url.Parse(n.text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || n.text != u.Scheme+"://"+u.Host {
		l.wrong(n, "write scheme and host as a browser sends them, such as https://shop.example", "%s is not an origin", show(n.text))
		return
	}
	*to = append(*to, strings.ToLower(n.text))
}

func (l *loader) readAuth(n *node, c *authConf) {
	l.object(n, "auth",
		row{"jwt", false, func(n *node) { c.jwt = l.readJWT(n) }},
		row{"api_keys", false, func(n *node) {
			l.object(n, "api_keys",
				row{"header", true, func(n *node) { c.headerAt, c.header = n, l.headerName(n, n.text) }},
				row{"file", true, keep(&c.keyFile)},
			)
		}},
	)
}

func (l *loader) readJWT(n *node) *JWT {
	j := new(JWT)
	var sources []string
	source := func(name string, read func(*node)) row {
		return row{name, false, func(n *node) {
			sources = append(sources, name)
			if l.is(n, scalar, name) {
				read(n)
			}
		}}
	}
	l.object(n, "jwt",
		source("hs256_secret_env", func(n *node) {
			if j.SecretEnv = n.text; strings.Trim(strings.ToUpper(n.text), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || n.text == "" {
				l.wrong(n, "write the variable's name, never the secret", "this is not the name of an environment variable")
				l.hideLast() // it may be the secret
			}
		}),
		source("public_key_file", func(n *node) { j.PublicKey = l.publicKey(n) }),
		source("jwks_url", func(n *node) { j.JWKS = l.jwksURL(n) }),
		row{"issuer", false, l.text("issuer", &j.Issuer)},
		row{"audience", false, l.text("audience", &j.Audience)},
	)
	if len(sources) != 1 && n.shape == object {
		l.wrong(n, "one of hs256_secret_env, public_key_file and jwks_url says how tokens are verified", "jwt has %d sources of keys instead of one", len(sources))
	}
	return j
}

// headerName checks the name of a header and puts it into canonical form.
func (l *loader) headerName(n *node, name string) string {
	if !l.is(n, scalar, "a header's name") {
		return ""
	}
	const special = "!#$%&'*+-.^_`|~"
	for _, r := range name {
		if r > 0x7e || !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(special, r)) {
			l.wrong(n, "", "%s is not the name of a header", show(name))
			return ""
		}
	}
	if name == "" {
		l.wrong(n, "", "the name of the header is empty")
	}
	return http.CanonicalHeaderKey(name)
}

func (l *loader) readCallers(n *node, c *config) {
	if !l.is(n, object, "callers") {
		return
	}
	for _, f := range n.fields {
		c.callers = append(c.callers, callerConf{f.key, f.value})
	}
}

// What all rules have in common, as rows.

func (l *loader) matchRow(c *ruleConf) row {
	return row{"match", false, func(n *node) {
		c.matchAt = n
		l.each("match", func(n *node) {
			if l.is(n, scalar, "match") {
				c.match = append(c.match, n)
			}
		})(n)
	}}
}

func (l *loader) pathRow(c *ruleConf, need bool) row {
	return row{"path", need, l.each("path", func(n *node) {
		if l.is(n, scalar, "path") {
			c.path = append(c.path, n)
		}
	})}
}

func (l *loader) nameRow(c *ruleConf, what string) row {
	return row{"name", true, func(n *node) {
		if l.checkName(n, what) {
			c.name = n
		}
	}}
}

func (l *loader) answerRows(c *ruleConf) []row {
	return []row{
		{"mode", false, l.word("mode", &c.mode, "enforce", "shadow", "off")},
		{"header_styles", false, l.styles(&c.styles)},
		{"denied", false, func(n *node) { c.deniedAt = n; l.readDenied(n, &c.denied) }},
		{"on_store_error", false, l.word("on_store_error", &c.onFail, "allow", "deny", "local")},
		{"share", false, func(n *node) { c.shareAt = n; c.share = l.share(n) }},
	}
}

func (l *loader) countRows(c *ruleConf) []row {
	return []row{
		{"count", false, l.word("count", &c.count, "always", "on_success")},
		{"success", false, func(n *node) { c.successAt = n; c.success = l.statusRange(n) }},
		{"cost", false, keep(&c.cost)},
		{"when", false, keep(&c.when)},
		{"case", false, l.word("case", &c.letters, "exact", "ignore")},
	}
}

func (l *loader) readExempt(n *node) *ruleConf {
	c := &ruleConf{at: n}
	l.object(n, "an exemption", l.nameRow(c, "an exemption"), l.pathRow(c, true),
		row{"because", false, l.text("because", &c.because)})
	return c
}

func (l *loader) readEdge(n *node) *ruleConf {
	c := &ruleConf{at: n, priority: -1}
	rows := append([]row{l.nameRow(c, "a limit"), l.pathRow(c, false),
		{"limit", true, l.limits(&c.limit)},
		{"by", true, keep(&c.by)},
		{"priority", false, func(n *node) {
			c.priorityNode = n
			l.number("priority", &c.priority, 0, math.MaxInt32)(n)
		}},
		{"except_ips", false, l.prefixes("except_ips", &c.except, func(n *node, p netip.Prefix) {
			c.exceptIPs = append(c.exceptIPs, p)
			if p.Bits() == 0 {
				l.doubt(n, "name the networks that are meant", "the rule holds for nobody who calls from %s", show(n.text))
			}
		})}}, l.answerRows(c)...)
	l.object(n, "an edge rule", rows...)
	return c
}

func (l *loader) readGateway(n *node, c *config) {
	c.gateway.at = n
	rows := append([]row{l.matchRow(&c.gateway), {"plans", true, func(n *node) {
		if !l.is(n, object, "plans") {
			return
		}
		if len(n.fields) == 0 {
			l.wrong(n, needed["plans"], "plans names no plan")
		}
		for _, f := range n.fields {
			if f.value.shape == broken || !l.checkName(f.key, "a plan") {
				continue
			}
			p := planLimits{name: f.key}
			l.limits(&p.limits)(f.value)
			c.gatewayPlans = append(c.gatewayPlans, p)
		}
	}}}, l.answerRows(&c.gateway)...)
	l.object(n, "gateway", rows...)
}

func (l *loader) readPlans(n *node, c *config) {
	if !l.is(n, object, "plans") {
		return
	}
	c.plansAt = n
	for _, f := range n.fields {
		switch {
		case f.value.shape == broken:
		case f.key.text == "from":
			c.from = f.value
		case f.key.text == "order":
			l.listed("order", func(n *node) {
				if l.checkName(n, "a plan") {
					c.order = append(c.order, n)
				}
			})(f.value)
		default:
			name, number, versioned, ok := l.planKey(f.key)
			if !ok || !l.is(f.value, object, "a plan") {
				continue
			}
			p := planConf{name: name, number: number, versioned: versioned}
			for _, o := range f.value.fields {
				if versioned && o.key.text == "since" {
					l.since(o.value, &p)
					continue
				}
				op := planLimits{name: o.key}
				if o.value.shape == scalar && o.value.text == "unlimited" {
					op.unlimited = true
				} else {
					l.limits(&op.limits)(o.value)
				}
				p.operations = append(p.operations, op)
			}
			c.plans = append(c.plans, p)
		}
	}
}

func (l *loader) readOperations(n *node, c *config) {
	if !l.is(n, object, "operations") {
		return
	}
	for _, f := range n.fields {
		if f.value.shape == broken || !l.checkName(f.key, "an operation") {
			continue
		}
		o := &ruleConf{at: f.value, name: f.key}
		match := l.matchRow(o)
		match.need = true
		l.object(f.value, "an operation", append(append([]row{match}, l.countRows(o)...), l.answerRows(o)...)...)
		c.operations = append(c.operations, o)
	}
}

func (l *loader) readLimit(n *node) *ruleConf {
	c := &ruleConf{at: n}
	rows := []row{l.nameRow(c, "a limit"), l.matchRow(c),
		{"by", true, keep(&c.by)},
		{"limit", true, l.limits(&c.limit)},
		{"anonymous", false, func(n *node) { c.anonAt = n; l.limits(&c.anon)(n) }}}
	l.object(n, "a limit", append(append(rows, l.countRows(c)...), l.answerRows(c)...)...)
	return c
}

// share reads 1/N or 1/replicas, which is 0.
func (l *loader) share(n *node) int {
	if !l.is(n, scalar, "share") {
		return 0
	}
	parts, ok := strings.CutPrefix(n.text, "1/")
	if ok && parts == "replicas" {
		return 0
	}
	v, err := strconv.Atoi(parts)
	if !ok || err != nil || v < 1 || v > maxParts || parts[0] < '1' || parts[0] > '9' {
		l.wrong(n, "write 1/4 for a quarter, or 1/replicas for an equal part for each process", "%s is not a share", show(n.text))
		return 0
	}
	return v
}

func (l *loader) statusRange(n *node) StatusRange {
	from, to, ok := strings.Cut(n.text, "-")
	if !ok {
		to = from
	}
	a, aerr := strconv.Atoi(strings.TrimSpace(from))
	b, berr := strconv.Atoi(strings.TrimSpace(to))
	if l.is(n, scalar, "success") && (aerr != nil || berr != nil || a < 100 || b > 599 || a > b) {
		l.wrong(n, "write two statuses such as 200-299", "%s is not a range of statuses from 100 to 599", show(n.text))
	}
	return StatusRange{a, b}
}

func (l *loader) readDenied(n *node, to *Denied) {
	l.object(n, "denied",
		row{"message", false, func(n *node) {
			var text string
			if l.text("message", &text)(n); text != "" {
				to.Message = l.message(n)
			}
		}},
		row{"upgrade_url", false, func(n *node) {
			if !l.is(n, scalar, "upgrade_url") {
				return
			}
			u, err := url.Parse(n.text)
			if err != nil || n.text == "" || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Scheme != "" && u.Host == "" || u.Opaque != "" {
				l.wrong(n, "write a path such as /billing, or an https URL", "%s is not a link", show(n.text))
				return
			}
			to.UpgradeURL = n.text
		}},
	)
}

// wideProxy warns of a network that lets many strangers name any address.
func (l *loader) wideProxy(n *node, p netip.Prefix) {
	private := p.Addr().IsPrivate() || p.Addr().IsLoopback()
	if p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 && !private {
		l.doubt(n, "name the networks of your own proxies", "whoever calls from %s can claim any address in X-Forwarded-For", show(n.text))
	}
}

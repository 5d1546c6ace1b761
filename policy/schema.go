package policy

import (
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// read reads the whole document.
func (l *loader) read(root *node) *config {
	c := &config{logKeys: "hash"}
	l.object(root, "a policy", l.policyRows(c)...)
	return c
}

// policyRows are the fields of a policy.
func (l *loader) policyRows(c *config) []row {
	rows := []row{
		{"weir", true, "The version of this form: 1.", value{versionForm, l.version}},
	}
	rows = append(rows, l.assemblyRows()...)
	return append(rows, l.bodyRows(c)...)
}

// bodyRows are the fields that an environment may have, too.
func (l *loader) bodyRows(c *config) []row {
	return []row{
		{"name", false, "The policy's name.", l.aName("the policy", &c.nameAt)},
		{"revision", false, "Raised when limits change; a lower one never rewrites stored balances.", l.number("revision", &c.revision, 0, math.MaxUint32)},
		{"store", false, "Where counters live, as a URL; --store overrides it.", at(&c.storeAt, l.text("store", &c.store))},
		{"edge_store", false, "Where edge rules are counted: in this process's memory, or shared in the store.", l.word("edge_store", &c.edgeStore, "memory", "shared")},
		{"log_keys", false, "How callers appear in logs: hashed, as they are, or not at all.", l.word("log_keys", &c.logKeys, "hash", "plain", "none")},
		{"header_styles", false, "The header fields of answers.", l.styles(&c.styles)},
		{"retry_after_jitter", false, "By how much at most a wait that callers are told is made longer at random, so that they do not all return at once: 10s.",
			l.time("retry_after_jitter", &c.jitter, time.Second, time.Hour)},
		{"mode", false, "What all limits do at most: enforce, shadow or off.", l.word("mode", &c.mode, "enforce", "shadow", "off")},
		{"callers_per_address", false, "How many legitimate callers may share an address: what weir check holds edge limits against.",
			l.number("callers_per_address", &c.perAddress, 1, 100_000)},
		{"cors", false, "Which pages of other origins may read a refusal.", l.fields("cors", func(*node) []row {
			return []row{{"origins", true, "Origins as a browser sends them.", l.each("origins", value{textForm, func(n *node) { l.origin(n, &c.origins) }})}}
		})},
		{"auth", false, "How callers prove who they are.", l.fields("auth", func(*node) []row { return l.authRows(&c.auth) })},
		{"accounts", false, "What is known of accounts beside their tokens: plans they keep, overrides, bans, billing days.", l.fields("accounts", func(*node) []row { return l.accountsRows(c) })},
		{"callers", false, "Who may be calling: names for by:, and where each is taken from.", value{
			func() *schema { return mapOf(nameForms, textForm()) },
			func(n *node) { l.readCallers(n, c) },
		}},
		{"trusted_proxies", false, "Networks whose X-Forwarded-For is believed.", l.prefixes("trusted_proxies", &c.proxies, l.wideProxy)},
		{"client_ip", false, "How the caller's address is found behind proxies, and how IPv6 addresses are told apart.", l.fields("client_ip", func(n *node) []row {
			c.client.at = n
			return l.clientRows(&c.client)
		})},
		{"exempt", false, "What no layer ever limits.", l.listed("exempt", l.fields("an exemption", func(n *node) []row {
			return l.exemptRows(addRule(&c.exempt, n))
		}))},
		{"edge", false, "Limits against abuse, by address.", l.listed("edge", l.fields("an edge rule", func(n *node) []row {
			return l.edgeRows(addRule(&c.edge, n))
		}))},
		{"gateway", false, "Fairness between integrators, by API key.", l.fields("gateway", func(n *node) []row { return l.gatewayRows(c, n) })},
		{"application", false, "Business limits: accounts, plans and operations.", l.fields("application", func(*node) []row { return l.applicationRows(c) })},
	}
}

func (l *loader) applicationRows(c *config) []row {
	return []row{
		{"plans", false, "The limits of every plan: operation and limit.", value{l.plansForm, func(n *node) { l.readPlans(n, c) }}},
		{"operations", false, "What plans limit.", l.named("operations", "an operation",
			func() *schema { return objectForm(l.operationRows(new(ruleConf))) },
			func(key, v *node) {
				o := addRule(&c.operations, v)
				o.name = key
				l.object(v, "an operation", l.operationRows(o)...)
				l.told(v, o)
			})},
		{"limits", false, "Limits beside those of plans.", l.listed("limits", l.fields("a limit", func(n *node) []row {
			return l.limitRows(addRule(&c.limits, n))
		}))},
	}
}

// addRule begins a rule of a list.
func addRule(to *[]*ruleConf, at *node) *ruleConf {
	c := &ruleConf{at: at, priority: -1}
	*to = append(*to, c)
	return c
}

// at remembers where a value stands, too.
func at(to **node, v value) value {
	return value{v.form, func(n *node) {
		*to = n
		v.read(n)
	}}
}

func versionForm() *schema { return &schema{Type: scalarTypes, Examples: []string{"1"}} }

func (l *loader) version(n *node) {
	var version string
	if l.text("weir", &version).read(n); version != "" && version != "1" {
		l.wrong(n, codeVersion, "write weir: 1", "version %s of the policy form is unknown to this program", show(version))
	}
}

// aName reads a name, and remembers where it stands.
func (l *loader) aName(whose string, to **node) value {
	return value{nameForms, func(n *node) {
		if l.checkName(n, whose) {
			*to = n
		}
	}}
}

func (l *loader) origin(n *node, to *[]string) {
	if !l.is(n, scalar, "an origin") {
		return
	}
	u, err := url.Parse(n.text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || n.text != u.Scheme+"://"+u.Host {
		l.wrong(n, codeOrigin, "write scheme and host as a browser sends them, such as https://shop.example", "%s is not an origin", show(n.text))
		return
	}
	*to = append(*to, strings.ToLower(n.text))
}

func (l *loader) authRows(c *authConf) []row {
	return []row{
		{"jwt", false, "How the token of Authorization: Bearer is verified.", value{
			func() *schema { return objectForm(l.jwtRows(new(JWT), new([]string))) },
			func(n *node) { c.jwt = l.readJWT(n) },
		}},
		{"api_keys", false, "How API keys are found.", l.fields("api_keys", func(*node) []row {
			return []row{
				{"header", true, "The header that carries the key.", value{textForm, func(n *node) { c.headerAt, c.header = n, l.headerName(n, n.text) }}},
				{"file", true, "A file with one OWNER PLAN SHA256HEX a line.", keep(&c.keyFile)},
			}
		})},
	}
}

func (l *loader) readJWT(n *node) *JWT {
	j := new(JWT)
	var sources []string
	l.object(n, "jwt", l.jwtRows(j, &sources)...)
	if len(sources) != 1 && n.shape == object {
		l.wrong(n, codeKeySources, "one of hs256_secret_env, public_key_file and jwks_url says how tokens are verified", "jwt has %d sources of keys instead of one", len(sources))
	}
	return j
}

func (l *loader) jwtRows(j *JWT, sources *[]string) []row {
	source := func(name string, read func(*node)) value {
		return value{textForm, func(n *node) {
			*sources = append(*sources, name)
			if l.is(n, scalar, name) {
				read(n)
			}
		}}
	}
	return []row{
		{"hs256_secret_env", false, "The environment variable that holds the HS256 secret of 32 bytes or more.", source("hs256_secret_env", func(n *node) {
			if j.SecretEnv = n.text; strings.Trim(strings.ToUpper(n.text), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || n.text == "" {
				l.wrong(n, codeSecretName, "write the variable's name, never the secret", "this is not the name of an environment variable")
				l.hideLast() // it may be the secret
			}
		})},
		{"public_key_file", false, "A PEM file with a public key or certificate.", source("public_key_file", func(n *node) { j.PublicKey = l.publicKey(n) })},
		{"jwks_url", false, "The https URL of a key set.", source("jwks_url", func(n *node) { j.JWKS = l.jwksURL(n) })},
		{"issuer", false, "What iss must be.", l.text("issuer", &j.Issuer)},
		{"audience", false, "What aud must contain.", l.text("audience", &j.Audience)},
	}
}

// headerName checks the name of a header and puts it into canonical form.
func (l *loader) headerName(n *node, name string) string {
	if !l.is(n, scalar, "a header's name") {
		return ""
	}
	const special = "!#$%&'*+-.^_`|~"
	for _, r := range name {
		if r > 0x7e || !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(special, r)) {
			l.wrong(n, codeHeaderName, "", "%s is not the name of a header", show(name))
			return ""
		}
	}
	if name == "" {
		l.wrong(n, codeHeaderName, "", "the name of the header is empty")
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

// What rules have in common, as rows.

// texts collects the scalars of a list, or the only one.
func (l *loader) texts(what string, to *[]*node) value {
	return l.each(what, value{textForm, func(n *node) {
		if l.is(n, scalar, what) {
			*to = append(*to, n)
		}
	}})
}

func (l *loader) matchRow(c *ruleConf, need bool) row {
	return row{"match", need, "The routes: patterns of net/http.ServeMux, such as POST /orders/{id}.", at(&c.matchAt, l.texts("match", &c.match))}
}

func (l *loader) pathRow(c *ruleConf, need bool) row {
	return row{"path", need, "Paths: /api/* is all below /api/, without a star it is exact.", l.texts("path", &c.path)}
}

func (l *loader) byRow(c *ruleConf) row {
	return row{"by", true, "Who shares a counter: a caller, several of which the first present one counts, or everyone.",
		value{func() *schema { return oneOrList(textForm()) }, func(n *node) { c.by = n }}}
}

func (l *loader) answerRows(c *ruleConf) []row {
	return []row{
		{"mode", false, "Whether it refuses, only watches, or does nothing.", l.word("mode", &c.mode, "enforce", "shadow", "off")},
		{"header_styles", false, "The header fields of answers; the policy's without it.", l.styles(&c.styles)},
		{"denied", false, "What a refused caller is told.", at(&c.deniedAt, l.fields("denied", func(*node) []row { return l.deniedRows(&c.denied) }))},
		{"on_store_error", false, "What happens when the store does not answer.", l.word("on_store_error", &c.onFail, "allow", "deny", "local")},
		{"share", false, "With on_store_error: local, the part of the limit that one process enforces.", at(&c.shareAt, value{textForm, func(n *node) { c.share = l.share(n) }})},
	}
}

func (l *loader) countRows(c *ruleConf) []row {
	return append([]row{
		{"count", false, "Whether every call counts, or only those that succeed.", l.word("count", &c.count, "always", "on_success")},
		{"success", false, "The statuses that are success, with count: on_success.", at(&c.successAt, value{textForm, func(n *node) { c.success = l.statusRange(n) }})},
		{"cost", false, "What one call counts: a number, header.NAME or an expression; 0 skips the limit.", keep(&c.cost)},
		{"when", false, "An expression: the limit holds only for requests of which it is true.", keep(&c.when)},
		{"on_error", false, "What happens when an expression fails: apply the limit at a cost of 1, skip it, or deny the request.",
			at(&c.onErrorAt, l.word("on_error", &c.onError, "apply", "skip", "deny"))},
		{"case", false, "Whether literals of patterns and values of path.NAME tell upper from lower case.", l.word("case", &c.letters, "exact", "ignore")},
	}, l.termRows(c)...)
}

func (l *loader) exemptRows(c *ruleConf) []row {
	return []row{
		{"name", true, "The exemption's name.", l.aName("an exemption", &c.name)},
		l.pathRow(c, true),
		{"because", false, "The reason.", l.text("because", &c.because)},
	}
}

func (l *loader) edgeRows(c *ruleConf) []row {
	return append([]row{
		{"name", true, "The limit's name, to which its counters belong.", l.aName("a limit", &c.name)},
		l.pathRow(c, false),
		{"limit", true, "The limit, or a list of limits.", l.limits(&c.limit)},
		l.byRow(c),
		{"priority", false, "The place among the edge rules, lower ones first; also that of the WAF rule.", at(&c.priorityNode, l.number("priority", &c.priority, 0, math.MaxInt32))},
		{"except_ips", false, "Networks for which the rule does not hold.", l.prefixes("except_ips", &c.except, func(n *node, p netip.Prefix) {
			c.exceptIPs = append(c.exceptIPs, p)
			if p.Bits() == 0 {
				l.doubt(n, codeExceptAll, "name the networks that are meant", "the rule holds for nobody who calls from %s", show(n.text))
			}
		})},
	}, l.answerRows(c)...)
}

func (l *loader) gatewayRows(c *config, n *node) []row {
	c.gateway.at = n
	plans := l.named("plans", "a plan", func() *schema { return l.limits(nil).form() }, func(key, v *node) {
		p := planLimits{name: key}
		l.limits(&p.limits).read(v)
		c.gatewayPlans = append(c.gatewayPlans, p)
	})
	return append([]row{
		l.matchRow(&c.gateway, false),
		{"plans", true, "The limits of every gateway plan.", value{plans.form, func(n *node) {
			if n.shape == object && len(n.fields) == 0 {
				l.wrong(n, codeNoPlan, needed["plans"], "plans names no plan")
			}
			plans.read(n)
		}}},
	}, l.answerRows(&c.gateway)...)
}

// plansForm is the form of application.plans, in which two names are reserved.
func (l *loader) plansForm() *schema {
	plan := objectForm([]row{{"since", false, "Of a version such as free@2: the date from which new accounts have it.", value{textForm, nil}}})
	plan.Others = l.limits(nil).form()
	s := objectForm(l.planRows(new(config)))
	s.Others = plan
	return s
}

func (l *loader) planRows(c *config) []row {
	return []row{
		{"from", false, "Where a caller's plans are taken from: jwt.CLAIM, api_key.plan, account.plan or an expression over claims, key_owner and key_plan.", keep(&c.from)},
		{"order", false, "The plans, the lowest first, which is also the default.", l.listed("order", value{nameForms, func(n *node) {
			if l.checkName(n, "a plan") {
				c.order = append(c.order, n)
			}
		}})},
	}
}

func (l *loader) readPlans(n *node, c *config) {
	if !l.is(n, object, "plans") {
		return
	}
	c.plansAt = n
	rows := l.planRows(c)
	for _, f := range n.fields {
		if r := find(rows, f.key.text); r != nil {
			if f.value.shape != broken {
				r.read(f.value)
			}
			continue
		}
		if best := nearest(f.key.text, []string{"from", "order"}); best != "" && f.value.shape != object && f.value.shape != broken {
			l.wrong(f.key, codeUnknownField, "did you mean "+show(best)+"?", "unknown field %s in plans", show(f.key.text))
			find(rows, best).read(f.value)
			continue
		}
		if name, number, versioned, ok := l.planKey(f.key); ok && l.is(f.value, object, "a plan") {
			p := planConf{name: name, number: number, versioned: versioned}
			for _, o := range f.value.fields {
				if versioned && o.key.text == "since" {
					l.since(o.value, &p)
					continue
				}
				if versioned && nearest(o.key.text, []string{"since"}) != "" && isInstant(o.value) {
					l.wrong(o.key, codeUnknownField, "did you mean "+show("since")+"?", "unknown field %s in a plan", show(o.key.text))
					l.since(o.value, &p)
					continue
				}
				op := planLimits{name: o.key}
				if o.value.shape == scalar && o.value.text == "unlimited" {
					op.unlimited = true
				} else {
					l.limits(&op.limits).read(o.value)
				}
				p.operations = append(p.operations, op)
			}
			c.plans = append(c.plans, p)
		}
	}
}

func (l *loader) operationRows(c *ruleConf) []row {
	return append(append([]row{l.matchRow(c, false)}, l.countRows(c)...), l.answerRows(c)...)
}

func (l *loader) limitRows(c *ruleConf) []row {
	return append(append([]row{
		{"name", true, "The limit's name, to which its counters belong.", l.aName("a limit", &c.name)},
		l.matchRow(c, false),
		l.byRow(c),
		{"limit", true, "The limit, or a list of limits.", l.limits(&c.limit)},
		{"anonymous", false, "The limit of callers who are known by their address only.", at(&c.anonAt, l.limits(&c.anon))},
	}, l.countRows(c)...), l.answerRows(c)...)
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
		l.wrong(n, codeShare, "write 1/4 for a quarter, or 1/replicas for an equal part for each process", "%s is not a share", show(n.text))
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
		l.wrong(n, codeStatusRange, "write two statuses such as 200-299", "%s is not a range of statuses from 100 to 599", show(n.text))
	}
	return StatusRange{a, b}
}

func (l *loader) link(n *node, to *string) {
	if !l.is(n, scalar, "upgrade_url") {
		return
	}
	u, err := url.Parse(n.text)
	if err != nil || n.text == "" || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Scheme != "" && u.Host == "" || u.Opaque != "" {
		l.wrong(n, codeLink, "write a path such as /billing, or an https URL", "%s is not a link", show(n.text))
		return
	}
	*to = n.text
}

// wideProxy warns of a network that lets many strangers name any address.
func (l *loader) wideProxy(n *node, p netip.Prefix) {
	private := p.Addr().IsPrivate() || p.Addr().IsLoopback()
	if p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 && !private {
		l.doubt(n, codeWideProxy, "name the networks of your own proxies", "whoever calls from %s can claim any address in X-Forwarded-For", show(n.text))
	}
}

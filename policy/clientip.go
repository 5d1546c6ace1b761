package policy

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/recent"
)

// addressing says how the caller's address is found and how it is written in
// keys.
type addressing struct {
	proxies *bart.Lite // who may report addresses; nil: nobody
	hops    int        // how many proxies report one each; 0: as many as are trusted
	v6      int        // bits of an IPv6 address that tell callers apart
	nat64   []netip.Prefix
	recent  recent.Table[netip.Addr, weir.Key] // keys
}

// usualPrefix is what one subscriber has at most providers.
const usualPrefix = 64

// wellKnown is the prefix under which translators write IPv4 addresses (RFC 6052).
var wellKnown = netip.MustParsePrefix("64:ff9b::/96")

// preset is what stands in front of a service.
type preset struct {
	from []string // where its connections come from
	hops int      // how many entries of X-Forwarded-For it adds
}

// within is where load balancers and links of a private network call from: RFC
// 1918, RFC 6598 and RFC 4193.
var within = []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}

// presets by name. The hop count is what makes them safe: what a client writes
// into X-Forwarded-For stands to the left of what the proxies add. Cloudflare's
// networks are those of https://www.cloudflare.com/ips/.
func presets() map[string]preset {
	return map[string]preset{
		"socket":     {},
		"alb":        {within, 1},
		"apigateway": {within, 1},
		"cloudfront": {within, 2},
		"cloudflare": {[]string{
			"173.245.48.0/20", "103.21.244.0/22", "103.22.200.0/22", "103.31.4.0/22", "141.101.64.0/18", "108.162.192.0/18",
			"190.93.240.0/20", "188.114.96.0/20", "197.234.240.0/22", "198.41.128.0/17", "162.158.0.0/15", "104.16.0.0/13",
			"104.24.0.0/14", "172.64.0.0/13", "131.0.72.0/22",
			"2400:cb00::/32", "2606:4700::/32", "2803:f800::/32", "2405:b500::/32", "2405:8100::/32", "2a06:98c0::/29", "2c0f:f248::/32",
		}, 1},
	}
}

// clientConf is `client_ip:` as it was read.
type clientConf struct {
	at, fromAt, hopsAt *node
	from               string
	hops, v6           int64
	nat64              []netip.Prefix
}

// maxHops bounds the walk through X-Forwarded-For.
const maxHops = 10

func (l *loader) clientRows(c *clientConf) []row {
	return []row{
		{"from", false, "What stands in front: alb, apigateway, cloudfront (before a load balancer) or cloudflare; socket for nothing.",
			at(&c.fromAt, l.word("from", &c.from, "alb", "apigateway", "cloudflare", "cloudfront", "socket"))},
		{"hops", false, "How many proxies stand in front, each of which adds an entry to X-Forwarded-For.", at(&c.hopsAt, l.number("hops", &c.hops, 1, maxHops))},
		{"ipv6_prefix", false, "How many bits of an IPv6 address tell callers apart: 64 is one subscriber.", l.number("ipv6_prefix", &c.v6, 32, 128)},
		{"nat64", false, "Networks of 96 bits under which a translator of yours writes IPv4 addresses, beside 64:ff9b::/96.", l.prefixes("nat64", new(*bart.Lite), func(n *node, p netip.Prefix) {
			if p.Bits() != 96 || p.Addr().Is4() {
				l.wrong(n, codeNetwork, "write the translator's prefix, such as 64:ff9b:1::/96", "%s is not an IPv6 network of 96 bits", show(n.text))
				return
			}
			c.nat64 = append(c.nat64, p)
		})},
	}
}

// compileClient settles how addresses are found: by networks alone, or by a
// number of hops from networks.
func (k *compiler) compileClient() {
	c, a := &k.config.client, &k.p.addresses
	a.proxies, a.v6 = k.config.proxies, usualPrefix
	a.nat64 = append([]netip.Prefix{wellKnown}, c.nat64...)
	if c.v6 > 0 {
		a.v6 = int(c.v6)
	}
	for _, prefix := range k.loader.proxies {
		if prefix = unmapped(prefix); !prefix.IsValid() || prefix.Addr().Is4In6() {
			k.report(Error, codeNetwork, 0, 0, 0, "give networks such as 10.0.0.0/8", "Options.TrustedProxies holds %s, which is not a network of IPv4 or IPv6", prefix)
			continue
		}
		a.trust(prefix.Masked())
	}
	known := a.proxies != nil
	if c.from != "" {
		p := presets()[c.from]
		a.hops = p.hops
		for _, s := range p.from {
			a.trust(netip.MustParsePrefix(s))
		}
		switch {
		case c.hopsAt != nil:
			k.wrong(c.hopsAt, codeClientIP, "keep one of the two", "from: %s says already how many hops there are, %d", c.from, p.hops)
		case c.from == "socket" && known:
			k.wrong(c.fromAt, codeClientIP, "keep one of the two", "from: socket believes nobody, and trusted_proxies: names whom to believe")
		}
	}
	if c.hopsAt != nil {
		if a.hops = int(c.hops); !known && c.from == "" {
			k.wrong(c.hopsAt, codeClientIP, "add trusted_proxies: with the networks that the last proxy calls from", "hops: believes whoever calls: nothing says where the proxies are")
		}
	}
}

func (a *addressing) trust(p netip.Prefix) {
	if a.proxies == nil {
		a.proxies = new(bart.Lite)
	}
	a.proxies.Insert(p)
}

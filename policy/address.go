package policy

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// client finds who is calling: the socket's peer, or, where a trusted proxy
// calls, whom X-Forwarded-For reports. It is read from the right, for whatever a
// client writes stands to the left of what proxies add. With a number of hops the
// caller is the entry that many from the right; without, the last one that is not
// trusted itself. An entry that cannot be read ends the walk, and so does a
// missing one: the hop that should have reported is the caller, because nothing to
// its left can be believed.
func (d *addressing) client(a *Attributes) netip.Addr {
	hop, _ := d.walk(a)
	return hop
}

// walk is client, and says how many entries it believed.
func (d *addressing) walk(a *Attributes) (hop netip.Addr, n int) {
	hop = clean(a.Peer)
	if d.proxies == nil || !hop.IsValid() || !d.proxies.Contains(hop) {
		return hop, 0
	}
	forwarded := a.Header["X-Forwarded-For"]
	for i := len(forwarded) - 1; i >= 0; i-- {
		field := forwarded[i]
		for more := true; more; {
			entry := field
			if at := strings.LastIndexByte(field, ','); at >= 0 {
				field, entry = field[:at], field[at+1:]
			} else {
				more = false
			}
			next, ok := parseHop(strings.Trim(entry, " \t"))
			if !ok {
				return hop, n
			}
			hop = next
			n++
			if n == d.hops || d.hops == 0 && !d.proxies.Contains(hop) {
				return hop, n
			}
		}
	}
	return hop, n
}

// parseHop reads an entry of X-Forwarded-For: an address, which may have a port
// or brackets.
func parseHop(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return clean(a), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return clean(ap.Addr()), true
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil {
			return clean(a), true
		}
	}
	return netip.Addr{}, false
}

// clean makes IPv4 of a mapped address, and drops a zone, which means nothing
// to another machine.
func clean(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	return a.Unmap().WithZone("")
}

// addressKind is the kind of every key that is an address.
const addressKind = "ip"

// id names an address in keys: IPv6 by the prefix that one subscriber has, but for
// IPv4 addresses that a translator wrote as IPv6: they are not one subscriber's. A
// peer without an address, as on a Unix socket, is "unknown".
func (d *addressing) id(a netip.Addr) string { return string(d.appendID(nil, a)) }

func (d *addressing) appendID(b []byte, a netip.Addr) []byte {
	a = clean(a)
	if !a.IsValid() {
		return append(b, "unknown"...)
	}
	if a.Is6() {
		for _, p := range d.nat64 {
			if p.Contains(a) {
				all := a.As16()
				return netip.AddrFrom4([4]byte(all[12:])).AppendTo(b)
			}
		}
		p, _ := a.Prefix(d.v6)
		a = p.Addr()
	}
	return a.AppendTo(b)
}

// key is the key that NewKey makes of an address, of which it would escape nothing.
// Most calls are of somebody who has just called, and whose key is at hand.
func (d *addressing) key(a netip.Addr) weir.Key {
	b := a.As16()
	hash := binary.BigEndian.Uint64(b[:8])*spread ^ binary.BigEndian.Uint64(b[8:])
	if k, ok := d.recent.Find(hash, a); ok {
		return k
	}
	var room [48]byte
	k := plan.KeyFromText(string(d.appendID(append(room[:0], addressKind+"#"...), a)))
	d.recent.Keep(hash, a, k)
	return k
}

// spread moves the network of an IPv6 address over all bits, so that it differs from its host.
const spread = 0x9e3779b97f4a7c15

// normalHost is a host as it is compared: in lower case, without a port and
// without a final dot.
func normalHost(host string) string {
	if host == "" {
		return ""
	}
	if host[0] == '[' {
		if end := strings.IndexByte(host, ']'); end > 0 {
			host = host[:end+1]
		}
	} else if at := strings.IndexByte(host, ':'); at >= 0 && strings.IndexByte(host[at+1:], ':') < 0 {
		host = host[:at]
	}
	return lower(strings.TrimSuffix(host, "."))
}

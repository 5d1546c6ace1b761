package policy

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/weirlabs/weir"
)

func (p *Policy) client(a *Attributes) netip.Addr {
	if p.proxies == nil {
		return clean(a.Peer)
	}
	return clientAddress(a.Peer, a.Header["X-Forwarded-For"], p.proxies)
}

// clientAddress finds who is calling: the socket's peer, or behind trusted
// proxies the last address that a trusted hop reports and that is none of ours.
// An entry that cannot be read ends the walk: the hop that reported it is the
// caller, because nothing to its left can be believed.
func clientAddress(peer netip.Addr, forwarded []string, trusted *bart.Lite) netip.Addr {
	hop := clean(peer)
	for i := len(forwarded) - 1; i >= 0; i-- {
		field := forwarded[i]
		for more := true; more; {
			if !hop.IsValid() || !trusted.Contains(hop) {
				return hop
			}
			entry := field
			if at := strings.LastIndexByte(field, ','); at >= 0 {
				field, entry = field[:at], field[at+1:]
			} else {
				more = false
			}
			next, ok := parseHop(strings.Trim(entry, " \t"))
			if !ok {
				return hop
			}
			hop = next
		}
	}
	return hop
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
func clean(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// addressKind is the kind of every key that is an address.
const addressKind = "ip"

// addressID names an address in keys: IPv6 by its /64, which is what one
// subscriber has, but for IPv4 addresses that a translator wrote as IPv6 (RFC
// 6052): they are not one subscriber's. A peer without an address, as on a Unix
// socket, is "unknown".
func addressID(a netip.Addr) string { return string(appendAddressID(nil, a)) }

func appendAddressID(b []byte, a netip.Addr) []byte {
	a = clean(a)
	if !a.IsValid() {
		return append(b, "unknown"...)
	}
	if a.Is6() {
		if all := a.As16(); [12]byte(all[:12]) == [12]byte{0x00, 0x64, 0xff, 0x9b} { // 64:ff9b::/96
			return netip.AddrFrom4([4]byte(all[12:])).AppendTo(b)
		}
		p, _ := a.Prefix(64)
		a = p.Addr()
	}
	return a.AppendTo(b)
}

func addressKey(a netip.Addr) weir.Key {
	var room [48]byte // the id needs no string of its own: NewKey does not keep it
	return weir.NewKey(addressKind, string(appendAddressID(room[:0], a)))
}

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

package httplimit

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/weirlabs/weir/internal/recent"
)

// peers remembers the addresses of connections: all requests of one have the same
// RemoteAddr, and reading it anew each time would cost more than counting.
type peers struct {
	recent.Table[string, netip.Addr]
}

// maxRemote bounds what is remembered of one connection: what a server writes is shorter.
const maxRemote = 64

// of is the address of HOST:PORT, as the server writes it, or of HOST.
func (p *peers) of(remote string) netip.Addr {
	n := len(remote)
	if n < 8 || n > maxRemote {
		return addrOf(remote)
	}
	end := binary.LittleEndian.Uint64([]byte(remote[n-8:])) // with the port, which tells one's neighbours apart
	if a, ok := p.Find(end, remote); ok {
		return a
	}
	a := addrOf(remote)
	p.Keep(end, strings.Clone(remote), a)
	return a
}

// addrOf is the address of HOST:PORT, as the server writes it, or of HOST.
func addrOf(remote string) netip.Addr {
	host := remote
	if i := strings.LastIndexByte(remote, ':'); i > 0 && (remote[i-1] == ']' || strings.IndexByte(remote, ':') == i) {
		host = remote[:i]
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	a, _ := netip.ParseAddr(host) // the zero address of a Unix socket is nobody's
	return a
}

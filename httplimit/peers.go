package httplimit

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"sync/atomic"
)

// peers remembers the addresses of connections: all requests of one have the
// same RemoteAddr, and reading it anew each time would cost more than counting.
// It is bounded, and exact: what another connection has pushed out is read again.
// The zero value is ready.
type peers struct {
	places [1 << peerBits]atomic.Pointer[peer]
}

// peerBits make 512 places, which take some 60 KiB when all are in use.
const peerBits = 9

type peer struct {
	remote string
	addr   netip.Addr
}

// of is the address of HOST:PORT, as the server writes it, or of HOST.
func (p *peers) of(remote string) netip.Addr {
	n := len(remote)
	if n < 8 || n > maxRemote {
		return addrOf(remote)
	}
	// The end holds the port, which tells one's neighbours apart.
	const odd = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
	place := &p.places[binary.LittleEndian.Uint64([]byte(remote[n-8:]))*odd>>(64-peerBits)]
	known := place.Load()
	if known == nil || known.remote != remote {
		known = &peer{strings.Clone(remote), addrOf(remote)}
		place.Store(known)
	}
	return known.addr
}

// maxRemote bounds what is remembered of one connection: what a server writes is shorter.
const maxRemote = 64

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

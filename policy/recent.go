package policy

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"github.com/weirlabs/weir"
)

// recent keeps the keys of addresses that called lately: most calls are of
// somebody who has just called, and writing his key anew would be a tenth of what
// a call costs. It is bounded, and exact: an address that is not there, because
// another one took its place, only costs its key again. The zero value is ready.
type recent struct {
	places [1 << recentBits]atomic.Pointer[keyed]
}

// recentBits make 1,024 places, which take 100 KiB when all are in use.
const recentBits = 10

type keyed struct {
	addr netip.Addr
	key  weir.Key
}

// place is where an address may be.
func (r *recent) place(a netip.Addr) *atomic.Pointer[keyed] {
	b := a.As16()
	const odd = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio, which spreads neighbours
	h := (binary.BigEndian.Uint64(b[:8])*odd ^ binary.BigEndian.Uint64(b[8:])) * odd
	return &r.places[h>>(64-recentBits)]
}

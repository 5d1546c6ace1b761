//go:build !386 && !arm && !mips && !mipsle

package memstore

import (
	"testing"
	"unsafe"
)

// What every call writes of a shard shares no cache line with what it only reads,
// wherever in a line the first shard begins: at its start, or behind the 8 bytes that
// the runtime puts before a large object. This is of processors of 64 bits.
func TestShardsAreLaidOutByCacheLines(t *testing.T) {
	const line = 64
	var sh shard
	if size := unsafe.Sizeof(sh); size%line != 0 {
		t.Errorf("a shard has %d bytes: the next begins elsewhere in a line", size)
	}
	written := unsafe.Offsetof(sh.isNew) + unsafe.Sizeof(sh.isNew)
	if written+8 > line || unsafe.Offsetof(sh.last) < line || unsafe.Offsetof(sh.fresh)/line == (unsafe.Offsetof(sh.Table)+unsafe.Sizeof(sh.Table)-1)/line {
		t.Errorf("written up to %d, read from %d on, the state of a new key at %d", written, unsafe.Offsetof(sh.last), unsafe.Offsetof(sh.fresh))
	}
}

package boltstore

import (
	"encoding/binary"
	"slices"
)

// Items stand in the file in packs of some, each under a number of its own: a
// tree with an entry for every item takes more time to write than all takes of
// the second whose items it gets.
//
// An item stays in its pack for as long as it is kept. One that was dropped and
// comes again may be in another; when the process ends between the two
// transactions that write them, the file holds it twice, and the pack with the
// later stamp has the newer.
const (
	packItems = 32      // at most
	packBytes = 1984    // at most, about: two packs fit into a page, and bbolt puts no less into one
	maxPacks  = 1 << 26 // beyond all that memory holds
	stampSize = 8       // of a pack's stamp, which stands before the items
	noPack    = 1<<32 - 1
)

// ref is where an item is in memory: its shard, and its number there.
type ref uint32

const refBits = 24 // of the number: a table has no more

func refOf(shard int, n uint32) ref { return ref(shard)<<refBits | ref(n) }

func (r ref) shard() int { return int(r >> refBits) }

func (r ref) number() uint32 { return uint32(r) & (1<<refBits - 1) }

// pack is what is known of a pack of the file.
type pack struct {
	members []ref
	others  []byte // items that are not this store's: they stay as they are
	stamp   uint64 // that it had when it was read
	bytes   int    // about what its items take
	dirty   bool   // in packs.dirty
	thin    bool   // in packs.thin
}

// takes reports whether there is room for an item of so many bytes.
func (p *pack) takes(bytes int) bool {
	return len(p.members) == 0 || len(p.members) < packItems && p.bytes+bytes <= packBytes
}

// packs is the packs of a file. They are the writer's; the items' shards know
// the number of each item's.
type packs struct {
	all   []*pack  // by number; nil: there is none
	free  []uint32 // numbers without a pack
	thin  []uint32 // numbers of packs that have room
	dirty []uint32 // numbers of those that are to be written
	open  uint32   // the one that gets the next item, or noPack
}

// at gives a pack that was read a place.
func (p *packs) at(number uint32) *pack {
	for int(number) >= len(p.all) {
		p.all = append(p.all, nil)
	}
	p.all[number] = &pack{}
	return p.all[number]
}

// loaded notes what the packs that were read leave free.
func (p *packs) loaded() {
	p.open = noPack
	for number, is := range p.all {
		switch {
		case is == nil:
			p.free = append(p.free, uint32(number))
		case len(is.members) == 0 && !is.dirty:
			is.others = nil // the pack is another store's alone, and is never written
		default:
			p.spare(uint32(number))
		}
	}
}

// spare notes that a pack has room for others.
func (p *packs) spare(number uint32) {
	if is := p.all[number]; !is.thin && number != p.open && len(is.members) <= packItems/2 && is.bytes <= packBytes/2 {
		is.thin = true
		p.thin = append(p.thin, number)
	}
}

func (p *packs) soil(number uint32) {
	if is := p.all[number]; !is.dirty {
		is.dirty = true
		p.dirty = append(p.dirty, number)
	}
}

// place finds a pack for a further item, of about so many bytes.
func (p *packs) place(r ref, bytes int) (number uint32) {
	if p.open == noPack || !p.all[p.open].takes(bytes) {
		p.open = p.roomy()
	}
	is := p.all[p.open]
	is.members = append(is.members, r)
	is.bytes += bytes
	return p.open
}

func (p *packs) roomy() (number uint32) {
	for last := len(p.thin) - 1; last >= 0; last-- {
		number, p.thin = p.thin[last], p.thin[:last]
		if is := p.all[number]; is != nil && is.thin {
			is.thin = false
			return number
		}
	}
	if last := len(p.free) - 1; last >= 0 {
		number, p.free = p.free[last], p.free[:last]
	} else {
		number = uint32(len(p.all))
		p.all = append(p.all, nil)
	}
	p.all[number] = &pack{members: make([]ref, 0, packItems)}
	return number
}

// remove takes an item out of its pack.
func (p *packs) remove(number uint32, r ref) {
	is := p.all[number]
	if i := slices.Index(is.members, r); i >= 0 {
		is.members = slices.Delete(is.members, i, i+1)
	}
	p.soil(number)
}

// written notes that the file has a pack as it was put into words.
func (p *packs) written(number uint32, bytes int) {
	is := p.all[number]
	is.dirty, is.bytes = false, bytes
	if len(is.members) > 0 || len(is.others) > 0 {
		p.spare(number)
		return
	}
	p.all[number] = nil
	p.free = append(p.free, number)
	if p.open == number {
		p.open = noPack
	}
}

// packed is a pack in words. Without items it leaves the file.
type packed struct {
	number  uint32
	items   int
	payload []byte
}

// encode puts a pack into words, behind b. Items that mean nothing any more
// leave it.
func (s *Store) encode(b []byte, number uint32, stamp uint64) ([]byte, packed) {
	p := s.packs.all[number]
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, stamp)
	b = append(b, p.others...)
	items, now := 0, s.clock.now()
	kept := p.members[:0]
	for rest := p.members; len(rest) > 0; {
		i := rest[0].shard()
		n := 1
		for n < len(rest) && rest[n].shard() == i {
			n++
		}
		some := rest[:n]
		rest = rest[n:]
		sh := &s.shards[i]
		sh.Lock()
		sh.touch(some)
		for _, r := range some {
			n := r.number()
			if sh.home[n] == number+1 {
				e := sh.Entry(n)
				idle := sh.idleAt(n, e, now)
				if idle <= now {
					sh.home[n] = 0
					continue
				}
				b = sh.encode(b, &s.recent, s.prefix, n, e, idle)
				items++
			} // else it was dropped, and collect will hear of it
			kept = append(kept, r)
		}
		sh.Unlock()
	}
	p.members = kept
	if items == 0 && len(p.others) == 0 {
		return b[:from], packed{number, 0, nil}
	}
	b = append(b, make([]byte, sealSize)...) // the seal's room
	return b, packed{number, items, b[from : len(b)-sealSize : len(b)]}
}

// appendItem adds an item to a pack, up to its payload, which is to follow and
// to be closed by endItem:
//
//	size of key, as a varint; key; size of payload:4; payload
func appendItem(b []byte, prefix, key string) (out []byte, at int) {
	b = binary.AppendUvarint(b, uint64(len(prefix)+len(key)))
	b = append(append(b, prefix...), key...)
	return append(b, 0, 0, 0, 0), len(b) + 4
}

func endItem(b []byte, at int) { binary.BigEndian.PutUint32(b[at-4:], uint32(len(b)-at)) }

// cutItem reads the first item of what follows a pack's stamp.
func cutItem(b []byte) (key, payload, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, nil, false
	}
	key, b = b[n:n+int(size)], b[n+int(size):]
	if len(b) < 4 {
		return nil, nil, nil, false
	}
	size = uint64(binary.BigEndian.Uint32(b))
	if size > uint64(len(b)-4) {
		return nil, nil, nil, false
	}
	return key, b[4 : 4+size], b[4+size:], true
}

// packKey is the key of a number in the bucket of packs, where they stand in order.
func packKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

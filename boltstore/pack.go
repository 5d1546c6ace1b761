package boltstore

import (
	"encoding/binary"
	"iter"
	"slices"
)

// Items stand in the file in packs of some, each under a number of its own: a
// tree with an entry for every item takes more time to write than all takes of
// the second whose items it gets.
//
// An item stays in its pack for as long as it is kept. One that was dropped and
// comes again may be in another, but is never in the file twice, wherever the
// process ends: see steps.
const (
	packItems = 32      // at most
	packBytes = 1984    // about, while items are added: two packs fit into a page, and bbolt puts no less into one
	maxPacks  = 1 << 26 // beyond all that memory holds
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
	fresh   int    // so many of them, the last, were added since it was written
	others  []byte // items that are not this store's: they stay as they are
	bytes   int    // about what all its items take
	left    bool   // the file may have items in it that are not in it any more
	dirty   bool   // in packs.dirty
	thin    bool   // in packs.thin
}

// takes reports whether there is room for an item of so many bytes.
func (p *pack) takes(bytes int) bool {
	return len(p.members)+len(p.others) == 0 || len(p.members) < packItems && p.bytes+bytes <= packBytes
}

// packs is the packs of a file. They are the writer's; the items' shards know
// the number of each item's.
type packs struct {
	all    []*pack  // by number; nil: there is none
	free   []uint32 // numbers without a pack
	thin   []uint32 // numbers of packs that have room
	dirty  []uint32 // numbers of those that are to be written
	open   uint32   // the one that gets the next item, or noPack
	others int      // bytes of all packs' others
	prefix int      // bytes that stand before each key
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
		case len(is.members) > 0 || is.dirty: // else it is another store's alone
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

// left notes that the file has an item in a pack that is not in it any more.
func (p *packs) left(number uint32) {
	p.all[number].left = true
	p.soil(number)
}

// place finds a pack for a further item, of about so many bytes without the prefix.
func (p *packs) place(r ref, bytes int) (number uint32) {
	bytes += p.prefix
	if p.open == noPack || !p.all[p.open].takes(bytes) {
		p.open = p.roomy()
	}
	is := p.all[p.open]
	is.members = append(is.members, r)
	is.fresh++
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
		if i >= len(is.members)-is.fresh {
			is.fresh--
		}
		is.members = slices.Delete(is.members, i, i+1)
	}
	p.left(number)
}

// step is the writing of a pack.
type step struct {
	number uint32
	old    bool // without what is fresh
}

// steps lists how to write what is dirty, in the order of the tree, so that its
// pages are written one after the other. If more than fit into a
// transaction are dirty, no item may be in the file in a new pack before it has left its
// old one: so the packs that items have left come first, without what is fresh
// in them, which may have left another of these.
func (p *packs) steps(list []step, atOnce int) []step {
	slices.Sort(p.dirty)
	if len(p.dirty) > atOnce {
		for _, number := range p.dirty {
			if p.all[number].left {
				list = append(list, step{number, true})
			}
		}
	}
	first := len(list)
	for _, number := range p.dirty {
		if is := p.all[number]; first == 0 || !is.left || is.fresh > 0 {
			list = append(list, step{number, false})
		}
	}
	return list
}

// written notes that the file has a pack as it was put into words.
func (p *packs) written(number uint32, old bool, bytes int) {
	is := p.all[number]
	is.left = false
	if old && is.fresh > 0 {
		return
	}
	is.fresh, is.dirty, is.bytes = 0, false, bytes
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
	step
	payload []byte
}

// encode puts a pack into words, behind b, but for items that mean nothing now.
func (s *Store) encode(b []byte, is step) ([]byte, packed) {
	p := s.packs.all[is.number]
	from := len(b)
	b = append(b, p.others...)
	rest := p.members
	if is.old {
		rest = rest[:len(rest)-p.fresh]
	}
	now := s.clock.now()
	for len(rest) > 0 {
		i, some := rest[0].shard(), 1
		for some < len(rest) && rest[some].shard() == i {
			some++
		}
		sh := &s.shards[i]
		sh.Lock()
		sh.touch(rest[:some])
		for _, r := range rest[:some] {
			n := r.number()
			if sh.home[n] != is.number+1 {
				continue // it was dropped, and collect will hear of it
			}
			e := sh.Entry(n)
			if idle := sh.idleAt(n, e, now); idle > now {
				b = sh.encode(b, s.prefix, n, e, idle)
			}
		}
		sh.Unlock()
		rest = rest[some:]
	}
	if len(b) == from {
		return b, packed{is, nil}
	}
	b = append(b, make([]byte, sealSize)...) // the seal's room
	return b, packed{is, b[from : len(b)-sealSize : len(b)]}
}

// appendItem adds an item to a pack, whose payload is appended by a func:
//
//	size of key, as a varint; key; size of payload:4; payload
func appendItem(b []byte, prefix, key string, payload func([]byte) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(prefix)+len(key)))
	b = append(append(b, prefix...), key...)
	b = append(b, 0, 0, 0, 0)
	at := len(b)
	b = payload(b)
	binary.BigEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}

// itemsOf gives the keys and payloads of a pack, to the first that can't be read.
func itemsOf(pack []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, payload []byte) bool) {
		for len(pack) > 0 {
			key, payload, rest, ok := cutItem(pack)
			if !ok || !yield(key, payload) {
				return
			}
			pack = rest
		}
	}
}

// cutItem reads the first item of a pack.
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

// numberKey is the key of a pack or a name in its bucket, where they stand in order.
func numberKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

package boltstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// What is in a file. Four buckets: "weir" with the header, "names" with the
// names of fields, "items" with packs of items, and "records".
//
// bbolt checks nothing of what it reads but the two pages with its roots: a
// flipped bit elsewhere could lose a branch of the tree, or show an old one,
// and whoever had used up a limit would find it full. So every value is sealed
// by a checksum that takes in its key, and the header holds the sum of all
// seals and how many there are. Opening reads everything once, and what is
// missing, doubled, stale or changed leaves a sum that is not the header's.
var (
	bucketHead    = []byte("weir")
	bucketNames   = []byte("names")
	bucketItems   = []byte("items")
	bucketRecords = []byte("records")
	keyHead       = []byte("header")
)

const formatVersion = 3

// head is the header of a file.
type head struct {
	packs, names, records uint64
	sum                   uint64 // of the seals of all of them, modulo 2^64
	seen                  int64  // the latest of all times that the store has told
	version               uint64 // of the record that was written last
}

const headSize = 4 + 6*8

func (h *head) encode() []byte {
	b := make([]byte, 0, headSize+4)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	for _, v := range []uint64{h.packs, h.names, h.records, h.sum, uint64(h.seen), h.version} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

var (
	errHead    = errors.New("the header is damaged")
	errVersion = errors.New("was written by another version of weir, and is not damaged: use that version, or move the file away and a new one is made, in which all start over")
)

func decodeHead(b []byte) (h head, err error) {
	if len(b) < 8 || binary.BigEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli()) {
		return h, errHead
	}
	if binary.BigEndian.Uint32(b) != formatVersion {
		return h, errVersion
	}
	if len(b) != headSize+4 {
		return h, errHead
	}
	var v [6]uint64
	for i := range v {
		v[i] = binary.BigEndian.Uint64(b[4+8*i:])
	}
	return head{packs: v[0], names: v[1], records: v[2], sum: v[3], seen: int64(v[4]), version: v[5]}, nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// sealSize is how many bytes of a seal stand behind the value itself.
const sealSize = 4

// seal is a checksum of one key and value in their bucket: two of the CRCs that
// processors compute by themselves, then the finaliser of MurmurHash3, so that
// sums of seals are spread over all bits.
func seal(bucket byte, key, payload []byte) uint64 {
	start := uint32(bucket)<<24 | uint32(len(key))
	a := crc32.Update(crc32.Update(start, castagnoli(), key), castagnoli(), payload)
	b := crc32.Update(crc32.Update(start, crc32.IEEETable, key), crc32.IEEETable, payload)
	h := uint64(a)<<32 | uint64(b)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// unseal gives the payload and seal of a stored value, and false when it is not
// what was stored under this key.
func unseal(bucket byte, key, value []byte) (payload []byte, sum uint64, ok bool) {
	n := len(value) - sealSize
	if n < 0 {
		return nil, 0, false
	}
	sum = seal(bucket, key, value[:n])
	return value[:n], sum, binary.BigEndian.Uint32(value[n:]) == uint32(sum)
}

// stored is a payload with its seal behind it, and the seal.
func stored(bucket byte, key, payload []byte) (value []byte, sum uint64) {
	sum = seal(bucket, key, payload)
	return binary.BigEndian.AppendUint32(payload, uint32(sum)), sum
}

// An item is the time from which it means nothing any more, and its fields:
//
//	idle:8 { name<<1|windowed [window] value }
//
// with varints but for idle. A name is a number in the bucket of names.
type cell struct {
	name     uint32
	windowed bool
	window   uint32
	value    int64
}

func appendCell(b []byte, c cell) []byte {
	tag := uint64(c.name) << 1
	if c.windowed {
		b = binary.AppendUvarint(b, tag|1)
		b = binary.AppendUvarint(b, uint64(c.window))
	} else {
		b = binary.AppendUvarint(b, tag)
	}
	return binary.AppendVarint(b, c.value)
}

// cutCell reads the first cell of b.
func cutCell(b []byte) (c cell, rest []byte, ok bool) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>1 > 1<<32-1 {
		return c, nil, false
	}
	b = b[n:]
	c.name, c.windowed = uint32(tag>>1), tag&1 != 0
	if c.windowed {
		w, n := binary.Uvarint(b)
		if n <= 0 || w > 1<<32-1 {
			return c, nil, false
		}
		c.window, b = uint32(w), b[n:]
	}
	c.value, n = binary.Varint(b)
	if n <= 0 {
		return c, nil, false
	}
	return c, b[n:], true
}

// record is what a Record is stored as: version:8 expires:8 value.
type record struct {
	version   uint64
	expiresAt int64 // Unix nanoseconds; 0 is never
	value     []byte
}

func (r *record) encode() []byte {
	b := make([]byte, 0, 16+len(r.value)+sealSize)
	b = binary.BigEndian.AppendUint64(b, r.version)
	b = binary.BigEndian.AppendUint64(b, uint64(r.expiresAt))
	return append(b, r.value...)
}

func decodeRecord(b []byte) (r record, ok bool) {
	if len(b) < 16 {
		return r, false
	}
	return record{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:])), b[16:]}, true
}

func (r *record) over(now int64) bool { return r.expiresAt != 0 && r.expiresAt <= now }

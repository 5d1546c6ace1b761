// Package recent remembers what was worked out lately. It is for what the same few
// ask time and again, and what takes longer to work out than to find.
package recent

import (
	"math/rand/v2"
	"sync/atomic"
)

// Table holds values by their keys, at most 512: more would not stay in a processor's
// caches, and finding would cost as much as working out. It is exact: a key has its
// value or none, also when another key has taken its place. It is safe for concurrent
// use, without a lock. The zero value is ready.
type Table[K comparable, V any] struct {
	places [1 << bits]atomic.Pointer[entry[K, V]]
}

const bits = 9

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Find returns the value of a key. The hash decides where it is looked for: that of
// different keys should differ, and whoever chooses keys that have the same gains
// nothing but that he is forgotten.
func (t *Table[K, V]) Find(hash uint64, key K) (value V, ok bool) {
	if e := t.place(hash).Load(); e != nil && e.key == key {
		return e.value, true
	}
	return value, false
}

// Keep puts a value into the place of its key. If another key has it, that gives way
// once in a while only: a crowd must not push out those who ask often, nor cost more
// than it would without a table.
func (t *Table[K, V]) Keep(hash uint64, key K, value V) {
	p := t.place(hash)
	if p.Load() == nil || rand.Uint32()%patience == 0 {
		p.Store(&entry[K, V]{key, value})
	}
}

// patience is how many newcomers it takes, on average, to push out a key.
const patience = 8

func (t *Table[K, V]) place(hash uint64) *atomic.Pointer[entry[K, V]] {
	const odd = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio, which spreads neighbours
	return &t.places[hash*odd>>(64-bits)]
}

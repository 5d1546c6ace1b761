// Package recent remembers what was worked out lately. It is for what the same few
// ask time and again, and what takes longer to work out than to find.
package recent

import "sync/atomic"

// Table holds values by their keys, at most 1,024. It is exact: a key has its value
// or none, which is also so when another key has taken its place. It is safe for
// concurrent use, without a lock. The zero value is ready.
type Table[K comparable, V any] struct {
	places [1 << bits]atomic.Pointer[entry[K, V]]
}

const bits = 10

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

// Keep puts a value into the place of its key.
func (t *Table[K, V]) Keep(hash uint64, key K, value V) {
	t.place(hash).Store(&entry[K, V]{key, value})
}

func (t *Table[K, V]) place(hash uint64) *atomic.Pointer[entry[K, V]] {
	const odd = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio, which spreads neighbours
	return &t.places[hash*odd>>(64-bits)]
}

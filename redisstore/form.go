package redisstore

import "encoding/binary"

// The operator of a guard in a form is its comparison with some of these.
const (
	opCmp    = 1<<3 - 1
	opText   = 1 << 3 // as text
	opSmall  = 1 << 4 // the constant is below 2^52
	opAbsent = 1 << 5 // an absent field will do
	opRel    = 1 << 6 // the constant is relative to now
	opClock  = 1 << 7 // now is compared, and not a field
	opEnd    = 1 << 8 // the constant, relative to now, may be beyond int64, and then is its end
)

// The verbs of actions in a form.
const (
	verbPut   = iota
	verbLater // puts what is relative to now
	verbAdd
	verbFew // adds what is below fewest
	verbDrop
)

const (
	small  = 1 << 52
	fewest = 9_000_000_000_000_000 // as much may be added to 9e18
)

// locals is for how many values a script has variables of their own, of which
// Lua allows 200, and 60 that a function within sees. Those of a form with more
// stand in tables.
const locals = 40

// form is what a script is made for.
type form struct {
	tries []try
	kinds []kind // of each value
	names []int  // of each field: the value that is its name
	math  []bool // of each field: whether it is computed with
	ring  bool   // nonces matter
}

// try is a write, and part a guard or an action of it. What they hold are
// numbers of values, from 1 on, and of fields.
type try struct {
	nonce, keep  int // no nonce is 0
	guards, acts []part
}

type part struct{ op, field, value int }

// kind is what a script makes of a value before it looks at keys.
type kind uint8

const (
	text kind = iota
	number
	fromNow  // a number, relative to now
	ofNow    // now less this number
	nowToNow // the same for one that is relative to now
)

// readForm reads what encode has written.
func readForm(code []byte) *form {
	var f form
	next := func() int {
		v, n := binary.Uvarint(code)
		code = code[n:]
		return int(v)
	}
	value := func(k kind) int {
		f.kinds = append(f.kinds, k)
		return len(f.kinds)
	}
	field := func() int {
		n := next()
		if n == len(f.names) {
			f.names, f.math = append(f.names, value(text)), append(f.math, false)
		}
		return n
	}
	for range next() {
		var t try
		if next() > 0 {
			t.nonce, f.ring = value(text), true
		}
		t.keep = value(text)
		t.guards, t.acts = make([]part, next()), make([]part, next())
		for i := range t.guards {
			g := &t.guards[i]
			g.op = next()
			k := number
			switch {
			case g.op&opClock != 0 && g.op&opRel != 0:
				k = nowToNow
			case g.op&opClock != 0:
				k = ofNow
			case g.op&opText != 0:
				k = text
			case g.op&opRel != 0:
				k = fromNow
			}
			if g.op&opClock == 0 {
				g.field = field()
				f.math[g.field] = f.math[g.field] || k != text
			}
			g.value = value(k)
		}
		for i := range t.acts {
			a := &t.acts[i]
			a.op = next()
			if a.field = field(); a.op != verbDrop {
				a.value = value(text)
			}
		}
		if t.increments() {
			f.math[t.acts[0].field] = true
		}
		f.ring = f.ring || t.removes()
		f.tries = append(f.tries, t)
	}
	return &f
}

// increments reports whether a write may be left to HINCRBY.
func (t *try) increments() bool { return t.nonce == 0 && len(t.acts) == 1 && t.acts[0].op == verbFew }

// removes reports whether a write removes and leaves nothing.
func (t *try) removes() bool {
	for _, a := range t.acts {
		if a.op != verbDrop {
			return false
		}
	}
	return len(t.acts) > 0
}

package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

// Kind says what one integer of an item means. Bit 7 marks the field of
// a shadow limit, which has a balance of its own. It is wider than it has to be,
// so that a Field has no gaps and is compared at once.
type Kind uint16

// The kinds of field. Arrival, Interval, Depth and Revision belong to a token
// bucket; Start and Count to a quota that starts with its first call; Cell to
// windows that are named by the instant at which they start.
const (
	Arrival  Kind = iota + 1 // t: Unix nanoseconds at which the bucket is full again
	Interval                 // i: nanoseconds in which one token refills
	Depth                    // d: nanoseconds in which an empty bucket fills
	Revision                 // r: revision of the policy that wrote i and d
	Start                    // s: Unix nanoseconds of a window's first counted call
	Count                    // c: units counted since Start
	Cell                     // c@W: units counted in the window that starts at W
	Clock                    // no field: the store's own now, in a Cond only

	shadowBit Kind = 0x80
)

var letters = [...]string{Arrival: "t", Interval: "i", Depth: "d", Revision: "r", Start: "s", Count: "c", Cell: "c"}

// ID stands for a limit's name together with the unit that it counts in. It is
// valid in this process only.
type ID uint16

// Field names one integer of an item. It is comparable and eight bytes wide.
type Field struct {
	Limit  ID
	Kind   Kind
	Window uint32 // of a Cell: Unix seconds at which the window starts
}

// Slot is a field with its value: sixteen bytes.
type Slot struct {
	Field Field
	Value int64
}

// identity is what an ID stands for.
type identity struct {
	name    string
	unit    string // of a window that the clock aligns; else ""
	horizon int64  // ns after a window's start at which it means nothing any more
}

// shape is what a bucket stores beside its arrival time.
type shape struct{ interval, depth, revision int64 }

// tables holds what every item of this process refers to by number. Entries
// are made when a limit is built, never by a call or by what a store returns,
// so that neither traffic nor stored data can make them grow.
var tables = struct {
	sync.RWMutex
	identities []identity
	shapes     []shape
	shapeIndex map[shape]uint32
	byText     map[string]ID // "name@unit"
}{
	identities: make([]identity, 1), // ID 0 is nobody's
	shapes:     make([]shape, 1),    // shape 0: the item holds i, d and r itself
	shapeIndex: map[shape]uint32{},
	byText:     map[string]ID{},
}

const maxShapes = 1 << 16

func intern(name, unit string, horizon int64) (ID, error) {
	tables.Lock()
	defer tables.Unlock()
	text := name + "@" + unit
	if id, ok := tables.byText[text]; ok {
		// A quota and a sliding window of one name and length share it.
		tables.identities[id].horizon = max(tables.identities[id].horizon, horizon)
		return id, nil
	}
	if len(tables.identities) > math.MaxUint16 {
		return 0, fmt.Errorf("too many names of limits: one process knows at most %d; name limits after operations, not after callers", math.MaxUint16)
	}
	id := ID(len(tables.identities))
	tables.identities = append(tables.identities, identity{name, unit, horizon})
	tables.byText[text] = id
	return id, nil
}

// internShape returns 0, which means "not shared", when the table is full.
func internShape(s shape) uint32 {
	tables.Lock()
	defer tables.Unlock()
	if n, ok := tables.shapeIndex[s]; ok {
		return n
	}
	if len(tables.shapes) >= maxShapes {
		return 0
	}
	n := uint32(len(tables.shapes))
	tables.shapes = append(tables.shapes, s)
	tables.shapeIndex[s] = n
	return n
}

func shapeAt(n uint32) shape {
	tables.RLock()
	defer tables.RUnlock()
	return tables.shapes[n]
}

func identityOf(id ID) identity {
	tables.RLock()
	defer tables.RUnlock()
	return tables.identities[id]
}

// Text renders the field as a remote store names it, for example
// "reservations.t", "orders.c" or "exports.c@day/Europe/Berlin:1796000400".
// A shadow limit's name ends in "~".
func (f Field) Text() string {
	id := identityOf(f.Limit)
	var b strings.Builder
	b.WriteString(id.name)
	if f.Kind&shadowBit != 0 {
		b.WriteByte('~')
	}
	b.WriteByte('.')
	b.WriteString(letters[f.Kind&^shadowBit])
	if id.unit != "" {
		b.WriteByte('@')
		b.WriteString(id.unit)
	}
	if f.Kind&^shadowBit == Cell {
		b.WriteByte(':')
		b.WriteString(strconv.FormatUint(uint64(f.Window), 10))
	}
	return b.String()
}

// ParseField is the inverse of [Field.Text]. It knows only the limits that
// this process has built: a field of another limit is none of its business.
func ParseField(text string) (Field, bool) {
	left, unit, counted := strings.Cut(text, "@")
	dot := strings.LastIndexByte(left, '.')
	if dot < 0 {
		return Field{}, false
	}
	unit, window, named := strings.Cut(unit, ":")
	var f Field
	switch left[dot+1:] {
	case "t":
		f.Kind = Arrival
	case "i":
		f.Kind = Interval
	case "d":
		f.Kind = Depth
	case "r":
		f.Kind = Revision
	case "s":
		f.Kind = Start
	case "c":
		f.Kind = Count
		if named {
			f.Kind = Cell
		}
	}
	// Only a cell has a unit, and names its window.
	if f.Kind == 0 || counted != (f.Kind == Cell) || counted && unit == "" || named != (f.Kind == Cell) {
		return Field{}, false
	}
	if named {
		w, err := strconv.ParseUint(window, 10, 32)
		if err != nil || strconv.FormatUint(w, 10) != window {
			return Field{}, false
		}
		f.Window = uint32(w)
	}
	name, shadow := strings.CutSuffix(left[:dot], "~")
	if shadow {
		f.Kind |= shadowBit
	}
	tables.RLock()
	defer tables.RUnlock()
	id, ok := tables.byText[name+"@"+unit]
	f.Limit = id
	return f, ok
}

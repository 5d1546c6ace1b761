package boltstore

import (
	"strings"
	"sync"

	"github.com/weirlabs/weir"
)

// names numbers the fields of a file. A number stands for the text of a field
// without its window, "orders.c@5m:" for example, and belongs to the file: the
// numbers by which this process knows its limits change from start to start.
type names struct {
	mu     sync.RWMutex
	all    []name // by number
	byText map[string]uint32
	byID   map[weir.Field]uint32 // of fields of this process, with window 0
	saved  int                   // numbers below are in the file
}

type name struct {
	text  string // ends in a colon if a window follows
	field weir.Field
	known bool // whether field is set
}

func (n *name) windowed() bool { return strings.HasSuffix(n.text, ":") }

func newNames() *names {
	return &names{byText: map[string]uint32{}, byID: map[weir.Field]uint32{}}
}

// add takes up the next number.
func (n *names) add(text string) uint32 {
	id := uint32(len(n.all))
	n.all = append(n.all, name{text: text})
	n.byText[text] = id
	return id
}

// cell is how a slot is stored. A field that the file has never had gets a number.
func (n *names) cell(s weir.Slot) cell {
	f := s.Field
	c := cell{window: f.Window, value: s.Value}
	f.Window = 0
	n.mu.RLock()
	id, ok := n.byID[f]
	if ok {
		c.name, c.windowed = id, n.all[id].windowed()
	}
	n.mu.RUnlock()
	if ok {
		return c
	}
	text, _, windowed := strings.Cut(f.Text(), ":")
	if windowed {
		text += ":"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok = n.byText[text]; !ok {
		id = n.add(text)
	}
	n.learn(id, f)
	c.name, c.windowed = id, windowed
	return c
}

func (n *names) learn(id uint32, f weir.Field) {
	n.byID[f] = id
	n.all[id].field, n.all[id].known = f, true
}

// field finds what a stored cell is in this process. It answers false while no
// limit that has the field was built.
func (n *names) field(c cell) (weir.Field, bool) {
	n.mu.RLock()
	known := n.all[c.name]
	n.mu.RUnlock()
	if !known.known {
		text := known.text
		if c.windowed {
			text += "0"
		}
		f, ok := weir.ParseField(text)
		if !ok {
			return f, false
		}
		n.mu.Lock()
		n.learn(c.name, f)
		n.mu.Unlock()
		known.field = f
	}
	known.field.Window = c.window
	return known.field, true
}

// fits reports whether a stored cell has a name, and a window exactly if its
// name wants one.
func (n *names) fits(c cell) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return int64(c.name) < int64(len(n.all)) && n.all[c.name].windowed() == c.windowed
}

// unsaved gives the names that are not in the file yet, and the first's number.
func (n *names) unsaved() (from int, list []name) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.saved, n.all[n.saved:len(n.all):len(n.all)]
}

func (n *names) save(to int) {
	n.mu.Lock()
	n.saved = to
	n.mu.Unlock()
}

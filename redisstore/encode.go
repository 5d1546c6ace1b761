package redisstore

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// billion is a second in nanoseconds.
const billion = int64(1e9)

// within: as much beyond now is within int64, until the year 2096.
const within = math.MaxInt64 - 4_000_000_000*billion

// names remembers how fields are written. It holds one entry for each field of
// each limit that this process has, and one for all windows of a limit.
type names struct {
	mu     sync.RWMutex
	texts  map[weir.Field]string
	fields map[string]weir.Field
}

// append appends f.Text(). The caller holds mu for reading.
func (n *names) append(b []byte, f weir.Field) []byte {
	window := f.Window
	f.Window = 0
	text, ok := n.texts[f]
	if !ok {
		n.mu.RUnlock()
		text = n.learn(f)
		n.mu.RLock()
	}
	b = append(b, text...)
	if text[len(text)-1] == ':' {
		b = strconv.AppendUint(b, uint64(window), 10)
	}
	return b
}

// field is weir.ParseField(text). The caller holds mu for reading.
func (n *names) field(text string) (weir.Field, bool) {
	if f, ok := n.fields[text]; ok {
		return f, true
	}
	if colon := strings.LastIndexByte(text, ':'); colon >= 0 {
		if f, ok := n.fields[text[:colon+1]]; ok {
			w, err := strconv.ParseUint(text[colon+1:], 10, 32)
			f.Window = uint32(w)
			return f, err == nil
		}
	}
	f, ok := weir.ParseField(text)
	if ok {
		short := f
		short.Window = 0
		n.mu.RUnlock()
		n.learn(short)
		n.mu.RLock()
	}
	return f, ok
}

// learn remembers a field whose Window is 0. If its text is that of a window, it
// is remembered up to the colon.
func (n *names) learn(f weir.Field) string {
	text := f.Text()
	if strings.HasSuffix(text, ":0") {
		text = text[:len(text)-1]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.texts == nil {
		n.texts, n.fields = map[weir.Field]string{}, map[string]weir.Field{}
	}
	n.texts[f] = text
	n.fields[text] = f
	return text
}

// encoded is the writes of one call, as a script gets them.
type encoded struct {
	form   []byte       // what the script is made for: see readForm
	values []byte       // what it is given, one after the other
	ends   []int        // where each of them ends
	fields []weir.Field // that the writes name, in the order in which they first do
}

// encode takes the writes of one call apart.
func (n *names) encode(e *encoded, tries []weir.Write) {
	e.form, e.values, e.ends, e.fields = e.form[:0], e.values[:0], e.ends[:0], e.fields[:0]
	n.mu.RLock()
	defer n.mu.RUnlock()
	e.op(len(tries))
	for i := range tries {
		w := &tries[i]
		nonce := w.Nonce
		if !creates(w) {
			nonce = 0
		}
		e.begin(nonce, milliseconds(w.Keep), len(w.If), len(w.Do))
		for j := range w.If {
			e.guard(n, &w.If[j])
		}
		for j := range w.Do {
			e.act(n, &w.Do[j])
		}
	}
}

// creates reports whether a write leaves something on an item. A write that only
// removes keeps no nonce: it must not make an item, and to remove twice is to
// remove once.
func creates(w *weir.Write) bool {
	for i := range w.Do {
		if w.Do[i].Do != plan.Remove {
			return true
		}
	}
	return false
}

// milliseconds is how long a key lives: never less than Keep, and at least one
// second.
func milliseconds(keep time.Duration) int64 {
	ms := int64(keep / time.Millisecond)
	if keep%time.Millisecond > 0 {
		ms++
	}
	return max(ms, 1000)
}

// op is one number of the form.
func (e *encoded) op(v int) { e.form = binary.AppendUvarint(e.form, uint64(v)) }

// end ends a value.
func (e *encoded) end() { e.ends = append(e.ends, len(e.values)) }

func (e *encoded) value(text string) {
	e.values = append(e.values, text...)
	e.end()
}

func (e *encoded) number(v int64) {
	e.values = strconv.AppendInt(e.values, v, 10)
	e.end()
}

// begin is what stands before the guards and actions of a write.
func (e *encoded) begin(nonce uint64, keep int64, guards, acts int) {
	if nonce == 0 {
		e.op(0)
	} else {
		e.op(1)
		e.nonce(nonce)
	}
	e.number(keep)
	e.op(guards)
	e.op(acts)
}

// field is the number of a field in the form. Where it is a new one, its name is
// a value.
func (e *encoded) field(n *names, f weir.Field) {
	at := slices.Index(e.fields, f)
	if at < 0 {
		at = len(e.fields)
		e.fields = append(e.fields, f)
		e.values = n.append(e.values, f)
		e.end()
	}
	e.op(at)
}

func (e *encoded) guard(n *names, g *weir.Cond) {
	value := g.Value
	op := int(g.Cmp)
	switch {
	case g.Rel && value > within:
		op |= opRel | opEnd
	case g.Rel:
		op |= opRel
	case g.Cmp == plan.Equal && g.Field.Kind != plan.Clock:
		op |= opText
	case -small < value && value < small:
		op |= opSmall
	}
	if g.OrAbsent {
		op |= opAbsent
	}
	if g.Field.Kind == plan.Clock {
		e.op(op | opClock)
	} else {
		e.op(op)
		e.field(n, g.Field)
	}
	e.number(value)
}

func (e *encoded) act(n *names, a *weir.Act) {
	switch {
	case a.Do == plan.Remove:
		e.op(verbDrop)
		e.field(n, a.Field)
		return
	case a.Do == plan.Add && -fewest < a.Value && a.Value < fewest:
		e.op(verbFew)
	case a.Do == plan.Add:
		e.op(verbAdd)
	case a.Rel:
		e.op(verbLater)
	default:
		e.op(verbPut)
	}
	e.field(n, a.Field)
	e.number(a.Value)
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// nonce is twelve characters, of which the last is a comma: so none can be found
// across two of them.
func (e *encoded) nonce(nonce uint64) {
	for range 11 {
		e.values = append(e.values, alphabet[nonce&63])
		nonce >>= 6
	}
	e.values = append(e.values, ',')
	e.end()
}

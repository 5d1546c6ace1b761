package redisstore

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// billion is where the script takes numbers apart.
const billion = int64(1e9)

// The operators and verbs of the script.
const (
	opText    = 0
	opAtMost  = 1
	opAbove   = 2
	opEqual   = 3
	opAbsent  = 4
	opRel     = 8
	verbPut   = 0
	verbRel   = 1
	verbAdd   = 2
	verbDrop  = 3
	certainly = math.MaxInt64 - 1_600_000_000*billion // more than this beyond now is beyond int64
)

// names remembers how fields are written. It holds one entry for each field of
// each limit that this process has, and one for all windows of a limit.
type names struct {
	mu     sync.RWMutex
	texts  map[weir.Field]string
	fields map[string]weir.Field
}

// text is f.Text(). The caller holds mu for reading.
func (n *names) text(f weir.Field) string {
	window := f.Window
	f.Window = 0
	text, ok := n.texts[f]
	if !ok {
		n.mu.RUnlock()
		text = n.learn(f)
		n.mu.RLock()
	}
	if text[len(text)-1] == ':' {
		return text + strconv.FormatUint(uint64(window), 10)
	}
	return text
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

// encode packs the writes of one call for the script: their number, their
// nonces, and then for each its time to live in milliseconds and the numbers of
// guards and actions before those. It appends to b, and also counts the values.
func (n *names) encode(b packed, tries []weir.Write) (packed, int) {
	if b == nil {
		b = make(packed, 0, 64+128*len(tries))
	}
	b.int(int64(len(tries)))
	values := 1 + 4*len(tries)
	for i := range tries {
		if creates(&tries[i]) {
			b.nonce(tries[i].Nonce)
		} else {
			b.nonce(0)
		}
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for i := range tries {
		w := &tries[i]
		values += 4 * (len(w.If) + len(w.Do))
		b.decimal(milliseconds(w.Keep))
		b.int(int64(len(w.If)))
		b.int(int64(len(w.Do)))
		for j := range w.If {
			b.guard(n, &w.If[j])
		}
		for j := range w.Do {
			b.act(n, &w.Do[j])
		}
	}
	return b, values
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

// packed is a row of MessagePack values.
type packed []byte

func (b *packed) guard(n *names, g *weir.Cond) {
	var op, less int64
	rel, value := g.Rel, g.Value
	if rel && value > certainly {
		rel, value = false, math.MaxInt64
	}
	switch g.Cmp {
	case plan.AtMost:
		op = opAtMost
	case plan.Above:
		op = opAbove
	case plan.AtLeast:
		op, less = opAbove, 1 // v >= c is v > c-1
	case plan.Equal:
		op = opEqual
		if !rel && !g.OrAbsent && g.Field.Kind != plan.Clock {
			b.string(n.text(g.Field))
			b.int(opText)
			b.decimal(value)
			b.int(0)
			return
		}
	}
	if g.OrAbsent {
		op += opAbsent
	}
	if rel {
		op += opRel
	}
	if g.Field.Kind == plan.Clock {
		b.string("")
	} else {
		b.string(n.text(g.Field))
	}
	b.int(op)
	b.int(value / billion)
	b.int(value%billion - less)
}

func (b *packed) act(n *names, a *weir.Act) {
	b.string(n.text(a.Field))
	switch {
	case a.Do == plan.Add:
		b.int(verbAdd)
		b.split(a.Value)
	case a.Do == plan.Remove:
		b.int(verbDrop)
		b.split(0)
	case a.Rel:
		b.int(verbRel)
		b.split(a.Value)
	default:
		b.int(verbPut)
		b.decimal(a.Value)
		b.int(0)
	}
}

func (b *packed) split(v int64) {
	b.int(v / billion)
	b.int(v % billion)
}

func (b *packed) int(v int64) {
	switch {
	case -32 <= v && v <= 127:
		*b = append(*b, byte(v))
	case math.MinInt32 <= v && v <= math.MaxInt32:
		*b = binary.BigEndian.AppendUint32(append(*b, 0xd2), uint32(v))
	default:
		*b = binary.BigEndian.AppendUint64(append(*b, 0xd3), uint64(v))
	}
}

func (b *packed) string(s string) {
	b.head(len(s))
	*b = append(*b, s...)
}

// head begins a string of at most 64 KiB: the longest name of a field has a few
// dozen bytes.
func (b *packed) head(length int) {
	if length < 32 {
		*b = append(*b, 0xa0|byte(length))
		return
	}
	*b = append(*b, 0xda, byte(length>>8), byte(length))
}

// decimal packs a number as its text.
func (b *packed) decimal(v int64) {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], v, 10)
	b.head(len(text))
	*b = append(*b, text...)
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// nonce packs a nonce as twelve characters, of which the last is a comma: so
// none can be found across two of them. No nonce is an empty string.
func (b *packed) nonce(nonce uint64) {
	if nonce == 0 {
		b.head(0)
		return
	}
	b.head(12)
	for range 11 {
		*b = append(*b, alphabet[nonce&63])
		nonce >>= 6
	}
	*b = append(*b, ',')
}

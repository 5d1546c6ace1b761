package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weirlabs/weir"
)

// ring is the field that holds the last four nonces, newest first. A limit's
// field always has a dot in its name.
const ring = "w"

// reply is what the script answers, without the fields.
type reply struct {
	now     int64 // Unix nanoseconds
	applied int   // index, or -1
	again   bool  // it had been applied before
}

// decode reads the script's answer: the fields of the item with their values,
// the server's seconds and microseconds, and which write was applied. It fills
// state with the fields of limits that this process has; what else the item
// holds is left alone.
func (n *names) decode(text string, state *weir.Cells) (r reply, err error) {
	text, which, ok1 := cutLast(text)
	text, micros, ok2 := cutLast(text)
	fields, seconds, ok3 := cutLast(text)
	if !ok3 {
		fields, seconds = "", text // no fields
	}
	if which, r.again = strings.CutPrefix(which, "="); !ok1 || !ok2 {
		return r, errors.New("the script's answer is too short")
	}
	r.applied, err = strconv.Atoi(which)
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if err != nil || err1 != nil || err2 != nil || s < 0 || s > math.MaxInt64/billion-1 || us < 0 || us >= 1e6 {
		return r, fmt.Errorf("the script's answer ends in %q", seconds+" "+micros+" "+which)
	}
	r.now = s*billion + us*1000
	n.mu.RLock()
	defer n.mu.RUnlock()
	for fields != "" {
		var name, value string
		var paired bool
		name, fields, paired = strings.Cut(fields, " ")
		value, fields, _ = strings.Cut(fields, " ")
		if !paired {
			return r, errors.New("another program has written a field with a space in it to an item; remove the field")
		}
		if name == ring {
			continue
		}
		f, known := n.field(name)
		if !known {
			continue
		}
		v, err := integer(value)
		if err != nil {
			return r, fmt.Errorf("field %q of an item holds %q, not an integer of 64 bits: another program writes to this key, or by hand; remove the field", name, value)
		}
		state.Set(f, v)
	}
	return r, nil
}

// integer reads an integer as the script and the server write it: an integer that
// is written in another way would not be equal to itself.
func integer(text string) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (text[0] == '+' || text[0] == '0' && len(text) > 1 || text[0] == '-' && text[1] == '0') {
		err = strconv.ErrSyntax
	}
	return v, err
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

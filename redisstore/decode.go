package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// ring is the field that holds the last four nonces, newest first. A limit's
// field always has a dot in its name.
const ring = "w"

// reply is what the script answers, without the fields.
type reply struct {
	applied int  // index, or -1
	again   bool // it had been applied before
}

// decode reads the script's answer: which write was applied, the values of the
// fields that the writes name, how many texts the other fields are, and their names
// and values: with a space in one they are more. It
// fills state with the fields of limits that this process has; what else the item
// holds is left alone.
func (n *names) decode(text string, named []weir.Field, tries []weir.Write, state *weir.Cells) (r reply, err error) {
	which, text, more := strings.Cut(text, " ")
	which, r.again = strings.CutPrefix(which, "=")
	if r.applied, err = strconv.Atoi(which); err != nil {
		return r, fmt.Errorf("the script's answer begins with %q", which)
	}
	var value string
	for _, f := range named {
		if !more {
			return r, errors.New("the script's answer is too short")
		}
		if value, text, more = strings.Cut(text, " "); value == "" {
			continue // absent
		}
		v, err := integer(value)
		if err != nil && r.applied >= 0 && r.applied < len(tries) && removes(&tries[r.applied], f) {
			continue // whatever it was
		}
		if err != nil {
			return r, notInteger(f.Text(), value)
		}
		state.Set(f, v)
	}
	if !more {
		return r, nil
	}
	count, text, _ := strings.Cut(text, " ")
	left, err := strconv.Atoi(count)
	if err != nil || left < 1 || left%2 != 0 {
		return r, fmt.Errorf("the script's answer has %q for the number of other fields", count)
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for ; left > 0; left -= 2 {
		var name string
		var paired bool
		name, text, paired = strings.Cut(text, " ")
		value, text, more = strings.Cut(text, " ")
		if !paired || more != (left > 2) {
			return r, &weir.SpoiledError{Err: errors.New("another program has written a field with a space in it to an item; remove the field")}
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
			return r, notInteger(name, value)
		}
		state.Set(f, v)
	}
	return r, nil
}

func notInteger(name, value string) error {
	return &weir.SpoiledError{Field: name, Err: fmt.Errorf("field %q of an item holds %q, not an integer of 64 bits: another program writes to this key, or by hand; remove the field", name, value)}
}

// removes reports whether a write removes a field.
func removes(w *weir.Write, f weir.Field) bool {
	return slices.ContainsFunc(w.Do, func(a weir.Act) bool { return a.Do == plan.Remove && a.Field == f })
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

package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlabs/weir"
)

// reply is what the script answers, without the fields.
type reply struct {
	applied int  // index, or -1
	again   bool // it had been applied before
}

// decode reads the script's answer: which write was applied, the values of the
// fields that the writes name, and the names and values of other fields. It
// fills state with the fields of limits that this process has; what else the item
// holds is left alone. What is spoiled is an error of a look, and of a write that
// names it: others go on, and don't see it.
func (n *names) decode(text string, named []weir.Field, state *weir.Cells) (r reply, err error) {
	which, text, more := strings.Cut(text, " ")
	which, r.again = strings.CutPrefix(which, "=")
	which, count, some := strings.Cut(which, ",")
	if r.applied, err = strconv.Atoi(which); err != nil {
		return r, fmt.Errorf("the script's answer begins with %q", which)
	}
	others := 0
	if some {
		if others, err = strconv.Atoi(count); err != nil || others < 2 || others > maxTexts || others%2 != 0 {
			return r, fmt.Errorf("the script's answer has %q for the number of other fields", count)
		}
	}
	texts := 0
	if more {
		texts = 1 + strings.Count(text, " ")
	}
	switch {
	case texts < len(named)+others:
		return r, errors.New("the script's answer is too short")
	case texts > len(named)+others:
		return r, &weir.SpoiledError{Err: errors.New("a field of an item holds a space: another program writes to this key, or by hand; remove the field")}
	}
	var name, value string
	var spoiled *weir.SpoiledError
	for _, f := range named {
		if value, text, _ = strings.Cut(text, " "); value == "" {
			continue // absent
		}
		v, err := integer(value)
		if err != nil {
			spoiled = notInteger(spoiled, f.Text(), value)
			continue
		}
		state.Set(f, v)
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for ; others > 0; others -= 2 {
		name, text, _ = strings.Cut(text, " ")
		value, text, _ = strings.Cut(text, " ")
		f, known := n.field(name)
		if !known {
			continue
		}
		v, err := integer(value)
		if err != nil {
			if len(named) == 0 {
				spoiled = notInteger(spoiled, name, value)
			}
			continue
		}
		state.Set(f, v)
	}
	if spoiled != nil {
		return r, spoiled
	}
	return r, nil
}

// notInteger adds a field to what is known to be spoiled.
func notInteger(spoiled *weir.SpoiledError, name, value string) *weir.SpoiledError {
	if spoiled != nil {
		spoiled.More = append(spoiled.More, name)
		return spoiled
	}
	value = strings.ReplaceAll(value, "\x01", " ") // as the script writes it
	return &weir.SpoiledError{Field: name, Err: fmt.Errorf("field %q of an item holds %q, not an integer of 64 bits: another program writes to this key, or by hand; remove the field", name, value)}
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

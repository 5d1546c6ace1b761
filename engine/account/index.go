package account

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// Index is the one record that every process reads: what is said of many
// callers at once, and where records of single ones may be found.
type Index struct {
	Schema    int                `json:"schema_version"`
	Kinds     map[string]Kind    `json:"kinds,omitempty"`
	Wildcards map[Pattern]Record `json:"wildcards,omitempty"`

	lengths map[string][]int // of wildcards by kind, the longest first
	silent  bool             // there are no wildcards and no records of single callers
}

// Kind is what the index says of all callers of a kind.
type Kind struct {
	// Records says that something was said of single callers of this kind, so
	// that their records have to be read.
	Records bool `json:"records,omitempty"`

	// KeepSeconds is the longest time for which an item must be kept for a limit
	// that stands in for the policy's. It never falls.
	KeepSeconds int64 `json:"keep_seconds,omitempty"`
}

func decodeIndex(value []byte) (*Index, error) {
	x := new(Index)
	if err := decode(value, x, &x.Schema, "all accounts"); err != nil {
		return nil, err
	}
	for p := range x.Wildcards {
		if _, err := ParsePattern(string(p)); err != nil {
			return nil, &UnreadableError{Of: "all accounts", Err: errors.New("is damaged: one of its wildcards is none")} // which names callers
		}
	}
	x.sort()
	return x, nil
}

// sort finds which lengths of wildcards there are.
func (x *Index) sort() {
	x.lengths = map[string][]int{}
	for p := range x.Wildcards {
		if n := len(p) - 1; !slices.Contains(x.lengths[p.Kind()], n) {
			x.lengths[p.Kind()] = append(x.lengths[p.Kind()], n)
		}
	}
	x.silent = len(x.Wildcards) == 0
	for _, k := range x.Kinds {
		x.silent = x.silent && !k.Records
	}
	for _, of := range x.lengths {
		slices.SortFunc(of, func(a, b int) int { return cmp.Compare(b, a) })
	}
}

// about are the records of the wildcards that name a caller, the longest first.
func (x *Index) about(kind string, caller weir.Key) []Record {
	var out []Record
	text := caller.String()
	for _, n := range x.lengths[kind] {
		if len(text) <= n || strings.Contains(text, "|") {
			continue
		}
		if r, ok := x.Wildcards[Pattern(text[:n]+"*")]; ok {
			out = append(out, r)
		}
	}
	return out
}

// Patterns are the wildcards of the index, in the order of their texts.
func (x *Index) Patterns() []Pattern { return slices.Sorted(maps.Keys(x.Wildcards)) }

// admit notes what a record of a kind asks of every process, and reports whether
// that is new.
func (x *Index) admit(kind string, single bool, r *Record) (changed bool) {
	k := x.Kinds[kind]
	next := k
	next.Records = next.Records || single && (len(r.Plans) > 0 || !r.BillingAnchor.IsZero() || len(r.Overrides) > 0 || r.Ban != nil)
	next.KeepSeconds = max(next.KeepSeconds, int64((r.longest()+time.Second-1)/time.Second))
	if next == k {
		return false
	}
	if x.Kinds == nil {
		x.Kinds = map[string]Kind{}
	}
	x.Kinds[kind] = next
	return true
}

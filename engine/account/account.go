// Package account keeps what is said of single callers, in place of or beside
// what the policy says of all: plans that were granted, the versions of plans
// that they keep, the day on which their billing periods begin, limits of their
// own, and bans. It keeps that in the records of the store on which the limits
// count, so that every process sees the same.
//
// There is one record for each caller of whom something is said, a [Record] in
// JSON, and one for all, the [Index]: it holds what is said of callers whose
// keys begin alike (account#acme-*), and of which kinds of callers there are
// records at all. As long as nobody is banned and nothing is granted, a process
// reads that one record every few seconds and no other, whoever calls.
//
// A [Book] is how a process that decides reads them: at once from its memory,
// which is bounded and never older than it says. The functions that change
// records are for the program's commands. Every change is a put of a record that
// nobody else has changed meanwhile, so that no two of them undo each other.
//
// Precedence is always the same: what is said of the caller, else of the longest
// wildcard that holds for it, else the policy. It applies to each thing alone:
// an account with a limit of its own for orders has a wildcard's for exports.
package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlabs/weir"
)

// schema is the version of the form in which records are written. A process
// refuses records of a higher one, rather than lose what it does not know.
const schema = 1

// The bounds of a record.
const (
	maxRecord  = 64 << 10 // bytes, of one caller's
	maxIndex   = 256 << 10
	maxHistory = 10 // changes that a record remembers
)

// Terms say of anything that is granted or taken why, by whom, since when and
// until when.
type Terms struct {
	Reason  string    `json:"reason,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Expires time.Time `json:"expires,omitzero"` // from this instant on it does not hold; zero: it stays
}

// over reports whether the terms have ended.
func (t *Terms) over(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Grant is a plan that a caller has whatever the policy's from: says.
type Grant struct {
	Plan string `json:"plan"`
	Terms
}

// Override is a limit that stands in for the policy's limit of the same name.
type Override struct {
	Limit string `json:"limit"` // in the grammar of limits, or "unlimited"
	Terms
}

// Unlimited is the override that lifts a limit.
const Unlimited = "unlimited"

// Ban refuses every request of a caller that a limit or an operation applies to.
type Ban struct{ Terms }

// Change is what somebody did to a record, for those who ask later.
type Change struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	What   string    `json:"what"`
	Reason string    `json:"reason,omitempty"`
}

// Record is all that is said of one caller, or of those that a wildcard names.
// The zero Record says nothing.
type Record struct {
	Schema        int                 `json:"schema_version"`
	Plans         []Grant             `json:"plans,omitempty"`
	Pins          map[string]int      `json:"pins,omitempty"`          // the version that the caller keeps, by plan; never of a wildcard
	BillingAnchor time.Time           `json:"billing_anchor,omitzero"` // when a first billing period began
	Overrides     map[string]Override `json:"overrides,omitempty"`     // by the limit's name
	Ban           *Ban                `json:"ban,omitempty"`           //
	History       []Change            `json:"history,omitempty"`       // the newest last
}

// Empty reports whether a record says nothing, whatever was once done to it.
func (r *Record) Empty() bool {
	return len(r.Plans) == 0 && len(r.Pins) == 0 && r.BillingAnchor.IsZero() && len(r.Overrides) == 0 && r.Ban == nil
}

// Note adds a change to the record's history, and lets the oldest go.
func (r *Record) Note(c Change) {
	r.History = append(r.History, c)
	if n := len(r.History) - maxHistory; n > 0 {
		r.History = slices.Clone(r.History[n:])
	}
}

// Prune removes what was over before an instant.
func (r *Record) Prune(now time.Time) {
	r.Plans = slices.DeleteFunc(r.Plans, func(g Grant) bool { return g.over(now) })
	for name, o := range r.Overrides {
		if o.over(now) {
			delete(r.Overrides, name)
		}
	}
	if r.Ban != nil && r.Ban.over(now) {
		r.Ban = nil
	}
}

// longest is the longest horizon of the record's own limits.
func (r *Record) longest() (d time.Duration) {
	for _, o := range r.Overrides {
		if l, err := o.parse(); err == nil {
			d = max(d, l.Horizon())
		}
	}
	return d
}

// parse reads the limit; the zero Limit is none at all.
func (o *Override) parse() (weir.Limit, error) {
	if o.Limit == Unlimited {
		return weir.Limit{}, nil
	}
	return weir.ParseLimit(o.Limit)
}

// encode writes a record, or the index.
func encode(v any, most int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > most {
		return nil, fmt.Errorf("%w: %d bytes, and at most %d are kept", ErrFull, len(b), most)
	}
	return b, nil
}

// ErrFull: what would be written is more than one record holds.
var ErrFull = errors.New("the record is full")

// UnreadableError is a record that is there and cannot be followed: it is damaged,
// or of a form that only a newer program knows. Other records are not affected.
type UnreadableError struct {
	Of    string // whose record it is: a key as in the store
	Newer int    // the form of it that this program does not know; 0: it is damaged
	Err   error  // what is wrong, without Of
}

func (e *UnreadableError) Error() string { return "the record of " + e.Of + " " + e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// get asks the store for a record, of which what says whose it is. What is there and
// is none is an [UnreadableError].
func get(ctx context.Context, records weir.Records, key, what string) (value []byte, version string, err error) {
	value, version, err = records.Get(ctx, key)
	if errors.Is(err, weir.ErrNoRecord) {
		err = &UnreadableError{Of: what, Err: fmt.Errorf("is none: %w", err)}
	}
	return value, version, err
}

// decode reads a record, or the index, of which version says the form. No value
// is a record that says nothing.
func decode(value []byte, into any, version *int, what string) error {
	if value == nil {
		*version = schema
		return nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return &UnreadableError{Of: what, Err: fmt.Errorf("is damaged: %w", err)}
	}
	if *version < 1 || *version > schema {
		return &UnreadableError{Of: what, Newer: *version,
			Err: fmt.Errorf("has form %d, and this program knows 1 to %d: use the newer program that wrote it", *version, schema)}
	}
	return nil
}

// The keys of records. A caller's key is never empty, so that none is the index.
const (
	indexKey     = "accounts"
	recordPrefix = "accounts/"
)

func recordKey(caller weir.Key) string { return recordPrefix + caller.String() }

// A Pattern names callers by how their keys begin: account#acme-* for all
// accounts whose id begins with acme-.
type Pattern string

// ParsePattern reads KIND#BEGINNING*. What stands before the * is written as in
// a key: bytes other than letters, digits and -_.@: as %XX. KIND#* is everyone of
// a kind.
func ParsePattern(text string) (Pattern, error) {
	begin, star := strings.CutSuffix(text, "*")
	kind, id, both := strings.Cut(begin, "#")
	if _, ok := weir.ParseKey(kind + "#" + id + "x"); !star || !both || !ok || strings.Contains(begin, "|") {
		return "", fmt.Errorf("%q is not a wildcard: write KIND#BEGINNING* with one * at the end, such as account#acme-*, and bytes other than letters, digits and -_.@: as %%XX", text)
	}
	return Pattern(text), nil
}

// Kind is the kind of the callers that the pattern names.
func (p Pattern) Kind() string { kind, _, _ := strings.Cut(string(p), "#"); return kind }

// Holds reports whether the pattern names a caller. One of several parts it
// never names.
func (p Pattern) Holds(caller weir.Key) bool {
	text := caller.String()
	return strings.HasPrefix(text, string(p[:len(p)-1])) && len(text) >= len(p) && !strings.Contains(text, "|")
}

// KindOf is the kind of a caller's key: account of account#a7.
func KindOf(caller weir.Key) string {
	kind, _, _ := strings.Cut(caller.String(), "#")
	return kind
}

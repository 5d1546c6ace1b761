package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlabs/weir/internal/pipeline"
	"github.com/weirlabs/weir/internal/plan"
)

// The vocabulary in which a [Limiter] speaks to a [Store]. Only who writes a
// store needs it; see docs/adding-a-store.md and package storetest.
type (
	// Write is one guarded update of one item: if every guard holds on the item as
	// it was before, every action happens.
	//
	//	If    []Cond        // the guards
	//	Do    []Act         // the actions, on different fields
	//	Nonce uint64        // names this very write, where replies may be lost; 0 is none
	//	Keep  time.Duration // the item may be deleted when nothing was written for so long
	//
	//	func (w *Write) Holds(c *Cells, now int64) bool // whether every guard holds; now is the store's, in Unix ns
	//	func (w *Write) Apply(c *Cells, now int64)      // performs the actions, without looking at the guards
	Write = plan.Write
	// Cond is one guard of a Write: a field compared with a value.
	//
	//	Field    Field
	//	Value    int64
	//	Cmp      Cmp  // AtMost, Above, AtLeast or Equal
	//	OrAbsent bool // an absent field satisfies the guard; without it, it never does
	//	Rel      bool // Value is relative to the store's now
	Cond = plan.Cond
	// Act is one change that a Write makes. Sums stay at the ends of an int64.
	//
	//	Field Field
	//	Value int64
	//	Do    Do   // Put, Add or Remove
	//	Rel   bool // Value is relative to the store's now; of Put only
	Act = plan.Act
	// Cells is the state of one item: a map from fields to values. The zero value is
	// an item without fields. It is not safe for concurrent use.
	//
	//	func (c *Cells) Get(f Field) (int64, bool) // the value of a field, and whether the item has it
	//	func (c *Cells) Set(f Field, v int64)      // gives a field a value
	//	func (c *Cells) Drop(f Field)              // removes a field
	//	func (c *Cells) All() iter.Seq[Slot]       // every field with its value, in no particular order
	//	func (c *Cells) Empty() bool               // whether there is no field
	//	func (c *Cells) Reset()                    // removes all fields, and keeps the memory
	//	func (c *Cells) CopyFrom(o *Cells)         // makes c an independent copy of o
	Cells = plan.Cells
	// Field names one integer of an item. It is comparable, and its numbers mean
	// something in this process only: a store writes its text.
	//
	//	Kind Kind // Clock in a guard on the store's now; otherwise no concern of a store
	//
	//	func (f Field) Text() string // its name in a store, such as "orders.c"; ParseField is the inverse
	Field = plan.Field
	// Slot is a Field with its value.
	//
	//	Field Field
	//	Value int64
	Slot = plan.Slot
	// Caps says what a store can and cannot do.
	//
	//	OwnClock     bool          // now is one clock for all clients; without it, the calling machine's
	//	LossyReplies bool          // a write may be applied although its reply is lost: writes have a Nonce
	//	MaxKeep      time.Duration // for how long an item is kept that is not written; 0 is for ever
	//	Gap          time.Duration // wanted between two writes of a crowd to one item; 0 is none, but the second may wait up to 2 ms for the rest
	Caps = plan.Caps
	// Cmp is how a Cond compares its field with its value.
	Cmp = plan.Cmp
	// Do is what an Act does with its field.
	Do = plan.Do
	// SpoiledError is the error of a Store whose item holds what is none of its own.
	SpoiledError = plan.SpoiledError
)

// What a [Write] is made of. A Cond on the field of kind Clock looks at the
// store's now, in Unix nanoseconds, and at no field.
const (
	AtMost  = plan.AtMost  // field <= value
	Above   = plan.Above   // field > value
	AtLeast = plan.AtLeast // field >= value
	Equal   = plan.Equal   // field = value

	Put    = plan.Put    // field := value
	Add    = plan.Add    // field += value; an absent field counts as 0
	Remove = plan.Remove // the field goes

	Clock = plan.Clock // the Field.Kind that stands for the store's now
)

// ParseField is the inverse of [Field.Text]. It answers false for fields of
// limits that this process has not built: a store leaves those alone.
func ParseField(text string) (Field, bool) { return plan.ParseField(text) }

// Store keeps items. It knows no algorithm: it applies guarded writes. A Store
// is safe for concurrent use and owns the clock by which its items are judged.
type Store interface {
	// Caps is constant for the life of the store.
	Caps() Caps

	// Apply applies, in one atomic step, the first of tries whose guards hold
	// (a store may look at the first only), fills state with the item as it is
	// afterwards and returns the index of the applied write, or -1, and the
	// store's now in Unix nanoseconds. Without tries it reads. It makes no
	// second attempt and holds no opinion on what a state means.
	//
	// An error means that nothing is known to have been applied. One that
	// wraps [ErrOutcomeUnknown] means that something may have been.
	//
	// Apply must end with ctx: a call that does not keeps its key's others
	// waiting, and nobody learns that the store does not answer.
	Apply(ctx context.Context, item Key, tries []Write, state *Cells) (applied int, now int64, err error)

	// Close releases what the store holds. No call may follow it.
	Close() error
}

// InProcess is implemented by a Store whose items live in this process. The
// Limiter then decides under the item's lock, and builds no Write at all.
type InProcess interface {
	// Lock gives the item's state, to be changed in place until Unlock, and
	// the store's now in Unix nanoseconds. A nil state says that the item can't
	// be decided so: nothing is locked then, and Apply does it or says why not.
	Lock(item Key) (state *Cells, now int64)
	// Unlock must follow Lock in the same goroutine, before any other Lock.
	Unlock(item Key)
}

// Gatherer is implemented by a Store that sends together what several calls want
// of it at the same time, as calls that share a script. A Limiter's call then
// needs no goroutine of its own, and nothing is planned before it is sent.
type Gatherer = pipeline.Gatherer

// What a Gatherer is given, and what it gives: a Limiter has a [Question], which
// says the [Attempt] to be made, and reads the [Answer].
type (
	Question = pipeline.Question
	Attempt  = pipeline.Attempt
	Answer   = pipeline.Answer
)

// Records keeps what is not integers: accounts, pinned plans, overrides. A
// Store may implement it.
type Records interface {
	// Get returns a value and its version. A key that is not there has the
	// version "" and no error.
	Get(ctx context.Context, key string) (value []byte, version string, err error)
	// Put stores a value if the record's version is still ifVersion ("" when
	// it must not exist yet), and answers ErrConflict otherwise. A zero
	// expiresAt keeps the record for ever.
	Put(ctx context.Context, key string, value []byte, ifVersion string, expiresAt time.Time) error
	// List returns at most max keys with a prefix, after the cursor, in no
	// particular order; next is "" at the end.
	List(ctx context.Context, prefix, cursor string, max int) (keys []string, next string, err error)
}

// Lister lists the items that a store holds. A Store may implement it: for
// people who look at a store, never for the way of a call, which asks for one
// key that it knows. No store keeps an index for it.
type Lister interface {
	// ListKeys returns at most max keys whose text begins with a prefix, after
	// the cursor, in no particular order; next is "" at the end. A max below 1
	// is an error. A page looks at a bounded part of the store, so that it may have few
	// keys, or none, while next is not "": go on with next.
	//
	// An item that is there from the first page to the last is listed at least
	// once; one that is added or removed meanwhile may be listed or not. Items
	// that mean nothing any more may be listed as well, records never are. A
	// cursor is good for the store that gave it, while that is open.
	ListKeys(ctx context.Context, prefix, cursor string, max int) (keys []Key, next string, err error)
}

// Deleter is implemented by a Store whose items another program may replace by what
// can't be read at all, such as a key of another type. Reset has such an item deleted,
// up to three times: one of which a read says that it is spoiled, and not in which field.
type Deleter interface {
	// Delete removes an item if it can't be read at all, in one step. That it can be,
	// since somebody else has mended it, or that there is none, is no error.
	Delete(ctx context.Context, item Key) error
}

// Errors that stores wrap and callers may test for with errors.Is.
var (
	// ErrOutcomeUnknown: a write was sent and may or may not have been applied.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnreachable: nothing was sent; the same call may work in a moment.
	ErrUnreachable = errors.New("store unreachable")
	// ErrThrottled: the store refuses this one key because it is too busy. It
	// says nothing of the store's health.
	ErrThrottled = errors.New("throttled by the store")
	// ErrBusy: other writers changed the item on every one of the attempts.
	ErrBusy = errors.New("item is too busy")
	// ErrConflict: a record was changed by another writer.
	ErrConflict = errors.New("changed by another writer")
	// ErrNoRecord: what has the name of a record was not written by weir, and
	// stays until somebody removes it. It says nothing of the store's health.
	ErrNoRecord = errors.New("it was not written by weir")
)

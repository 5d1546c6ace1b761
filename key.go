package weir

import "github.com/weirlabs/weir/internal/plan"

// Key names an item: the caller, or a caller together with a resource. Limits
// that are taken from one Key in one call share one write. The zero Key is
// invalid. Keys are values: prepare them once where the caller is known.
//
//	func (k Key) String() string // the text under which a store keeps the item
//	func (k Key) Hash() uint64   // of the text; it differs from process to process
//	func (k Key) Valid() bool    // whether it is not empty, and at most MaxKey bytes long
//	func (k Key) Parts() int     // how many kind#id pairs it has
type Key = plan.Key

// MaxKey is the longest key that a Limiter accepts, in bytes of its text.
const MaxKey = plan.MaxKey

// NewKey joins a kind and an id, and any further kinds and ids, to a key:
// NewKey("account", "customer-42") is the item account#customer-42, and
// NewKey("account", "a7", "event", "12") is account#a7|event#12. Letters,
// digits and -_.@: stand for themselves, any other byte is written %XX, so
// different parts give different keys whatever they contain. An empty part
// gives an invalid key.
func NewKey(kind, id string, more ...string) Key { return plan.NewKey(kind, id, more...) }

// ParseKey is the inverse of [Key.String]. It answers false for what is not the
// text of a key that NewKey makes, or is longer than [MaxKey].
func ParseKey(text string) (Key, bool) { return plan.ParseKey(text) }

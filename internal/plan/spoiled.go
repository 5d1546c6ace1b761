package plan

// SpoiledError is an item that can't be read, since it is, or a field of it holds,
// what no limit writes there: another program has, or somebody by hand. It stays until
// the field, or the item, is removed, and says nothing of the store's health.
type SpoiledError struct {
	Field string   // its text, see ParseField; "" when it is not a field, or the store does not say
	More  []string // the texts of other such fields of the item
	Err   error    // what Field holds, and what to do
}

func (e *SpoiledError) Error() string { return e.Err.Error() }
func (e *SpoiledError) Unwrap() error { return e.Err }

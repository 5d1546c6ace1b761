package pipeline

import (
	"sync"

	"github.com/weirlabs/weir/internal/plan"
)

// Local counts in this process while the store can't be asked: each process
// then keeps a share of a limit by itself. Items are bounded; one that holds
// nothing any more goes first.
type Local struct {
	mu    sync.Mutex
	items map[plan.Key]*localItem
}

// localItem is the state of one key, under the shares, and what they stand for.
type localItem struct {
	cells plan.Cells
	owed  []owed
}

// owed is a limit of which a share was used: what the share still shows as used
// is charged to the limit once the store answers again.
type owed struct{ limit, share *plan.Spec }

// maxLocal bounds the keys that are counted at once. The next ones are refused:
// a full table means an attack by many keys on a store that is down.
const maxLocal = 1 << 16

// Take takes from a share, and remembers the limit that it stands for.
func (f *Local) Take(item plan.Key, limit, share *plan.Spec, now, cost int64) plan.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil {
		if f.items == nil {
			f.items = map[plan.Key]*localItem{}
		}
		if len(f.items) >= maxLocal && !f.drop(now) {
			return plan.Verdict{Wait: share.Horizon()}
		}
		it = &localItem{}
		f.items[item] = it
	}
	v := share.Step(&it.cells, now, cost)
	if v.OK {
		it.owe(limit, share)
	}
	return v
}

func (it *localItem) owe(limit, share *plan.Spec) {
	for i := range it.owed {
		if it.owed[i].limit.Same(limit) {
			it.owed[i] = owed{limit, share}
			return
		}
	}
	it.owed = append(it.owed, owed{limit, share})
}

// drop removes an item that holds nothing any more.
func (f *Local) drop(now int64) bool {
	n := 0
	for key, it := range f.items {
		if it.cells.IdleAt(now) <= now {
			delete(f.items, key)
			return true
		}
		if n++; n == looked {
			break
		}
	}
	return false
}

// Owes reports whether a key was counted here. It is cheap when nothing was.
func (f *Local) Owes(item plan.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items[item] != nil
}

// Settle forgets a key and returns a planner that charges its limits what the
// shares still show as used. What has refilled since is not charged again.
func (f *Local) Settle(item plan.Key, now int64) Planner {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	delete(f.items, item)
	if it == nil {
		return nil
	}
	return func(known *plan.Cells, at int64, w *plan.Write) bool {
		any := false
		for _, o := range it.owed {
			if v := o.share.Look(&it.cells, now, 1); v.Used > 0 {
				any = o.limit.Owe(known, at, v.Used, w) || any
			}
		}
		return any
	}
}

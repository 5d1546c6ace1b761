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

// Share is one limit of a key, with the part of it that this process may give.
type Share struct {
	Limit, Part *plan.Spec
	Cost        int64
}

// Take takes all shares of a key or none, and remembers the limits that they
// stand for. It fills verdicts, one for each, and reports a refusal.
func (f *Local) Take(item plan.Key, shares []Share, now int64, verdicts []plan.Verdict) (refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil {
		if f.items == nil {
			f.items = map[plan.Key]*localItem{}
		}
		if len(f.items) >= maxLocal && !f.drop(now) {
			for i := range verdicts {
				verdicts[i] = plan.Verdict{Wait: shares[i].Part.Horizon()}
			}
			return true
		}
		it = &localItem{}
		f.items[item] = it
	}
	for i, s := range shares {
		verdicts[i] = s.Part.Look(&it.cells, now, s.Cost)
		refused = refused || !verdicts[i].OK
	}
	if refused {
		return true
	}
	for i, s := range shares {
		verdicts[i] = s.Part.Step(&it.cells, now, s.Cost)
		it.owe(s.Limit, s.Part)
	}
	return false
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

// Repay charges a key's limits what the shares still show as used, and then
// forgets the key. What has refilled since is not charged again. When charge
// says that nothing was done, the key stays as it was.
func (f *Local) Repay(item plan.Key, now int64, charge func(Planner) (done bool)) {
	f.mu.Lock()
	it := f.items[item]
	delete(f.items, item)
	f.mu.Unlock()
	if it == nil {
		return // another call is at it
	}
	done := charge(func(known *plan.Cells, at int64, w *plan.Write) bool {
		any := false
		for _, o := range it.owed {
			if v := o.share.Look(&it.cells, now, 1); v.Used > 0 {
				any = o.limit.Owe(known, at, v.Used, w) || any
			}
		}
		return any
	})
	if done {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.items[item] == nil {
		f.items[item] = it
	}
}

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
	cells  plan.Cells
	owed   []owed
	paying bool // a repayment is under way
	takes  int
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
	it.takes++
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
		if !it.paying && it.cells.IdleAt(now) <= now {
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

// debt is what a key's shares showed as used when its repayment began.
type debt struct {
	owed  []owed
	cells plan.Cells
	now   int64
	takes int
}

// begin starts a repayment. It is nil when there is none to make, or another
// call is at it.
func (f *Local) begin(item plan.Key, now int64) *debt {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil || it.paying {
		return nil
	}
	it.paying = true
	d := &debt{owed: append([]owed(nil), it.owed...), now: now, takes: it.takes}
	d.cells.CopyFrom(&it.cells)
	return d
}

// charge is the repayment's planner. What has refilled is not charged.
func (d *debt) charge(known *plan.Cells, at int64, w *plan.Write) bool {
	any := false
	for _, o := range d.owed {
		if n := o.used(d); n > 0 {
			any = o.limit.Owe(known, at, n, w) || any
		}
	}
	return any
}

func (o owed) used(d *debt) int64 { return o.share.Look(&d.cells, d.now, 1).Used }

// end closes a repayment. What was paid is no longer owed; what was counted
// meanwhile still is. When nothing was paid, the key stays as it was.
func (f *Local) end(item plan.Key, d *debt, paid bool, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	it.paying = false
	if !paid {
		return
	}
	if it.takes == d.takes {
		delete(f.items, item)
		return
	}
	for _, o := range d.owed {
		var w plan.Write
		v := o.share.Look(&d.cells, d.now, 1)
		if o.share.GiveBack(&it.cells, now, v.Used, v.Stamp, &w) && w.Holds(&it.cells, now) {
			w.Apply(&it.cells, now)
		}
	}
}

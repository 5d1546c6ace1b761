package pipeline

import (
	"sync"
	"sync/atomic"

	"github.com/weirlabs/weir/internal/plan"
)

// Local counts in this process while the store can't be asked: each process
// then keeps a share of a limit by itself. Items are bounded; one that holds
// nothing any more goes first.
type Local struct {
	any   atomic.Bool // whether there is or was an item: no lock without
	mu    sync.Mutex
	items map[plan.Key]*localItem
	takes uint64 // so far, of all keys
}

// localItem is the state of one key, under the shares, and what they stand for.
type localItem struct {
	cells   plan.Cells
	owed    []owed
	last    uint64     // take
	charged uint64     // takes up to this one are in paid
	paid    plan.Cells // the state of which the limits were charged
	debt    *debt      // a repayment that is under way, or of which nobody knows whether it was made
	paying  bool       // it is under way
}

// owes reports whether something was taken that is not in paid.
func (it *localItem) owes() bool { return it.last > it.charged }

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
// stand for. It fills verdicts, one for each, and reports a refusal. Unseen are
// those of a key for which there is no room. Each take has a number.
func (f *Local) Take(item plan.Key, shares []Share, now int64, verdicts []plan.Verdict) (number uint64, refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil {
		if f.items == nil {
			f.items = map[plan.Key]*localItem{}
			f.any.Store(true)
		}
		if len(f.items) >= maxLocal && !f.drop(now) {
			for i := range verdicts {
				verdicts[i] = plan.Verdict{Unseen: true}
			}
			return 0, true
		}
		it = &localItem{last: f.takes, charged: f.takes}
	}
	for i, s := range shares {
		verdicts[i] = s.Part.Look(&it.cells, now, s.Cost)
		refused = refused || !verdicts[i].OK
	}
	if refused {
		return 0, true
	}
	for i, s := range shares {
		verdicts[i] = s.Part.Step(&it.cells, now, s.Cost)
		it.owe(s.Limit, s.Part)
	}
	f.takes++
	it.last = f.takes
	f.items[item] = it
	return it.last, false
}

// Settle runs a planner on the shares of a key, for the take of a number. It
// reports false when that is charged to the limits already, or just now.
func (f *Local) Settle(item plan.Key, number uint64, now int64, next Planner) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil || number <= it.charged || it.debt != nil && number <= it.debt.last {
		return false
	}
	var w plan.Write
	if next(&it.cells, now, &w) {
		w.Apply(&it.cells, now)
	}
	return true
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

// drop removes an item that holds nothing any more, or owes nothing.
func (f *Local) drop(now int64) bool {
	n := 0
	for key, it := range f.items {
		if !it.paying && (!it.owes() || it.cells.IdleAt(now) <= now) {
			delete(f.items, key)
			return true
		}
		if n++; n == looked {
			break
		}
	}
	return false
}

// Owes reports whether something of a key's was counted here that its limits
// were not charged yet. It is cheap when nothing was.
func (f *Local) Owes(item plan.Key) bool {
	if !f.any.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	return it != nil && it.owes()
}

// debt is what is charged by one repayment: what the shares show as used, but
// for what was charged before.
type debt struct {
	owed        []owed
	cells, paid plan.Cells
	last        uint64 // take that is in cells
	now         int64
	again       bool // it had been left open

	// nonce names the repayment, in however many attempts: when one of unknown
	// outcome was made, the next one finds that out, and charges nothing. By
	// then less may be due; then that is charged. 0: replies tell nothing.
	nonce uint64
}

// begin starts a repayment, or goes on with one of unknown outcome. It is nil
// when there is none to make, or another call is at it.
func (f *Local) begin(item plan.Key, now int64, nonces bool) *debt {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	if it == nil || it.paying || !it.owes() {
		return nil
	}
	it.paying = true
	d := it.debt
	if d != nil {
		d.again = true
	} else {
		d = &debt{owed: append([]owed(nil), it.owed...), last: it.last}
		d.cells.CopyFrom(&it.cells)
		d.paid.CopyFrom(&it.paid)
		if nonces {
			d.nonce = newNonce()
		}
		it.debt = d
	}
	d.now = now
	return d
}

// charge is the repayment's planner. What has refilled is not charged.
func (d *debt) charge(known *plan.Cells, at int64, w *plan.Write) bool {
	any := false
	for _, o := range d.owed {
		n := o.share.Look(&d.cells, d.now, 1).Used - o.share.Look(&d.paid, d.now, 1).Used
		if n > 0 {
			any = o.limit.Owe(known, at, n, w) || any
		}
	}
	w.Nonce = d.nonce
	return any
}

// end closes a repayment. The shares stay used, so that an outage that goes on
// lets nothing more through; a store that has answered knows better, and the key
// is forgotten.
func (f *Local) end(item plan.Key, d *debt, made, unknown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.items[item]
	it.paying = false
	switch {
	case unknown && d.nonce != 0: // it stays open
	case made || unknown:
		it.debt, it.charged = nil, d.last
		it.paid.CopyFrom(&d.cells)
		if made && !it.owes() {
			delete(f.items, item)
		}
	case !d.again:
		it.debt = nil
	}
}

package pipeline

import (
	"sync"

	"github.com/weirlabs/weir/internal/plan"
)

// lanes is a bounded table of lanes. Lanes in use are never dropped; an idle
// one is only a memo, which any caller can do without.
type lanes struct {
	mu  sync.Mutex
	by  map[uint64]*lane // by the hash of the item
	n   int
	max int
}

// looked is how many lanes are considered when one has to go.
const looked = 8

// get returns the item's lane and keeps it from being dropped until put.
func (t *lanes) get(item plan.Key) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.known(item); l != nil {
		return l
	}
	if t.by == nil {
		t.by = map[uint64]*lane{}
	}
	if t.n >= t.max {
		t.drop()
	}
	if t.n >= t.max {
		t.drop() // a crowd of lanes in use has made it too large
	}
	l := &lane{item: item, alike: t.by[item.Hash()]}
	l.users.Store(1)
	t.by[item.Hash()] = l
	t.n++
	return l
}

// find is get of a lane that is there, or nil.
func (t *lanes) find(item plan.Key) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known(item)
}

// known is find for who holds the lock.
func (t *lanes) known(item plan.Key) *lane {
	for l := t.by[item.Hash()]; l != nil; l = l.alike {
		if l.item == item {
			l.users.Add(1)
			return l
		}
	}
	return nil
}

// hold is one more use of a lane that is in use.
func (l *lane) hold() { l.users.Add(1) }

// put ends one use of a lane.
func (l *lane) put() { l.users.Add(-1) }

// drop removes, of a few idle lanes, the one whose memo is oldest. A lane that
// nobody uses can't come into use meanwhile: that takes get.
func (t *lanes) drop() {
	var oldest *lane
	n := 0
	for _, l := range t.by { // of those with one hash, which there hardly are, the first
		if l.users.Load() == 0 && (oldest == nil || l.seenAt.Load() < oldest.seenAt.Load()) {
			oldest = l
		}
		if n++; n == looked {
			break
		}
	}
	if oldest == nil {
		return
	}
	t.n--
	if oldest.alike != nil {
		t.by[oldest.item.Hash()] = oldest.alike
	} else {
		delete(t.by, oldest.item.Hash())
	}
}

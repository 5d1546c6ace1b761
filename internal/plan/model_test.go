package plan

import "testing"

// The models say what the limits mean, in other words than the package's: they
// keep levels and counts, know nothing of writes, guards or fields, and see
// only what was decided and when.

// taking is one take as a model remembers it, for giving back and charging.
type taking struct {
	n      int64
	full   int64 // of a bucket: when this take's share has refilled
	window int64 // the start of the window in which it was counted
}

type model interface {
	fits(now, n int64) bool
	take(now, n int64) taking
	back(now, planned int64, k taking, n int64) (gone int64) // in the model's own measure
	more(now int64, k taking, n int64) (added int64)
	used(now int64) int64
	keep() int64
	// bound is what the log of a limit must keep: in any interval at most
	// burst, and slope for each ns of it.
	bound() (unit, burst, slope int64)
}

// leaky is a bucket seen as water: in ns, which leak one for one.
type leaky struct {
	interval, depth int64
	level, at       int64
}

func (m *leaky) leak(now int64) {
	m.level = max(0, m.level-(now-m.at))
	m.at = now
}

func (m *leaky) fits(now, n int64) bool {
	m.leak(now)
	return m.level+n*m.interval <= m.depth
}

func (m *leaky) take(now, n int64) taking {
	m.leak(now)
	m.level += n * m.interval
	return taking{n: n, full: now + m.level}
}

// back judges what has not refilled at the time of the plan, as the write does.
func (m *leaky) back(now, planned int64, k taking, n int64) int64 {
	m.leak(now)
	rest := min(max(0, k.full-planned), n*m.interval, m.level)
	m.level -= rest
	return rest
}

func (m *leaky) more(now int64, _ taking, n int64) int64 {
	m.leak(now)
	before := m.level
	m.level = min(m.level+n*m.interval, 2*m.depth)
	return m.level - before
}

func (m *leaky) used(now int64) int64 {
	m.leak(now)
	return (m.level + m.interval - 1) / m.interval
}

func (m *leaky) keep() int64 { return 2 * m.depth }

func (m *leaky) bound() (unit, burst, slope int64) { return m.interval, m.depth, 1 }

// firstUse is a window that begins with its first counted call.
type firstUse struct {
	length, limit int64
	start, count  int64
}

func (m *firstUse) roll(now int64) {
	if now >= m.start+m.length {
		m.count = 0
	}
}

func (m *firstUse) fits(now, n int64) bool {
	m.roll(now)
	return m.count+n <= m.limit
}

func (m *firstUse) take(now, n int64) taking {
	m.roll(now)
	if m.count == 0 {
		m.start = now
	}
	m.count += n
	return taking{n: n, window: m.start}
}

func (m *firstUse) back(now, _ int64, k taking, n int64) int64 {
	m.roll(now)
	if k.window != m.start || m.count < n {
		return 0
	}
	m.count -= n
	return n
}

func (m *firstUse) more(now int64, k taking, n int64) int64 {
	m.roll(now)
	if k.window != m.start || now >= m.start+m.length {
		return 0
	}
	before := m.count
	m.count = min(m.count+n, 2*m.limit)
	return m.count - before
}

func (m *firstUse) used(now int64) int64 {
	m.roll(now)
	return m.count
}

func (m *firstUse) keep() int64 { return m.length }

// A window that was given back whole begins anew, so that no two windows bound
// one interval by less than each its count: burst 2, as of any fixed window.
func (m *firstUse) bound() (unit, burst, slope int64) {
	return m.length, 2 * m.limit * m.length, m.limit
}

// aligned counts windows of the clock; sliding weighs the window before.
type aligned struct {
	length, limit int64
	sliding       bool
	counts        map[int64]int64
}

func (m *aligned) start(now int64) int64 { return now / m.length * m.length }

func (m *aligned) used(now int64) int64 {
	w := m.start(now)
	used := m.counts[w]
	if m.sliding {
		left := w + m.length - now
		used += (m.counts[w-m.length]*left + m.length - 1) / m.length
	}
	return used
}

func (m *aligned) fits(now, n int64) bool { return m.used(now)+n <= m.limit }

func (m *aligned) take(now, n int64) taking {
	w := m.start(now)
	m.counts[w] += n
	return taking{n: n, window: w}
}

func (m *aligned) alive(now, window int64) bool {
	w := m.start(now)
	return window == w || m.sliding && window == w-m.length
}

func (m *aligned) back(now, _ int64, k taking, n int64) int64 {
	if !m.alive(now, k.window) || m.counts[k.window] < n {
		return 0
	}
	m.counts[k.window] -= n
	return n
}

func (m *aligned) more(now int64, k taking, n int64) int64 {
	if !m.alive(now, k.window) {
		return 0
	}
	before := m.counts[k.window]
	m.counts[k.window] = min(before+n, 2*m.limit)
	return m.counts[k.window] - before
}

func (m *aligned) keep() int64 { return 2 * m.length }

func (m *aligned) bound() (unit, burst, slope int64) {
	if m.sliding {
		return m.length, m.limit * m.length, m.limit
	}
	return m.length, 2 * m.limit * m.length, m.limit
}

// entry is one line of a limit's log: the cost, in the unit of the limit's
// bound, that was admitted (or, when negative, given back) at a time.
type entry struct {
	at, cost int64
	forced   bool // charged, whether or not the limit allowed it
}

// withinBound is the checker of the core invariant: in every interval of the
// log at most burst + slope x length. One running minimum does for all of them.
func withinBound(log []entry, burst, slope int64) (ok bool, over entry) {
	total, least := int64(0), int64(0)
	for i, e := range log {
		at := e.at - log[0].at
		if mark := total - slope*at; i == 0 || mark < least {
			least = mark
		}
		total += e.cost
		if e.cost > 0 && !e.forced && total-slope*at-least > burst {
			return false, e
		}
	}
	return true, entry{}
}

// The checker itself must be able to say no.
func TestWithinBoundCanFail(t *testing.T) {
	log := []entry{{at: 0, cost: 3}, {at: 5, cost: 3}, {at: 10, cost: 5}}
	if ok, e := withinBound(log, 3, 1); ok || e.at != 10 {
		t.Errorf("5 at 10 after 6 in a bucket of 3 at 1/ns: ok=%v at %v", ok, e)
	}
	if ok, e := withinBound(log[:2], 3, 1); !ok {
		t.Errorf("3 and 3 again after 5 in a bucket of 3 at 1/ns: over at %v", e)
	}
	if ok, _ := withinBound([]entry{{at: 0, cost: 3}, {at: 1, cost: -2}, {at: 1, cost: 3}}, 3, 1); !ok {
		t.Error("what was given back may be taken again")
	}
}

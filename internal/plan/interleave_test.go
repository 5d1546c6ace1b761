package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// kept is one limit of the item: the spec under test and what it means.
type kept struct {
	spec  *Spec
	model model
	log   []entry
}

// call is a caller in the middle of a take: others act between its trips.
type call struct {
	which []int // of the limits
	n     int64
	write *Write
	trips int
}

// world is one item with its callers. It is stepped at random.
type world struct {
	*testing.T
	random *rand.Rand
	limits []*kept
	state  Cells
	now    int64
	expiry int64

	memory [4]Cells // what somebody knew of the item once
	calls  []*call
	taken  []done

	charges                                 bool
	allowed, denied, given, dels, busy, max int
}

// done is a take that was allowed: what may be given back or charged more.
type done struct {
	which  []int
	of     []taking
	stamps []int64
	n      int64
}

func someLimits(t testing.TB) []*kept {
	shadow := func(s *Spec) *Spec { return s.Shadow() }
	limit := func(name, text string, m model, f ...func(*Spec) *Spec) *kept {
		s := parsed(t, name, text)
		for _, f := range f {
			s = f(s)
		}
		return &kept{spec: s, model: m}
	}
	const s = second
	return []*kept{
		limit("a", "2/s burst 4", &leaky{interval: s / 2, depth: 2 * s}),
		limit("b", "quota 5/7s", &firstUse{length: 7 * s, limit: 5}),
		limit("c", "quota 6/5s calendar", &aligned{length: 5 * s, limit: 6, counts: map[int64]int64{}}),
		limit("d", "sliding 6/4s", &aligned{length: 4 * s, limit: 6, sliding: true, counts: map[int64]int64{}}),
		limit("a", "2/s burst 4", &leaky{interval: s / 2, depth: 2 * s}, shadow),
		limit("e", "3/2s burst 7", &leaky{interval: 666666667, depth: 7 * 666666667}),
		limit("g", "quota 5/11s", &firstUse{length: 11 * s, limit: 5}),
		limit("d", "sliding 6/4s", &aligned{length: 4 * s, limit: 6, sliding: true, counts: map[int64]int64{}}, shadow),
	}
}

func TestInterleavings(t *testing.T) {
	const steps = 2_500 // of each of 64 worlds
	for _, charges := range []bool{false, true} {
		for size := 1; size <= 8; size++ {
			t.Run(fmt.Sprintf("charges=%v/limits=%d", charges, size), func(t *testing.T) {
				for seed := range uint64(4) {
					w := &world{T: t, random: rand.New(rand.NewPCG(seed, uint64(size))), now: base, charges: charges}
					all := someLimits(t)
					for _, i := range w.random.Perm(len(all))[:size] {
						w.limits = append(w.limits, all[i])
					}
					for range steps {
						w.step()
					}
					w.finish(seed)
				}
			})
		}
	}
}

func (w *world) step() {
	switch x := w.random.IntN(100); {
	case x < 25:
		w.now += [...]int64{1, 1, second / 5, second / 3, second / 2, second, 2*second + 1, 4 * second}[w.random.IntN(8)]
	case x < 28:
		if len(w.taken) > 0 && w.random.IntN(40) == 0 {
			w.now += 30 * second
		}
	case x < 31:
		if w.expiry > 0 && w.now >= w.expiry {
			w.state = Cells{}
			w.expiry = 0
			w.dels++
		}
	case x < 45 && len(w.taken) > 0:
		w.settle()
	case x < 70 && len(w.calls) < 5:
		w.begin()
	case len(w.calls) > 0:
		i := w.random.IntN(len(w.calls))
		if w.trip(w.calls[i]) {
			w.calls[i] = w.calls[len(w.calls)-1]
			w.calls = w.calls[:len(w.calls)-1]
		}
	}
	for i, k := range w.limits {
		if v := k.spec.Look(&w.state, w.now, 1); v.Used != k.model.used(w.now) {
			w.Fatalf("limit %d (%s): used is %d, by the model %d; state %v", i, k.spec, v.Used, k.model.used(w.now), show(&w.state))
		}
	}
}

// begin plans a take by what somebody knew once, at a time that is not quite
// the store's.
func (w *world) begin() {
	c := &call{n: 1 + w.random.Int64N(3), which: w.random.Perm(len(w.limits))[:1+w.random.IntN(len(w.limits))]}
	known := &w.memory[w.random.IntN(len(w.memory))]
	guess := w.now + [...]int64{0, 0, -1, 1, -second / 10, second / 10}[w.random.IntN(6)]
	if w.plan(c, known, guess) {
		w.calls = append(w.calls, c)
		return
	}
	// What is stale refuses nobody: the item is asked.
	var fresh Cells
	fresh.CopyFrom(&w.state)
	if w.plan(c, &fresh, w.now) {
		w.calls = append(w.calls, c)
		return
	}
	w.refuse(c)
}

func (w *world) plan(c *call, known *Cells, now int64) bool {
	c.write = new(Write)
	for _, i := range c.which {
		if !w.limits[i].spec.Plan(known, now, c.n, c.write).OK {
			return false
		}
	}
	return true
}

// trip is one try of a write, and reports whether the call is over.
func (w *world) trip(c *call) bool {
	c.trips++
	if c.write.Holds(&w.state, w.now) {
		w.accept(c)
		return true
	}
	var known Cells
	known.CopyFrom(&w.state)
	w.memory[w.random.IntN(len(w.memory))].CopyFrom(&known)
	if w.plan(c, &known, w.now) {
		if !c.write.Holds(&w.state, w.now) {
			w.Fatalf("a plan from the true state does not hold: %v", show(&known))
		}
		if w.random.IntN(2) == 0 { // others come first
			w.now += w.random.Int64N(3)
			return false
		}
		w.accept(c)
		return true
	}
	w.refuse(c)
	return true
}

func (w *world) accept(c *call) {
	d := done{which: c.which, n: c.n}
	for _, i := range c.which {
		if k := w.limits[i]; !k.model.fits(w.now, c.n) {
			w.Fatalf("over: %d of %s were let through at %d with %d used; state %v, write %+v", c.n, k.spec, w.now, k.model.used(w.now), show(&w.state), c.write)
		}
	}
	c.write.Apply(&w.state, w.now)
	for _, i := range c.which {
		k := w.limits[i]
		d.of = append(d.of, k.model.take(w.now, c.n))
		d.stamps = append(d.stamps, k.spec.Look(&w.state, w.now, c.n).Stamp)
		unit, _, _ := k.model.bound()
		k.log = append(k.log, entry{at: w.now, cost: c.n * unit})
	}
	w.wrote()
	w.taken = append(w.taken, d)
	w.memory[w.random.IntN(len(w.memory))].CopyFrom(&w.state)
	w.allowed++
	w.max = max(w.max, c.trips)
	if c.trips > 8 {
		w.busy++
	}
}

// wrote moves the expiry, as a constant of all limits that share the item.
func (w *world) wrote() {
	for _, k := range w.limits {
		w.expiry = max(w.expiry, w.now+k.model.keep())
	}
}

// refuse checks that the refusal is not false.
func (w *world) refuse(c *call) {
	for _, i := range c.which {
		if !w.limits[i].model.fits(w.now, c.n) {
			w.denied++
			return
		}
	}
	w.Fatalf("a false refusal of %d at %d: state %v", c.n, w.now, show(&w.state))
}

// settle gives a part of a take back, or charges more, once for each take.
func (w *world) settle() {
	at := w.random.IntN(len(w.taken))
	d := w.taken[at]
	w.taken[at] = w.taken[len(w.taken)-1]
	w.taken = w.taken[:len(w.taken)-1]

	less := !w.charges || w.random.IntN(2) == 0
	n := 1 + w.random.Int64N(d.n)
	if !less {
		n = 1 + w.random.Int64N(6)
	}
	var known *Cells
	if w.random.IntN(2) == 0 {
		known = new(Cells)
		known.CopyFrom(&w.memory[w.random.IntN(len(w.memory))])
	}
	for range 3 {
		var write Write
		planned := w.now
		due := make([]bool, len(d.which))
		any := false
		for j, i := range d.which {
			if s := w.limits[i].spec; less {
				due[j] = s.GiveBack(known, w.now, n, d.stamps[j], &write)
			} else {
				due[j] = s.Charge(known, w.now, n, d.stamps[j], &write)
			}
			any = any || due[j]
		}
		if less {
			w.now += w.random.Int64N(4) // a trip takes its time
		}
		if any && !write.Holds(&w.state, w.now) || known != nil && !same(known, &w.state) {
			known = new(Cells)
			known.CopyFrom(&w.state)
			continue
		}
		if any {
			write.Apply(&w.state, w.now)
			w.wrote()
			w.given++
		}
		for j, i := range d.which {
			w.book(w.limits[i], planned, d.of[j], n, less)
		}
		return
	}
	w.Fatalf("a settlement planned from the true state does not hold: %v", show(&w.state))
}

func (w *world) book(k *kept, planned int64, of taking, n int64, less bool) {
	unit, _, _ := k.model.bound()
	_, leaks := k.model.(*leaky)
	if leaks {
		unit = 1 // its measure is ns already
	}
	if less {
		k.log = append(k.log, entry{at: w.now, cost: -unit * k.model.back(w.now, planned, of, n)})
		return
	}
	// A window's debt ends with it; a bucket's is paid off.
	if more := k.model.more(w.now, of, n); leaks {
		k.log = append(k.log, entry{at: w.now, cost: more, forced: true})
	}
}

func same(a, b *Cells) bool {
	n, m := 0, 0
	for range b.All() {
		m++
	}
	for slot := range a.All() {
		if v, ok := b.Get(slot.Field); !ok || v != slot.Value {
			return false
		}
		n++
	}
	return n == m
}

func (w *world) finish(seed uint64) {
	for _, k := range w.limits {
		_, burst, slope := k.model.bound()
		if ok, e := withinBound(k.log, burst, slope); !ok {
			w.Fatalf("seed %d: %s let through more than its bound at %d", seed, k.spec, e.at)
		}
	}
	if w.allowed < 100 || w.denied < 20 || w.given < 10 {
		w.Fatalf("seed %d: too little happened: %d allowed, %d denied, %d settled", seed, w.allowed, w.denied, w.given)
	}
	if w.busy*100 > w.allowed { // the pipeline gives up after eight
		w.Fatalf("seed %d: %d of %d decisions took more than eight trips", seed, w.busy, w.allowed)
	}
	w.Logf("seed %d: allowed %d, denied %d, settled %d, deletions %d, at most %d trips", seed, w.allowed, w.denied, w.given, w.dels, w.max)
}

package pipeline

import "github.com/weirlabs/weir/internal/plan"

// A shadow rides in the write of what it is asked with, whose guards then are of
// both. Where it could keep that from coming through, it goes by itself: a take of
// its own behind the first, which has been decided and waits for nothing else.

// part has the shadows of all takes without an answer go by themselves, and reports
// whether there were any that rode along.
func (s *service) part() (any bool) {
	for _, t := range s.pending {
		for i := range t.asks {
			if a := &t.asks[i]; a.Shadow && len(t.asks) > 1 && a.Cost <= a.Spec.Most() && !t.without(i) {
				t.apart |= 1 << i
				t.verdicts[i] = unseen(a)
				any = true
			}
		}
	}
	return any
}

// without reports whether a take's write goes without a shadow of it.
func (t *take) without(i int) bool { return (t.shed|t.apart)&(1<<i) != 0 }

// split is the shadows of a take that go by themselves, now that the rest of it is
// decided. It has its answer when they have theirs. The caller holds the lane's lock.
func (t *take) split() []*take {
	for i := range t.asks {
		if t.apart&(1<<i) != 0 {
			a := t.asks[i]
			a.Shadow = false // it refuses nobody but itself
			t.parts = append(t.parts, &take{ctx: t.ctx, asks: []Ask{a}, verdicts: make([]plan.Verdict, 1), done: make(chan struct{}, 1), of: t, place: i})
		}
	}
	t.unheard = len(t.parts)
	return t.parts
}

// heard takes in the answer to a part. The caller holds the lane's lock.
func (t *take) heard(part *take) {
	t.verdicts[part.place], t.asks[part.place].Err = part.verdicts[0], part.err
	if part.err != nil {
		t.verdicts[part.place] = unseen(&t.asks[part.place])
	}
	if t.unheard--; t.unheard == 0 {
		t.done <- struct{}{}
	}
}

// decided reports whether a take waits for nothing but its shadows, and has it wait
// no longer: they are counted all the same, but what becomes of them is not known. The
// caller holds the lane's lock.
func (t *take) decided() bool {
	if t.unheard == 0 {
		return false
	}
	for _, p := range t.parts {
		p.of = nil
	}
	t.unheard = 0
	return true
}

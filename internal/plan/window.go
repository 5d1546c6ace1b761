package plan

// Windows that are aligned to a clock have one counter each, named by the
// instant at which the window starts. A roll-over then is no write at all, and
// a wrong clock spoils only the window that it names:
//
//	calendar, billing  [ c@W absent or from 0 to L-n ]                        ->  c@W += n
//	sliding            [ c@W-1 absent or <= p,
//	                     c@W absent or from 0 to L-n-ceil(p*left/P) ]         ->  c@W += n
//
// with p learned from the last state seen. The sliding window weights the
// window before by the part of it that still lies within the last P (two-cell
// sliding window). Cells older than W-1 are removed along with a take.

// windowState is the counters of the current window and, when sliding, of the
// one before.
type windowState struct {
	span
	count, previous int64
	carried         int64 // what previous still weighs
	old             int   // cells that mean nothing any more
	below           int64 // the current count as stored, if that is below 0
}

func (s *Spec) windowAt(c *Cells, now int64) windowState {
	st := windowState{span: s.spanAt(now)}
	current, before := windowOf(st.start), windowOf(st.prev)
	cell := Cell | s.shadow
	for i := range c.Len() {
		slot := c.at(i)
		if slot.Field.Kind != cell || !s.Owns(slot.Field) {
			continue
		}
		switch {
		case slot.Field.Limit != s.id && int32(slot.Field.Window-before) >= 0: // a mark, which is read where it is needed
		case slot.Field.Window == current:
			st.count, st.below = max(slot.Value, 0), min(slot.Value, 0)
		case slot.Field.Window == before:
			st.previous = max(slot.Value, 0)
		case int32(slot.Field.Window-before) < 0:
			st.old++
		}
	}
	if s.alg == sliding {
		st.carried = mulDivUp(st.previous, st.end-now, st.end-st.start)
	}
	return st
}

func (s *Spec) judgeWindow(st windowState, now, n int64) Verdict {
	v := Verdict{Max: s.max, Never: n > s.most, Used: addSat(st.count, st.carried), Reset: st.end - now, End: st.end}
	if v.Never {
		return v
	}
	if n > s.most-v.Used {
		v.Wait = s.windowWait(st, now, n)
		return v
	}
	v.OK = true
	v.Used += n
	v.Stamp = st.start
	return v
}

// windowWait is the time until n more would fit if nobody else took any.
func (s *Spec) windowWait(st windowState, now, n int64) int64 {
	left := st.end - now
	if s.alg != sliding {
		return left
	}
	length := st.end - st.start
	// Within this window: the previous one may weigh at most room.
	if room := s.max - n - st.count; room >= 0 {
		return max(left-mulDiv(room, length, st.previous), 0)
	}
	// In the next, this window's count is the one that fades.
	return left + length - mulDiv(s.max-n, length, st.count)
}

func (s *Spec) stepWindow(c *Cells, now, n int64) Verdict {
	st := s.windowAt(c, now)
	v := s.judgeWindow(st, now, n)
	if !v.OK {
		return v
	}
	if st.old > 0 {
		s.dropOld(c, st)
	}
	f := s.field(Cell)
	f.Window = windowOf(st.start)
	c.Set(f, st.count+n)
	v.Notice = s.tell(c, f.Window, v.Used, false)
	return v
}

// dropOld removes, in place, the cells of windows that are long over.
func (s *Spec) dropOld(c *Cells, st windowState) {
	before := windowOf(st.prev)
	for i := c.Len() - 1; i >= 0; i-- {
		if slot := c.at(i); slot.Field.Kind == Cell|s.shadow && s.Owns(slot.Field) && int32(slot.Field.Window-before) < 0 {
			c.remove(slot)
		}
	}
}

func (s *Spec) planWindow(known *Cells, now, n int64, w *Write) Verdict {
	st := s.windowAt(known, now)
	v := s.judgeWindow(st, now, n)
	if !v.OK {
		return v
	}
	s.guardClock(st, now, w)
	current := s.field(Cell)
	current.Window = windowOf(st.start)
	if s.alg == sliding {
		before := current
		before.Window = windowOf(st.prev)
		w.If = append(w.If, Cond{Field: before, Cmp: AtMost, Value: st.previous, OrAbsent: true})
	}
	addTo(current, st.below, n, s.most-st.carried, w)
	v.Notice = s.planTell(known, current, v.Used, n, false, w)
	s.removeOld(known, st, w)
	return v
}

// guardClock refuses the write where the store's clock is in another window, or
// behind the instant at which the sliding weight was worked out.
func (s *Spec) guardClock(st windowState, now int64, w *Write) {
	from := st.start
	if s.alg == sliding {
		from = now
	}
	clock := Field{Kind: Clock}
	w.If = append(w.If,
		Cond{Field: clock, Cmp: AtLeast, Value: from},
		Cond{Field: clock, Cmp: AtMost, Value: st.end - 1})
}

// removals bounds the length of one write.
const removals = 8

func (s *Spec) removeOld(known *Cells, st windowState, w *Write) {
	before, removed := windowOf(st.prev), 0
	for i := 0; i < known.Len() && st.old > 0 && removed < removals; i++ {
		if f := known.at(i).Field; f.Kind == Cell|s.shadow && s.Owns(f) && int32(f.Window-before) < 0 {
			w.Do = append(w.Do, Act{Field: f, Do: Remove})
			removed++
		}
	}
}

func (s *Spec) lookWindow(c *Cells, now, n int64) Verdict {
	st := s.windowAt(c, now)
	v := s.judgeWindow(st, now, n)
	if v.OK {
		v.Used -= n
	}
	v.Stamp = st.start
	return v
}

// counts reports whether the window that a take was counted in still matters.
func (s *Spec) counts(stamp, now int64) bool {
	sp := s.spanAt(now)
	return stamp >= sp.start || s.alg == sliding && stamp >= sp.prev
}

func (s *Spec) giveBackWindow(known *Cells, now, n, stamp int64, w *Write) bool {
	if !s.counts(stamp, now) {
		return false
	}
	f := s.field(Cell)
	f.Window = windowOf(stamp)
	if known != nil {
		if v := read(known, f); v.v < n {
			return false
		}
	}
	w.If = append(w.If, Cond{Field: f, Cmp: AtLeast, Value: n})
	w.Do = append(w.Do, Act{Field: f, Do: Add, Value: -n})
	return true
}

func (s *Spec) chargeWindow(known *Cells, now, n, stamp int64, w *Write) bool {
	if !s.counts(stamp, now) {
		return false
	}
	f := s.field(Cell)
	f.Window = windowOf(stamp)
	floor := s.floor()
	count := int64(0)
	if known != nil {
		if count = read(known, f).v; count >= floor {
			return false
		}
	}
	chargeCount(f, count, min(n, floor), floor, w)
	return true
}

// addTo counts n units on, up to most in all. A count is never below 0 unless another
// program has written it: it then stands for 0 and credits nobody, and is replaced.
func addTo(f Field, count, n, most int64, w *Write) {
	if count < 0 {
		w.If = append(w.If, Cond{Field: f, Cmp: Equal, Value: count})
		w.Do = append(w.Do, Act{Field: f, Do: Put, Value: n})
		return
	}
	w.If = append(w.If,
		Cond{Field: f, Cmp: AtLeast, OrAbsent: true},
		Cond{Field: f, Cmp: AtMost, Value: most - n, OrAbsent: true})
	w.Do = append(w.Do, Act{Field: f, Do: Add, Value: n})
}

func (s *Spec) tidyWindow(known *Cells, now int64, w *Write) bool {
	st := s.windowAt(known, now)
	if st.old <= staleWindows {
		return false
	}
	s.removeOld(known, st, w)
	return true
}

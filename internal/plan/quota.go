package plan

// A quota is a start s and a count c. Its window begins with the first counted
// call and is over a period P later:
//
//	same   [ s > now-P, c >= 1, c <= L-n ]      ->  c += n
//	new    [ s absent or <= now-P ]             ->  s, c := now, n
//	empty  [ s > now-P, c absent or <= 0 ]      ->  s, c := now, n
//
// A later call never moves s, and a window of which everything was given back
// starts anew with the next call. A start more than a few seconds in the future
// was written by a wrong clock and is brought back to now.

func (s *Spec) quotaAt(c *Cells, now int64) (start, count Stored, running, wrong bool) {
	start, count = read(c, s.field(Start)), read(c, s.field(Count))
	running = start.ok && start.v > now-s.period.fixed() && count.v > 0
	return start, count, running, running && start.v > addSat(now, wrongClock)
}

func (s *Spec) judgeQuota(start, count Stored, running, wrong bool, now, n int64) Verdict {
	v := Verdict{Max: s.max, Never: n > s.most}
	begin := now
	if running {
		v.Used = count.v
		if !wrong {
			begin = start.v
		}
	}
	v.End = addSat(begin, s.period.fixed())
	if running {
		v.Reset = v.End - now
	}
	if v.Never {
		return v
	}
	if n > s.most-v.Used {
		v.Wait = v.Reset
		return v
	}
	v.OK = true
	v.Used += n
	v.Reset = v.End - now
	v.Stamp = begin
	return v
}

func (s *Spec) stepQuota(c *Cells, now, n int64) Verdict {
	start, count, running, wrong := s.quotaAt(c, now)
	v := s.judgeQuota(start, count, running, wrong, now, n)
	if v.OK {
		c.Set(s.field(Count), v.Used)
		v.Notice = s.tell(c, 0, v.Used, !running)
	}
	if v.OK && running && !wrong {
		return v
	}
	if v.OK || wrong && !v.Never {
		c.Set(s.field(Start), now)
	}
	return v
}

func (s *Spec) planQuota(known *Cells, now, n int64, w *Write) Verdict {
	start, count, running, wrong := s.quotaAt(known, now)
	v := s.judgeQuota(start, count, running, wrong, now, n)
	if !v.OK {
		return v
	}
	fs, fc := s.field(Start), s.field(Count)
	current := Cond{Field: fs, Cmp: Above, Value: -s.period.fixed(), Rel: true}
	begin := []Act{{Field: fs, Do: Put, Rel: true}, {Field: fc, Do: Put, Value: n}}
	v.Notice = s.planTell(known, fc, v.Used, n, !running, w)
	switch {
	case wrong:
		w.If = append(w.If, start.is(fs), Cond{Field: fs, Cmp: Above, Value: wrongClock, Rel: true}, count.is(fc))
		w.Do = append(w.Do, Act{Field: fs, Do: Put, Rel: true}, Act{Field: fc, Do: Add, Value: n})
	case running:
		w.If = append(w.If, current,
			Cond{Field: fs, Cmp: AtMost, Value: wrongClock, Rel: true},
			Cond{Field: fc, Cmp: AtLeast, Value: 1},
			Cond{Field: fc, Cmp: AtMost, Value: s.most - n})
		w.Do = append(w.Do, Act{Field: fc, Do: Add, Value: n})
	case start.ok && start.v > now-s.period.fixed():
		w.If = append(w.If, current, Cond{Field: fc, Cmp: AtMost, OrAbsent: true})
		w.Do = append(w.Do, begin...)
	default:
		w.If = append(w.If, Cond{Field: fs, Cmp: AtMost, Value: -s.period.fixed(), OrAbsent: true, Rel: true})
		w.Do = append(w.Do, begin...)
	}
	return v
}

func (s *Spec) lookQuota(c *Cells, now, n int64) Verdict {
	start, count, running, wrong := s.quotaAt(c, now)
	v := s.judgeQuota(start, count, running, wrong, now, n)
	if v.OK {
		v.Used -= n
	}
	if !running {
		v.Reset = 0 // no window has begun
	}
	v.Stamp = start.v
	return v
}

func (s *Spec) giveBackQuota(known *Cells, now, n, stamp int64, w *Write) bool {
	if stamp <= now-s.period.fixed() {
		return false // that window is over
	}
	fs, fc := s.field(Start), s.field(Count)
	if known != nil {
		if start, count := read(known, fs), read(known, fc); start.v != stamp || !start.ok || count.v < n {
			return false
		}
	}
	w.If = append(w.If, Cond{Field: fs, Cmp: Equal, Value: stamp}, Cond{Field: fc, Cmp: AtLeast, Value: n})
	w.Do = append(w.Do, Act{Field: fc, Do: Add, Value: -n})
	return true
}

func (s *Spec) chargeQuota(known *Cells, now, n, stamp int64, w *Write) bool {
	if stamp <= now-s.period.fixed() {
		return false
	}
	fs, fc := s.field(Start), s.field(Count)
	floor := s.floor()
	n = min(n, floor)
	count := Stored{0, true}
	if known != nil {
		var start Stored
		start, count = read(known, fs), read(known, fc)
		if !start.ok || start.v != stamp || count.v >= floor {
			return false
		}
	}
	w.If = append(w.If, Cond{Field: fs, Cmp: Equal, Value: stamp})
	chargeCount(fc, count.v, n, floor, w)
	return true
}

// chargeCount adds n to a counter, or sets it to the floor when that is nearer.
func chargeCount(f Field, count, n, floor int64, w *Write) {
	if count <= floor-n {
		addTo(f, count, n, floor, w)
		return
	}
	w.If = append(w.If,
		Cond{Field: f, Cmp: Above, Value: floor - n},
		Cond{Field: f, Cmp: AtMost, Value: floor})
	w.Do = append(w.Do, Act{Field: f, Do: Put, Value: floor})
}

func (s *Spec) tidyQuota(known *Cells, now int64, w *Write) bool {
	start, _, _, wrong := s.quotaAt(known, now)
	if !wrong {
		return false
	}
	fs := s.field(Start)
	w.If = append(w.If, start.is(fs), Cond{Field: fs, Cmp: Above, Value: wrongClock, Rel: true})
	w.Do = append(w.Do, Act{Field: fs, Do: Put, Rel: true})
	return true
}

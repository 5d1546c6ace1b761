package plan

// Refuse appends to w the guards under which the limit refuses n units, judging
// by what is known of the item, which must refuse them: the other half of Plan,
// for a write that goes without them. Wherever the guards hold, Step refuses. n
// may be what several takes want one after the other, none of which is of more
// than Most: then the last of them is refused.
func (s *Spec) Refuse(known *Cells, now, n int64, w *Write) {
	switch s.alg {
	case bucket:
		s.refuseBucket(known, now, n, w)
	case quota:
		s.refuseQuota(n, w)
	default:
		s.refuseWindow(known, now, n, w)
	}
}

func (s *Spec) refuseBucket(known *Cells, now, n int64, w *Write) {
	b := s.bucketAt(known, now)
	t, r := s.field(Arrival), s.field(Revision)
	if n > b.depth/b.interval { // whatever is left; unless a newer policy's bucket is larger
		if b.r.ok && b.r.v > s.revision {
			w.If = append(w.If, b.i.is(s.field(Interval)), b.d.is(s.field(Depth)), b.r.is(r))
		} else {
			w.If = append(w.If, Cond{Field: r, Cmp: AtMost, Value: s.revision, OrAbsent: true})
		}
		return
	}
	left := b.depth - n*b.interval
	if b.how == advance {
		w.If = append(w.If, Cond{Field: t, Cmp: Above, Value: left, Rel: true})
		w.If = s.sameShape(b, w.If)
		return
	}
	// Of a changed limit, what is left under the old one. Only the very arrival
	// that is known will do, and no earlier time: it could be a wrong clock's then.
	w.If = append(w.If, b.t.is(t), b.i.is(s.field(Interval)), b.d.is(s.field(Depth)), b.r.is(r),
		Cond{Field: t, Cmp: Above, Value: mulDiv(left, b.from, b.to), Rel: true},
		Cond{Field: Field{Kind: Clock}, Cmp: AtLeast, Value: now})
}

func (s *Spec) refuseQuota(n int64, w *Write) {
	if n > s.most {
		return // no window has room for them
	}
	w.If = append(w.If,
		Cond{Field: s.field(Start), Cmp: Above, Value: -s.period.fixed(), Rel: true},
		Cond{Field: s.field(Count), Cmp: Above, Value: s.most - n})
}

// refuseWindow goes by the instant at which a sliding window would have room,
// since what the window before weighs falls all the time.
func (s *Spec) refuseWindow(known *Cells, now, n int64, w *Write) {
	if n > s.most {
		return
	}
	st := s.windowAt(known, now)
	current, until, least := s.field(Cell), st.end, s.most-n+1
	current.Window = windowOf(st.start)
	if s.alg == sliding {
		until, least = min(st.end, now+s.windowWait(st, now, n)), st.count
		before := current
		before.Window = windowOf(st.prev)
		if st.previous > 0 {
			w.If = append(w.If, Cond{Field: before, Cmp: AtLeast, Value: st.previous})
		}
	}
	if least > 0 {
		w.If = append(w.If, Cond{Field: current, Cmp: AtLeast, Value: least})
	}
	clock := Field{Kind: Clock}
	w.If = append(w.If,
		Cond{Field: clock, Cmp: AtLeast, Value: st.start},
		Cond{Field: clock, Cmp: AtMost, Value: until - 1})
}

package plan

import (
	"math"
	"math/bits"
)

// A token bucket is one integer, the instant t at which it will be full again:
// the theoretical arrival time of GCRA (ITU-T I.371). With interval I, depth
// D = capacity x I and cost k = n x I, what is used at now is max(0, t-now), and
// a take is one of two disjoint writes:
//
//	advance  [ t > now, t <= now+D-k, i = I, d = D ]  ->  t += k
//	restart  [ t absent or <= now, r absent or <= R ] ->  t, i, d, r := now+k, I, D, R
//
// Writers that advance commute. I and D stand in the item, because t means
// nothing without them: when a limit changes, the first take compares and sets
// all of it (migrate), and a process with an older policy goes on with the
// item's values.

// bucketState is a bucket as stored, read with the limit of this process.
type bucketState struct {
	level           int64 // ns until full under interval and depth; 0 when full
	interval, depth int64 // that hold: the limit's, or those of a newer policy
	revision        int64
	how             branch

	t, i, d, r Stored // as stored
	wrong      bool   // only a wrong clock can have written t
	repaired   int64  // then the level at which the bucket starts over: empty

	// Of a bucket that stays as it is because it does not fit the limit yet:
	// its level as stored, of which from ns are to ns of the limit.
	unfit    bool
	stored   int64
	from, to int64
}

type branch uint8

const (
	restart branch = iota
	advance
	migrate
)

// Stored is a field's value, if it is there.
type Stored struct {
	v  int64
	ok bool
}

func read(c *Cells, f Field) Stored {
	v, ok := c.Get(f)
	return Stored{v, ok}
}

// readBucket is read of a bucket's four fields, in one pass.
func (s *Spec) readBucket(c *Cells, b *bucketState) {
	for n := range c.Len() {
		slot := c.at(n)
		if slot.Field.Limit != s.id {
			continue
		}
		v := Stored{slot.Value, true}
		switch slot.Field.Kind ^ s.shadow {
		case Arrival:
			if b.t = v; slot.Field.Window != 0 {
				sh := shapeAt(slot.Field.Window)
				b.i, b.d, b.r = Stored{sh.interval, true}, Stored{sh.depth, true}, Stored{sh.revision, true}
			}
		case Interval:
			b.i = v
		case Depth:
			b.d = v
		case Revision:
			b.r = v
		}
	}
}

// is is the guard that a field still is as it was read.
func (v Stored) is(f Field) Cond {
	if !v.ok {
		return Cond{Field: f, Cmp: AtMost, Value: math.MinInt64, OrAbsent: true}
	}
	return Cond{Field: f, Cmp: Equal, Value: v.v}
}

func (s *Spec) bucketAt(c *Cells, now int64) bucketState {
	b := bucketState{
		interval: s.interval, depth: s.depth, revision: s.revision,
	}
	s.readBucket(c, &b)
	known := b.i.ok && b.d.ok && b.i.v > 0 && b.d.v >= b.i.v && b.d.v <= maxPeriod
	if known && b.r.ok && b.r.v > s.revision {
		b.interval, b.depth, b.revision = b.i.v, b.d.v, b.r.v
	}
	if !b.t.ok || b.t.v <= now {
		return b
	}
	b.level = b.t.v - now
	depth := b.depth
	if known {
		depth = b.d.v
	}
	if b.level > depth+min(depth, maxDebt)+wrongClock {
		b.wrong, b.repaired, b.level = true, depth, depth
	}
	if known && b.i.v == b.interval && b.d.v == b.depth {
		b.how = advance
		return b
	}
	b.how = migrate
	b.stored, b.from, b.to = b.level, 1, 1
	if known {
		switch s.change {
		case Keep:
			b.from, b.to = b.i.v, b.interval
		case Scale:
			b.from, b.to = b.d.v, b.depth
		case Fresh:
			b.to = 0
		}
	}
	b.level = mulDivUp(b.level, b.to, b.from)
	if most := b.depth + s.debt; b.level > most {
		b.level = most
		b.unfit = known && b.r.v >= s.revision
	}
	return b
}

// judge says what a take of n makes of the bucket: the verdict, and the level
// that it leaves. most is the limit's own capacity: more than that is never
// taken, even where a newer policy's bucket has room, since who has not seen
// the item yet must say the same.
func (b *bucketState) judge(now, n, most int64) (Verdict, int64) {
	v := Verdict{Max: b.depth / b.interval}
	v.Never = n > min(most, v.Max)
	after := addSat(b.level, n*b.interval)
	if v.Never || after > b.depth {
		b.used(&v)
		switch {
		case v.Never:
		case b.unfit:
			v.Wait = b.stored - mulDiv(b.depth-n*b.interval, b.from, b.to)
		default:
			v.Wait = after - b.depth
		}
		return v, b.level
	}
	v.OK = true
	v.used(after, b.interval)
	v.Stamp = addSat(now, after)
	return v, after
}

// used fills in what the bucket means as it is.
func (b *bucketState) used(v *Verdict) {
	v.used(b.level, b.interval)
	if b.unfit {
		v.Reset = b.stored
	}
}

// used fills in what a level means.
func (v *Verdict) used(level, interval int64) {
	v.Used = (level + interval - 1) / interval
	v.Reset = level
}

// usual is the slot of an item whose bucket is of exactly this limit, with room
// for sums; else nil, and bucketAt looks at it.
func (s *Spec) usual(c *Cells, now, n int64) *Slot {
	slot := c.slot(s.arrival)
	if slot == nil || n > s.max || slot.Value-now > s.depth || now > s.latest {
		return nil
	}
	return slot
}

// units is ceil(level/interval) for a level from 0 to depth, as a product with
// the inverse: a division would be a tenth of a take.
func (s *Spec) units(level int64) int64 {
	q, _ := bits.Mul64(uint64(level+s.interval-1), s.inverse)
	return int64(q >> (s.shift & 63))
}

// invert gives m and shift such that x/d = x*m >> 64+shift for every x below
// 2^63 and d from 2 on (Granlund and Montgomery, Division by Invariant Integers
// using Multiplication, 1994).
func invert(d uint64) (m uint64, shift uint8) {
	l := bits.Len64(d - 1) // 2^(l-1) < d <= 2^l
	m, rest := bits.Div64(1<<(l-1), 0, d)
	if rest > 0 {
		m++
	}
	return m, uint8(l - 1)
}

func (s *Spec) stepBucket(c *Cells, now, n int64) Verdict {
	b := s.bucketAt(c, now)
	v, after := b.judge(now, n, s.max)
	switch {
	case v.OK:
		s.store(c, b, addSat(now, after))
	case v.Never:
	case b.moves():
		s.store(c, b, addSat(now, b.level))
	case b.wrong:
		c.Set(s.field(Arrival), addSat(now, b.repaired))
	}
	return v
}

// moves reports whether a refusal carries the balance over to a changed limit.
func (b *bucketState) moves() bool { return b.how == migrate && !b.unfit }

// store writes the whole bucket, as one slot where that is possible.
func (s *Spec) store(c *Cells, b bucketState, t int64) {
	if b.interval == s.interval && b.depth == s.depth && b.revision == s.revision && s.arrival.Window != 0 && b.how != advance {
		for _, k := range [...]Kind{Interval, Depth, Revision} {
			c.Drop(s.field(k))
		}
		c.Drop(s.field(Arrival))
		c.add(Slot{s.arrival, t})
		return
	}
	c.Set(s.field(Arrival), t)
	if b.how != advance {
		c.Set(s.field(Interval), b.interval)
		c.Set(s.field(Depth), b.depth)
		c.Set(s.field(Revision), b.revision)
	}
}

func (s *Spec) planBucket(known *Cells, now, n int64, w *Write) Verdict {
	b := s.bucketAt(known, now)
	v, after := b.judge(now, n, s.max)
	if !v.OK {
		return v
	}
	if b.revision > s.revision {
		w.keepFor(b.depth)
	}
	t := s.field(Arrival)
	switch b.how {
	case restart:
		w.If = append(w.If, Cond{Field: t, Cmp: AtMost, OrAbsent: true, Rel: true})
		if b.r.ok && b.r.v > s.revision {
			w.If = append(w.If, b.i.is(s.field(Interval)), b.d.is(s.field(Depth)), b.r.is(s.field(Revision)))
		} else {
			w.If = append(w.If, Cond{Field: s.field(Revision), Cmp: AtMost, Value: s.revision, OrAbsent: true})
		}
		w.Do = append(w.Do, Act{Field: t, Do: Put, Value: after, Rel: true})
		w.Do = append(w.Do, s.putShape(b)...)
	case advance:
		k := n * b.interval
		w.If = append(w.If,
			Cond{Field: t, Cmp: Above, Rel: true},
			Cond{Field: t, Cmp: AtMost, Value: b.depth - k, Rel: true})
		w.If = s.sameShape(b, w.If)
		w.Do = append(w.Do, Act{Field: t, Do: Add, Value: k})
	case migrate:
		s.replace(b, addSat(now, after), w)
	}
	return v
}

// replace compares and sets the whole bucket.
func (s *Spec) replace(b bucketState, t int64, w *Write) {
	arrival := s.field(Arrival)
	w.If = append(w.If, b.t.is(arrival), b.i.is(s.field(Interval)), b.d.is(s.field(Depth)), b.r.is(s.field(Revision)))
	w.Do = append(w.Do, Act{Field: arrival, Do: Put, Value: t})
	w.Do = append(w.Do, s.putShape(b)...)
}

// sameShape guards that the bucket is still of the interval and depth that hold.
// Where those are a newer policy's, the item must still say that they are.
func (s *Spec) sameShape(b bucketState, guards []Cond) []Cond {
	guards = append(guards, b.i.is(s.field(Interval)), b.d.is(s.field(Depth)))
	if b.revision > s.revision {
		guards = append(guards, b.r.is(s.field(Revision)))
	}
	return guards
}

func (s *Spec) putShape(b bucketState) []Act {
	return []Act{
		{Field: s.field(Interval), Do: Put, Value: b.interval},
		{Field: s.field(Depth), Do: Put, Value: b.depth},
		{Field: s.field(Revision), Do: Put, Value: b.revision},
	}
}

func (s *Spec) lookBucket(c *Cells, now, n int64) (v Verdict) {
	if slot := s.usual(c, now, n); slot != nil {
		level := max(slot.Value-now, 0)
		v.Max, v.Used, v.Reset, v.Stamp = s.max, s.units(level), level, slot.Value
		if after := level + n*s.interval; after <= s.depth {
			v.OK = true
		} else {
			v.Wait = after - s.depth
		}
		return v
	}
	b := s.bucketAt(c, now)
	v, _ = b.judge(now, n, s.max)
	b.used(&v)
	v.Stamp = b.t.v
	return v
}

// giveBackBucket returns what has not refilled yet: of k taken, at most what
// was still missing when the take's own share would be full again at stamp.
// Returning more would let a burst through that the limit never allowed. A t
// that falls behind now by this means a full bucket, like any other.
func (s *Spec) giveBackBucket(known *Cells, now, n, stamp int64, w *Write) bool {
	missing := max(stamp-now, 0)
	amount := min(missing, mulDiv(n, s.interval, 1))
	interval := s.interval
	if known != nil {
		i, t := read(known, s.field(Interval)), read(known, s.field(Arrival))
		if !i.ok || i.v <= 0 || !t.ok || t.v <= now {
			return false
		}
		if i.v != interval { // the limit was changed in between
			amount = min(missing, mulDiv(amount, i.v, interval))
			interval = i.v
		}
	}
	if amount <= 0 {
		return false
	}
	t := s.field(Arrival)
	w.If = append(w.If,
		Cond{Field: s.field(Interval), Cmp: Equal, Value: interval},
		Cond{Field: t, Cmp: Above, Rel: true})
	w.Do = append(w.Do, Act{Field: t, Do: Add, Value: -amount})
	return true
}

// chargeBucket takes whether or not there is enough, down to the debt floor.
func (s *Spec) chargeBucket(known *Cells, now, n, stamp int64, w *Write) bool {
	if known == nil {
		known = new(Cells)
		known.Set(s.field(Arrival), stamp)
		known.Set(s.field(Interval), s.interval)
		known.Set(s.field(Depth), s.depth)
	}
	b := s.bucketAt(known, now)
	if b.unfit {
		return false // it owes more than any charge may
	}
	floor := s.floorOf(b.depth, b.interval)
	k := n * b.interval
	if n > floor/b.interval {
		k = floor
	}
	after := min(b.level+k, floor)
	t := s.field(Arrival)
	switch {
	case b.how == restart:
		w.If = append(w.If, Cond{Field: t, Cmp: AtMost, OrAbsent: true, Rel: true}, b.i.is(s.field(Interval)), b.d.is(s.field(Depth)), b.r.is(s.field(Revision)))
		w.Do = append(w.Do, Act{Field: t, Do: Put, Value: after, Rel: true})
		w.Do = append(w.Do, s.putShape(b)...)
	case b.how == advance && !b.wrong && b.level+k <= floor:
		w.If = append(w.If,
			Cond{Field: t, Cmp: Above, Rel: true},
			Cond{Field: t, Cmp: AtMost, Value: floor - k, Rel: true})
		w.If = s.sameShape(b, w.If)
		w.Do = append(w.Do, Act{Field: t, Do: Add, Value: k})
	default: // a changed limit, a wrong clock, or the floor: compare and set
		s.replace(b, addSat(now, after), w)
	}
	return true
}

func (s *Spec) tidyBucket(known *Cells, now int64, w *Write) bool {
	b := s.bucketAt(known, now)
	if b.moves() {
		s.replace(b, addSat(now, b.level), w)
		return true
	}
	if !b.wrong {
		return false
	}
	t := s.field(Arrival)
	w.If = append(w.If, b.t.is(t))
	w.Do = append(w.Do, Act{Field: t, Do: Put, Value: b.repaired, Rel: true})
	return true
}

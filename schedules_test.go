package weir_test

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// A schedule is what may happen to one caller's limit: calls are reserved,
// settled at another cost, cancelled, or lost with their process; time passes,
// within a window and beyond it; the caller is moved to another plan. The ledger
// beside it keeps the balance in the plainest way, and knows nothing of fields
// and writes.

// balance is what was taken less what came back.
type balance interface {
	take(now, n int64) (heldUnits, bool)
	settle(now int64, h heldUnits, n, actual int64)
	move(now, max int64) // to a plan with another count
	used(now int64) int64
	floor() int64 // the most that used can be
}

// heldUnits are what a call has taken.
type heldUnits struct {
	window int64 // in which it was counted
	full   int64 // of a bucket: when its share has refilled
	unit   int64 // of a bucket: ns for one unit, as it was then
	max    int64 // of the plan under which it was taken: a window's debt goes by it
}

// windows counts units by window.
type windows struct {
	kind        string
	length, max int64
	counts      map[int64]int64
	start       int64 // of a window that begins with the first call
	deepest     int64 // debt of any plan so far
}

func (w *windows) at(now int64) int64 {
	if w.kind != "quota" {
		return now / w.length * w.length
	}
	if w.counts[w.start] <= 0 || now >= w.start+w.length {
		return now
	}
	return w.start
}

func (w *windows) used(now int64) int64 {
	at := w.at(now)
	used := w.counts[at]
	if w.kind == "quota" && at != w.start {
		return 0
	}
	if w.kind == "sliding" {
		left := at + w.length - now
		used += (w.counts[at-w.length]*left + w.length - 1) / w.length
	}
	return used
}

func (w *windows) take(now, n int64) (heldUnits, bool) {
	if w.used(now)+n > w.max {
		return heldUnits{}, false
	}
	at := w.at(now)
	if w.kind == "quota" && at != w.start {
		w.start, w.counts = at, map[int64]int64{}
	}
	w.counts[at] += n
	return heldUnits{window: at, max: w.max}, true
}

func (w *windows) settle(now int64, h heldUnits, n, actual int64) {
	at := now / w.length * w.length
	switch {
	case w.kind == "quota" && (h.window != w.start || now >= w.start+w.length),
		w.kind == "calendar" && h.window != at,
		w.kind == "sliding" && h.window != at && h.window != at-w.length:
		return // that window means nothing any more
	}
	count := w.counts[h.window]
	switch {
	case actual < n && count >= n-actual:
		count -= n - actual
	case actual > n:
		count = max(count, min(count+actual-n, 2*h.max))
	}
	w.counts[h.window] = count
}

func (w *windows) move(_, most int64) { w.max, w.deepest = most, max(w.deepest, 2*most) }

func (w *windows) floor() int64 { return 2 * w.deepest } // a sliding window weighs the one before, too

// bucketLedger is a level that falls by one each nanosecond.
type bucketLedger struct {
	unit, max, deepest int64
	level, at          int64
}

func (b *bucketLedger) fall(now int64) { b.level, b.at = max(0, b.level-(now-b.at)), now }

func (b *bucketLedger) used(now int64) int64 {
	b.fall(now)
	return (b.level + b.unit - 1) / b.unit
}

func (b *bucketLedger) take(now, n int64) (heldUnits, bool) {
	b.fall(now)
	if b.level+n*b.unit > b.max*b.unit {
		return heldUnits{}, false
	}
	b.level += n * b.unit
	return heldUnits{full: now + b.level, unit: b.unit}, true
}

func (b *bucketLedger) settle(now int64, h heldUnits, n, actual int64) {
	b.fall(now)
	if actual > n {
		b.level = max(b.level, min(b.level+(actual-n)*b.unit, 2*b.max*b.unit))
		return
	}
	missing := max(h.full-now, 0) // what has refilled since does not come back
	back := min((n-actual)*h.unit, missing)
	if h.unit != b.unit {
		back = min(scaled(back, b.unit, h.unit, false), missing)
	}
	b.level = max(b.level-back, 0)
}

// move keeps the units that are used: a plan with twice the rate refills each in
// half the time.
func (b *bucketLedger) move(now, most int64) {
	b.fall(now)
	unit := schedulePeriod / most
	b.level = min(scaled(b.level, unit, b.unit, true), 2*most*unit)
	b.unit, b.max, b.deepest = unit, most, max(b.deepest, 2*most)
}

// scaled is level*to/from, rounded up or down.
func scaled(level, to, from int64, up bool) int64 {
	hi, lo := bits.Mul64(uint64(level), uint64(to))
	q, rest := bits.Div64(hi, lo, uint64(from))
	if up && rest > 0 {
		q++
	}
	return int64(q)
}

func (b *bucketLedger) floor() int64 { return b.deepest }

// schedulePeriod is that of all limits here. It divides into whole nanoseconds
// for every plan's count, so that the ledger needs no rounding of its own.
const schedulePeriod = int64(time.Minute)

var schedulePlans = []int64{4, 10, 25}

// planned are the limits of each kind, by plan and revision.
func planned(t testing.TB, kind string) (all [][]weir.Limit) {
	for _, most := range schedulePlans {
		text := map[string]string{
			"bucket":   fmt.Sprintf("%d/minute", most),
			"quota":    fmt.Sprintf("quota %d/minute", most),
			"calendar": fmt.Sprintf("quota %d/minute calendar", most),
			"sliding":  fmt.Sprintf("sliding %d/minute", most),
		}[kind]
		var revised []weir.Limit
		for r := range uint32(8) {
			revised = append(revised, limit(t, text, kind).Revised(r, weir.KeepUsed))
		}
		all = append(all, revised)
	}
	return all
}

// openCall is a call of which the outcome is not known yet.
type openCall struct {
	r    *weir.Reservation
	held heldUnits
	n    int64
}

// schedule makes one schedule, and reports the step at which the balances differ.
func schedule(random *rand.Rand, l *weir.Limiter, now *int64, key weir.Key, kind string, limits [][]weir.Limit, counts *[6]int64) (steps []string, err error) {
	ctx := context.Background()
	plan, revision := random.IntN(len(limits)), 0
	var book balance = &windows{kind: kind, length: schedulePeriod, counts: map[int64]int64{}}
	if kind == "bucket" {
		book = &bucketLedger{unit: schedulePeriod / schedulePlans[plan], at: *now}
	}
	book.move(*now, schedulePlans[plan])
	var open []openCall
	for range 6 + random.IntN(5) {
		op := weir.Op{Limit: limits[plan][revision], Key: key, Cost: 1 + random.Int64N(4)}
		step := ""
		switch x := random.IntN(20); {
		case x < 8: // reserve
			r, d, err := l.Reserve(ctx, op)
			if err != nil {
				return steps, err
			}
			h, ok := book.take(*now, op.Cost)
			step = fmt.Sprintf("reserve %d: %v", op.Cost, ok)
			if d.Allowed != ok {
				return append(steps, step), fmt.Errorf("allowed is %v", d.Allowed)
			}
			if ok {
				counts[0]++
				open = append(open, openCall{r, h, op.Cost})
			}
		case x < 13 && len(open) > 0: // settle, cancel or crash
			i := random.IntN(len(open))
			c := open[i]
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
			if x == 12 {
				counts[1]++
				step = fmt.Sprintf("crash with %d", c.n)
				break // what it took stays taken
			}
			actual := int64(0)
			if x > 9 {
				actual = random.Int64N(9)
			}
			counts[2]++
			step = fmt.Sprintf("settle %d at %d", c.n, actual)
			if err := c.r.Settle(ctx, actual); err != nil {
				return steps, err
			}
			book.settle(*now, c.held, c.n, actual)
		case x < 17: // time passes
			d := [...]int64{1, int64(time.Second), schedulePeriod / 7, schedulePeriod / 2, schedulePeriod, schedulePeriod + 1}[random.IntN(6)]
			*now += d
			counts[3]++
			step = fmt.Sprintf("%v later", time.Duration(d))
		case x < 19 && revision < 7: // another plan, which the first call of it brings into force
			if plan = random.IntN(len(limits)); kind == "bucket" {
				revision++
			}
			counts[4]++
			book.move(*now, schedulePlans[plan])
			op.Limit, op.Cost = limits[plan][revision], 1
			d, err := l.Take(ctx, op)
			if err != nil {
				return steps, err
			}
			_, ok := book.take(*now, 1)
			step = fmt.Sprintf("to a plan of %d, and take 1: %v", schedulePlans[plan], ok)
			if d.Allowed != ok {
				return append(steps, step), fmt.Errorf("allowed is %v", d.Allowed)
			}
		default:
			continue
		}
		steps = append(steps, step)
		counts[5]++
		d, err := l.Peek(ctx, weir.Op{Limit: limits[plan][revision], Key: key})
		if err != nil {
			return steps, err
		}
		if used := book.used(*now); d[0].Used != used || used < 0 || used > book.floor() {
			return steps, fmt.Errorf("used is %d, by the ledger %d, and at most %d", d[0].Used, used, book.floor())
		}
	}
	return steps, nil
}

// The balance is what was taken less what came back, within its bounds, at every
// step of a hundred thousand random schedules.
func TestSpec_B08_RandomSchedules(t *testing.T) {
	const each = 25_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var group sync.WaitGroup
	for n, kind := range []string{"bucket", "quota", "calendar", "sliding"} {
		limits := planned(t, kind)
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			now := time.Date(2027, 3, 14, 15, 0, 0, 0, time.UTC).UnixNano()
			store := memstore.New(memstore.Options{Now: func() int64 { return now }})
			defer store.Close()
			l := weir.NewLimiter(store, weir.Options{Now: func() int64 { return now }})
			var counts [6]int64
			for i := range each {
				key := weir.NewKey("account", fmt.Sprint(i))
				if steps, err := schedule(random, l, &now, key, kind, limits, &counts); err != nil {
					t.Errorf("seed %d, %s, schedule %d: %v after %q", seed, kind, i, err, steps)
					return
				}
			}
			t.Logf("%s: %d schedules, %d steps: %d taken, %d crashed, %d settled, %d times later, %d moved to another plan", kind, each, counts[5], counts[0], counts[1], counts[2], counts[3], counts[4])
			for _, c := range counts {
				if c < each/20 {
					t.Errorf("%s: the schedules test too little: %v", kind, counts)
				}
			}
		})
	}
	group.Wait()
}

package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/storetest"
)

// lossy is a store whose requests and replies get lost, doubled and delayed: a
// real one in memory, which keeps the last four nonces of each item as a remote
// store must.
type lossy struct {
	weir.Store
	random *rand.Rand
	chance int // of so many requests one is disturbed; 0 is none
	others int // writers that come between an attempt and the next
	other  func(item weir.Key)

	mu     sync.Mutex
	rings  map[weir.Key][4]uint64
	seen   []sight             // what replies that arrived have shown
	met    map[weir.Key]uint64 // the write of each item that others have come between
	late   []delivery          // on their way for so long that the next attempt overtakes them
	faults map[fate]int
}

type delivery struct {
	item weir.Key
	w    weir.Write
}

// sight is an item as a reply showed it.
type sight struct {
	item  weir.Key
	state *weir.Cells
	now   int64
}

type fate uint8

const (
	fine fate = iota
	lostBefore
	lostAfter
	twice
	late // arrives after the caller has sent the write again, or never
)

func newLossy(random *rand.Rand, others int) *lossy {
	return &lossy{
		Store: memstore.New(memstore.Options{}), random: random, chance: 3, others: others,
		met: map[weir.Key]uint64{}, rings: map[weir.Key][4]uint64{}, faults: map[fate]int{},
	}
}

func (l *lossy) Caps() weir.Caps { return weir.Caps{OwnClock: true, LossyReplies: true} }

// once applies a write as a remote store does, nonces and all. mu is held.
func (l *lossy) once(item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	ctx := context.Background()
	ring := l.rings[item]
	if len(tries) == 0 || tries[0].Nonce == 0 {
		return l.Store.Apply(ctx, item, tries, state)
	}
	if slices.Contains(ring[:], tries[0].Nonce) {
		_, now, err := l.Store.Apply(ctx, item, nil, state)
		return 0, now, err
	}
	applied, now, err := l.Store.Apply(ctx, item, tries, state)
	if applied >= 0 {
		// Four nonces name a write while three others come between: a copy that
		// is on its way for longer is lost.
		l.late = slices.DeleteFunc(l.late, func(d delivery) bool { return d.item == item && d.w.Nonce == ring[3] })
		copy(ring[1:], ring[:])
		ring[0] = tries[0].Nonce
		l.rings[item] = ring
	}
	return applied, now, err
}

func (l *lossy) Apply(_ context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := fmt.Errorf("connection reset: %w", weir.ErrOutcomeUnknown)
	if len(tries) == 0 {
		return l.once(item, tries, state)
	}
	f := fine
	if l.chance > 0 && l.random.IntN(l.chance) == 0 {
		f = fate(1 + l.random.IntN(4))
		l.faults[f]++
	}
	switch f {
	case lostBefore:
		return -1, 0, lost
	case late:
		w := tries[0]
		w.If, w.Do = slices.Clone(w.If), slices.Clone(w.Do)
		l.late = append(l.late, delivery{item, w})
		return -1, 0, lost
	}
	applied, now, err := l.once(item, tries, state)
	var ignored weir.Cells
	if nonce := tries[0].Nonce; f == lostAfter && l.met[item] != nonce {
		l.met[item] = nonce // four would push the nonce out of the item
		for range l.others {
			l.other(item)
		}
	}
	if f == twice {
		_, _, _ = l.once(item, tries, &ignored)
	}
	var elsewhere []delivery // of other items, on their way still
	for len(l.late) > 0 {
		d := l.late[0]
		l.late = l.late[1:]
		switch {
		case d.item != item:
			elsewhere = append(elsewhere, d)
		case l.rings[item][3] == tries[0].Nonce: // it would be the fourth in between
		default:
			_, _, _ = l.once(d.item, []weir.Write{d.w}, &ignored)
		}
	}
	l.late = elsewhere
	if f == lostAfter {
		return -1, 0, lost
	}
	shown := new(weir.Cells)
	shown.CopyFrom(state)
	l.seen = append(l.seen, sight{item, shown, now})
	return applied, now, err
}

func (l *lossy) sights() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

func (l *lossy) disturbed() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.faults {
		n += of
	}
	return n
}

// direct is the same store on a good day. mu is held.
type direct struct{ *lossy }

func (d *direct) Apply(_ context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	return d.once(item, tries, state)
}

// account is what a limit must have counted by now, as far as that can be known.
type account struct {
	least, most int64
	log         []storetest.Admission
}

// ledger is the accounts of a round, in which every limit is of its own key.
type ledger struct {
	mu       sync.Mutex
	accounts map[string]*account
}

func (g *ledger) note(op weir.Op, least, most, admitted int64, from time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.accounts[op.Limit.Name()]
	if a == nil {
		a = &account{}
		g.accounts[op.Limit.Name()] = a
	}
	a.least += least
	a.most += most
	if admitted != 0 {
		a.log = append(a.log, storetest.Admission{From: from.UnixNano(), To: time.Now().UnixNano(), Cost: admitted})
	}
}

// lossyShape is what the calls of a test are.
type lossyShape struct {
	name    string
	callers int
	limits  []string // one word of the first says which key: "user" is narrower than "tenant"
	wide    int      // from this limit on they are the tenant's
}

// Whatever gets lost, doubled or delayed, and whoever writes in between: what is
// counted lies between what was allowed and that plus what stayed unknown, no
// call is refused by a state that has room, and no limit is broken.
func TestLostRepliesChargeOnce(t *testing.T) {
	for _, s := range []lossyShape{
		{"far from the limit", 1, []string{"quota 1000000000/day"}, 1},
		{"quota", 1, []string{"quota 12/day"}, 1},
		{"bucket", 1, []string{"1/day burst 12"}, 1},
		{"several limits of an item", 1, []string{"1/day burst 12", "quota 11/day", "sliding 13/90d", "quota 12/year calendar"}, 4},
		{"several items", 1, []string{"quota 9/day", "1/day burst 12"}, 1},
		{"batches", 8, []string{"quota 12/day", "1/day burst 13"}, 2},
		{"batches on several items", 8, []string{"1/day burst 9", "quota 12/day"}, 1},
	} {
		for _, others := range []int{0, 1, 3} {
			t.Run(fmt.Sprint(s.name, ", ", others, " others"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { lossyCalls(t, s, others) })
			})
		}
	}
}

// lossyFaults is how many faults each shape meets: 21 times 500.
const lossyFaults = 500

func lossyCalls(t *testing.T, s lossyShape, others int) {
	seed := uint64(len(s.name))
	t.Logf("seed %d, %d; those of callers are their round and number", seed, others)
	random := rand.New(rand.NewPCG(seed, uint64(others)))
	l := newLossy(random, others)
	var allowed, refused, unknown, cancelled atomic.Int64
	for round := 0; l.disturbed() < lossyFaults; round++ {
		lim := weir.NewLimiter(l, weir.Options{Deadline: 300 * time.Millisecond, NoMemo: round%2 == 0})
		g := &ledger{accounts: map[string]*account{}}
		user, tenant := weir.NewKey("user", fmt.Sprint(round), "tenant", fmt.Sprint(round)), weir.NewKey("tenant", fmt.Sprint(round))
		var ops []weir.Op
		for i, text := range s.limits {
			op := weir.Op{Limit: limit(t, text, fmt.Sprint("l", i)), Key: user}
			if i >= s.wide {
				op.Key = tenant
			}
			ops = append(ops, op)
		}
		between := weir.NewLimiter(&direct{l}, weir.Options{})
		l.other = func(item weir.Key) {
			for _, op := range ops {
				if op.Key != item {
					continue
				}
				from := time.Now()
				if d, err := between.Take(t.Context(), op); err == nil && d.Allowed {
					g.note(op, 1, 1, 1, from)
				}
				return // one write
			}
		}
		var callers sync.WaitGroup
		for n := range s.callers {
			mine := rand.New(rand.NewPCG(uint64(round), uint64(n)))
			callers.Go(func() {
				for range 24 / s.callers {
					lossyCall(t, l, lim, g, ops, mine, &allowed, &refused, &unknown, &cancelled)
				}
			})
		}
		callers.Wait()
		<-time.After(time.Second) // what is on its way of callers who have gone comes to an end
		l.chance = 0
		for _, op := range ops {
			d, err := weir.NewLimiter(l, weir.Options{}).Peek(t.Context(), op)
			if err != nil {
				t.Fatal(err)
			}
			a := g.accounts[op.Limit.Name()]
			if a == nil {
				continue
			}
			if used := d[0].Used; used < a.least || used > a.most {
				t.Errorf("round %d, %s: %d are counted, and it must be %d to %d", round, op.Limit, used, a.least, a.most)
			}
			if err := (storetest.Bound{Burst: op.Limit.Max(), Tokens: 1, Per: 24 * time.Hour}).Check(a.log); err != nil {
				t.Errorf("round %d, %s: %v", round, op.Limit, err)
			}
		}
		l.chance = 3
		l.seen, l.late = nil, nil
	}
	t.Logf("%d faults: %d allowed, %d refused, %d unknown, %d given back", l.disturbed(), allowed.Load(), refused.Load(), unknown.Load(), cancelled.Load())
	if allowed.Load() == 0 || refused.Load() == 0 && s.limits[0] != "quota 1000000000/day" || cancelled.Load() == 0 {
		t.Error("that shows nothing")
	}
}

func lossyCall(t *testing.T, l *lossy, lim *weir.Limiter, g *ledger, ops []weir.Op, random *rand.Rand, allowed, refused, unknown, cancelled *atomic.Int64) {
	call := slices.Clone(ops)
	for i := range call {
		call[i].Cost = 1 + random.Int64N(3)
	}
	from, sights, before := time.Now(), l.sights(), l.disturbed()
	r, d, err := lim.Reserve(t.Context(), call...)
	disturbed := l.disturbed() > before
	switch {
	case err != nil:
		// Of what was asked, anything may have been taken: of one item, and of
		// a narrower one when giving back failed too.
		unknown.Add(1)
		for _, op := range call {
			g.note(op, 0, op.Cost, 0, from)
		}
		if !errors.Is(err, weir.ErrOutcomeUnknown) {
			<-time.After(time.Second) // not asked: too many faults in a row
		}
	case !d.Allowed:
		refused.Add(1)
		if !l.justifies(call[d.Op], sights, from) {
			t.Errorf("refused, and no state that was seen had too little for %d of %s: %+v", call[d.Op].Cost, d.Limit, d)
		}
		for _, op := range call {
			if disturbed && op.Key != call[len(call)-1].Key {
				g.note(op, 0, op.Cost, 0, from) // may have been given back, or not
			}
		}
	default:
		allowed.Add(1)
		for _, op := range call {
			g.note(op, op.Cost, op.Cost, op.Cost, from)
		}
		if random.IntN(3) == 0 {
			return
		}
		<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
		from := time.Now()
		err := r.Cancel(t.Context())
		if err == nil {
			cancelled.Add(1)
		}
		for _, op := range call {
			least, most := -op.Cost, int64(0)
			if err == nil {
				most = -op.Cost
			}
			g.note(op, least, most, -op.Cost, from) // also an unknown one may have happened
		}
	}
}

// justifies reports whether a state that a reply has shown had too little for
// an op: one of a trip that ended after the call began, or within a second before.
func (l *lossy) justifies(op weir.Op, from int, began time.Time) bool {
	spec, err := plan.Parse(op.Limit.String())
	if err == nil {
		spec, err = spec.Named(op.Limit.Name())
	}
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.seen {
		if s.item == op.Key && (i >= from || began.UnixNano()-s.now <= int64(time.Second)) && !spec.Look(s.state, s.now, op.Cost).OK {
			return true
		}
	}
	return false
}

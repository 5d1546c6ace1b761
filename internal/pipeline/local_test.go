package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// outage is a bench whose store can be taken away, with a share to fall back on.
type outage struct {
	*bench
	local       Local
	limit, part *plan.Spec
	dead        bool
}

func inOutage(t *testing.T, limit, part string, test func(o *outage)) {
	t.Helper()
	inBubble(t, Options{Nonces: true}, func(b *bench) {
		o := &outage{bench: b, limit: spec(b.T, "q", limit), part: spec(b.T, "q", part)}
		b.store.lost = func(int, []plan.Write) error {
			if o.dead {
				return errBroken
			}
			return nil
		}
		test(o)
	})
}

// call is what a Limiter does for an op that falls back on its share.
func (o *outage) call() (allowed, degraded bool) {
	var err error
	if o.local.Owes(key("a")) {
		err = o.Repay(o.Context(), &o.local, key("a"), o.store.now)
	}
	if err == nil {
		var v plan.Verdict
		if v, err = o.ask(key("a"), o.limit, 1); err == nil {
			return v.OK, false
		}
	}
	verdicts := make([]plan.Verdict, 1)
	_, refused := o.local.Take(key("a"), []Share{{o.limit, o.part, 1}}, o.store.now(), verdicts)
	return !refused, true
}

// B053: however often the store is tried in an outage, this process lets through its
// share and no more; afterwards what it still shows as used is charged, once.
func TestCase_B053_ShareIsKeptThroughAnOutage(t *testing.T) {
	for _, c := range []struct {
		limit, part   string
		admits, later int64
	}{
		{"1/h burst 40", "1/h burst 10", 10, 10},
		{"quota 40/d", "quota 10/d", 10, 10},
		{"quota 40/day calendar", "quota 10/day calendar", 10, 10},
		{"sliding 40/d", "sliding 10/d", 10, 10},
		// Ten at once and one for each second of a minute; then ten are used.
		{"4/s burst 40", "1/s burst 10", 69, 10},
	} {
		inOutage(t, c.limit, c.part, func(o *outage) {
			o.call()
			<-time.After(time.Hour) // a bucket is full again
			before := o.used(key("a"), o.limit)
			o.dead = true
			admitted := int64(0)
			for began := time.Now(); time.Since(began) < 59500*time.Millisecond; { // with some 60 probes
				all(4, func(int) {
					if ok, degraded := o.call(); ok && degraded {
						o.local.mu.Lock()
						admitted++
						o.local.mu.Unlock()
					}
				})
				<-time.After(10 * time.Millisecond)
			}
			if admitted != c.admits {
				o.Errorf("%s: %d were let through in the outage, want %d", c.part, admitted, c.admits)
			}
			o.dead = false
			for !o.healthy() {
				<-time.After(100 * time.Millisecond)
			}
			if n, want := o.used(key("a"), o.limit), before+c.later; n < want-2 || n > want+1 {
				o.Errorf("%s: %d are used, want %d and the first call", c.limit, n, want)
			}
			if o.local.Owes(key("a")) {
				o.Error("still owed")
			}
			used := o.used(key("a"), o.limit)
			o.call()
			if n := o.used(key("a"), o.limit); n > used+1 {
				o.Errorf("charged again: %d", n)
			}
		})
	}
}

func (o *outage) healthy() bool { _, degraded := o.call(); return !degraded }

// What has refilled, and what belongs to a window that is over, is not charged.
func TestRepaymentChargesWhatIsStillUsed(t *testing.T) {
	for _, c := range []struct {
		limit, part string
		wait        time.Duration
		want        int64
	}{
		{"1/m burst 40", "1/m burst 10", 7 * time.Minute, 3},
		{"1/m burst 40", "1/m burst 10", time.Hour, 0},
		{"quota 40/h", "quota 10/h", 59 * time.Minute, 10},
		{"quota 40/h", "quota 10/h", time.Hour, 0},
		{"quota 40/hour calendar", "quota 10/hour calendar", time.Hour, 0}, // the bubble's clock begins at midnight
	} {
		inOutage(t, c.limit, c.part, func(o *outage) {
			verdicts := make([]plan.Verdict, 1)
			for range 10 {
				o.local.Take(key("a"), []Share{{o.limit, o.part, 1}}, o.store.now(), verdicts)
			}
			<-time.After(c.wait)
			if err := o.Repay(o.Context(), &o.local, key("a"), o.store.now); err != nil {
				o.Fatal(err)
			}
			if n := o.used(key("a"), o.limit); n != c.want || o.local.Owes(key("a")) {
				o.Errorf("%s after %v: %d are charged, want %d", c.limit, c.wait, n, c.want)
			}
		})
	}
}

// What is counted while a repayment is under way is owed after it, and what was
// paid is not. A repayment of unknown outcome is made once; one that was not
// made leaves everything as it is, also when its caller has gone.
func TestRepaymentUnderWay(t *testing.T) {
	for _, text := range []string{"1/d burst 40", "quota 40/d", "quota 40/day calendar", "sliding 40/d"} {
		inOutage(t, text, text, func(o *outage) {
			o.store.took = 20 * time.Millisecond
			verdicts := make([]plan.Verdict, 1)
			count := func(n int) {
				for range n {
					o.local.Take(key("a"), []Share{{o.limit, o.part, 1}}, o.store.now(), verdicts)
				}
			}
			repay := func() error { return o.Repay(o.Context(), &o.local, key("a"), o.store.now) }
			owes := func() int64 {
				it := o.local.items[key("a")]
				if it == nil {
					return 0
				}
				return o.part.Look(&it.cells, o.store.now(), 1).Used - o.part.Look(&it.paid, o.store.now(), 1).Used
			}
			count(5)
			paid := make(chan error)
			go func() { paid <- repay() }()
			synctest.Wait()
			count(3)
			o.trip(0, "a second repayment meanwhile", func() {
				if err := repay(); err != nil {
					o.Error(err)
				}
			})
			if err := <-paid; err != nil || o.used(key("a"), o.limit) != 5 || owes() != 3 {
				o.Errorf("%s: %v; %d charged, %d owed", text, err, o.used(key("a"), o.limit), owes())
			}
			if !o.local.Owes(key("a")) {
				o.Errorf("%s: what was counted meanwhile is not owed", text)
			}

			o.store.lost = func(int, []plan.Write) error { return errBroken }
			if err := repay(); !errors.Is(err, errBroken) || owes() != 3 {
				o.Errorf("%s: %v, %d owed", text, err, owes())
			}
			o.store.lost = nil
			lose := 2
			o.store.back = func(_, applied int) error {
				if lose--; applied >= 0 && lose >= 0 {
					return errUnknown
				}
				return nil
			}
			if err := repay(); err != nil || o.used(key("a"), o.limit) != 8 || o.local.Owes(key("a")) {
				o.Errorf("%s: %v; %d charged, %d owed", text, err, o.used(key("a"), o.limit), owes())
			}
			count(4)
			lose = 100
			for range 3 { // charged once, though nobody knows it
				if err := repay(); !errors.Is(err, errUnknown) || o.used(key("a"), o.limit) != 12 || !o.local.Owes(key("a")) {
					o.Errorf("%s: %v; %d charged, %d owed", text, err, o.used(key("a"), o.limit), owes())
				}
				<-time.After(time.Second) // the store is left alone
			}
			o.store.back = nil
			count(2)
			before := o.store.trips() // one trip finds out, and the rest needs one or two
			if err := repay(); err != nil || o.used(key("a"), o.limit) != 14 || o.local.Owes(key("a")) || o.store.trips() > before+3 {
				o.Errorf("%s: %v; %d charged after %d trips", text, err, o.used(key("a"), o.limit), o.store.trips()-before)
			}
			count(2)
			ctx, leave := contextFor(o.bench, 5*time.Millisecond)
			defer leave()
			if err := o.Repay(ctx, &o.local, key("a"), o.store.now); err == nil || !o.local.Owes(key("a")) {
				o.Errorf("%s: a caller who left early: %v", text, err)
			}
			<-time.After(time.Second)
			if n := o.used(key("a"), o.limit); n != 16 || o.local.Owes(key("a")) {
				o.Errorf("%s: %d charged", text, n)
			}
		})
	}
}

// Without nonces a repayment of unknown outcome is not made again, and the share
// stays used: an outage that goes on lets nothing more through.
func TestRepaymentWithoutNonces(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		limit, part := spec(b.T, "q", "1/h burst 40"), spec(b.T, "q", "1/h burst 10")
		var f Local
		verdicts := make([]plan.Verdict, 1)
		take := func() (refused bool) {
			_, refused = f.Take(key("a"), []Share{{limit, part, 1}}, b.store.now(), verdicts)
			return refused
		}
		for range 10 {
			take()
		}
		b.store.back = func(int, int) error { return errUnknown }
		b.trip(1, "one repayment", func() {
			for range 3 {
				if err := b.Repay(b.Context(), &f, key("a"), b.store.now); f.Owes(key("a")) {
					b.Errorf("%v, and it is owed", err)
				}
			}
		})
		if !take() {
			b.Error("the share is fresh again")
		}
		b.store.back = nil
		<-time.After(3 * time.Hour)
		for n := range 4 {
			if refused := take(); refused != (n == 3) {
				b.Errorf("call %d: refused %v", n, refused)
			}
		}
		// What was taken since is owed.
		if err := b.Repay(b.Context(), &f, key("a"), b.store.now); err != nil {
			b.Error(err)
		}
		if n := b.used(key("a"), limit); n != 7+3 { // of the first ten, three have refilled
			b.Errorf("%d are charged", n)
		}
	})
}

// B145: an outage with very many callers fills a table and no more; those who
// come too late are refused, and idle ones make room.
func TestCase_B145_SharesAreBounded(t *testing.T) {
	part := spec(t, "q", "1/s burst 2")
	var f Local
	verdicts := make([]plan.Verdict, 1)
	take := func(n int, now int64) (refused bool) {
		_, refused = f.Take(key(fmt.Sprint(n)), []Share{{part, part, 1}}, now, verdicts)
		return refused
	}
	for n := range 2 * maxLocal {
		if refused := take(n, second); refused != (n >= maxLocal) {
			t.Fatalf("key %d: refused %v", n, refused)
		}
		if n >= maxLocal && !verdicts[0].Unseen {
			t.Fatalf("%+v", verdicts[0])
		}
	}
	if len(f.items) != maxLocal {
		t.Errorf("%d keys", len(f.items))
	}
	if refused := take(5, second); refused {
		t.Error("a key that is there was refused")
	}
	later := 100 * second
	for n := range 1000 {
		if take(3*maxLocal+n, later) {
			t.Fatal("refused although others are idle")
		}
	}
	if len(f.items) != maxLocal {
		t.Errorf("%d keys", len(f.items))
	}
}

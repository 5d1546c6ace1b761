package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/internal/redistest"
)

// connected is a store with all its connections, and nothing on its way.
func connected(t *testing.T) (s *Store, server *redistest.Server) {
	t.Helper()
	server = redistest.Start(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if s, err = New(client, Options{}); err != nil {
		t.Fatal(err)
	}
	for range 8 { // all connections are made
		read(t, s, weir.NewKey("account", "nobody"))
	}
	redistest.Await(t, "the last flight to end", func() bool {
		s.batches.mu.Lock()
		defer s.batches.mu.Unlock()
		return s.batches.flights == 0
	})
	return s, server
}

// hung is a store whose server hangs with both flights on their way, so that
// whatever comes now waits, and goes together when the server is resumed.
func hung(t *testing.T) (s *Store, server *redistest.Server, resume func()) {
	t.Helper()
	s, server = connected(t)
	s.batches.late = time.Hour // no flight begins in the place of one that hangs
	server.Pause(t)
	var flying sync.WaitGroup
	for n := range maxFlights {
		flying.Go(func() { read(t, s, weir.NewKey("account", fmt.Sprint("flight-", n))) })
		redistest.Await(t, "a call to be on its way", func() bool {
			s.batches.mu.Lock()
			defer s.batches.mu.Unlock()
			return s.batches.flights == n+1 && len(s.batches.waiting) == 0
		})
	}
	return s, server, func() {
		server.Resume(t)
		flying.Wait()
	}
}

func read(t *testing.T, s *Store, key weir.Key) int {
	t.Helper()
	var state weir.Cells
	if _, _, err := s.Apply(context.Background(), key, nil, &state); err != nil {
		t.Error(err)
	}
	return state.Len()
}

func (b *batches) length() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// TestBatchKeepsCallsApart: of calls that go together, of several forms and with
// different values, each gets its own answer, and the errors of some are not the
// others'.
func TestBatchKeepsCallsApart(t *testing.T) {
	const calls = 3*maxBatch + 5
	s, server, resume := hung(t)
	take := takes(t, "10/s burst 20", 1e8, 2e9)[0]
	key := func(n int) weir.Key { return weir.NewKey("account", fmt.Sprint("customer-", n)) }
	var done sync.WaitGroup
	errs := make([]error, calls)
	states := make([]weir.Cells, calls)
	applied := make([]int, calls)
	for n := range calls {
		done.Go(func() {
			w := take
			w.Do = append([]weir.Act{}, take.Do...)
			w.Do[1] = weir.Act{Field: take.Do[1].Field, Do: plan.Put, Value: int64(n)}
			if n%3 == 0 { // of another form
				w.If = append(w.If[:1:1], weir.Cond{Field: take.Do[2].Field, Cmp: plan.AtMost, OrAbsent: true})
			}
			if n%2 == 0 {
				w.Keep = time.Hour
			}
			applied[n], _, errs[n] = s.Apply(context.Background(), key(n), []weir.Write{w}, &states[n])
		})
	}
	redistest.Await(t, "all calls to wait", func() bool { return s.batches.length() == calls })
	resume()
	done.Wait()
	for n := range calls {
		if v, _ := states[n].Get(take.Do[1].Field); errs[n] != nil || applied[n] != 0 || v != int64(n) {
			t.Errorf("call %d: applied %d, field %d, %v", n, applied[n], v, errs[n])
		}
	}

	// Once more, with a wrong key among them.
	server.Do(t, "SET", key(7).String(), "x")
	server.Pause(t)
	for n := range calls {
		done.Go(func() {
			_, _, errs[n] = s.Apply(context.Background(), key(n), nil, &states[n])
		})
	}
	redistest.Await(t, "the calls to wait", func() bool { return s.batches.length() >= calls-2*maxBatch })
	server.Resume(t)
	done.Wait()
	for n, err := range errs {
		if wrong := err != nil && strings.Contains(err.Error(), "WRONGTYPE"); (n == 7) != wrong || n != 7 && err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		if v, _ := states[n].Get(take.Do[1].Field); n != 7 && v != int64(n) {
			t.Errorf("call %d has the field of %d", n, v)
		}
	}
}

// TestCallThatLeavesBeforeItIsSent: it is known that nothing has happened, and
// nothing does.
func TestCallThatLeavesBeforeItIsSent(t *testing.T) {
	s, _, resume := hung(t)
	ctx, cancel := context.WithCancel(context.Background())
	key := weir.NewKey("account", "customer-42")
	left := make(chan error)
	go func() {
		var state weir.Cells
		_, _, err := s.Apply(ctx, key, takes(t, "10/s burst 20", 1e8, 2e9)[:1], &state)
		left <- err
	}()
	redistest.Await(t, "the call to wait", func() bool { return s.batches.length() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrOutcomeUnknown) {
		t.Errorf("the error is %v", err)
	}
	resume()
	if fields := read(t, s, key); fields != 0 {
		t.Errorf("a call that had left was applied: %d fields", fields)
	}
}

// asked is a question, of one read without tries, and its answer.
type asked struct {
	key   weir.Key
	until time.Time
	err   chan error
	tries []weir.Write
	was   atomic.Bool // asked
}

func (q *asked) Ask() (weir.Attempt, bool) {
	q.was.Store(true)
	return weir.Attempt{Context: context.Background(), Until: q.until, Item: q.key, Tries: q.tries}, true
}

func (q *asked) Answered(a weir.Answer) {
	_, _, err := a.Read(new(weir.Cells))
	q.err <- err
}

// TestPatienceOfOthers: while a server hangs, who can't wait for long hears so in
// time, also among those who can. (They may hear of it, too: a connection that has
// made one call wait too long is given up.)
func TestPatienceOfOthers(t *testing.T) {
	s, server := connected(t)
	server.Pause(t)
	ask := func(name string, d time.Duration) *asked {
		return &asked{key: weir.NewKey("account", name), until: time.Now().Add(d), err: make(chan error, 1)}
	}
	short, long, longer := ask("short", 10*time.Millisecond), ask("long", time.Minute), ask("longer", time.Hour)
	f := &flight{waiting: []waiter{{question: longer}, {question: short}, {question: long}}}
	s.board(s.connected(), f)
	go s.flight(s.connected(), f)
	redistest.Await(t, "an answer", func() bool { return len(short.err) == 1 })
	if err := <-short.err; !errors.Is(err, weir.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the impatient call: %v", err)
	}
	server.Resume(t)
	<-long.err
	<-longer.err
}

// TestFlightsThatHang: while as many flights as may be are held up by a server, who
// comes next is asked all the same and hears that it hangs; afterwards there are no
// more flights than before.
func TestFlightsThatHang(t *testing.T) {
	s, server := connected(t)
	server.Pause(t)
	var flying sync.WaitGroup
	for n := range maxFlights {
		flying.Go(func() {
			// What becomes of it does not matter: a connection that has made one call
			// wait too long is given up.
			_, _, _ = s.Apply(context.Background(), weir.NewKey("account", fmt.Sprint("flight-", n)), nil, new(weir.Cells))
		})
		redistest.Await(t, "a call to be on its way", func() bool {
			s.batches.mu.Lock()
			defer s.batches.mu.Unlock()
			return len(s.batches.waiting) == 0 && s.batches.flights > 0
		})
	}
	q := &asked{key: weir.NewKey("account", "next"), until: time.Now().Add(10 * time.Millisecond), err: make(chan error, 1)}
	if !s.Gather(q) {
		t.Fatal("nothing is gathered")
	}
	redistest.Await(t, "an answer", func() bool { return len(q.err) == 1 })
	if err := <-q.err; err == nil {
		t.Error("a server that hangs has answered")
	}
	server.Resume(t)
	flying.Wait()
	redistest.Await(t, "the last flight to end", func() bool {
		s.batches.mu.Lock()
		defer s.batches.mu.Unlock()
		return s.batches.flights == 0
	})
}

// TestNoRoomInAFlightThatHangs: for whom a script had no room does not wait for the
// flight that had none, which may hang.
func TestNoRoomInAFlightThatHangs(t *testing.T) {
	s, server := connected(t)
	s.batches.late = time.Millisecond
	server.Pause(t)
	wide := takes(t, "10/s burst 20", 1e8, 2e9)[0]
	for len(wide.If) < maxValues/4 {
		wide.If = append(wide.If, wide.If[0])
	}
	all := make([]*asked, maxBatch)
	s.batches.mu.Lock()
	for n := range all {
		all[n] = &asked{key: weir.NewKey("account", fmt.Sprint("wide-", n)), err: make(chan error, 1), tries: []weir.Write{wide}}
		s.batches.waiting = append(s.batches.waiting, waiter{question: all[n]})
	}
	s.begin(s.connected())
	s.batches.mu.Unlock()
	last := all[maxBatch-1]
	redistest.Await(t, "the last to be asked", last.was.Load)
	for n, q := range all {
		if len(q.err) > 0 {
			t.Fatalf("question %d of a server that hangs was answered before the last was asked", n)
		}
	}
	server.Resume(t)
	for n, q := range all {
		if err := <-q.err; err != nil {
			t.Errorf("question %d: %v", n, err)
		}
	}
	redistest.Await(t, "the last flight to end", func() bool {
		s.batches.mu.Lock()
		defer s.batches.mu.Unlock()
		return s.batches.flights == 0 && len(s.batches.waiting) == 0
	})
}

// TestFlightsShareEvenly: of those who wait a flight leaves the others as many as it
// takes, and all when no other is on its way; nobody is left when the last is over.
func TestFlightsShareEvenly(t *testing.T) {
	var b batches
	var one, two flight
	for i, step := range []struct {
		f          *flight
		come, want int
	}{
		{&one, 20, 20},
		{&two, 1, 1},
		{&one, 25, 13}, // and two 13
		{&two, 0, 12},
		{&one, 100, maxBatch},
		{&two, 0, maxBatch},
		{&one, 0, maxBatch},
		{&two, 0, 4},
		{&one, 0, 0},
		{&two, 3, 3},
		{&two, 0, 0},
	} {
		b.waiting = append(b.waiting, make([]waiter, step.come)...)
		goes := b.next(step.f)
		if len(step.f.waiting) != step.want || goes != (step.want > 0) {
			t.Errorf("step %d: a flight of %d, %v; want %d", i, len(step.f.waiting), goes, step.want)
		}
		step.f.waiting = step.f.waiting[:0]
	}
	if len(b.waiting) > 0 || b.flights != 0 || b.aloft != 0 {
		t.Errorf("%d wait for %d flights, with %d on their way", len(b.waiting), b.flights, b.aloft)
	}
}

// apart is a question that must not be asked or answered at the same time as another.
type apart struct {
	asked
	t    *testing.T
	busy *atomic.Int32
}

func (q *apart) alone() {
	if q.busy.Add(1) != 1 {
		q.t.Error("two flights are on the ground")
	}
	runtime.Gosched()
	q.busy.Add(-1)
}

func (q *apart) Ask() (weir.Attempt, bool) {
	q.alone()
	return q.asked.Ask()
}

func (q *apart) Answered(a weir.Answer) {
	q.alone()
	q.asked.Answered(a)
}

// TestOneFlightOnTheGround: what is asked and answered is so by one flight at a time,
// also what goes by itself because it can wait for long.
func TestOneFlightOnTheGround(t *testing.T) {
	s, _ := connected(t)
	var busy atomic.Int32
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			for i := range 50 {
				q := &apart{asked{key: weir.NewKey("account", fmt.Sprint("customer-", n)), err: make(chan error, 1)}, t, &busy}
				if i%8 != 0 {
					q.until = time.Now().Add(time.Minute)
				}
				if !s.Gather(q) {
					t.Error("nothing is gathered")
					return
				}
				if err := <-q.err; err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// TestScriptsAreBounded: of ever new forms a store keeps the last ones, and every
// form has the script that is made for it.
func TestScriptsAreBounded(t *testing.T) {
	var n names
	var s scripts
	take := takes(t, "10/s burst 20", 1e8, 2e9)[0]
	for round := range 2 {
		for guards := range maxScripts + 10 {
			w := weir.Write{Do: take.Do}
			for range guards {
				w.If = append(w.If, take.If[0])
			}
			var e encoded
			n.encode(&e, []weir.Write{w})
			l := s.of(&e)
			if again := s.of(&e); again != l || l.source != readForm(e.form).script() {
				t.Fatalf("round %d: the script for %d guards is another", round, guards)
			}
			if len(s.known) > maxScripts || len(s.order) != len(s.known) {
				t.Fatalf("%d scripts are known, and %d in order", len(s.known), len(s.order))
			}
		}
	}
}

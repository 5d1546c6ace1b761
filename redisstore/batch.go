package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
)

const (
	// maxFlights is how many scripts are on their way at once, but for those that
	// are late or of patient calls. While they are, calls gather for the next.
	maxFlights = 2
	// maxBatch and maxValues bound a flight, in calls and, to within one call, in
	// values of their writes. Other clients wait for some 200 us.
	maxBatch  = 32
	maxValues = 4000
	// maxWaiting bounds what gathers while a server hangs.
	maxWaiting = 1 << 16
	// impatience is by how much calls of one flight may differ in how long they
	// can wait, since a flight lasts as long as the most patient of them.
	impatience = 100 * time.Millisecond
)

// batches gathers calls that wait at the same time into one script, or one for
// each form of their writes. It decides nothing: a call gets the answer that it
// would get alone.
type batches struct {
	scripts  scripts
	oneByOne bool
	late     time.Duration // after which another flight begins in one's place; impatience, but in tests

	// ground is held by the one flight that takes calls, or answers them. Two that did
	// so at once would leave together: the server, which does one thing at a time, has
	// nothing to do until then, and answers both only when it is done with both.
	ground sync.Mutex

	mu      sync.Mutex
	waiting []waiter
	flights int
	aloft   int       // those who have left with these
	spare   []*flight // those that are over
}

// waiter is a call of Apply's, or a question that is asked as the flight leaves.
type waiter struct {
	call     *call
	question weir.Question
}

// call is one attempt on its way. It is a [weir.Answer].
type call struct {
	store    *Store
	ctx      context.Context // whose values the observer gets
	tries    []weir.Write
	began    time.Time
	key      string
	writes   encoded
	deadline time.Time // zero for none
	question weir.Question
	state    atomic.Int32  // of Apply's
	done     chan struct{} // of Apply's: has a value when text and err are there
	text     string
	now      int64 // the server's
	err      error
}

// The states of a call of Apply's. Whoever takes it out of queued decides whether
// it is sent.
const (
	queued int32 = iota
	sent
	abandoned
)

var errWaiting = errors.New("too many calls wait for the server")

// call is a new one, or one that has been answered.
func (s *Store) call(ctx context.Context, item weir.Key, tries []weir.Write) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{store: s, done: make(chan struct{}, 1)}
	}
	c.ctx, c.tries, c.key = ctx, tries, s.prefix+item.String()
	if s.observer != nil {
		c.began = time.Now()
	}
	s.names.encode(&c.writes, tries)
	return c
}

// free keeps a call whose answer has been fetched for another.
func (s *Store) free(c *call) {
	c.ctx, c.tries, c.question, c.key, c.text, c.err = nil, nil, nil, "", "", nil
	c.state.Store(queued)
	s.calls.Put(c)
}

// together reports whether calls to this client may share a script.
func (b *batches) together(client rueidis.Client) bool {
	return !b.oneByOne && client.Mode() != rueidis.ClientModeCluster
}

// enter has a call wait for the next flight, which may begin at once. It reports
// false when too many wait.
func (s *Store) enter(client rueidis.Client, w waiter) bool {
	b := &s.batches
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= maxWaiting {
		return false
	}
	b.waiting = append(b.waiting, w)
	s.begin(client)
	return true
}

// begin begins another flight, if somebody waits for one and not too many are on
// their way. The caller holds the lock.
func (s *Store) begin(client rueidis.Client) {
	b := &s.batches
	if b.flights >= maxFlights || len(b.waiting) == 0 {
		return
	}
	b.flights++
	f := new(flight)
	if last := len(b.spare) - 1; last >= 0 {
		f, b.spare = b.spare[last], b.spare[:last]
	}
	f.counts = true
	go s.fly(client, f)
}

// Read implements [weir.Answer].
func (c *call) Read(state *weir.Cells) (applied int, now int64, err error) {
	state.Reset()
	return c.store.answer(c, state)
}

// abandon is for who does not wait for a call of Apply's any longer, and says
// why. What was not sent is withdrawn.
func (c *call) abandon(why error) error {
	if c.state.CompareAndSwap(queued, abandoned) {
		why = notSent{why}
	}
	return c.store.failed(c, why)
}

// flight is what a batch is sent with, kept for the next one.
type flight struct {
	waiting []waiter // who is to be asked
	batch   []*call
	legs    []leg
	alarm   *time.Timer // see awaited
	counts  bool        // as one of batches.flights
	aloft   int         // of batches.aloft
}

// leg is the script for the calls of a flight whose writes are of one form.
type leg struct {
	script *lua
	calls  []*call // those of one group together
	keys   []string
	args   []string
}

// fly sends what waits, batch after batch, until nothing does. In between it
// lets those run first who have just been answered, and may be about to ask.
func (s *Store) fly(client rueidis.Client, f *flight) {
	for ; s.board(client, f); runtime.Gosched() {
		if len(f.batch) > 0 {
			s.awaited(client, f)
		}
	}
}

// next takes those who came first out of waiting, and leaves the other flights as
// many as itself. Those who are answered together come again together: a large flight
// and a small one would stay so, and the server be done with the small one long before
// the calls of the large one are answered, asked and sent anew. Without any, the flight
// is over.
func (b *batches) next(f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !f.counts { // it does again
		f.counts = true
		b.flights++
	}
	b.landed(f)
	n := len(b.waiting)
	if b.aloft > 0 {
		n = (n + b.aloft + maxFlights - 1) / maxFlights
	}
	if n = min(n, len(b.waiting), maxBatch); n > 0 && b.flights <= maxFlights {
		f.aloft = n
		b.aloft += n
		f.waiting = append(f.waiting, b.waiting[:n]...)
		left := copy(b.waiting, b.waiting[n:])
		clear(b.waiting[left:])
		b.waiting = b.waiting[:left]
	}
	if len(f.waiting) > 0 {
		return true
	}
	f.counts = false
	b.flights--
	b.spare = append(b.spare, f)
	return false
}

// landed no longer counts the calls of a flight. The caller holds the lock.
func (b *batches) landed(f *flight) {
	b.aloft -= f.aloft
	f.aloft = 0
}

// awaited is flight, but for one that is long under way. Another then begins in
// its place: who has come since may be less patient, and others must hear that the
// server hangs.
func (s *Store) awaited(client rueidis.Client, f *flight) {
	if f.alarm == nil {
		f.alarm = time.AfterFunc(s.batches.late, func() {
			s.batches.mu.Lock()
			defer s.batches.mu.Unlock()
			if f.counts {
				f.counts = false
				s.batches.flights--
				s.batches.landed(f)
				s.begin(client)
			}
		})
	} else {
		f.alarm.Reset(s.batches.late)
	}
	s.flight(client, f)
	f.alarm.Stop()
}

// board asks those who are next what they want, and takes as many as there is room
// for. The others are the first again for any flight: this one may hang. It reports
// false when the flight is over.
func (s *Store) board(client rueidis.Client, f *flight) bool {
	s.batches.ground.Lock()
	defer s.batches.ground.Unlock()
	if !s.batches.next(f) {
		return false
	}
	taken, values := 0, 0
	for _, w := range f.waiting {
		if values >= maxValues {
			break
		}
		taken++
		c := w.call
		if q := w.question; q != nil {
			a, ok := q.Ask()
			if !ok {
				continue
			}
			c = s.call(a.Context, a.Item, a.Tries)
			c.question, c.deadline = q, a.Until
		} else if !c.state.CompareAndSwap(queued, sent) {
			continue // c is another's
		}
		f.batch = append(f.batch, c)
		values += len(c.writes.ends)
	}
	if left := f.waiting[taken:]; len(left) > 0 {
		s.batches.mu.Lock()
		s.batches.waiting = slices.Insert(s.batches.waiting, 0, left...)
		s.begin(client)
		s.batches.mu.Unlock()
	}
	clear(f.waiting)
	f.waiting = f.waiting[:0]
	return true
}

// flight sends a batch and gives everybody the answer. It lasts as long as the
// most patient of them; those who are much more patient than others go by
// themselves.
func (s *Store) flight(client rueidis.Client, f *flight) {
	end, patient := f.patience()
	if len(patient) > 0 {
		go s.flight(client, &flight{batch: patient})
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if !end.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, end)
	}
	defer cancel()
	s.batches.send(ctx, client, f)
	s.batches.ground.Lock()
	defer s.batches.ground.Unlock()
	for i, c := range f.batch {
		f.batch[i] = nil
		if q := c.question; q != nil {
			q.Answered(c)
			s.free(c)
		} else {
			c.done <- struct{}{}
		}
	}
	f.batch = f.batch[:0]
}

// patience says until when a flight lasts, zero for ever, and takes those out of
// the batch who can wait much longer than others.
func (f *flight) patience() (end time.Time, patient []*call) {
	for _, c := range f.batch {
		if d := c.deadline; !d.IsZero() && (end.IsZero() || d.Before(end)) {
			end = d
		}
	}
	if end.IsZero() {
		return end, nil
	}
	most, stay := end.Add(impatience), f.batch[:0]
	for _, c := range f.batch {
		switch d := c.deadline; {
		case d.IsZero() || d.After(most):
			patient = append(patient, c)
			continue
		case d.After(end):
			end = d
		}
		stay = append(stay, c)
	}
	clear(f.batch[len(stay):])
	f.batch = stay
	return end, patient
}

// send runs the scripts for the calls of a flight and gives each its answer.
func (b *batches) send(ctx context.Context, client rueidis.Client, f *flight) {
	f.sort(&b.scripts)
	if len(f.legs) == 1 {
		l := &f.legs[0]
		l.got(ctx, client, client.Do(ctx, l.script.named(client, l.keys, l.args...)))
		return
	}
	commands := make([]rueidis.Completed, len(f.legs)) // the client may still have it when time is over
	for i := range f.legs {
		l := &f.legs[i]
		commands[i] = l.script.named(client, l.keys, l.args...)
	}
	for i, r := range client.DoMulti(ctx, commands...) {
		f.legs[i].got(ctx, client, r)
	}
}

// got takes in the answer to a leg, which may have to be sent again with the
// script itself.
func (l *leg) got(ctx context.Context, client rueidis.Client, r rueidis.RedisResult) {
	text, err := l.script.again(ctx, client, r, l.keys, l.args...).ToString()
	if err == nil {
		err = l.unpack(text)
	}
	if err == nil {
		return
	}
	_, answered := rueidis.IsRedisErr(err)
	for _, c := range l.calls {
		c.text, c.err = "", err
		if !answered {
			c.writes = encoded{} // the client may still be about to send it
		}
	}
}

// unpack gives each call its answer: the server's time and their lengths stand
// first, and the length of an error is negative.
func (l *leg) unpack(text string) error {
	lengths, text, _ := strings.Cut(text, "\n")
	seconds, lengths, _ := strings.Cut(lengths, " ")
	micros, lengths, _ := strings.Cut(lengths, " ")
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if err1 != nil || err2 != nil || s < 0 || s > math.MaxInt64/billion-1 || us < 0 || us >= 1e6 {
		return fmt.Errorf("the script says that the time is %q and %q", seconds, micros)
	}
	for i, c := range l.calls {
		var length string
		length, lengths, _ = strings.Cut(lengths, " ")
		n, err := strconv.Atoi(length)
		size := max(n, -n)
		if err != nil || size < 0 || size > len(text) {
			return fmt.Errorf("the script answered for %d of %d keys", i, len(l.calls))
		}
		if n < 0 {
			c.err = refused(strings.TrimPrefix(text[:size], "-"))
		} else {
			c.text, c.now = text[:size], s*billion+us*1000
		}
		text = text[size:]
	}
	if lengths != "" || text != "" {
		return fmt.Errorf("the script answered for more than %d keys", len(l.calls))
	}
	return nil
}

// sort puts calls whose writes are of one form into one leg, and in it those
// whose values are the same, as of many callers with one limit, into a group,
// whose values are sent once.
func (f *flight) sort(known *scripts) {
	f.legs = f.legs[:0]
next:
	for _, c := range f.batch {
		for i := range f.legs {
			if l := &f.legs[i]; bytes.Equal(l.calls[0].writes.form, c.writes.form) {
				l.calls = append(l.calls, c)
				continue next
			}
		}
		n := len(f.legs)
		f.legs = slices.Grow(f.legs, 1)[:n+1] // with the memory of an earlier one
		l := &f.legs[n]
		l.calls, l.keys, l.args = append(l.calls[:0], c), l.keys[:0], l.args[:0]
	}
	for i := range f.legs {
		l := &f.legs[i]
		l.script = known.of(&l.calls[0].writes)
		for calls := l.calls; len(calls) > 0; {
			n := 1
			for j := 1; j < len(calls); j++ {
				if calls[j].writes.same(&calls[0].writes) {
					calls[n], calls[j] = calls[j], calls[n]
					n++
				}
			}
			for _, c := range calls[:n] {
				l.keys = append(l.keys, c.key)
			}
			l.args = append(l.args, strconv.Itoa(n))
			l.args = calls[0].writes.args(l.args)
			calls = calls[n:]
		}
	}
}

// same reports whether the values of two of one form are the same.
func (e *encoded) same(o *encoded) bool {
	return bytes.Equal(e.values, o.values) && slices.Equal(e.ends, o.ends)
}

// args appends the values. They last as long as those of e do.
func (e *encoded) args(to []string) []string {
	from := 0
	for _, end := range e.ends {
		to = append(to, rueidis.BinaryString(e.values[from:end]))
		from = end
	}
	return to
}

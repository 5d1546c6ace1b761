package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
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
	// maxFlights is how many scripts are on their way at once. While they are,
	// calls gather for the next.
	maxFlights = 2
	// maxBatch and maxValues bound a flight, in calls and in values of their
	// writes. Other clients wait for some 200 us.
	maxBatch  = 32
	maxValues = 4000
	// maxWaiting bounds what gathers while a server hangs.
	maxWaiting = 1 << 16
)

// batches gathers calls that wait at the same time into one script, or one for
// each form of their writes. It decides nothing: a call gets the answer that it
// would get alone.
type batches struct {
	scripts  scripts
	oneByOne bool

	mu      sync.Mutex
	waiting []*call
	flights int
	spare   []*flight // those that are over
}

// call is one Apply on its way. It is a [weir.Pending].
type call struct {
	store    *Store
	ctx      context.Context // whose values the observer gets
	tries    []weir.Write
	began    time.Time
	key      string
	writes   encoded
	deadline time.Time // zero for none
	state    atomic.Int32
	done     chan struct{} // has a value when text and err are there
	text     string
	now      int64 // the server's
	err      error
}

// The states of a call. Whoever takes it out of waiting decides whether it is
// sent.
const (
	waiting int32 = iota
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
	c.ctx, c.tries, c.key, c.text, c.err = nil, nil, "", "", nil
	c.state.Store(waiting)
	s.calls.Put(c)
}

// together reports whether calls to this client may share a script.
func (b *batches) together(client rueidis.Client) bool {
	return !b.oneByOne && client.Mode() != rueidis.ClientModeCluster
}

// enter has a call wait for the next flight, which may begin at once. It reports
// false when too many wait.
func (b *batches) enter(client rueidis.Client, c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= maxWaiting {
		return false
	}
	b.waiting = append(b.waiting, c)
	if b.flights < maxFlights {
		b.flights++
		f := new(flight)
		if last := len(b.spare) - 1; last >= 0 {
			f, b.spare = b.spare[last], b.spare[:last]
		}
		go b.fly(client, f)
	}
	return true
}

// Done implements [weir.Pending].
func (c *call) Done() <-chan struct{} { return c.done }

// Answer implements [weir.Pending].
func (c *call) Answer(state *weir.Cells) (applied int, now int64, err error) {
	state.Reset()
	applied, now, err = c.store.answer(c, state)
	c.store.free(c)
	return applied, now, err
}

// Abandon implements [weir.Pending].
func (c *call) Abandon(why error) error {
	if c.state.CompareAndSwap(waiting, abandoned) {
		why = notSent{why}
	}
	return c.store.failed(c, why)
}

// flight is what a batch is sent with, kept for the next one.
type flight struct {
	batch []*call
	legs  []leg
}

// leg is the script for the calls of a flight whose writes are of one form.
type leg struct {
	script *lua
	calls  []*call // those of one group together
	keys   []string
	args   []string
}

// fly sends what waits, batch after batch, until nothing does.
func (b *batches) fly(client rueidis.Client, f *flight) {
	for b.next(f) {
		b.flight(client, f)
	}
}

// next takes the calls that come first out of waiting. Without any, the flight
// is over.
func (b *batches) next(f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.batch = f.batch[:0]
	taken, values := 0, 0
	for _, c := range b.waiting {
		if len(f.batch) == maxBatch || len(f.batch) > 0 && values+len(c.writes.ends) > maxValues {
			break
		}
		taken++
		size := len(c.writes.ends) // c is another's from the moment it is abandoned
		if c.state.CompareAndSwap(waiting, sent) {
			f.batch = append(f.batch, c)
			values += size
		}
	}
	left := copy(b.waiting, b.waiting[taken:])
	clear(b.waiting[left:])
	b.waiting = b.waiting[:left]
	if len(f.batch) == 0 {
		b.flights--
		b.spare = append(b.spare, f)
	}
	return len(f.batch) > 0
}

// flight sends a batch and wakes its callers. It lasts as long as the most
// patient of them.
func (b *batches) flight(client rueidis.Client, f *flight) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	latest := f.batch[0].deadline
	for _, c := range f.batch[1:] {
		if c.deadline.IsZero() || !latest.IsZero() && c.deadline.After(latest) {
			latest = c.deadline
		}
	}
	if !latest.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, latest)
	}
	defer cancel()
	b.send(ctx, client, f)
	for _, c := range f.batch {
		c.done <- struct{}{}
	}
	clear(f.batch)
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

package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	// maxBatch and maxValues bound a script, in calls and in packed values, of
	// which a server can unpack 8,000. Other clients wait for some 200 us.
	maxBatch  = 32
	maxValues = 4000
	// maxWaiting bounds what gathers while a server hangs.
	maxWaiting = 1 << 16
	// maxShapes bounds the writes with which another is compared.
	maxShapes = 4
)

// batches gathers calls that wait at the same time into one script. It decides
// nothing: a call gets the answer that it would get alone.
type batches struct {
	take     lua
	oneByOne bool

	mu      sync.Mutex
	waiting []*call
	flights int
}

// call is one Apply on its way. It is a [weir.Pending].
type call struct {
	store    *Store
	ctx      context.Context // whose values the observer gets
	tries    []weir.Write
	began    time.Time
	key      string
	writes   packed
	values   int
	deadline time.Time // zero for none
	state    atomic.Int32
	done     chan struct{} // has a value when text and err are there
	text     string
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
	c.writes, c.values = s.names.encode(c.writes[:0], tries)
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
		go b.fly(client)
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
	keys  []string
	arg   packed
	from  []int // where the writes of each begin
}

// fly sends what waits, batch after batch, until nothing does.
func (b *batches) fly(client rueidis.Client) {
	var f flight
	for b.next(&f) {
		b.flight(client, &f)
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
		if len(f.batch) == maxBatch || len(f.batch) > 0 && values+c.values > maxValues {
			break
		}
		taken++
		size := c.values // c is another's from the moment it is abandoned
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

// send runs the script for the calls of a flight and gives each its answer.
func (b *batches) send(ctx context.Context, client rueidis.Client, f *flight) {
	f.pack()
	text, err := b.take.eval(ctx, client, f.keys, rueidis.BinaryString(f.arg)).ToString()
	if _, answered := rueidis.IsRedisErr(err); err != nil && !answered {
		f.arg = nil // the client may still be about to send it
	}
	if err == nil {
		err = f.unpack(text)
	}
	if err != nil {
		for _, c := range f.batch {
			c.text, c.err = "", err
		}
	}
}

// unpack gives each call its answer: their lengths stand first, and that of an
// error is negative.
func (f *flight) unpack(text string) error {
	lengths, text, _ := strings.Cut(text, "\n")
	for i, c := range f.batch {
		var length string
		length, lengths, _ = strings.Cut(lengths, " ")
		n, err := strconv.Atoi(length)
		size := max(n, -n)
		if err != nil || size > len(text) {
			return fmt.Errorf("the script answered for %d of %d keys", i, len(f.batch))
		}
		if n < 0 {
			c.err = refused(strings.TrimPrefix(text[:size], "-"))
		} else {
			c.text = text[:size]
		}
		text = text[size:]
	}
	if lengths != "" || text != "" {
		return fmt.Errorf("the script answered for more than %d keys", len(f.batch))
	}
	return nil
}

// pack puts the keys and writes of all calls together. Writes that are the same
// byte by byte, as of many callers with one limit, are sent once.
func (f *flight) pack() {
	f.keys, f.from, f.arg = f.keys[:0], f.from[:0], f.arg[:0]
	var shapes [maxShapes]int // the first calls whose writes are unlike
	known, at := 0, len(f.batch)+1
	for i, c := range f.batch {
		f.keys = append(f.keys, c.key)
		like := -1
		for _, n := range shapes[:known] {
			if bytes.Equal(f.batch[n].writes, c.writes) {
				like = n
				break
			}
		}
		if like >= 0 {
			f.from = append(f.from, f.from[like])
			f.arg.int(int64(f.from[like]))
			continue
		}
		if known < maxShapes {
			shapes[known] = i
			known++
		}
		f.from = append(f.from, at)
		f.arg.int(int64(at))
		at += c.values
	}
	at = len(f.batch) + 1
	for i, c := range f.batch {
		if f.from[i] == at { // its own
			f.arg = append(f.arg, c.writes...)
			at += c.values
		}
	}
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
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

// call is one Apply on its way.
type call struct {
	key      string
	writes   packed
	values   int
	deadline time.Time // zero for none
	state    atomic.Int32
	done     chan struct{} // closed when text and err are there
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

// run gives the script's answer for one key.
func (s *Store) run(ctx context.Context, key string, tries []weir.Write) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", notSent{err}
	}
	client, err := s.client(ctx)
	if err != nil {
		return "", notSent{err}
	}
	b := &s.batches
	c := &call{key: key}
	c.writes, c.values = s.names.encode(tries)
	if b.oneByOne || client.Mode() == rueidis.ClientModeCluster {
		b.send(ctx, client, []*call{c})
		return c.text, c.err
	}
	c.done = make(chan struct{})
	c.deadline, _ = ctx.Deadline()
	b.mu.Lock()
	if len(b.waiting) >= maxWaiting {
		b.mu.Unlock()
		return "", notSent{errWaiting}
	}
	b.waiting = append(b.waiting, c)
	start := b.flights < maxFlights
	if start {
		b.flights++
	}
	b.mu.Unlock()
	if start {
		go b.fly(client)
	}
	select {
	case <-c.done:
		return c.text, c.err
	case <-ctx.Done():
		if c.state.CompareAndSwap(waiting, abandoned) {
			return "", notSent{ctx.Err()}
		}
		return "", ctx.Err()
	}
}

// fly sends what waits, batch after batch, until nothing does.
func (b *batches) fly(client rueidis.Client) {
	var batch []*call
	for {
		if batch = b.next(batch[:0]); len(batch) == 0 {
			return
		}
		b.flight(client, batch)
	}
}

// next takes the calls that come first out of waiting. Without any, the flight
// is over.
func (b *batches) next(batch []*call) []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken, values := 0, 0
	for _, c := range b.waiting {
		if len(batch) == maxBatch || len(batch) > 0 && values+c.values > maxValues {
			break
		}
		taken++
		if c.state.CompareAndSwap(waiting, sent) {
			batch = append(batch, c)
			values += c.values
		}
	}
	left := copy(b.waiting, b.waiting[taken:])
	clear(b.waiting[left:])
	b.waiting = b.waiting[:left]
	if len(batch) == 0 {
		b.flights--
	}
	return batch
}

// flight sends a batch and wakes its callers. It lasts as long as the most
// patient of them.
func (b *batches) flight(client rueidis.Client, batch []*call) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	latest := batch[0].deadline
	for _, c := range batch[1:] {
		if c.deadline.IsZero() || !latest.IsZero() && c.deadline.After(latest) {
			latest = c.deadline
		}
	}
	if !latest.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, latest)
	}
	defer cancel()
	b.send(ctx, client, batch)
	for _, c := range batch {
		close(c.done)
	}
}

// send runs the script for some calls and gives each its answer.
func (b *batches) send(ctx context.Context, client rueidis.Client, batch []*call) {
	keys := make([]string, len(batch))
	size, at := 5*len(batch), len(batch)+1
	for i, c := range batch {
		keys[i] = c.key
		size += len(c.writes)
	}
	arg := make(packed, 0, size)
	for _, c := range batch {
		arg.int(int64(at))
		at += c.values
	}
	for _, c := range batch {
		arg = append(arg, c.writes...)
	}
	answers, err := b.take.eval(ctx, client, keys, rueidis.BinaryString(arg)).ToArray()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("the script answered for %d of %d keys", len(answers), len(batch))
	}
	for i, c := range batch {
		if err != nil {
			c.err = err
			continue
		}
		c.text, c.err = answers[i].ToString()
	}
}

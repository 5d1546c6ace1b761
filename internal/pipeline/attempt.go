package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// attempts bounds how often one write is sent again.
const attempts = 6

// write sends a write to a lane's item, or the first that holds of several of
// which one can hold, until its outcome is known, and remembers what the item
// then looked like, which it fills in. A nonce names this very write, so
// that after a lost reply the same write can be sent again: the store then finds
// the nonce in the item and reports the write as applied. With repeat false,
// what may have been applied is not sent again. A first trip may have been made.
//
// An error that wraps OutcomeUnknown is neither: the write may have been applied.
func (p *Pipeline) write(ctx context.Context, l *lane, repeat bool, tries []plan.Write, state *plan.Cells, first *outcome) (now int64, applied bool, err error) {
	p.stamp(l, tries)
	var unknown error
	for attempt := 0; ; attempt++ {
		t := first
		if first = nil; t == nil {
			t = p.send(ctx, l.item, tries, state)
		}
		err, again := t.err, false
		switch {
		case err == nil:
			l.remember(state, t)
			if unknown != nil && t.applied < 0 {
				// Refused, and not among the item's last nonces: it was applied
				// and pushed out by others since, or it never was. Nobody can tell.
				break
			}
			if unknown != nil {
				p.stats.lost.Add(1)
			}
			return t.now, t.applied >= 0, nil
		case errors.Is(err, p.o.Errors.OutcomeUnknown):
			unknown = err
			again = repeat && p.o.Nonces && !errors.As(err, new(*plan.SpoiledError)) // which stays
		case errors.Is(err, p.o.Errors.Unreachable):
			again = true
		case errors.Is(err, p.o.Errors.Throttled):
			again = unknown != nil // else the lane slows down
		}
		if again && attempt < attempts && p.backoff(ctx, attempt) {
			continue
		}
		if unknown != nil {
			p.stats.unknown.Add(1)
			err = unknown
		}
		return 0, false, err
	}
}

// stamp names a write by a nonce, where the store needs one, and says how long
// the item is to be kept.
func (p *Pipeline) stamp(l *lane, tries []plan.Write) {
	nonce, keep := tries[0].Nonce, p.o.Keep(l.item)
	if p.o.Nonces && nonce == 0 {
		nonce = newNonce()
	}
	for i := range tries {
		tries[i].Keep = max(tries[i].Keep, keep)
		tries[i].Nonce = nonce
	}
}

func newNonce() uint64 { return rand.Uint64() | 1 }

// backoff waits before another attempt, and reports whether there is time for
// it. Of a store that is left alone, nobody asks twice.
func (p *Pipeline) backoff(ctx context.Context, attempt int) bool {
	const first, most = 5 * time.Millisecond, 100 * time.Millisecond
	wait := min(first<<min(attempt, 10), most)
	wait = wait/2 + rand.N(wait/2)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait || p.breaker.refuses(p.clock()+wait) {
		return false
	}
	return sleep(ctx, wait)
}

// rest waits for a busy item's turn, and reports whether there is time for it and
// for a trip as long as the last one. What is sent later than that would be cut
// short, and then nobody would know whether it was applied.
func (p *Pipeline) rest(ctx context.Context, wait time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait+time.Duration(p.lasted.Load()) {
		return false
	}
	return sleep(ctx, wait)
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

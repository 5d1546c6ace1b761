package account

import (
	"sync/atomic"
	"time"
)

// breaker keeps questions from waiting for a store that does not answer. One slow
// answer, or one that fails, says little of a store: after a few in a row it is
// left alone, and then one question in each pause may try.
type breaker struct {
	failures atomic.Int32 // in a row
	until    atomic.Int64 // Unix ns until which nobody asks; 0 when it is well
	reason   atomic.Pointer[reason]
}

type reason struct{ err error }

const (
	tolerated = 5 // failures in a row
	pause     = time.Second
)

// rests says why nobody may ask the store now, or nil.
func (b *breaker) rests(now int64) error {
	if until := b.until.Load(); until == 0 || now >= until || until-now > int64(pause) {
		return nil
	}
	return b.reason.Load().err
}

// refuses is rests for who asks if it may: once a pause is over, one does, and the
// others wait for what that one finds.
func (b *breaker) refuses(now int64) error {
	until := b.until.Load()
	if until == 0 {
		return nil
	}
	if err := b.rests(now); err != nil {
		return err
	}
	if b.until.CompareAndSwap(until, now+int64(pause)) {
		return nil
	}
	return b.rests(now)
}

func (b *breaker) well() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
		b.until.Store(0)
	}
}

func (b *breaker) failed(err error, now int64) {
	b.reason.Store(&reason{err})
	if b.failures.Add(1) >= tolerated {
		b.until.Store(now + int64(pause))
	}
}

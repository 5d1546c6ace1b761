package pipeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker keeps calls from waiting for a store that does not answer. After a
// few failures in a row it is open: no call is sent. From time to time one call
// may try, and its success closes the breaker.
type breaker struct {
	off     bool
	failing atomic.Bool // whether there is a failure to look at: no lock without

	mu       sync.Mutex
	failures int
	open     bool
	probeAt  time.Duration // when the next call may try
	pause    time.Duration
}

const (
	tolerated  = 5 // failures in a row before the breaker opens
	firstPause = 100 * time.Millisecond
	maxPause   = time.Second
)

// refuses reports whether nothing may be sent at this time.
func (b *breaker) refuses(now time.Duration) bool {
	if !b.failing.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open && now < b.probeAt
}

// isOpen reports whether the store is left alone, but for calls that try.
func (b *breaker) isOpen() bool {
	if !b.failing.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// allow reports whether a trip may be made at this time, which then is made and
// learned from.
func (b *breaker) allow(now time.Duration) bool {
	if !b.failing.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return true
	}
	if now < b.probeAt {
		return false
	}
	b.probeAt = now + 2*b.pause // this call tries; others wait for its answer, if it comes
	return true
}

// well learns that the store has answered.
func (b *breaker) well() {
	if !b.failing.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.open, b.pause = 0, false, 0
	b.failing.Store(false)
}

// failed learns that it has not.
func (b *breaker) failed(now time.Duration) {
	if b.off {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing.Store(true)
	if b.failures++; b.failures < tolerated {
		return
	}
	b.open = true
	b.pause = min(max(2*b.pause, firstPause), maxPause)
	b.probeAt = now + b.pause
}

package httpretry

import (
	"math"
	"sync"
	"time"
)

// Budget bounds the retries of a transport by what is sent through it. Whenever
// time T passes and N requests are made, at most
//
//	Burst + T/Every + N/Requests
//
// retries are sent for them. With the defaults a busy client adds a tenth to its
// own load when everything is refused, and no more than a request a second to
// that, after the first ten. A client that makes one request at a time and is told
// to wait a second or more never meets the bound. A request that the budget does
// not cover gets its refusal at once.
type Budget struct {
	// Burst is how many retries can be saved up, and how many there are at the
	// start; Burst times Every counts as 292 years where it is more. Default: 10.
	Burst int

	// Every is the time that brings one retry. Default: 1 s.
	Every time.Duration

	// Requests is how many requests bring one retry. Default: 10.
	Requests int
}

// budget is a token bucket that keeps its balance as a span of time: a retry
// costs Every, time adds itself, and a request adds Every/Requests. So all of it
// is whole nanoseconds, and nothing is lost to rounding but a part of one.
type budget struct {
	price, limit, perRequest time.Duration

	mu      sync.Mutex
	balance time.Duration
	seen    time.Time // up to when time was added
}

func newBudget(o Budget) *budget {
	price := orDefault(o.Every, time.Second)
	burst := time.Duration(orDefault(o.Burst, 10))
	limit := time.Duration(math.MaxInt64)
	if burst <= limit/price {
		limit = burst * price
	}
	return &budget{
		price: price, limit: limit, balance: limit, seen: time.Now(),
		perRequest: price / time.Duration(orDefault(o.Requests, 10)),
	}
}

// earn adds what a request brings.
func (b *budget) earn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass(now)
	b.add(b.perRequest)
}

// spend takes one retry, if there is one.
func (b *budget) spend(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass(now)
	if b.balance < b.price {
		return false
	}
	b.balance -= b.price
	return true
}

// refund gives back a retry that was not sent.
func (b *budget) refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(b.price)
}

func (b *budget) pass(now time.Time) {
	// Readings of the clock reach the lock in any order.
	if d := now.Sub(b.seen); d > 0 {
		b.add(d)
		b.seen = now
	}
}

func (b *budget) add(d time.Duration) {
	b.balance += min(d, b.limit-b.balance)
}

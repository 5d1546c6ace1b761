// Package weir keeps per-customer rate limits and quotas that hold across every
// instance of an API.
//
// A [Limiter] decides on a [Store]. The store is the one you have: DynamoDB
// (package dynamostore) for limits that all instances share, or memory (package
// memstore) for limits of one process. An [Op] asks for units of one [Limit]
// from the item that a [Key] names; the [Decision] says whether it may, what is
// left, and how long to wait.
//
//	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
//	limit, err := weir.ParseLimit("0.5/s burst 10")
//	...
//	d, err := lim.Take(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")})
//	if err == nil && !d.Allowed {
//		// answer 429 with Retry-After: d.RetryAfter, rounded up to seconds
//	}
//
// # How it works
//
// A limit is a few integers of an item, and a take is one guarded write: "if the
// bucket is not full but has room for this, move it by this much". A remote
// store applies it in one conditional update without a prior read. Concurrent
// writers to one bucket commute, so nobody is refused because somebody else
// wrote first. The total that is allowed in any interval never exceeds the
// burst plus the rate times the interval.
//
// # What a call may say
//
// A refusal is a Decision and not an error. A store that can't be asked is
// neither: the op's [FailureMode] says what it means. A call that turns out to
// have failed, or to cost another amount, is given back or settled with the
// [Reservation] of [Limiter.Reserve].
//
// Packages policy and engine put many limits to work from one file; httplimit
// is the middleware for net/http.
package weir

// Package redisstore keeps limits in Redis or Valkey: a hash per caller, and one
// script per decision.
//
// The hash account#customer-42 holds every limit of that caller as plain
// numbers: its field "reservations.t" is when the bucket is full again, in Unix
// nanoseconds. What a take means is decided elsewhere; this package only carries
// guarded writes, whatever the algorithm and however many limits, to a Lua script
// that compares and changes such fields in one step.
//
//	store, err := redisstore.Open("redis://127.0.0.1:6379", redisstore.Options{})
//	limiter := weir.NewLimiter(store, weir.Options{})
//
// A program that has a rueidis client already gives it to [New]. For Valkey,
// Sentinel, a cluster, TLS or a user with few rights, make the client, or the
// URL, accordingly: nothing else differs. docs/redis.md says which rights a user
// needs; [Rights] are those to decide.
//
// # Time
//
// The clock is the server's, read inside the script, so that the clocks of
// callers do not matter. It has microseconds. In a cluster, and after a
// failover, it is the clock of the node that has the item: keep the nodes'
// clocks together.
//
// # Numbers
//
// A number in a script is a double, exact to 2^53 only, and nanoseconds are
// larger. The script therefore splits a number in two before it compares or
// adds, which makes all of int64 exact, and sums stay at its ends.
//
// # Lost replies
//
// When a connection breaks, a script that was sent may have run. The error then
// wraps [weir.ErrOutcomeUnknown], and the limit's failure mode decides the call.
// With Options.Resend the same write is sent again instead: the field "w" of an
// item holds the nonces of its last four writes, and a write that is among them
// is reported as applied and not applied again. Four others in between push it
// out: with several processes on a key in great demand, some of what is sent
// again is counted twice. Neither this package nor the
// client sends a write twice by itself.
//
// # Load
//
// Calls that come while others are on their way go to the server together, up to
// 32 in one script, or one for each form of their writes: that spares the server
// half of its work, and the client more. A lone call waits for nothing. In a
// cluster every call goes by itself, since its key decides where.
//
// A form is what writes are but for names of fields and numbers, and each has a
// script of its own, of two or three kilobytes, which the server keeps until it
// restarts (Redis 7.4 forgets those of long ago). How many there are depends on
// the kinds of limits that share an item, some dozens in all, and not on how
// many callers, limits or calls.
//
// # Expiry
//
// Every write sets the time to live of its key, so no caller's key stays for ever, and
// idle callers cost nothing. (A user without the right to PEXPIRE would leave keys
// behind; [Store.Check] refuses him. Records stay for as long as they were put for.) A server that evicts keys when memory is full
// forgets what callers have used: its maxmemory-policy should be noeviction, and
// [Store.Check] warns when it is not.
//
// # Failover
//
// Replication of Redis is asynchronous: a failover can lose the last writes, and
// with them what was counted. Nothing in a client can change that.
package redisstore

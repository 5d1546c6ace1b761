// Package dynamostore keeps limits in one DynamoDB table: an item per caller,
// and one UpdateItem per decision.
//
// The item of account#customer-42 holds, under the string key pk, every limit
// of that caller as plain numbers: "reservations.t" is when the bucket is full
// again, in Unix nanoseconds. A take is a condition on such numbers and a
// change of them, so it needs no read before it, and two takes at once do not
// undo each other: DynamoDB applies them one after the other. What a take means
// is decided elsewhere; this package only carries guarded writes.
//
//	client, err := dynamostore.NewClient(ctx, "eu-central-1", "")
//	store, err := dynamostore.New(client, dynamostore.Options{Table: "limits"})
//	limiter := weir.NewLimiter(store, weir.Options{})
//
// # Cost
//
// An allowed take is one write unit, and so is a refused one that DynamoDB had
// to be asked about: a failed condition is charged like a write. Items stay
// under 1 KB, which is one unit, with a dozen buckets per caller. Reads happen
// for Peek, and when a failed condition comes without the old item, which AWS
// sends and old test servers do not.
//
// # Permissions
//
// Deciding needs dynamodb:UpdateItem and dynamodb:GetItem on the table.
// [Store.List] scans and [Store.Create] and [Store.Check] describe: those are
// for the program and for deployment, not for a function in production.
//
// # Time
//
// DynamoDB has no clock that a condition could use, so the caller's counts. The
// Date of every reply is compared with it: see [Store.Skew].
//
// # Expiry
//
// Every write sets expiresAt, in whole seconds, for DynamoDB's time to live.
// It is only cleaning. An item that is deleted late is harmless, because its
// numbers mean the same as none.
package dynamostore

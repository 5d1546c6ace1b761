// Package lambdalimit puts a policy in front of a Lambda function.
//
//	e, err := lambdalimit.NewEngine(engine.Options{Policy: p, Store: s})
//	...
//	lambda.Start(lambdalimit.Wrap(handler, e, lambdalimit.Options{}))
//
// The handler stays as it is. A call that a limit refuses never reaches it, and
// is answered in the form of its own event: 429 with header fields and a body
// for REST and HTTP APIs, function URLs and load balancers, an error with its
// type for AppSync, a denial for authorizers. [WrapHTTP] takes a net/http
// handler instead, [WrapBatch] an AppSync resolver that is given many fields at
// once, [WrapAuthorizer] an authorizer of any kind.
//
// # Who is calling
//
// Only what the service in front vouches for is believed: the claims of a token
// that the gateway has verified, the context that an authorizer returned, the
// principal of a signed request, the address in the field that the service sets.
// Headers that a client can send choose nothing. An event in which nobody can be
// told from anybody else, such as an AppSync call by API key under a limit by
// address, is an error ([NoCaller]) and never one counter for all; so is an event
// of a trigger that this package does not know ([UnknownEvent]).
//
// Claims become those of the policy (jwt.sub, jwt.tenant, ...) as they are, but
// for lists: a gateway flattens them to text, "[a b]" or JSON, which becomes a
// list again, and "a,b" does for the claim of the policy's plans: from, for
// cognito:groups and for the names in [Options.ListClaims].
// sub is, where the claims have none, the principalId of an authorizer, or
// who signed the request with IAM: the Cognito identity, else the user or role
// without the name of its session, which its holder chooses. api_key.owner is
// identity.apiKeyId on REST APIs, and the hash of the key on AppSync.
//
// # Paths
//
// A policy sees the path of the event without the stage, which HTTP APIs leave in
// front. The base path of a custom domain stays: services pass it on, and nothing
// in an event tells it from the rest of the path. Below the base path v1 the route
// POST /things is POST /v1/things by the custom domain and POST /things by the
// API's own address, so that a limit of one of them does not hold for the other.
// Name both (`match: [POST /things, POST /v1/things]`), or switch the API's own
// address off (DisableExecuteApiEndpoint) and name the second.
//
// # AppSync
//
// A field is matched as POST /PARENT/FIELD: `match: POST /Mutation/generate`.
// A resolver's result is wrapped as {data}, a refusal is
// {data, errorMessage, errorType: "LimitExceeded", errorInfo}, and four lines of
// JavaScript in the resolver take them apart: see examples/appsync-quotas. With
// [Options.ReturnErrors] results stay as they are and a refusal is a
// [LimitExceeded], whose other fields AppSync does not show.
//
// # What counts, and when
//
// A limit that counts only success is taken before the handler and settled
// after it, also when the handler panics (the panic goes on) or returns what
// cannot be encoded. Shortly before the function would time out, by 500 ms or a
// tenth of what was left, the call is given up as failed, since afterwards nobody
// could. Of a batch that ends so, all elements are. Authorizers and calls that
// merely count are never given back.
//
// With settle: a call is brought to what the answer says that it cost: in the header
// field of an HTTP answer, in [Result.Costs] of an AppSync resolver, which has no
// header. A streaming answer says it in its header too: trailers there are none.
//
// An answer that is cached in front of the function is not counted. Authorizers
// are cached by default: 300 seconds on REST and HTTP APIs, for all routes. Set
// the time to live of the authorizer to 0 (AuthorizerResultTtlInSeconds); no
// response can do that there. For AppSync the response can, and does. A denial
// that REST caches would outlive the limit as well.
//
// # The execution environment
//
// Make the engine once per process, before lambda.Start, and [Warm] its store
// there. The engine has no goroutine and no timer that must run between two
// calls: what it remembers of a refusal is believed for one second by the wall
// clock, so that after a freeze of minutes it is simply old. One thing may be
// under way when a call ends: a write of which the store's answer did not come
// within the deadline. on_store_error has then decided the call, and a
// goroutine waits for the answer, to give back what a refused call took. A
// freeze stops it; it goes on with the next call, and when there is none the
// refused call stays counted until it has refilled. What on_store_error: local
// counts is told to the store by that caller's next call here, and forgotten
// when the environment ends before. Nothing is counted twice, and nothing else
// depends on it. Several calls at once in one environment are fine.
//
// # Logs and metrics
//
// The logger of [NewEngine] adds the request id, the milliseconds that the store
// took and, to those of the environment's first call, cold_start to the engine's
// lines, which it calls "rate limited" and "rate limiter failed". Options.Metrics
// takes lines in CloudWatch's embedded metric format, whose ColdStart marks every
// environment once.
package lambdalimit

// Package policy turns one file and a request into operations for a
// [weir.Limiter].
//
// The file says who is calling, what is never limited, and what is limited
// where: addresses at the edge, API keys at the gateway, accounts and plans in
// the application. [Load] reads it, reports every mistake at once with its
// place and a way out, and compiles what is left: one trie for all paths,
// limits with their names, expressions with their types checked.
//
// A request passes in two steps, so that nobody is identified in vain:
//
//	m, err := p.Match(attributes)         // exempt? edge limits? whom do we need to know?
//	ops, err := p.Ops(&m, attributes, id) // gateway and application limits of this caller
//
// Expressions, such as `when: plan == "free"`, are compiled by what the program
// hands in, see [Options] and package expression; a policy without any needs
// nothing:
//
//	p, err := policy.Load(files, "weir.yaml", policy.Options{Expressions: expression.Compile})
//
// Within the package, loader.expression compiles one for any environment: a
// struct with `expr` tags.
//
// The package is pure. It reads only the file system that Load is given, asks
// no store, knows no secret and has no clock; everything is safe for concurrent
// use. What it takes for a caller's id comes from verified sources: a header
// that a client can set never chooses a counter by itself.
//
// Paths are the weak spot of every limiter in front of a server: "/Orders",
// "//orders" and "/%6frders" may all reach one handler. A path therefore has
// one or more readings, see [Policy.Match]; what limits applies when any of them
// matches, what exempts only when all do.
package policy

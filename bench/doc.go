// Package bench measures weir beside the rate limiters that a Go program can
// pick today, and beside floors: the least that any of them has to do. Nothing
// here is imported by the library, whose users inherit none of the rivals.
//
//   - measure is how: rounds that take turns, medians, processor time, heap;
//   - inproc holds limiters of one process, remote those on Redis, middleware
//     those for net/http: each a list of peers that answer the same calls;
//   - report turns the results into a table, a page and a plot.
//
// The measurement is BenchmarkAll: `make bench` runs it, prints the table and
// writes docs/performance.md. The tests time nothing. They ask every peer what
// it must allow and what it must refuse, because a limiter that is wrong can be
// as fast as it likes. Where a rival is known to answer wrongly, its wrong
// answers are counted and shown, in the tests as in the table.
package bench

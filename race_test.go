//go:build race

package weir_test

// pooled is what a call may allocate whose memory comes from a pool: the race
// detector has pools lose a quarter of what is put into them.
const pooled = 1

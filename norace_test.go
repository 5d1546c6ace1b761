//go:build !race

package weir_test

// pooled is what a call may allocate whose memory comes from a pool.
const pooled = 0

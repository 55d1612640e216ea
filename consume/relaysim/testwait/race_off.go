//go:build !race

package testwait

// Race says whether the race detector watches. It finds nothing in a test of one goroutine, and
// makes one that computes much ten times as long.
const Race = false

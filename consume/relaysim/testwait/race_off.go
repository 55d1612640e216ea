//go:build !race

package testwait

// Race says whether the race detector is on. In a test of one goroutine it finds nothing; a test
// that computes much takes many times as long with it.
const Race = false

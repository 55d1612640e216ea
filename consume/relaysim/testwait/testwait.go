// Package testwait waits in tests for what no channel announces: a metric, a state of another
// process, a goroutine that ends.
package testwait

import (
	"testing"
	"testing/synctest"
	"time"
)

// Becomes waits until a condition holds, at most that long. It says whether it does.
func Becomes(within time.Duration, ok func() bool) bool {
	wait := time.Millisecond
	for end := time.Now().Add(within); !ok(); time.Sleep(wait) {
		if time.Now().After(end) {
			return false
		}
		wait = min(wait+wait/4, 50*time.Millisecond)
	}
	return true
}

// Eventually waits like Becomes, and fails the test if the condition does not come to hold.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Becomes(within, ok) {
		t.Fatalf("never happened: %s", what)
	}
}

// Stays looks for that long whether a condition goes on to hold.
func Stays(long time.Duration, ok func() bool) bool {
	return !Becomes(long, func() bool { return !ok() })
}

// Elapse lets time pass in a bubble of synctest. When it returns, all that was due has happened.
func Elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

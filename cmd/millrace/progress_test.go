package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestEverySoOften: what a job says of itself is not said at once, nor twice within progressEvery.
func TestEverySoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		say := everySoOften(func() { said++ })
		for _, want := range []int{0, 0, 1, 1, 2} {
			if say(); said != want {
				t.Errorf("after %v it was said %d times, want %d", time.Now(), said, want)
			}
			time.Sleep(progressEvery / 2)
		}
	})
}

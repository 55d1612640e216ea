package ingest

import (
	"testing"
	"testing/synctest"
)

func TestGateWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		g.set(false)
		if g.set(false) {
			t.Error("closing a closed gate changed something")
		}
		const n = 3
		done := make(chan error, n)
		for range n {
			go func() { done <- g.wait(t.Context()) }()
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("went through a closed gate")
		}
		g.set(true)
		for range n {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGateChanges: set says whether it changed anything.
func TestGateChanges(t *testing.T) {
	var g gate
	for i, open := range []bool{true, false, false, true, true} {
		if changed := g.set(open); changed != []bool{false, true, false, true, false}[i] {
			t.Errorf("step %d: set(%t) says %t", i, open, changed)
		}
	}
}

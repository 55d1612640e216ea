package share

import (
	"slices"
	"testing"
)

// TestForget: those that wait for a key go on when one is done, wherever it is in the list.
func TestForget(t *testing.T) {
	for gone := range 4 {
		f := &follower{pending: make(map[string]*waiter)}
		var all, want, got []*waiter
		for range 4 {
			w := &waiter{key: "key", next: f.pending["key"]}
			f.pending["key"] = w
			all = slices.Insert(all, 0, w)
		}
		f.forget(all[gone])
		want = slices.Delete(slices.Clone(all), gone, gone+1)
		for w := f.pending["key"]; w != nil; w = w.next {
			got = append(got, w)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d of 3 wait when number %d is done", len(got), gone)
		}
		for _, w := range want {
			f.forget(w)
		}
		if len(f.pending) > 0 {
			t.Error("a key is kept for which nobody waits")
		}
	}
}

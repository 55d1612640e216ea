package share

import (
	"context"
	"slices"
	"testing"
	"time"
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

// absent is an item whose key is in no cache, and a look-up that finds nothing.
type absent struct{}

func (absent) Hash() uint64                      { return 1 }
func (absent) Advance(dst []byte) ([]byte, bool) { return append(dst, "key"...), false }
func (absent) Set(*Name)                         {}
func (absent) Run(context.Context) error         { return nil }
func (absent) Found(int) bool                    { return false }
func (absent) Apply(int)                         {}

// TestLookedForAgain: a string that a look-up has not found is looked up again, as long as it has
// not waited for HoldOff.
func TestLookedForAgain(t *testing.T) {
	f := newFollower(Config{Timing: Timing{HoldOff: time.Hour}}, &Group{})
	w := &waiter{item: absent{}, group: &group{left: 1}, since: time.Now()}
	f.advance(w)
	for range 2 {
		f.wantLookup(w)
		if len(f.ask) != 1 {
			t.Fatalf("%d strings are to be looked for, want 1", len(f.ask))
		}
		f.ask = f.ask[:0]
		f.endLookup(batch{waiters: []*waiter{w}, lookup: absent{}})
		if w.done || f.pending["key"] != w {
			t.Error("it no longer waits")
		}
	}
}

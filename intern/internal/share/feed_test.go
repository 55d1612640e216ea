package share

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"millrace/intern/kv"
)

// sequenceNames is an Interner of which a feed reads sequences: each has a name for each UID up to
// 10.
type sequenceNames struct {
	Interner
	fails uint32 // a sequence that cannot be read; 0: none
}

func (s *sequenceNames) Attempt(ctx context.Context, _ time.Duration, fn func(context.Context, kv.Txn) error) error {
	return cmp.Or(fn(ctx, nil), fn(ctx, nil)) // as after a conflict
}

func (s *sequenceNames) ReadSequence(_ context.Context, _ kv.Txn, sequence uint32, from uint64, names []Name) (uint64, []Name, error) {
	if sequence == s.fails {
		return 0, names, kv.ErrUnavailable
	}
	for uid := from; uid < 10; uid++ {
		names = append(names, Name{UID: uint64(sequence)*100 + uid})
	}
	return 10, names, nil
}

// TestFeedAfterFailure: what a failed read has not delivered is read again, and nothing twice.
func TestFeedAfterFailure(t *testing.T) {
	in := &sequenceNames{fails: 2}
	f := newFeed(Config{Interner: in}, nil)
	next := map[uint32]uint64{1: 4, 3: 9}
	f.read(t.Context(), next, []uint32{1, 2})
	if len(f.out) > 0 {
		t.Errorf("a failed read delivers %v", <-f.out)
	}
	in.fails = 0
	f.read(t.Context(), next, []uint32{1, 2})
	f.read(t.Context(), next, []uint32{1, 2})
	if len(f.out) != 1 {
		t.Fatalf("%d deliveries", len(f.out))
	}
	var got []uint64
	for _, n := range <-f.out {
		got = append(got, n.UID)
	}
	if want := []uint64{104, 105, 106, 107, 108, 109, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, not %v", got, want)
	}
	if len(next) != 2 {
		t.Errorf("the feed remembers %v", next)
	}
}

// TestFeedForgetsInstances: an instance that comes back is read from the beginning.
func TestFeedForgetsInstances(t *testing.T) {
	f := newFeed(Config{Interner: &sequenceNames{}}, nil)
	for _, feeds := range []map[uint64][]uint32{{7: {1}, 8: {2}}, {8: {2}}, {7: {1}, 8: {2}}} {
		f.poll(t.Context(), &view{feeds: feeds})
		if len(f.next) != len(feeds) {
			t.Errorf("of %v it remembers %v", feeds, f.next)
		}
	}
	if len(f.out) != 3 {
		t.Errorf("%d deliveries, want two and then one", len(f.out))
	}
}

// TestFeedWakes: a feed polls at once when a string begins to wait, every Poll while one waits, and
// else every IdlePoll.
func TestFeedWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(Config{Timing: Timing{Poll: time.Second, IdlePoll: time.Minute}}, nil)
		pause := func(want time.Duration) {
			t.Helper()
			begun := time.Now()
			if ok := f.pause(t.Context()); !ok || time.Since(begun) != want {
				t.Errorf("%v, after %v, want %v", ok, time.Since(begun), want)
			}
		}
		pause(time.Minute)
		f.setWaiting(false)
		pause(time.Minute)
		time.AfterFunc(time.Second/2, func() { f.setWaiting(true); f.setWaiting(true) })
		pause(time.Second / 2)
		pause(time.Second)
		f.setWaiting(false)
		pause(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if f.pause(ctx) {
			t.Error("it goes on when ctx has ended")
		}
		f.setWaiting(true)
		if f.pause(ctx) {
			t.Error("it goes on when ctx has ended, while a string waits")
		}
	})
}

package share

import (
	"context"
	"slices"
	"testing"
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
	return fn(ctx, nil)
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

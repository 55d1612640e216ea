package intern

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// TestCount counts over two Interners, one after the other, with a SkipAhead between.
func TestCount(t *testing.T) {
	store := simkv.New(simkv.Config{})
	check := func(in *Interner, total, dids, uris uint64) {
		t.Helper()
		if got, err := in.Count(ctx); err != nil || got != total {
			t.Errorf("%d UIDs in all: %v, want %d", got, err, total)
		}
		if d, u := in.Given(); d != dids || u != uris {
			t.Errorf("%d and %d given, want %d and %d", d, u, dids, uris)
		}
	}
	in := openOn(t, store, Config{})
	check(in, 0, 0, 0)
	for i := range 50 {
		did := fmt.Sprintf("did:web:a%d.com", i)
		resolve(t, in, did, "at://"+did+"/app.bsky.feed.post/a", "at://"+did+"/app.bsky.feed.post/b")
		resolve(t, in, did)
	}
	check(in, 150, 50, 100)
	_ = in.Close()
	if _, err := SkipAhead(ctx, store, 1000); err != nil {
		t.Fatal(err)
	}
	in = openOn(t, store, Config{Seed: 7})
	for i := range 50 {
		resolve(t, in, fmt.Sprintf("did:web:b%d.com", i))
	}
	check(in, 200, 50, 0)
}

// TestCountFaltering: a server that starts goes on after the store was unavailable for a moment.
func TestCountFaltering(t *testing.T) {
	var left atomic.Int32
	store := &hookedStore{Store: simkv.New(simkv.Config{}), beforeBegin: func() error {
		if left.Add(-1) >= 0 {
			return kv.ErrUnavailable
		}
		return nil
	}}
	in := openOn(t, store, Config{})
	resolve(t, in, "did:web:a.com")
	left.Store(2)
	if n, err := in.Count(ctx); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestCountAfterInterruptedSkip: what counts as skipped was raised, the counters were not.
func TestCountAfterInterruptedSkip(t *testing.T) {
	transactions := 0
	broken := &hookedStore{Store: simkv.New(simkv.Config{}), beforeBegin: func() error {
		if transactions++; transactions > 1 {
			return errors.New("broken")
		}
		return nil
	}}
	in := openOn(t, broken.Store, Config{})
	resolve(t, in, "did:web:a.com")
	if _, err := SkipAhead(ctx, broken, 1000); err == nil {
		t.Fatal("the skip was not interrupted")
	}
	if skipped, err := in.Skipped(ctx); err != nil || skipped != 1000 {
		t.Fatalf("%d skipped, %v", skipped, err)
	}
	if n, err := in.Count(ctx); err != nil || n > 1 {
		t.Errorf("%d UIDs, %v", n, err)
	}
}

package simkv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/kvtest"
)

func TestStore(t *testing.T) {
	kvtest.Run(t, func(*testing.T) kv.Store { return New(Config{}) })
}

// TestStoreWithLatency runs the same with the timing of a cluster.
func TestStoreWithLatency(t *testing.T) {
	kvtest.Run(t, func(*testing.T) kv.Store {
		return New(Config{ReadLatency: 10 * time.Microsecond, CommitLatency: 50 * time.Microsecond})
	})
}

// TestTable compares a table with a sorted slice.
func TestTable(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	table, plain := newTable(), make(map[string]bool)
	for range 3000 {
		key := fmt.Sprintf("%04d", rng.IntN(5000))
		table.row(key).versions = []version{{1, []byte("v")}}
		plain[key] = true
	}
	sorted := slices.Sorted(maps.Keys(plain))
	for range 200 {
		key := fmt.Sprintf("%04d", rng.IntN(5100))
		at, _ := slices.BinarySearch(sorted, key)
		var after, before []string
		for r := range table.from(key) {
			after = append(after, r.key)
		}
		for r := range table.before(key) {
			before = append(before, r.key)
		}
		slices.Reverse(before)
		if !slices.Equal(after, sorted[at:]) || !slices.Equal(before, sorted[:at]) {
			t.Fatalf("seed %d: from and before %s give %d and %d keys, want %d and %d", seed, key, len(after), len(before), len(sorted)-at, at)
		}
	}
}

// set sets key in one attempt.
func set(s *Store, key string) error {
	ctx := context.Background()
	return kv.Once(ctx, s, func(txn kv.Txn) error {
		value := make([][]byte, 1)
		if err := txn.Get(ctx, [][]byte{[]byte(key)}, value); err != nil {
			return err
		}
		txn.Set([]byte(key), []byte("v"))
		return nil
	})
}

func has(t *testing.T, s *Store, key string) bool {
	t.Helper()
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.table.index[key]
	return ok && r.value(s.last) != nil
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name    string
		faults  Faults
		err     error
		applied bool
	}{
		{"Conflict", Faults{Conflict: 1}, kv.ErrConflict, false},
		{"UnknownApplied", Faults{UnknownApplied: 1}, kv.ErrUnknownOutcome, true},
		{"UnknownLost", Faults{UnknownLost: 1}, kv.ErrUnknownOutcome, false},
		{"UnknownLate", Faults{UnknownLate: 1, LateBy: time.Millisecond}, kv.ErrUnknownOutcome, true},
		{"TooOld", Faults{TooOld: 1}, kv.ErrTooOld, false},
		{"Unavailable", Faults{Unavailable: 1}, kv.ErrUnavailable, false},
		{"None", Faults{}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(Config{Seed: 1})
			s.SetFaults(test.faults)
			if err := set(s, "k"); !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			s.Settle()
			if has(t, s, "k") != test.applied {
				t.Errorf("applied: %v, want %v", !test.applied, test.applied)
			}
		})
	}
}

func TestOutageAndCrash(t *testing.T) {
	s := New(Config{Seed: 1})
	s.SetDown(true)
	if err := set(s, "k"); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("during an outage: %v", err)
	}
	s.SetDown(false)
	txn, err := s.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Close()
	txn.Set([]byte("k"), []byte("v"))
	s.Crash()
	if err := txn.Get(context.Background(), [][]byte{[]byte("k")}, make([][]byte, 1)); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("read after a crash: %v", err)
	}
	if err := txn.Commit(context.Background()); !errors.Is(err, kv.ErrUnknownOutcome) {
		t.Errorf("commit after a crash: %v", err)
	}
	if err := set(s, "k"); err != nil {
		t.Errorf("new transaction after a crash: %v", err)
	}
}

// TestLateCommitLoses checks that a commit applied late conflicts like any other.
func TestLateCommitLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Seed: 1})
		s.SetFaults(Faults{UnknownLate: 1, LateBy: 20 * time.Millisecond})
		_ = set(s, "k")
		s.SetFaults(Faults{})
		if err := set(s, "k"); err != nil {
			t.Fatal(err)
		}
		before := s.Stats().Committed
		s.Settle()
		if r := s.table.index["k"]; len(r.versions) != 1 || before != 1 {
			t.Errorf("%d versions, %d commits, want 1 and 1", len(r.versions), before)
		}
	})
}

// TestVersionsArePruned writes one key often while an old reader keeps its view.
func TestVersionsArePruned(t *testing.T) {
	s := New(Config{})
	for range 100 {
		if err := set(s, "k"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.table.index["k"].versions); n > maxVersions+1 {
		t.Errorf("%d versions are kept", n)
	}
	if len(s.active) != 0 {
		t.Errorf("%d read versions are held by nobody", len(s.active))
	}
}

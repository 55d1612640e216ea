package simkv

import (
	"context"
	"errors"
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
	_, r, _ := s.rows.Get(key)
	return r.value != nil
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
		if _, r, _ := s.rows.Get("k"); r.at != 1 || before != 1 {
			t.Errorf("it has version %d after %d commits, want 1 and 1", r.at, before)
		}
	})
}

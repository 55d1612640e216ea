package pebblekv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"millrace/intern/kv"
)

// A checkpoint of a store that is being written has whole transactions only, and all that were
// committed before it was asked for.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: filepath.Join(dir, "uids")})
	if err != nil {
		t.Fatal(err)
	}
	set := func(s *Store, n uint64) {
		t.Helper()
		err := kv.Run(t.Context(), s, func(txn kv.Txn) error {
			for _, key := range []string{"a", "b"} {
				txn.Set([]byte(key), binary.BigEndian.AppendUint64(nil, n))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(s *Store) (a, b uint64) {
		t.Helper()
		values := make([][]byte, 2)
		err := kv.Run(t.Context(), s, func(txn kv.Txn) error {
			return txn.Get(context.Background(), [][]byte{[]byte("a"), []byte("b")}, values)
		})
		if err != nil || values[0] == nil || values[1] == nil {
			t.Fatalf("read %v: %v", values, err)
		}
		return binary.BigEndian.Uint64(values[0]), binary.BigEndian.Uint64(values[1])
	}
	n := uint64(1)
	set(s, n)
	for i := range 3 {
		to, before := filepath.Join(dir, fmt.Sprint("copy", i)), n
		done := make(chan error)
		go func() { done <- s.Checkpoint(to) }()
		for running := true; running; {
			n++
			set(s, n)
			select {
			case err := <-done:
				if running = false; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
		c, err := Open(Config{Dir: to})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := get(c); a != b || a < before || a > n {
			t.Errorf("copy %d has %d and %d, want one number of %d to %d", i, a, b, before, n)
		}
		set(c, 1) // must not change s
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if a, _ := get(s); a != n {
		t.Errorf("the store has %d, want %d", a, n)
	}
	if err := s.Checkpoint(filepath.Join(dir, "copy0")); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(filepath.Join(dir, "late")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
}

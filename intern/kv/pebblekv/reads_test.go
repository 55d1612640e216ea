package pebblekv

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestReadsCompactNothing: look-ups do not make the store rewrite tables.
func TestReadsCompactNothing(t *testing.T) {
	s := open(t, vfs.NewMem())
	db := s.db.Pebble()
	value := make([]byte, 1<<20)               // Pebble counts bytes
	for _, last := range []bool{true, false} { // a table of the last level, and one above it
		err := errors.Join(db.Set([]byte("a"), value, nil), db.Set([]byte("b"), value, nil), db.Flush())
		if last {
			err = errors.Join(err, db.Compact(t.Context(), []byte("a"), []byte("c"), false))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		iter, err := s.db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if !iter.SeekLT([]byte{byte('b' + i%2)}) {
				t.Fatal(iter.Error())
			}
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// It waits for a compaction that runs.
	if err := db.Compact(t.Context(), []byte("a"), []byte("c"), false); err != nil {
		t.Fatal(err)
	}
	if n := db.Metrics().Compact.ReadCount; n > 0 {
		t.Errorf("%d compactions for what was read", n)
	}
}

package pebbleguard

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestGetAbsent: that a key is absent is found out without Pebble's own test for damage, which
// allocates for each error.
func TestGetAbsent(t *testing.T) {
	db := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, db)
	key := []byte("absent")
	least := 1e9 // goroutines that other tests left behind allocate, too, but not all the time
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, func() {
			if _, _, err := db.Get(key); !errors.Is(err, pebble.ErrNotFound) {
				t.Fatal(err)
			}
		}))
	}
	if least > 2 {
		t.Errorf("%v allocations", least)
	}
}

package replay

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
)

// TestAbout: a log says what its format is, whom it follows and whose UIDs it has.
func TestAbout(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	l := mustOpen(t, cfg)
	want := About{Version: format.Version, Relay: testRelay, UIDStore: "store-1"}
	if got, err := l.About(); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.About(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

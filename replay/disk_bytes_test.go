package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// failingManifest opens a log whose store fails as soon as it flushes, with Pebble's lock held.
func failingManifest(t *testing.T) (l *Log, fail func()) {
	faults := &failingFS{fails: func(op errorfs.Op) bool {
		return strings.Contains(op.Path, "MANIFEST") && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData)
	}}
	l = mustOpen(t, testConfig(t, faults.wrap(vfs.NewMem()), newTestClock()))
	return l, func() {
		t.Helper()
		faults.armed.Store(true)
		if err := l.store.Guard(func() error { return l.store.Pebble().Flush() }); !errors.Is(err, ErrFailed) {
			t.Fatalf("the flush did not fail: %v", err)
		}
	}
}

// TestDiskBytesAfterFailure: Pebble stops with its lock held when it cannot write its manifest. So
// it must not be asked again, and a call that waits for it must not keep Close waiting.
func TestDiskBytesAfterFailure(t *testing.T) {
	l, fail := failingManifest(t)
	fail()
	got := make(chan int64, 1)
	go func() { got <- l.DiskBytes() }()
	select {
	case n := <-got:
		if n != 0 {
			t.Errorf("%d bytes", n)
		}
	case <-time.After(time.Minute):
		t.Fatal("DiskBytes hangs")
	}
}

// TestCloseAfterFailure: a reader that was about to let go of its iterator when the store failed
// waits for Pebble for ever; Close does not.
func TestCloseAfterFailure(t *testing.T) {
	l, fail := failingManifest(t)
	it, err := l.store.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	fail()
	l.blocks.storeMu.RLock() // as Next
	go func() {
		defer l.blocks.storeMu.RUnlock()
		_ = it.Close()
	}()
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if !errors.Is(err, ErrFailed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
}

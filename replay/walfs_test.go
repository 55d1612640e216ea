package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFullDiskAtRotation: a write-ahead log that cannot be begun is a failure of the log, not the end of the process. A
// copy of the log that cannot be made is none.
func TestFullDiskAtRotation(t *testing.T) {
	faults := &failingFS{fails: func(op errorfs.Op) bool {
		return strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite)
	}}
	l := mustOpen(t, testConfig(t, faults.wrap(vfs.NewMem()), newTestClock()))
	faults.armed.Store(true)
	if _, err := l.Checkpoint("copy"); err == nil {
		t.Error("the copy did not fail")
	}
	if err := l.store.err(); err != nil {
		t.Errorf("a copy that could not be made: %v", err)
	}
	err := l.store.guard(func() error { _, err := l.store.db.AsyncFlush(); return err })
	if !errors.Is(err, ErrFailed) || !errors.Is(err, errDisk) {
		t.Errorf("flush: %v", err)
	}
}

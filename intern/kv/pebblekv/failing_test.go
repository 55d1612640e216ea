package pebblekv

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv"
)

// A store on a disk that takes no more tables still closes, and tells of it once; also if the flush of its
// closing is the first to notice.
func TestCloseOnFullDisk(t *testing.T) {
	t.Run("noticed before", func(t *testing.T) { testCloseOnFullDisk(t, true) })
	t.Run("noticed at the end", func(t *testing.T) { testCloseOnFullDisk(t, false) })
}

func testCloseOnFullDisk(t *testing.T, before bool) {
	full := errors.New("no space left on device")
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate {
			return full
		}
		return nil
	}))
	var lines strings.Builder
	s, err := Open(Config{Dir: "store", FS: fs, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	err = kv.Run(t.Context(), s, func(txn kv.Txn) error { txn.Set([]byte("k"), []byte("v")); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if before {
		if _, err := s.db.AsyncFlush(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !s.failing.is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no failure was noted")
			}
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	if n := strings.Count(lines.String(), "cannot be written"); n != 1 {
		t.Errorf("%d log lines, want 1:\n%.1000s", n, lines.String())
	}
}

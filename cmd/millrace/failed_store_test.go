package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv/pebblekv"
)

// TestFailureIsReportedOnce: a command reports once that its store has failed, though closing it
// reports that again.
func TestFailureIsReportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, dir)
	relay.send <- identityFrame(t, 7).Data
	waitFor(t, "an event", func() bool { return d.log.Progress().Seq == 7 })
	d.mustStop(t)
	var full atomic.Bool
	job := &internJob{do: func(j *internJob, ctx context.Context) error { full.Store(true); return j.compact(ctx) }}
	job.options = pebblekv.Config{FS: errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))}
	cmd := job.subCommand("compact", "", "")
	if err := cmd.flags.Parse([]string{"--data-dir", dir}); err != nil {
		t.Fatal(err)
	}
	err := job.run(t.Context(), nil, io.Discard, io.Discard)
	if err == nil || strings.Count(err.Error(), "no space left on device") != 1 {
		t.Errorf("got %v", err)
	}
}

// TestFailedStartIsReportedOnce: a start that ends with a store says so once, though closing the
// store reports its failure again.
func TestFailedStartIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"intern", "log"} {
		cfg := serveConfig(t, []string{"--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics-listen", ""})
		cfg.hooks.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData && filepath.Dir(op.Path) == filepath.Join(cfg.dataDir, store) && filepath.Ext(op.Path) == ".log" {
				return syscall.EIO
			}
			return nil
		}))
		_, err := newDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err == nil || strings.Count(err.Error(), "input/output error") != 1 {
			t.Errorf("%s: %v", store, err)
		}
	}
}

// TestFailedStopIsReported: a stop that cannot close the stores is a failure, and not logged as a
// stop.
func TestFailedStopIsReported(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	cfg := serveConfig(t, serveArgs(t.TempDir())[1:])
	cfg.hooks.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	out := &lockedBuffer{}
	d := openDaemon(t, cfg, newLogger(cfg, out))
	full.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.run(ctx); !errors.Is(err, errNotClosed) {
		t.Errorf("it ends with %v", err)
	}
	if said := out.String(); !strings.Contains(said, "store=log") || !strings.Contains(said, "store=UIDs") || strings.Contains(said, "msg=stopped") {
		t.Errorf("logged:\n%s", said)
	}
}

package main

import (
	"context"
	"io"
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
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
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

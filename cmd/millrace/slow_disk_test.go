package main

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/consume/relaysim/testwait"
)

// slowSyncFS is the real disk with syncs that take that much longer.
func slowSyncFS(by time.Duration) vfs.FS {
	return watchedFS{errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			time.Sleep(by)
		}
		return nil
	}))}
}

// A relay sends as fast as it is read, and every sync of both stores takes 50 ms. Then reading
// slows down and memory stays where it was.
func TestSlowDiskSlowsReading(t *testing.T) {
	onlyLong(t)
	relay := startRelaysim(t, "--generate", "500", "--window-frames", "2000", "--wait-for-consumer", "--truth", "")
	cfg := serveConfig(t, []string{"--relay", relay.url, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0",
		"--metrics-listen", "", "--memory", "64MiB", "--min-free-disk", "0"})
	cfg.hooks.fs = slowSyncFS(50 * time.Millisecond)
	d := openDaemon(t, cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }() // waited for at the end
	td := &testDaemon{daemon: d}
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, highest := 0, uint64(0)
	waited := func() float64 { return td.counter(t, "millrace_pipeline_blocked_seconds_total") }
	looks := 0
	testwait.Becomes(5*patience, func() bool {
		runtime.ReadMemStats(&now)
		most, highest = max(most, int(td.counter(t, "millrace_pipeline_blocks_in_flight"))), max(highest, now.HeapInuse)
		looks++
		return looks >= 100 && waited() >= 1
	})
	grown := int64(highest) - int64(before.HeapInuse)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the daemon ended: %v", err)
	}
	blocked := waited()
	events := td.counter(t, "millrace_translate_events_total")
	t.Logf("%.0f events, reading waited %.1f s, %d blocks in flight, heap grew by %d MiB", events, blocked, most, grown>>20)
	if events == 0 || blocked < 1 {
		t.Errorf("%.0f events came, and reading waited %.1f s: want some, and a second", events, blocked)
	}
	const maxBlocks = 8 // as the metric says
	if most > maxBlocks || grown > 100<<20 {
		t.Errorf("%d blocks in flight, heap grew by %d MiB; want %d and what --memory allows", most, grown>>20, maxBlocks)
	}
}

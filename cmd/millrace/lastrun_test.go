package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReplacedDataDir: a server whose data directory was replaced changes nothing in the one that
// has its name, and its stop is a failure.
func TestReplacedDataDir(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	cfg := serveConfig(t, serveArgs(parent, "--metrics-listen", "127.0.0.1:0")[1:])
	d := openDaemon(t, cfg, slog.New(slog.DiscardHandler))
	dir := filepath.Join(parent, "data") // as serveArgs has it
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(dir, controlFile), filepath.Join(dir, lastRunFile)}
	for _, name := range files {
		writeFile(t, name, "another's")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.run(ctx); !errors.Is(err, errNotClosed) {
		t.Errorf("it ends with %v", err)
	}
	for _, name := range files {
		if raw, err := os.ReadFile(name); string(raw) != "another's" {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}

// TestKilledWhileStarting: a server that is killed before it listens has not stopped in order, as
// the one before it did.
func TestKilledWhileStarting(t *testing.T) {
	t.Parallel()
	dir, relay := t.TempDir(), newTestRelay(t)
	if err := startDaemon(t, relay.url, dir).stop(); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, dayFile)
	if err := os.Remove(fifo); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startMillrace(t, relay.url, dir, freeAddr(t))
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // until the server reads it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.kill()
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	checkDoctor(t, dir, exitOK, stateKilled)
}

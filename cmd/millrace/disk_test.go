package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDiskWatch(t *testing.T) {
	var free int64
	trims := 0
	clock := time.Unix(1e9, 0)
	reading := true
	var log bytes.Buffer
	d := &diskWatch{
		dirs: []string{"log"}, minFree: 1000, logger: slog.New(slog.NewTextHandler(&log, nil)), gauge: newDiskGauge(nil),
		reading: func(on bool) bool {
			changed := on != reading
			reading = on
			return changed
		},
		now:  func() time.Time { return clock },
		free: func(string) (int64, error) { return free, nil },
		trim: func(context.Context) error { trims++; return nil },
	}
	for _, step := range []struct {
		free  int64
		state diskState
		read  bool
		trims int
		says  string
	}{
		{1000, diskFine, true, 0, ""},
		{999, diskShort, true, 1, "WARN disk is short: trimming the log early"},
		{1099, diskShort, true, 2, ""}, // not enough to leave the state
		{1100, diskFine, true, 2, "INFO disk has room again"},
		{500, diskShort, true, 3, "WARN disk is short: trimming"},
		{499, diskFull, false, 4, "ERROR disk is nearly full"},
		{549, diskFull, false, 5, ""},
		{550, diskShort, true, 6, "WARN disk is short: trimming"},
		{0, diskFull, false, 7, "ERROR disk is nearly full"},
		{1099, diskShort, true, 8, "WARN disk is short: trimming"}, // nor out of the worse one
		{0, diskFull, false, 9, "ERROR disk is nearly full"},
		{1100, diskFine, true, 9, "INFO disk has room again"},
	} {
		free = step.free
		clock = clock.Add(30 * time.Second)
		d.check(t.Context())
		if got := diskState(d.state.Load()); got != step.state || reading != step.read || trims != step.trims {
			t.Fatalf("with %d free: state %d, reading %v, %d trims; want %d, %v, %d",
				step.free, got, reading, trims, step.state, step.read, step.trims)
		}
		if got := logged(t, &log); !strings.HasPrefix(got, step.says) || (got == "") != (step.says == "") {
			t.Errorf("with %d free it logs %q", step.free, got)
		}
		if got := testutil.ToFloat64(d.gauge); got != float64(step.free) {
			t.Errorf("with %d free the metric says %v", step.free, got)
		}
	}
	// Pebble gets time to give files back.
	free = 0
	d.check(t.Context())
	d.check(t.Context())
	if free = 5000; trims != 10 {
		t.Errorf("%d trims, want one within 30 seconds", trims-9)
	}
	d.check(t.Context())
	// A file system that cannot be asked changes nothing.
	d.free = func(string) (int64, error) { return 0, errors.New("stale handle") }
	d.check(t.Context())
	if diskState(d.state.Load()) != diskFine || !reading {
		t.Error("an unknown amount of free disk stopped reading")
	}
	_ = logged(t, &log)
	d.free = func(string) (int64, error) { return 0, nil }
	d.trim = func(context.Context) error { return errors.New("stale handle") }
	clock = clock.Add(30 * time.Second)
	d.check(t.Context())
	if got := logged(t, &log); !strings.Contains(got, "ERROR the log could not be trimmed early") {
		t.Errorf("a trim that fails: %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	clock = clock.Add(30 * time.Second)
	if d.check(ended); log.Len() > 0 {
		t.Errorf("a trim that the end of the process ends: %q", &log)
	}
}

// logged returns level and message of each line, and forgets them.
func logged(t *testing.T, log *bytes.Buffer) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(log.String()) {
		m := logLevelText.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("a line of the log is %q", line)
		}
		lines = append(lines, m[1]+" "+m[2])
	}
	log.Reset()
	return strings.Join(lines, "\n")
}

var logLevelText = regexp.MustCompile(`level=(\w+) msg="(.*?)"`)

// TestLogDiskNotShort: the log is not trimmed while only another store's disk is short, even if its
// own would be at the edge had it been short.
func TestLogDiskNotShort(t *testing.T) {
	free := map[string]int64{"log": 1050, "intern": 5000}
	trims := 0
	clock := time.Unix(1e9, 0)
	d := &diskWatch{
		dirs: []string{"log", "intern"}, minFree: 1000, logger: slog.New(slog.DiscardHandler), gauge: newDiskGauge(nil),
		reading: func(bool) bool { return false },
		now:     func() time.Time { return clock },
		free:    func(dir string) (int64, error) { return free[dir], nil },
		trim:    func(context.Context) error { trims++; return nil },
	}
	d.check(t.Context())
	free["intern"] = 900
	for range 5 {
		clock = clock.Add(30 * time.Second)
		d.check(t.Context())
	}
	if trims != 0 {
		t.Errorf("%d trims of a log whose disk has 1050 free, of 1000 asked for", trims)
	}
}

// TestDisksOfStores: the fullest disk counts, and the log is trimmed only if its own is short.
func TestDisksOfStores(t *testing.T) {
	free := map[string]int64{}
	trims := 0
	clock := time.Unix(1e9, 0)
	reading := true
	d := &diskWatch{
		dirs: []string{"log", "intern", "refs"}, minFree: 1000 << 20, logger: slog.New(slog.DiscardHandler), gauge: newDiskGauge(nil),
		reading: func(on bool) bool {
			changed := on != reading
			reading = on
			return changed
		},
		now:  func() time.Time { return clock },
		free: func(dir string) (int64, error) { return free[dir] << 20, nil },
		trim: func(context.Context) error { trims++; return nil },
	}
	for _, step := range []struct {
		log, intern, refs int64 // MiB
		says              string
		read              bool
		trims             int
	}{
		{5000, 5000, 5000, "", true, 0},
		{5000, 5000, 999, "999 MiB are free in refs, less than --min-free-disk, and what is there cannot be trimmed: free some room", true, 0},
		{5000, 499, 999, "499 MiB are free in intern, less than half of --min-free-disk: reading the relay is paused until there is room", false, 0},
		{998, 5000, 999, "998 MiB are free in log, less than --min-free-disk: the log is trimmed early until there is room", true, 1},
		{999, 5000, 998, "998 MiB are free in refs, less than --min-free-disk: the log is trimmed early until there is room", true, 2},
		{5000, 5000, 1050, "1050 MiB are free in refs, less than --min-free-disk, and what is there cannot be trimmed: free some room", true, 2},
		{5000, 5000, 1101, "", true, 2},
	} {
		free["log"], free["intern"], free["refs"] = step.log, step.intern, step.refs
		clock = clock.Add(30 * time.Second)
		d.check(t.Context())
		if got := d.freeCheck(); got.Detail != step.says || got.OK != (step.says == "") || reading != step.read || trims != step.trims {
			t.Errorf("with %+v: %+v, reading %v, %d trims", step, got, reading, trims)
		}
	}
}

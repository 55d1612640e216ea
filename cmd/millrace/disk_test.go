package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

func TestDiskWatch(t *testing.T) {
	var free int64
	trims := 0
	clock := time.Unix(1e9, 0)
	reading := true
	d := &diskWatch{
		minFree: 1000, logger: slog.New(slog.DiscardHandler), gauge: newDiskGauge(nil),
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
	}{
		{5000, diskFine, true, 0},
		{999, diskShort, true, 1},
		{1050, diskShort, true, 2}, // not enough to leave the state
		{1101, diskFine, true, 2},
		{499, diskFull, false, 3},
		{540, diskFull, false, 4},
		{560, diskShort, true, 5},
		{0, diskFull, false, 6},
		{1050, diskShort, true, 7}, // nor out of the worse one
		{0, diskFull, false, 8},
		{5000, diskFine, true, 8},
	} {
		free = step.free
		clock = clock.Add(diskTrimEvery)
		d.check(t.Context())
		if got := diskState(d.state.Load()); got != step.state || reading != step.read || trims != step.trims {
			t.Fatalf("with %d free: state %d, reading %v, %d trims; want %d, %v, %d",
				step.free, got, reading, trims, step.state, step.read, step.trims)
		}
	}
	// Pebble gets time to give files back.
	free = 0
	d.check(t.Context())
	d.check(t.Context())
	if free = 5000; trims != 9 {
		t.Errorf("%d trims, want one within diskTrimEvery", trims-8)
	}
	d.check(t.Context())
	// A file system that cannot be asked changes nothing.
	d.free = func(string) (int64, error) { return 0, errors.New("stale handle") }
	d.check(t.Context())
	if diskState(d.state.Load()) != diskFine || !reading {
		t.Error("an unknown amount of free disk stopped reading")
	}
}

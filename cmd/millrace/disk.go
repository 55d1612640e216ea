package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// diskCheckEvery is how often free space is looked at. At the design's peak of 100,000 events/s the
// log grows by some 50 MB/s, so a second is far from --min-free-disk.
const diskCheckEvery = time.Second

// diskTrimEvery leaves Pebble time to give trimmed files back before more is trimmed.
const diskTrimEvery = 30 * time.Second

// diskState is how short the disk is.
type diskState int32

const (
	diskFine  diskState = iota
	diskShort           // below --min-free-disk: not ready, the log is trimmed early if that helps
	diskFull            // below half of it: the relay is not read
)

// diskWatch keeps the daemon from filling its disks.
type diskWatch struct {
	dirs    []string // of the stores, first the log's: only that can be trimmed
	minFree int64
	free    func(dir string) (int64, error)
	trim    func(ctx context.Context) error // gives some of the oldest events up
	now     func() time.Time
	reading func(on bool) (changed bool) // lets the relay be read, or not
	logger  *slog.Logger
	gauge   prometheus.Gauge

	state   atomic.Int32             // a diskState
	log     diskState                // of the log's disk; check's own
	least   atomic.Pointer[diskFree] // when last looked
	trimmed time.Time                // when trim was last called; check's own
}

// diskFree is how much is free on the fullest disk.
type diskFree struct {
	dir   string // that it has
	bytes int64
	log   bool // the log's disk is short
}

func newDiskGauge(reg prometheus.Registerer) prometheus.Gauge {
	return promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "millrace_disk_free_bytes", Help: "Free disk where the stores are; of several disks the least.",
	})
}

// freeBytes is what an unprivileged process may still write.
func freeBytes(dir string) (int64, error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return int64(usage.AvailBytes), err
}

// Run looks until ctx ends.
func (d *diskWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(diskCheckEvery)
	defer tick.Stop()
	for {
		d.check(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *diskWatch) check(ctx context.Context) {
	least, ok := d.look()
	if !ok {
		return
	}
	d.gauge.Set(float64(least.bytes))
	d.least.Store(least)
	was := diskState(d.state.Load())
	now := d.next(was, least.bytes)
	d.state.Store(int32(now))
	if d.reading(now != diskFull) || was != now {
		level, text := slog.LevelInfo, "disk has room again"
		switch {
		case now == diskFull:
			level, text = slog.LevelError, "disk is nearly full: reading the relay is paused until there is room; free some, or lower --min-free-disk"
		case now == diskShort && least.log:
			level, text = slog.LevelWarn, "disk is short: trimming the log early; free some room, or lower --retention"
		case now == diskShort:
			level, text = slog.LevelWarn, "disk is short, and what is on it cannot be trimmed: free some room before reading the relay is paused"
		}
		d.logger.Log(ctx, level, text, "free_bytes", least.bytes, "min_free_bytes", d.minFree, "dir", least.dir)
	}
	if least.log && d.now().Sub(d.trimmed) >= diskTrimEvery {
		d.trimmed = d.now()
		if err := d.trim(ctx); err != nil && ctx.Err() == nil {
			d.logger.Error("the log could not be trimmed early", "err", err)
		}
	}
}

// look finds the fullest disk. It returns false if one cannot be asked.
func (d *diskWatch) look() (least *diskFree, ok bool) {
	least = &diskFree{}
	for i, dir := range d.dirs {
		free, err := d.free(dir)
		if err != nil {
			d.logger.Warn("it cannot be read how much disk is free: --min-free-disk has no effect until it can", "dir", dir, "err", err)
			return nil, false
		}
		if i == 0 {
			d.log = d.next(d.log, free)
			least.log = d.log != diskFine
		}
		if i == 0 || free < least.bytes {
			least.dir, least.bytes = dir, free
		}
	}
	return least, true
}

// next applies the thresholds to a disk that was in a state. Leaving a state takes a tenth more
// room than entering it, so that a disk at the edge does not flap.
func (d *diskWatch) next(was diskState, free int64) diskState {
	short, full := d.minFree, d.minFree/2
	switch was {
	case diskFull:
		full += full / 10
		short += short / 10
	case diskShort:
		short += short / 10
	}
	switch {
	case free < full:
		return diskFull
	case free < short:
		return diskShort
	}
	return diskFine
}

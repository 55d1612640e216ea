package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
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
	diskShort           // below --min-free-disk: not ready, the log is trimmed early
	diskFull            // below half of it: the relay is not read
)

// diskWatch keeps the daemon from filling its disk.
type diskWatch struct {
	dir     string
	minFree int64
	free    func(dir string) (int64, error)
	trim    func(ctx context.Context) error // gives some of the oldest events up
	now     func() time.Time
	reading func(on bool) (changed bool) // lets the relay be read, or not
	logger  *slog.Logger
	gauge   prometheus.Gauge

	state    atomic.Int32 // a diskState
	lastFree atomic.Int64 // bytes, when last looked
	trimmed  time.Time    // when trim was last called; check's own
}

func newDiskGauge(reg prometheus.Registerer) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_disk_free_bytes", Help: "Free disk where the data directory is.",
	})
	if reg != nil {
		reg.MustRegister(g)
	}
	return g
}

// freeBytes is what an unprivileged process may still write.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
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
	free, err := d.free(d.dir)
	if err != nil {
		d.logger.Warn("free disk is unknown", "dir", d.dir, "err", err)
		return
	}
	d.gauge.Set(float64(free))
	d.lastFree.Store(free)
	was, now := diskState(d.state.Load()), d.next(free)
	d.state.Store(int32(now))
	if d.reading(now != diskFull) || was != now {
		level, text := slog.LevelInfo, "disk has room again"
		switch now {
		case diskShort:
			level, text = slog.LevelWarn, "disk is short: trimming the log early; free some room, or lower --retention"
		case diskFull:
			level, text = slog.LevelError, "disk is nearly full: reading the relay is paused until there is room; free some, or lower --min-free-disk"
		}
		d.logger.Log(ctx, level, text, "free_bytes", free, "min_free_bytes", d.minFree, "dir", d.dir)
	}
	if now != diskFine && d.now().Sub(d.trimmed) >= diskTrimEvery {
		d.trimmed = d.now()
		if err := d.trim(ctx); err != nil && ctx.Err() == nil {
			d.logger.Error("the log could not be trimmed early", "err", err)
		}
	}
}

// next applies the thresholds. Leaving a state takes a tenth more room than entering it, so that
// a disk at the edge does not flap.
func (d *diskWatch) next(free int64) diskState {
	short, full := d.minFree, d.minFree/2
	switch diskState(d.state.Load()) {
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

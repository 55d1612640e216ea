package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"millrace/replay"
)

// replayFlags are the flags of bench replay.
type replayFlags struct {
	programs
	dir      string
	events   int64
	only     string
	repeat   int
	cold     int
	readers  int
	liveRate int
	live     time.Duration
	memory   string
}

func (f *replayFlags) parse(args, parts []string) error {
	fs := flag.NewFlagSet("bench replay", flag.ContinueOnError)
	fs.StringVar(&f.dir, "dir", "", "`directory` that the log is kept in between runs; default: millrace-bench in the user's cache directory")
	fs.StringVar(&f.bin, "bin", "", "directory of millrace and relaysim; empty: they are built")
	fs.Int64Var(&f.events, "events", 10_000_000, "in the log, at least")
	fs.IntVar(&f.repeat, "repeat", 3, "times that a replay is measured; the median counts")
	fs.IntVar(&f.cold, "cold", 3, "times that one is measured with a server that has served nothing and the log not in the page cache; the worst counts")
	fs.IntVar(&f.readers, "readers", 50, "cold replays at once, beside a live stream")
	fs.IntVar(&f.liveRate, "live-rate", 2000, "frames/s of that live stream: a tenth more events")
	fs.DurationVar(&f.live, "live", 15*time.Second, "how long that takes")
	fs.StringVar(&f.memory, "memory", "256MiB", "of the server")
	if err := parse(fs, args, &f.only, parts...); err != nil {
		return err
	}
	if f.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("-dir is not given: %w", err)
		}
		f.dir = filepath.Join(cache, "millrace-bench")
	}
	if f.repeat < 1 || f.cold < 1 || f.readers < 1 || f.liveRate < 1 || f.live <= 0 {
		return errors.New("-repeat, -cold, -readers, -live-rate and -live must be above 0")
	}
	if f.events < 1000 {
		return fmt.Errorf("-events %d: at least 1000 are needed", f.events)
	}
	return nil
}

// replayBench is one run.
type replayBench struct {
	*replayFlags
	m    *replayManifest
	work string // what this run changes
	data string // the server's data directory: a copy of the log
	t    *table
}

// runReplay measures replays of a log that is kept between runs, beside the usual way and the bare
// socket.
func runReplay(ctx context.Context, args []string, out io.Writer) (err error) {
	b := &replayBench{replayFlags: &replayFlags{}}
	parts := parts{{"all", b.measureAll}, {"cold", b.measureCold}, {"filters", b.measureFilters}, {"live", b.measureLive},
		{"start", b.measureStart}, {"disk", b.measureDisk}}
	if err := b.parse(args, parts.names()); err != nil {
		return err
	}
	params := replayParams{replayGenerator, replay.FormatVersion, b.events}
	if err := os.MkdirAll(filepath.Join(b.dir, "bin"), 0o755); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp(b.dir, "run-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	b.data = filepath.Join(b.work, "data")
	if err := b.prepare(ctx, params); err != nil {
		return err
	}
	b.t = newTable(out, "replay", "millrace", "the Jetstream way", "bare", "ratio")
	if err := parts.run(ctx, b.only); err != nil {
		return err
	}
	printMachine(out)
	fmt.Fprintln(out, b.describe())
	fmt.Fprintln(out)
	return b.t.end()
}

// prepare builds the programs and, unless it is there, the log, and makes the copy that is
// measured.
func (b *replayBench) prepare(ctx context.Context, params replayParams) (err error) {
	if err = b.build(ctx, filepath.Join(b.dir, "bin"), false); err != nil {
		return err
	}
	if b.m, err = readManifest(b.dir, params); err != nil {
		return err
	}
	if b.m != nil {
		if err = b.copyLog(b.data); err == nil {
			return nil
		}
		say("the log in %s cannot be used: %v", b.dir, err)
		if err = os.RemoveAll(b.data); err != nil {
			return err
		}
	}
	say("making a log of %s events in %s", grouped(params.Events), b.dir)
	if b.m, err = buildReplayLog(ctx, b.relaysim(), b.dir, params); err != nil {
		return err
	}
	return b.copyLog(b.data)
}

// copyLog makes a data directory with a copy of the log: its tables are links, so that takes no
// time or space.
func (b *replayBench) copyLog(data string) error {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	dicts := newDictionaries()
	defer dicts.Close()
	_, err := replay.CheckpointClosed(replay.Config{Dir: filepath.Join(b.dir, logDirectory), Dictionaries: dicts}, filepath.Join(data, "log"))
	return err
}

// describe says what was measured, and how.
func (b *replayBench) describe() string {
	m := b.m
	return fmt.Sprintf("%s events, stamped 1,500 a second, %.2f %% of them identity and account events. "+
		"Server: millrace serve --memory %s. Client: reads 256 KiB at once and looks at frame headers only. "+
		"Cold: a server that was started %v before (in the row of its start: one yet to be started) and has served nothing, the log's files dropped from the page cache. "+
		"The Jetstream way: the oldest %s events; its times for finding something are scaled to the whole log, as it looks at everything.",
		grouped(m.Events), 100*float64(m.Others)/float64(m.Events), b.memory, settleTime, grouped(m.Baseline.Events))
}

// row prints a row; cells that are missing are empty.
func (b *replayBench) row(what string, cells ...any) {
	say("  %s: %v", what, cells[0])
	row := [5]any{what, "", "", "", ""}
	copy(row[1:], cells)
	b.t.row(row[:]...)
}

func perSecond(rate float64) string { return grouped(rate) + " events/s" }

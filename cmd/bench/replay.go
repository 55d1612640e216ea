package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"millrace/replay"
)

// replayFlags are the flags of bench replay.
type replayFlags struct {
	dir            string
	events         int64
	baselineEvents int64
	seed           uint64
	rebuild        bool
	only           string
	repeat         int
	cold           int
	readers        int
	liveRate       int
	live           time.Duration
	drive          int
	memory         string
}

// replayPart is one part of the measurement.
type replayPart struct {
	name string
	run  func(b *replayBench, ctx context.Context) error
}

func replayParts() []replayPart {
	return []replayPart{
		{"all", (*replayBench).measureAll},
		{"cold", (*replayBench).measureCold},
		{"filters", (*replayBench).measureFilters},
		{"live", (*replayBench).measureLive},
		{"start", (*replayBench).measureStart},
		{"disk", (*replayBench).measureDisk},
		{"retention", (*replayBench).measureRetention},
	}
}

func (f *replayFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.dir, "dir", "", "`directory` that the log is kept in between runs; default: millrace-bench in the user's cache directory")
	fs.Int64Var(&f.events, "events", 10_000_000, "in the log, at least")
	fs.Int64Var(&f.baselineEvents, "baseline-events", 0, "of them, the oldest, in the store laid out as Jetstream's; default: a fifth")
	fs.Uint64Var(&f.seed, "seed", 1, "of the events")
	fs.BoolVar(&f.rebuild, "rebuild", false, "make the log anew, even if there is one")
	fs.StringVar(&f.only, "only", "", "`parts` to measure, between commas: all, cold, filters, live, start, disk, retention; default: all of them")
	fs.IntVar(&f.repeat, "repeat", 3, "times that a replay is measured; the median counts")
	fs.IntVar(&f.cold, "cold", 3, "times that one is measured with a server that has served nothing and the log not in the page cache; the worst counts")
	fs.IntVar(&f.readers, "readers", 50, "cold replays at once, beside a live stream")
	fs.IntVar(&f.liveRate, "live-rate", 2000, "frames/s of that live stream: a tenth more events")
	fs.DurationVar(&f.live, "live", 15*time.Second, "how long that takes")
	fs.IntVar(&f.drive, "drive", 600_000, "events for the write amplification at 1,500 events/s")
	fs.StringVar(&f.memory, "memory", "256MiB", "of the server")
}

// runReplay measures replays of a log that is kept between runs, beside the usual way and the bare
// socket.
func runReplay(ctx context.Context, args []string, out io.Writer) error {
	b, rows, err := replayRows(ctx, args, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s. %s\n\n", cpuModel(), b.describe())
	return printRows(out, rows)
}

// measureReplay measures the same for the table of all subjects. The log is kept where bench replay
// keeps it.
func measureReplay(ctx context.Context, _ string, progress io.Writer) ([]reachRow, error) {
	b, rows, err := replayRows(ctx, nil, progress)
	if err == nil {
		fmt.Fprintln(progress, b.describe())
	}
	return rows, err
}

// replayRows parses the flags, measures, and removes what is not kept.
func replayRows(ctx context.Context, args []string, said io.Writer) (*replayBench, []reachRow, error) {
	f := replayFlags{}
	fs := flag.NewFlagSet("bench replay", flag.ContinueOnError)
	f.define(fs)
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	if err := f.validate(fs.NArg()); err != nil {
		return nil, nil, err
	}
	b, err := prepareReplay(ctx, &f, said)
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(b.measure(ctx), os.RemoveAll(b.work))
	return b, b.rows, err
}

func (f *replayFlags) validate(args int) error {
	if f.baselineEvents == 0 {
		f.baselineEvents = max(f.events/5, 100)
	}
	if f.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("-dir is not given: %w", err)
		}
		f.dir = filepath.Join(cache, "millrace-bench")
	}
	for name := range strings.SplitSeq(f.only, ",") {
		if name != "" && !slices.ContainsFunc(replayParts(), func(p replayPart) bool { return p.name == name }) {
			return fmt.Errorf("-only: there is no part %q", name)
		}
	}
	if args > 0 || f.repeat < 1 || f.cold < 1 || f.readers < 1 || f.liveRate < 1 || f.live <= 0 || f.drive < 1000 {
		return errors.New("an argument that is no flag, or a number below 1 (-drive: 1000)")
	}
	return nil
}

// replayBench is one run.
type replayBench struct {
	f    *replayFlags
	bin  replayBinaries
	m    *replayManifest
	kept string // the kept log
	work string // what this run changes
	data string // the server's data directory: a copy of the log
	rows []reachRow
	said io.Writer // what it is at
	cold string    // what cold means here
	took time.Duration
}

// prepareReplay builds the programs and, unless it is there, the log, and makes the copy that is
// measured.
func prepareReplay(ctx context.Context, f *replayFlags, said io.Writer) (*replayBench, error) {
	b := &replayBench{f: f, kept: f.dir, said: said}
	params, err := newReplayParams(f.events, f.baselineEvents, f.seed)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, err
	}
	if b.work, err = os.MkdirTemp(f.dir, "run-"); err != nil {
		return nil, err
	}
	b.data = filepath.Join(b.work, "data")
	if err := b.prepare(ctx, params); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.work))
	}
	return b, nil
}

func (b *replayBench) prepare(ctx context.Context, params replayParams) (err error) {
	if b.bin, err = buildReplayBinaries(ctx, filepath.Join(b.kept, "bin")); err != nil {
		return err
	}
	if b.m, err = readManifest(b.kept, params); err != nil {
		return err
	}
	if b.m != nil && !b.f.rebuild {
		if err = b.copyLog(b.data); err == nil {
			return nil
		}
		b.say("the log in %s cannot be used: %v", b.kept, err)
		if err = os.RemoveAll(b.data); err != nil {
			return err
		}
	}
	b.say("making a log of %s events in %s", grouped(params.Events), b.kept)
	if b.m, err = buildReplayLog(ctx, b.bin, b.kept, params, b.said); err != nil {
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
	dicts, err := newDictionaries()
	if err != nil {
		return err
	}
	defer dicts.Close()
	_, err = replay.CheckpointClosed(replay.Config{Dir: filepath.Join(b.kept, logDirectory), Dictionaries: dicts}, filepath.Join(data, "log"))
	return err
}

func (b *replayBench) say(format string, args ...any) { fmt.Fprintf(b.said, format+"\n", args...) }

// measure measures the parts.
func (b *replayBench) measure(ctx context.Context) error {
	begun := time.Now()
	for _, p := range replayParts() {
		if b.f.only != "" && !slices.Contains(strings.Split(b.f.only, ","), p.name) {
			continue
		}
		b.say("%s, at %.0f s", p.name, time.Since(begun).Seconds())
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	b.took = time.Since(begun)
	return nil
}

// describe says what was measured, and how.
func (b *replayBench) describe() string {
	m := b.m
	return fmt.Sprintf("%s events in %s blocks, stamped 1,500 a second, %.2f %% of them identity and account events; %s DIDs; made in %.0f s; "+
		"measured in %.0f s; %d CPUs, %s. Server: millrace serve --memory %s, a process of its own. Client: reads 256 KiB at once and looks at "+
		"frame headers only. Cold: %s. Baseline: the oldest %s events laid out and replayed as Jetstream v1 does; its times for finding "+
		"something are scaled to the whole log, as it looks at everything.",
		grouped(m.Events), grouped(m.Blocks), 100*float64(m.Kinds["identity"]+m.Kinds["account"])/float64(m.Events), grouped(m.DIDs),
		m.BuildSeconds["all"], b.took.Seconds(), runtime.NumCPU(), runtime.Version(), b.f.memory, b.cold, grouped(m.Baseline.Events))
}

func (b *replayBench) row(r reachRow) {
	r.what = "replay: " + r.what
	b.rows = append(b.rows, r)
	b.say("  %s: %s (%s)", r.what, r.ours, r.baseline)
}

// grouped writes a number with commas.
func grouped[T int | int64 | float64](n T) string { return thousands(float64(n)) }

func perSecond(rate float64) string { return grouped(rate) + " events/s" }

// millis writes a duration for the table.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

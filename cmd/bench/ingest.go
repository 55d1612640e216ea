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
)

// ingestFlags are the flags of bench ingest.
type ingestFlags struct {
	dir      string
	bin      string // where the binaries are, "": they are built
	only     string
	duration time.Duration // of the cell at full speed
	cell     time.Duration // of every other
	warm     time.Duration // before each
	memory   string
	generate int
	rates    []int
	profile  string
	serve    string // more flags for the server, full

	jetstream string // program of Jetstream v1; "": its row is left out
}

// ingestCell is one measurement: a relay, a server, subscribers.
type ingestCell struct {
	group       string // what -only names
	name        string
	binary      string // of the server; "": subscribers read the relay itself
	original    bool   // binary is Jetstream's
	args        []string
	rate        int // events a second, about; 0: as fast as it goes
	subscribers int
	cpus        int // 0: all
	duration    time.Duration
	profile     string
}

const (
	oursBinary   = "millrace"
	noCgoBinary  = "millrace-nocgo"
	benchItself  = "bench" // in the mode of the baseline
	originalCell = "Jetstream itself"
	fullCell     = "durable log with UIDs, one live subscriber"
	baselineCell = "the Jetstream way"
	relayCell    = "the relay alone, one reader"
)

func runIngest(ctx context.Context, args []string, out io.Writer) error {
	f := &ingestFlags{rates: []int{1_000, 10_000, 50_000, 100_000}}
	fs := flag.NewFlagSet("bench ingest", flag.ContinueOnError)
	fs.StringVar(&f.only, "only", "", "of "+strings.Join(ingestGroups(), ", ")+", separated by commas; empty: all")
	fs.StringVar(&f.dir, "dir", "", "where stores are made and removed again; empty: the system's temporary directory")
	fs.StringVar(&f.bin, "bin", "", "directory of millrace, millrace-nocgo and relaysim; empty: they are built")
	fs.DurationVar(&f.duration, "duration", time.Minute, "full: how long; 10m shows stalls")
	fs.DurationVar(&f.cell, "time", 20*time.Second, "for each other cell")
	fs.DurationVar(&f.warm, "warm", 3*time.Second, "before each cell counts")
	fs.StringVar(&f.memory, "memory", "256MiB", "full: --memory of the server")
	fs.IntVar(&f.generate, "generate", 20_000, "frames of the relay's world")
	fs.Var(ints{&f.rates}, "rates", "cost: events a second")
	fs.StringVar(&f.profile, "cpuprofile", "", "full: write the server's CPU profile to this file, and hold it against the budget")
	fs.StringVar(&f.serve, "serve", "", "full: more flags for millrace serve")
	fs.StringVar(&f.jetstream, "jetstream", "", "jetstream: `program` of a Jetstream v1 server that you have built; it is measured too, with its defaults but for "+
		"--max-sub-rate, which would let a subscriber have 5,000 events/s and then throw it out. This row and the one of the Jetstream way have a relay with --keep-record-keys")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := checkJetstream(&f.jetstream); err != nil {
		return err
	}
	cells := f.cells()
	if f.only != "" {
		wanted := strings.Split(f.only, ",")
		for _, w := range wanted {
			if !slices.Contains(ingestGroups(), w) {
				return fmt.Errorf("-only %q is not of %v", w, ingestGroups())
			}
		}
		cells = slices.DeleteFunc(cells, func(c ingestCell) bool { return !slices.Contains(wanted, c.group) })
	}
	results, bare, err := f.run(ctx, cells, os.Stderr)
	if err != nil && len(results) == 0 {
		return err
	}
	return errors.Join(err, f.print(ctx, out, results, bare))
}

// print prints what was measured.
func (f *ingestFlags) print(ctx context.Context, out io.Writer, results []*ingestResult, bare bareResources) error {
	fmt.Fprintf(out, "%s, %d CPUs, %s, %s\n\n", cpuModel(), runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format("2006-01-02"))
	if err := printIngest(out, results, bare); err != nil {
		return err
	}
	for _, r := range results {
		if r.cell.profile == "" {
			continue
		}
		fmt.Fprintln(out)
		if err := printBudget(ctx, out, r); err != nil {
			return err
		}
	}
	return nil
}

// ingestGroups are the names that -only takes.
func ingestGroups() []string {
	return []string{"full", "off", "nocgo", "jetstream", "relay", "quiet", "core", "cost"}
}

// cells lists all measurements.
func (f *ingestFlags) cells() []ingestCell {
	cells := []ingestCell{
		{group: "relay", name: relayCell, duration: f.cell / 2},
		{group: "full", name: fullCell, binary: oursBinary, args: append([]string{"--memory", f.memory}, strings.Fields(f.serve)...), duration: f.duration, profile: f.profile},
		{group: "off", name: "--intern=off", binary: oursBinary, args: []string{"--intern", "off"}, duration: f.cell},
		{group: "nocgo", name: "built without cgo", binary: noCgoBinary, duration: f.cell},
		{group: "jetstream", name: baselineCell, binary: benchItself, duration: f.cell},
		{group: "core", name: "everything on one core", binary: oursBinary, cpus: 1, duration: f.cell},
	}
	if f.jetstream != "" {
		cells = append(cells, ingestCell{group: "jetstream", name: originalCell, binary: f.jetstream, original: true, duration: f.cell})
	}
	for _, memory := range []string{"64MiB", "256MiB"} {
		cells = append(cells, ingestCell{group: "quiet", name: quietName(memory), binary: oursBinary,
			args: []string{"--memory", memory}, rate: 1500, subscribers: 12, duration: f.cell})
	}
	for _, rate := range f.rates {
		cells = append(cells, ingestCell{group: "cost", name: "at " + thousands(float64(rate)) + " events/s", binary: oursBinary, rate: rate, duration: f.cell})
	}
	return cells
}

func quietName(memory string) string {
	return "1,500 events/s, 12 subscribers, --memory " + memory
}

// run measures the cells one after the other.
func (f *ingestFlags) run(ctx context.Context, cells []ingestCell, progress io.Writer) (results []*ingestResult, bare bareResources, err error) {
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return nil, bare, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bin := f.bin
	if bin == "" {
		bin = dir
		noCgo := slices.ContainsFunc(cells, func(c ingestCell) bool { return c.binary == noCgoBinary })
		if err := buildBinaries(ctx, bin, noCgo); err != nil {
			return nil, bare, err
		}
	}
	if bare, err = measureBare(ctx, dir); err != nil {
		return nil, bare, err
	}
	for _, c := range cells {
		fmt.Fprintf(progress, "  %s, %v\n", c.name, c.duration)
		work := filepath.Join(dir, "cell")
		if err := os.Mkdir(work, 0o755); err != nil {
			return results, bare, err
		}
		r, err := f.measure(ctx, &c, bin, work)
		if err := errors.Join(err, os.RemoveAll(work)); err != nil {
			return results, bare, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
	}
	return results, bare, nil
}

// measureIngest measures the rows of the table that this subject has.
func measureIngest(ctx context.Context, dir string, progress io.Writer) ([]reachRow, error) {
	f := &ingestFlags{dir: dir, duration: time.Minute, cell: 20 * time.Second, warm: 3 * time.Second, memory: "256MiB", generate: 20_000}
	cells := slices.DeleteFunc(f.cells(), func(c ingestCell) bool {
		return !slices.Contains([]string{"full", "jetstream", "relay", "quiet"}, c.group)
	})
	results, bare, err := f.run(ctx, cells, progress)
	if err != nil {
		return nil, err
	}
	by := map[string]*ingestResult{}
	for _, r := range results {
		by[r.cell.name] = r
	}
	ours, theirs, relay := by[fullCell], by[baselineCell], by[relayCell]
	ratio := ours.rate() / theirs.rate()
	rows := []reachRow{{
		what: "firehose to durable log with UIDs, one live subscriber", ours: thousands(ours.rate()) + " events/s", baseline: thousands(theirs.rate()),
		bare: thousands(relay.rate()) + " frames/s out of the relay", ratio: fmt.Sprintf("%.1f × baseline", ratio),
		reach: "≥ 100,000 events/s, ≥ 6 ×", met: ours.rate() >= 100_000 && ratio >= 6,
	}}
	small, usual := by[quietName("64MiB")], by[quietName("256MiB")]
	p99 := usual.reading.relay.quantile(0.99)
	rows = append(rows, reachRow{
		what: "live lag at 1,500 events/s, relay to subscriber, p99", ours: ms(p99) + " ms",
		bare: ms(bare.sync) + " ms a sync", ratio: fmt.Sprintf("%.0f × bare", float64(p99)/float64(bare.sync)), reach: "< 20 ms", met: p99 < 20*time.Millisecond,
	}, reachRow{
		what: "resident, 1,500 events/s, 12 subscribers, --memory 64MiB", ours: mebibytes(small.peak),
		ratio: fmt.Sprintf("%.2f of the budget", float64(small.peak)/(64<<20)), reach: "≤ 64 MiB", met: small.peak <= 64<<20,
	})
	return rows, nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ingestFlags are the flags of bench ingest.
type ingestFlags struct {
	programs
	dir      string
	only     string
	duration time.Duration // of the cell at full speed
	cell     time.Duration // of every other
	warm     time.Duration // before each
	memory   string
	generate int
	rates    []int
	profile  string
	serve    string // more flags for the server, full
}

// ingestCell is one measurement: a relay, a server, subscribers.
type ingestCell struct {
	group       string // what -only names
	name        string
	args        []string      // of the server
	rate        int           // events a second, about; 0: as fast as it goes
	subscribers int           // more than the first
	duration    time.Duration // 0: as long as -time says
}

// Groups of cells that are special.
const (
	groupFull      = "full"
	groupNoCgo     = "nocgo"     // the server is built without cgo
	groupJetstream = "jetstream" // the server is the baseline
)

func runIngest(ctx context.Context, args []string, out io.Writer) error {
	f := &ingestFlags{rates: []int{1_000, 10_000, 50_000, 100_000}}
	fs := flag.NewFlagSet("bench ingest", flag.ContinueOnError)
	fs.StringVar(&f.dir, "dir", "", "where stores are made and removed again; empty: the system's temporary directory")
	fs.StringVar(&f.bin, "bin", "", "directory of millrace, millrace-nocgo and relaysim; empty: they are built")
	fs.DurationVar(&f.duration, "duration", time.Minute, "full: how long; 10m shows stalls")
	fs.DurationVar(&f.cell, "time", 20*time.Second, "for each other cell")
	fs.DurationVar(&f.warm, "warm", 3*time.Second, "before each cell counts")
	fs.StringVar(&f.memory, "memory", "256MiB", "full: --memory of the server")
	fs.IntVar(&f.generate, "generate", 20_000, "frames of the relay's world")
	fs.Var(ints{&f.rates}, "rates", "cost: events a second")
	fs.StringVar(&f.profile, "cpuprofile", "", "full: write the server's CPU profile to this file, and divide an event's time by it")
	fs.StringVar(&f.serve, "serve", "", "full: more flags for millrace serve")
	if err := parse(fs, args, &f.only, groupFull, "off", groupNoCgo, groupJetstream, "quiet", "cost"); err != nil {
		return err
	}
	results, bare, err := f.run(ctx)
	if err != nil && len(results) == 0 {
		return err
	}
	printMachine(out)
	return errors.Join(err, f.print(ctx, out, results, bare))
}

// cells lists the measurements that -only picks.
func (f *ingestFlags) cells() []ingestCell {
	cells := []ingestCell{
		{group: groupFull, name: "durable log with UIDs, one live subscriber", args: append([]string{"--memory", f.memory}, strings.Fields(f.serve)...),
			duration: f.duration},
		{group: "off", name: "--intern=off", args: []string{"--intern", "off"}},
		{group: groupNoCgo, name: "built without cgo"},
		{group: groupJetstream, name: "the Jetstream way"},
	}
	for _, memory := range []string{"64MiB", "256MiB"} {
		cells = append(cells, ingestCell{group: "quiet", name: "1,500 events/s, 12 subscribers, --memory " + memory, args: []string{"--memory", memory},
			rate: 1500, subscribers: 11})
	}
	for _, rate := range f.rates {
		cells = append(cells, ingestCell{group: "cost", name: "at " + grouped(rate) + " events/s", rate: rate})
	}
	for i := range cells {
		cells[i].duration = cmp.Or(cells[i].duration, f.cell)
	}
	return slices.DeleteFunc(cells, func(c ingestCell) bool { return !picked(f.only, c.group) })
}

// run measures the cells one after the other.
func (f *ingestFlags) run(ctx context.Context) (results []*ingestResult, bare float64, err error) {
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return nil, bare, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := f.build(ctx, dir, picked(f.only, groupNoCgo)); err != nil {
		return nil, bare, err
	}
	if bare, err = measureBare(ctx); err != nil {
		return nil, bare, err
	}
	for _, c := range f.cells() {
		say("  %s, %v", c.name, c.duration)
		work := filepath.Join(dir, "cell")
		if err := os.Mkdir(work, 0o755); err != nil {
			return results, bare, err
		}
		r, err := f.measure(ctx, &c, work)
		if err := errors.Join(err, os.RemoveAll(work)); err != nil {
			return results, bare, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
	}
	return results, bare, nil
}

// print prints what was measured.
func (f *ingestFlags) print(ctx context.Context, out io.Writer, results []*ingestResult, bare float64) error {
	fmt.Fprintf(out, "Bare: %s MB/s through a loopback socket in writes of 64 KiB.\n\n", grouped(bare/1e6))
	t := newTable(out, "what", "s", "events/s", "events a block", "server, CPU µs an event", "lag ms from stamp, p50", "p99", "from relay, p50", "p99",
		"resident MiB", "peak", "longest gap ms")
	for _, r := range results {
		n := r.reading
		t.row(r.cell.name, grouped(r.seconds), grouped(r.rate()), r.eventsABlock(), fmt.Sprintf("%.2f", r.each(r.server)),
			n.stamp.p50(), n.stamp.p99(), n.relay.p50(), n.relay.p99(), mib(r.resident), mib(r.peak), ms(n.gap))
	}
	if err := t.end(); err != nil || f.profile == "" || !picked(f.only, groupFull) {
		return err
	}
	total, spent, err := readProfile(ctx, f.profile)
	if err != nil {
		return err
	}
	return printProfile(out, results[0], total, spent)
}

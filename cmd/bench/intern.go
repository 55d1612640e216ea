package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// internFlags are the flags of bench intern.
type internFlags struct {
	dir         string
	only        string
	store       string
	clusterFile string
	keep        bool

	workers []int // schemes
	cell    time.Duration

	uris    []int // load
	block   int
	callers int
	rate    int

	instances  []int
	runFor     time.Duration
	childPath  string
	childStart int64
}

// ints is a flag that takes numbers separated by commas.
type ints struct{ to *[]int }

func (f ints) String() string {
	if f.to == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*f.to), " ", ","), "[]")
}

func (f ints) Set(s string) error {
	*f.to = nil
	for _, part := range strings.Split(s, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n <= 0 {
			return fmt.Errorf("%q is not a number above 0", part)
		}
		*f.to = append(*f.to, n)
	}
	return nil
}

func runIntern(ctx context.Context, args []string, out io.Writer) error {
	f := internFlags{workers: []int{1, 4, 16, 64, 256}, uris: []int{1_000_000}, instances: []int{1, 2, 4}}
	fs := flag.NewFlagSet("bench intern", flag.ContinueOnError)
	fs.StringVar(&f.only, "only", "", "schemes, load or instances; empty: the first two")
	fs.StringVar(&f.dir, "dir", "", "where stores are made and removed again; empty: the system's temporary directory")
	fs.StringVar(&f.store, "store", "", "the store of schemes and load: pebble, sim or fdb; empty: sim and pebble for schemes, pebble for load")
	fs.StringVar(&f.clusterFile, "fdb-cluster-file", "", "cluster file of FoundationDB (in a bench built with -tags fdb)")
	fs.Var(ints{&f.workers}, "workers", "schemes: transactions in flight")
	fs.DurationVar(&f.cell, "time", 2*time.Second, "schemes: for each cell")
	fs.BoolVar(&f.keep, "keep", false, "load: leave the strings in FoundationDB, so that fdbcli can show their size")
	fs.Var(ints{&f.uris}, "uris", "load: measure at these numbers of URIs, ascending")
	fs.IntVar(&f.block, "block", 512, "load, instances: strings a batch, 512 at most")
	fs.IntVar(&f.callers, "callers", 4, "load, instances: batches in flight")
	fs.IntVar(&f.rate, "rate", 0, "load, instances: URIs a second; 0: as fast as it goes")
	fs.Var(ints{&f.instances}, "instances", "instances: processes at once, first one alone")
	fs.DurationVar(&f.runFor, "run", 10*time.Second, "instances: for each number of them")
	fs.StringVar(&f.childPath, "child", "", "instances: be one of the processes, in this directory (for its own use)")
	fs.Int64Var(&f.childStart, "child-start", 0, "instances: when it begins, Unix nanoseconds (for its own use)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if !slices.Contains([]string{"", "pebble", "sim", "fdb"}, f.store) {
		return fmt.Errorf("-store %q is not pebble, sim or fdb", f.store)
	}
	parts := []struct {
		name string
		run  func(context.Context, *internFlags, io.Writer) error
	}{{"schemes", benchSchemes}, {"load", benchLoad}, {"instances", benchInstances}}
	known := false
	for _, p := range parts {
		if f.only != p.name && (f.only != "" || p.name == "instances") {
			continue
		}
		known = true
		if err := p.run(ctx, &f, out); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if !known {
		return fmt.Errorf("-only %q is not schemes, load or instances", f.only)
	}
	return nil
}

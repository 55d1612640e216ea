package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// internFlags are the flags of bench intern.
type internFlags struct {
	dir         string
	only        string
	seed        uint64
	workers     []int
	cell        time.Duration
	readDelay   time.Duration
	commitDelay time.Duration

	uris         []int
	block        int
	callers      int
	loadWorkers  int
	perDID       int
	cacheMiB     int
	blockMiB     int
	memTableMiB  int
	rate         int
	profile      string
	schemes      string
	internStores string

	clusterFile string
	keep        bool
	store       string
	instances   []int
	runFor      time.Duration
	child       bool
	childPath   string
	childStart  int64
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
	fs.Uint64Var(&f.seed, "seed", 1, "of the strings")
	fs.Var(ints{&f.workers}, "workers", "schemes: transactions in flight")
	fs.DurationVar(&f.cell, "time", 2*time.Second, "schemes: for each cell")
	fs.StringVar(&f.schemes, "schemes", "", "schemes: those whose names contain this")
	fs.StringVar(&f.internStores, "stores", "sim,pebble", "schemes: stores, of sim, pebble and fdb")
	fs.StringVar(&f.clusterFile, "fdb-cluster-file", "", "cluster file of FoundationDB (in a bench built with -tags fdb)")
	fs.StringVar(&f.store, "store", "", "the store of schemes and load: pebble or fdb; empty: as -stores says, and pebble")
	fs.BoolVar(&f.keep, "keep", false, "load: leave the strings in FoundationDB, so that fdbcli can show their size")
	fs.Var(ints{&f.instances}, "instances", "instances: processes at once, first one alone")
	fs.DurationVar(&f.runFor, "run", 10*time.Second, "instances: for each number of them")
	fs.StringVar(&f.childPath, "child", "", "instances: be one of the processes, in this directory (for its own use)")
	fs.Int64Var(&f.childStart, "child-start", 0, "instances: when it begins, Unix nanoseconds (for its own use)")
	fs.DurationVar(&f.readDelay, "sim-read", 500*time.Microsecond, "schemes: time of a read on the simulated store")
	fs.DurationVar(&f.commitDelay, "sim-commit", 1500*time.Microsecond, "schemes: time of a commit on the simulated store")
	fs.Var(ints{&f.uris}, "uris", "load: measure at these numbers of URIs, ascending")
	fs.IntVar(&f.block, "block", 512, "load: strings a batch")
	fs.IntVar(&f.callers, "callers", 4, "load: batches in flight")
	fs.IntVar(&f.loadWorkers, "load-workers", 4, "load: transactions in flight")
	fs.IntVar(&f.perDID, "per-did", 20, "load: URIs a DID in the end")
	fs.IntVar(&f.rate, "rate", 0, "load: URIs a second; 0: as fast as it goes")
	fs.IntVar(&f.cacheMiB, "cache", 16, "load: MiB of the interner's cache")
	fs.IntVar(&f.blockMiB, "block-cache", 64, "load: MiB of Pebble's block cache")
	fs.IntVar(&f.memTableMiB, "memtable", 32, "load: MiB of one memtable")
	fs.StringVar(&f.profile, "cpuprofile", "", "write a CPU profile to this file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	f.child = f.childPath != ""
	switch f.store {
	case "":
	case "pebble", "fdb":
		f.internStores = f.store
	default:
		return fmt.Errorf("-store %q is not pebble or fdb", f.store)
	}
	stop, err := startProfile(f.profile)
	if err != nil {
		return err
	}
	defer stop()
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

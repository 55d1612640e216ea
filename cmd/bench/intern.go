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

// internFlags are the flags of bench intern, and what it prints to.
type internFlags struct {
	out         io.Writer
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

	instances []int
	runFor    time.Duration
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
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n <= 0 {
			return fmt.Errorf("%q is not a number above 0", part)
		}
		*f.to = append(*f.to, n)
	}
	return nil
}

func runIntern(ctx context.Context, args []string, out io.Writer) error {
	f := &internFlags{out: out, only: "schemes,load", workers: []int{1, 4, 16, 64, 256}, uris: []int{1_000_000}, instances: []int{1, 2, 4}}
	fs := flag.NewFlagSet("bench intern", flag.ContinueOnError)
	fs.StringVar(&f.dir, "dir", "", "where stores are made and removed again; empty: the system's temporary directory")
	fs.StringVar(&f.store, "store", "", "pebble, sim or fdb; empty: sim and pebble for schemes, pebble for load, fdb for instances")
	fs.StringVar(&f.clusterFile, "fdb-cluster-file", "", "cluster file of FoundationDB (in a bench built with -tags fdb)")
	fs.Var(ints{&f.workers}, "workers", "schemes: transactions in flight")
	fs.DurationVar(&f.cell, "time", 2*time.Second, "schemes: for each cell")
	fs.BoolVar(&f.keep, "keep", false, "load: leave the strings in FoundationDB, so that fdbcli can show their size")
	fs.Var(ints{&f.uris}, "uris", "load: measure at these numbers of URIs, ascending")
	fs.IntVar(&f.block, "block", 512, "load, instances: strings a batch, 512 at most")
	fs.IntVar(&f.callers, "callers", 4, "load, instances: batches in flight")
	fs.Var(ints{&f.instances}, "instances", "instances: Interners at once, first one alone")
	fs.DurationVar(&f.runFor, "run", 10*time.Second, "instances: for each number of them")
	parts := parts{{"schemes", f.benchSchemes}, {"load", f.benchLoad}, {"instances", f.benchInstances}}
	if err := parse(fs, args, &f.only, parts.names()...); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "pebble", "sim", "fdb"}, f.store) {
		return fmt.Errorf("-store %q is not pebble, sim or fdb", f.store)
	}
	return parts.run(ctx, f.only)
}

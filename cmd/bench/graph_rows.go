package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/graph/feed"
	"millrace/replay/references"
)

// graphRows measures a start without a snapshot: the graph is built from a table that has follows
// only.
func graphRows(ctx context.Context, f follows, dir string, out io.Writer) (err error) {
	work, err := os.MkdirTemp(dir, "graph-rows-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	cfg := references.Config{Dir: filepath.Join(work, "refs"), PebbleBytes: 4 * linksTwentieth}
	edges, err := graphTable(ctx, f, cfg)
	if err != nil {
		return err
	}
	s, err := references.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := awaitRest(cfg.Dir); err != nil {
		return err
	}
	begun := time.Now()
	graphs, err := feed.New(ctx, feed.Config{Store: s, Log: emptyLog{}, Sources: []string{graph.SourceFollow}, StoreID: "bench",
		SourceNumber: func([]byte) (uint32, bool) { return 1, true }, File: filepath.Join(work, "snapshot")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, graphs.Close()) }()
	running, stop := context.WithCancel(ctx)
	var run errgroup.Group
	run.Go(func() error { return graphs.Run(running) })
	err = graphs.Wait(ctx, s.Position())
	took := time.Since(begun)
	stop()
	if err = errors.Join(err, run.Wait()); err != nil {
		return err
	}
	fmt.Fprintf(out, "  built from %s rows of %s accounts: %s a second\n", grouped(edges), grouped(f.accounts), grouped(float64(edges)/took.Seconds()))
	return nil
}

// graphTable makes a table of follows, and returns how many there are.
func graphTable(ctx context.Context, f follows, cfg references.Config) (edges int64, err error) {
	s, err := references.Open(cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Begin("bench", references.Position{Epoch: 1}); err != nil {
		return 0, err
	}
	var last [linkWorkers]uint64 // number of each worker's last record
	b := &references.Batch{}
	flush := func() error {
		if len(b.Changes) == 0 {
			return nil
		}
		b.Position = references.Position{Epoch: 1, Seq: edges}
		b.Since = s.Hydrated()
		err := s.Hydrate(ctx, b)
		if err == nil {
			err = s.Apply(b)
		}
		b = &references.Batch{Changes: b.Changes[:0]}
		return err
	}
	account := uint64(0)
	err = f.each(func(actor uint64, subjects []uint64) error {
		worker := accountWorker(account)
		account++
		for _, subject := range subjects {
			edges++
			last[worker]++
			b.Changes = append(b.Changes, references.Change{Operation: references.Create, Seq: edges, Rev: uint64(edges), New: true,
				Account: actor, Record: linkUID(worker, linkAccounts+last[worker]),
				References: []references.Reference{{Path: 1, Subject: subject, Authority: subject}}})
		}
		if len(b.Changes) < 1000 {
			return nil
		}
		return flush()
	})
	return edges, errors.Join(err, flush())
}

// emptyLog has no events.
type emptyLog struct{}

func (emptyLog) Changes(context.Context, replay.EpochEnd, func(*replay.Changes) error) error {
	return nil
}

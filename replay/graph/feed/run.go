package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/replay/graph"
	"millrace/replay/references"
)

// buildBatch is how many edges of the table the graph takes at once.
const buildBatch = 4096

// progress says how far a build is.
type progress struct {
	account atomic.Uint64 // of the last row
	edges   atomic.Int64
}

// Run builds the graph, if there was no snapshot, and follows the store until ctx ends; by then the
// store must take no more batches. It then saves the graph. Errors are those of the store; a
// snapshot that cannot be written is logged.
func (f *Feed) Run(ctx context.Context) error {
	defer close(f.done)
	defer f.queue.close()
	if f.rows != nil {
		if err := f.build(ctx); ctx.Err() != nil {
			return nil // the next start begins anew
		} else if err != nil {
			return fmt.Errorf("build the graph: %w", err)
		}
	}
	saving, stop := context.WithCancel(ctx)
	var saves errgroup.Group
	saves.Go(func() error { f.saveNowAndThen(saving); return nil })
	err := f.follow(ctx)
	stop()
	_ = saves.Wait() // it returns nil
	if err != nil {
		return fmt.Errorf("follow the reference store: %w", err)
	}
	last, cancel := context.WithTimeout(context.Background(), f.cfg.SaveTimeout)
	defer cancel()
	f.save(last)
	return nil
}

// follow makes the changes that come, until ctx ends.
func (f *Feed) follow(ctx context.Context) error {
	for {
		if err := f.take(); err != nil {
			return err
		}
		select {
		case <-f.queue.more:
		case <-ctx.Done():
			return f.take()
		}
	}
}

// saveNowAndThen saves the graph at once, and then again and again until ctx ends.
func (f *Feed) saveNowAndThen(ctx context.Context) {
	tick := time.NewTicker(f.cfg.SaveEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.save(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// build makes the graph from the rows, and then publishes it.
func (f *Feed) build(ctx context.Context) error {
	begun := time.Now()
	err := f.buildRows(ctx)
	rows := f.rows
	f.rows = nil
	if err = errors.Join(err, rows.Close()); err != nil {
		return err
	}
	if err := f.graph.Apply(rows.Position, nil); err != nil {
		return err
	}
	if err := f.take(); err != nil {
		return err
	}
	s := f.graph.Stats()
	f.cfg.Logger.Info("the graph is built", "accounts", s.Accounts, "edges", s.Edges, "bytes", s.Bytes,
		"took", time.Since(begun).Round(time.Millisecond))
	if s.Incomplete > 0 {
		f.cfg.Logger.Warn("sets of the graph miss edges for want of memory: raise --graph-memory", "sets", s.Incomplete)
	}
	f.ready.Store(f.graph)
	f.moved()
	return nil
}

// buildRows gives the graph the edges of all rows. To a graph of a snapshot it gives those of the
// touched accounts, in place of what these have.
func (f *Feed) buildRows(ctx context.Context) error {
	changes := make([]graph.Change, 0, buildBatch)
	into := f.graph.Build
	flush := func() error {
		err := into(changes)
		changes = changes[:0]
		f.reportHeap()
		return errors.Join(err, context.Cause(ctx))
	}
	add := func(r *references.Row) error {
		f.progress.account.Store(r.Account)
		n := len(changes)
		changes = f.appendEdges(changes, r)
		f.progress.edges.Add(int64(len(changes) - n))
		if len(changes) < buildBatch {
			return nil
		}
		return flush()
	}
	if f.touched == nil {
		f.metrics.builds.Inc()
		filler := f.graph.Fill()
		into = filler.Add
		if err := errors.Join(f.rows.Each(ctx, add), flush()); err != nil {
			return err
		}
		return filler.End()
	}
	for _, account := range f.touched {
		if len(changes) >= buildBatch { // of accounts without rows
			if err := flush(); err != nil {
				return err
			}
		}
		changes = append(changes, graph.Change{Edge: graph.Edge{Actor: account}, Remove: true, All: true})
		if err := f.rows.EachOf(ctx, account, add); err != nil {
			return err
		}
	}
	f.touched = nil
	return flush()
}

// appendEdges appends the edges of a row.
func (f *Feed) appendEdges(changes []graph.Change, r *references.Row) []graph.Change {
	for i := range r.References {
		ref := &r.References[i]
		source, ok := f.numbers[ref.Path]
		if !ok || ref.Subject != ref.Authority {
			continue
		}
		changes = append(changes, graph.Change{
			Source: source, Edge: graph.Edge{Actor: r.Account, Subject: ref.Subject, Record: r.Record},
		})
	}
	return changes
}

// take makes the changes that wait.
func (f *Feed) take() error {
	taken := false
	for i, ok := f.queue.pop(); ok; i, ok = f.queue.pop() {
		taken = true
		var err error
		if f.graph.Position().Before(i.at) {
			err = f.graph.Apply(i.at, i.changes)
		} else { // a batch that is not of the log keeps the position
			err = f.graph.Build(i.changes)
		}
		if err != nil {
			return err
		}
	}
	if taken {
		f.reportHeap()
		f.moved()
	}
	return nil
}

// save writes a snapshot, unless there is one of the position.
func (f *Feed) save(ctx context.Context) {
	at := f.graph.Position()
	if f.cfg.Store.Err() != nil || at == f.saved || f.graph.Stats().Incomplete > 0 {
		return
	}
	begun := time.Now()
	err := f.graph.Save(ctx, f.cfg.File)
	if errors.Is(err, context.Canceled) {
		return // another follows
	}
	if err != nil {
		f.metrics.snapshots.WithLabelValues("failed").Inc()
		f.cfg.Logger.Warn("the graph was not saved: unless a later save succeeds, the next start takes longer", "err", err)
		return
	}
	f.saved = at // or it is further
	f.metrics.snapshots.WithLabelValues("saved").Inc()
	f.cfg.Logger.Info("the graph is saved", "took", time.Since(begun).Round(time.Millisecond))
}

// Progress implements graph.Queries.
func (f *Feed) Progress() graph.Progress {
	if f.ready.Load() != nil {
		return graph.Progress{Complete: true, Done: 1}
	}
	p := graph.Progress{Edges: f.progress.edges.Load()}
	if done, err := f.cfg.Store.FractionBefore(f.progress.account.Load()); err == nil {
		p.Done = 0.99 * done
	}
	return p
}

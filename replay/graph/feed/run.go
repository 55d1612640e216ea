package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	for stopped := false; ; {
		if err := f.take(); err != nil {
			return fmt.Errorf("follow the reference store: %w", err)
		}
		if stopped {
			break
		}
		select {
		case <-f.queue.more:
		case <-ctx.Done():
			stopped = true
		}
	}
	f.save()
	return nil
}

// build makes the graph from the rows, and then publishes it.
func (f *Feed) build(ctx context.Context) error {
	begun := time.Now()
	f.metrics.builds.Inc()
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
	f.cfg.Logger.Info("the graph is complete", "accounts", s.Accounts, "edges", s.Edges, "bytes", s.Bytes,
		"took", time.Since(begun).Round(time.Millisecond))
	if s.Incomplete > 0 {
		f.cfg.Logger.Warn("sets of the graph miss edges for want of memory: raise --graph-memory", "sets", s.Incomplete)
	}
	f.ready.Store(f.graph)
	f.moved()
	return nil
}

func (f *Feed) buildRows(ctx context.Context) error {
	changes := make([]graph.Change, 0, buildBatch)
	flush := func() error {
		f.progress.edges.Add(int64(len(changes)))
		err := f.graph.Build(changes)
		changes = changes[:0]
		f.tellHeap()
		return err
	}
	err := f.rows.Each(ctx, func(r *references.Row) error {
		f.progress.account.Store(r.Account)
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
		if len(changes) < buildBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return err
}

// take makes the changes that wait.
func (f *Feed) take() error {
	taken := false
	for {
		i, ok := f.queue.pop()
		if !ok {
			break
		}
		taken = true
		var err error
		if f.graph.Position().Before(i.at) {
			err = f.graph.Apply(i.at, i.changes)
		} else { // what is not of the log leaves the position as it is
			err = f.graph.Build(i.changes)
		}
		if err != nil {
			return err
		}
	}
	if taken {
		f.tellHeap()
		f.moved()
	}
	return nil
}

// save writes the snapshot.
func (f *Feed) save() {
	if f.cfg.Store.Err() != nil || f.graph.Position() != f.cfg.Store.Position() || f.graph.Stats().Incomplete > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.cfg.SaveTimeout)
	defer cancel()
	begun := time.Now()
	if err := f.graph.Save(ctx, f.cfg.File); err != nil {
		f.metrics.snapshots.WithLabelValues("failed").Inc()
		f.cfg.Logger.Warn("the graph is not saved: the next start builds it from the reference store", "err", err)
		return
	}
	f.metrics.snapshots.WithLabelValues("saved").Inc()
	f.cfg.Logger.Info("the graph is saved", "took", time.Since(begun).Round(time.Millisecond))
}

// Progress implements graph.Queries.
func (f *Feed) Progress() graph.Progress {
	if f.ready.Load() != nil {
		return graph.Progress{Complete: true, Done: 1}
	}
	p := graph.Progress{Edges: f.progress.edges.Load()}
	if done, err := f.cfg.Store.PartBefore(f.progress.account.Load()); err == nil {
		p.Done = 0.99 * done
	}
	return p
}

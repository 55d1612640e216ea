package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"

	"millrace/replay/graph/feed"
)

// graphFile is the graph's snapshot.
func (c *config) graphFile() string { return filepath.Join(c.dataDir, "graph.snapshot") }

// staticFile has the graph's static edges.
func (c *config) staticFile() string { return filepath.Join(c.dataDir, "graph.static") }

// validateGraph says what --graph does not go with.
func (c *config) validateGraph() error {
	switch {
	case !c.graph:
		return nil
	case !c.referencesOn():
		return errors.New("--graph needs --references=on")
	}
	return checkGraphMemory(c.graphMemory)
}

// checkGraphMemory refuses less memory than a server's graph takes.
func checkGraphMemory(size byteSize) error {
	if size < feed.MinMemory {
		return fmt.Errorf("--graph-memory %s is below %s", size, byteSize(feed.MinMemory))
	}
	return nil
}

// openGraph begins to follow the reference store, which is at the end of the log. The Go runtime's
// limit grows by what the graph has on the Go heap.
func (d *daemon) openGraph(ctx context.Context, shares memoryShares) (err error) {
	if !d.cfg.graph {
		return nil
	}
	limit := shares.goLimit(d.cfg.memory)
	d.graph, err = feed.New(ctx, feed.Config{
		Store:        d.refs,
		Log:          d.log,
		SourceNumber: d.log.SourceNumber,
		StoreID:      d.uids.storeID(),
		File:         d.cfg.graphFile(),
		Static:       d.cfg.staticFile(),
		Memory:       int64(d.cfg.graphMemory),
		SaveTimeout:  d.cfg.shutdownTimeout / 2,
		Heap:         func(bytes int64) { debug.SetMemoryLimit(limit + bytes) },
		Logger:       d.logger.With("part", "graph"),
		Registerer:   d.registry,
	})
	return err
}

package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay/graph"
	"millrace/replay/references"
)

const (
	defaultMemory      = 4 << 30
	defaultSaveTimeout = 30 * time.Second
	defaultSaveEvery   = 10 * time.Minute
	maxTouched         = 1 << 20 // accounts; from more on a build is faster
	queuePart          = 16      // of the memory one part is the queue's
)

// MinMemory is the least that Config.Memory may be.
const MinMemory = 64 << 20

// Config is what New needs. Store, Log, SourceNumber and File must be set.
type Config struct {
	Store *references.Store
	Log   references.Log // what the store was rolled forward from
	// SourceNumber gives sources their numbers; replay.Log has it.
	SourceNumber func(source []byte) (number uint32, ok bool)
	Sources      []string // none: follows and blocks
	StoreID      string   // of the UID store
	File         string   // the snapshot
	Static       string   // the file of static edges, which need not exist

	Memory      int64         // bytes for the graph and what it has not taken yet; 4 GiB
	SaveEvery   time.Duration // between two snapshots while it runs; 10 min
	SaveTimeout time.Duration // of the snapshot at the end, which is given up; 30 s
	// Heap is called with the bytes on the Go heap, of the graph and of what it has not taken yet,
	// when they have changed. nil: it is not.
	Heap func(bytes int64)

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: no metrics
}

func (c Config) withDefaults() Config {
	if len(c.Sources) == 0 {
		c.Sources = graph.DefaultSources()
	}
	c.Memory = cmp.Or(c.Memory, defaultMemory)
	c.SaveEvery = cmp.Or(c.SaveEvery, defaultSaveEvery)
	c.SaveTimeout = cmp.Or(c.SaveTimeout, defaultSaveTimeout)
	if c.Heap == nil {
		c.Heap = func(int64) {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	switch {
	case c.Store == nil || c.Log == nil || c.SourceNumber == nil || c.File == "":
		return errors.New("feed: fields Store, Log, SourceNumber, File: must be set")
	case c.Memory < MinMemory:
		return fmt.Errorf("feed: field Memory: %d bytes, at least %d are needed", c.Memory, MinMemory)
	}
	return nil
}

// Feed keeps a graph equal to the reference store. It implements graph.Queries.
type Feed struct {
	cfg     Config
	numbers map[uint32]int // of sources: the log's to the graph's
	queue   *queue
	batch   []graph.Change // of observe, used again
	heap    int64          // that Heap knows of
	metrics metrics

	graph    *graph.Graph
	rows     *references.Rows // to build the graph from; nil: it is complete
	touched  []uint64         // accounts whose rows the snapshot may not have, sorted; nil: all
	saved    references.Position
	progress progress

	ready atomic.Pointer[graph.Graph] // the graph, once it is complete
	move  atomic.Pointer[chan struct{}]
	done  chan struct{} // Run has ended

	close sync.Once
}

var _ graph.Queries = (*Feed)(nil)

// New loads the snapshot, and begins to follow the store, which is at the end of the log. No batch
// of the store may be between Hydrate and Apply. Run must be called: without it the store's Apply
// waits before long.
func New(ctx context.Context, cfg Config) (*Feed, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Feed{cfg: cfg, numbers: make(map[uint32]int), done: make(chan struct{})}
	f.queue = newQueue(int(cfg.Memory / queuePart / changeBytes))
	var paths []uint32
	for i, source := range cfg.Sources {
		number, ok := cfg.SourceNumber([]byte(source))
		if !ok {
			return nil, fmt.Errorf("feed: the log has no number left for the source %s", source)
		}
		f.numbers[number] = i
		paths = append(paths, number)
	}
	begun := time.Now()
	g, err := f.load(ctx)
	if err != nil {
		return nil, err
	}
	f.graph = g
	f.reportHeap()
	rows, err := cfg.Store.Observe(paths, f.observe)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	f.moved()
	f.metrics = newMetrics(cfg.Registerer, f)
	if g.Position() != rows.Position {
		f.rows = rows
		return f, nil
	}
	f.ready.Store(g)
	s := g.Stats()
	cfg.Logger.Info("the graph is loaded", "accounts", s.Accounts, "edges", s.Edges, "took", time.Since(begun).Round(time.Millisecond))
	return f, rows.Close()
}

// load returns the graph of the snapshot, or an empty one. A snapshot that does not fit the store
// is removed: a later position of the store could equal its own, with other rows.
func (f *Feed) load(ctx context.Context) (*graph.Graph, error) {
	at, generation := f.cfg.Store.Position(), f.cfg.Store.Generation()
	cfg := graph.Config{
		Sources: f.cfg.Sources, Memory: f.cfg.Memory / queuePart * (queuePart - 1),
		StoreID:    fmt.Sprintf("%s from %d-%d", f.cfg.StoreID, generation.From.Epoch, generation.From.Seq),
		Generation: uint64(generation.Number),
	}
	g, err := graph.Load(f.cfg.File, cfg)
	if errors.Is(err, os.ErrNotExist) {
		f.cfg.Logger.Info("the graph has no snapshot: it is built from the reference store")
		return f.begin(cfg)
	}
	if err == nil {
		saved := g.Position()
		if g.Stats().Incomplete > 0 { // lost while it was saved, or saved by an older millrace
			err = errors.New("it misses edges for want of memory")
		} else if saved != at {
			// A clean stop may leave frames without events after the snapshot: cursors hold.
			if f.touched, err = f.touchedAfter(ctx, saved, at); len(f.touched) > 0 {
				g.Renew()
			}
		}
		if err == nil {
			f.saved = saved
			return g, nil
		}
		err = errors.Join(err, g.Close())
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.cfg.Logger.Warn("the graph's snapshot cannot be used: the graph is built from the reference store", "err", err)
	if g, err = f.begin(cfg); err != nil { // say for want of memory: with more it is of use
		return nil, err
	}
	if err := Forget(f.cfg.File); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// begin returns the graph that gets the edges of the rows: that of the static edges, if there are
// any.
func (f *Feed) begin(cfg graph.Config) (*graph.Graph, error) {
	g, err := graph.LoadStatic(f.cfg.Static, f.cfg.StoreID, cfg)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return graph.New(cfg)
	case err != nil:
		return nil, fmt.Errorf("%w; raise --graph-memory if they need more, or import them again after millrace graph remove", err)
	}
	return g, nil
}

// touchedAfter returns the accounts whose edges may have changed between a snapshot and the store.
func (f *Feed) touchedAfter(ctx context.Context, from, to references.Position) ([]uint64, error) {
	if to.Before(from) {
		return nil, fmt.Errorf("it is of %v, which the reference store, at %v, has not reached", from, to)
	}
	var collections [][]byte
	for _, source := range f.cfg.Sources {
		collection, _, _ := strings.Cut(source, ":")
		collections = append(collections, []byte(collection))
	}
	accounts := make(map[uint64]struct{})
	err := references.Touched(ctx, f.cfg.Log, from, collections, func(account uint64) error {
		if accounts[account] = struct{}{}; len(accounts) > maxTouched {
			return fmt.Errorf("more than %d accounts have changed since it was saved", maxTouched)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	touched := slices.AppendSeq(make([]uint64, 0, len(accounts)), maps.Keys(accounts))
	slices.Sort(touched)
	return touched, nil
}

// Forget removes a snapshot, if there is one; no power loss brings it back. A program calls it
// before it changes the static edges, or the rows other than by the log.
func Forget(file string) error { return forget(vfs.Default, file) }

func forget(fs vfs.FS, file string) error {
	err := fs.Remove(file)
	if err == nil || errors.Is(err, os.ErrNotExist) { // of a process that was killed, perhaps
		var dir vfs.File
		if dir, err = fs.OpenDir(fs.PathDir(file)); err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("remove the graph's snapshot: %w", err)
	}
	return nil
}

// heapStep is by how much the Go heap changes until Heap is called.
const heapStep = 1 << 20

// reportHeap calls Heap if enough has changed.
func (f *Feed) reportHeap() {
	bytes := f.graph.Stats().HeapBytes + int64(f.queue.len())*changeBytes
	if max(bytes-f.heap, f.heap-bytes) >= heapStep {
		f.heap = bytes
		f.cfg.Heap(bytes)
	}
}

// observe puts what the store has changed into the queue.
func (f *Feed) observe(o *references.Observed) {
	f.batch = f.batch[:0]
	for _, account := range o.Forgotten {
		f.batch = append(f.batch, graph.Change{Edge: graph.Edge{Actor: account}, Remove: true, All: true})
	}
	for i := range o.Edges {
		e := &o.Edges[i]
		f.batch = append(f.batch, graph.Change{
			Source: f.numbers[e.Path], Edge: graph.Edge{Actor: e.Account, Subject: e.Subject, Record: e.Record}, Remove: e.Removed,
		})
	}
	f.queue.push(o.Position, f.batch)
}

// Graph implements graph.Queries.
func (f *Feed) Graph() (*graph.Graph, error) {
	if g := f.ready.Load(); g != nil {
		return g, nil
	}
	return nil, graph.ErrBuilding
}

// Source implements graph.Queries.
func (f *Feed) Source(name string) (number int, ok bool) {
	number = slices.Index(f.cfg.Sources, name)
	return max(number, 0), number >= 0
}

// Wait implements graph.Queries.
func (f *Feed) Wait(ctx context.Context, at references.Position) error {
	for {
		moved := *f.move.Load() // before the position is looked at
		if g := f.ready.Load(); g != nil && !g.Position().Before(at) {
			return nil
		}
		select {
		case <-moved:
		case <-f.done:
			return graph.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Since implements graph.Queries.
func (f *Feed) Since() references.Position { return f.cfg.Store.Generation().From }

// InexactSince implements graph.Queries.
func (f *Feed) InexactSince() int64 { return f.cfg.Store.InexactSince() }

// moved wakes every Wait.
func (f *Feed) moved() {
	if last := f.move.Swap(new(make(chan struct{}))); last != nil {
		close(*last)
	}
}

// Close gives back the memory. Run has ended, and the store takes no more batches.
func (f *Feed) Close() (err error) {
	f.close.Do(func() {
		f.queue.close()
		f.metrics.unregister()
		if f.rows != nil {
			err = f.rows.Close()
		}
		err = errors.Join(err, f.graph.Close())
	})
	return err
}

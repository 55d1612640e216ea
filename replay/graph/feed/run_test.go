package feed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"millrace/replay/graph"
	"millrace/replay/references"
)

// TestRun follows a store while questions are asked. The queue has room for one batch.
func TestRun(t *testing.T) {
	w := newWorld(t, 1)
	w.feed.queue.max = 1
	w.alive = model{}
	if _, err := w.feed.Graph(); !errors.Is(err, graph.ErrBuilding) || w.feed.Progress().Complete {
		t.Fatalf("before Run: %v, %v", err, w.feed.Progress())
	}
	ctx, stop := context.WithCancel(t.Context())
	var run errgroup.Group
	run.Go(func() error { return w.feed.Run(ctx) })
	for range 300 {
		if w.hydrate(); w.log[len(w.log)-1].ours { // Apply does not move the position
			w.apply()
			continue
		}
		w.apply()
		if err := w.feed.Wait(t.Context(), w.at); err != nil {
			t.Fatal(err)
		}
		g, err := w.feed.Graph()
		if err != nil {
			t.Fatal(err)
		}
		compare(t, g, w.alive, w.static)
	}
	ahead := references.Position{Epoch: w.at.Epoch, Seq: w.at.Seq + 1}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.feed.Wait(short, ahead); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for what has not come: %v", err)
	}
	var waits errgroup.Group
	waits.Go(func() error { return w.feed.Wait(t.Context(), ahead) })
	stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := waits.Wait(); !errors.Is(err, graph.ErrClosed) {
		t.Errorf("wait for what does not come: %v", err)
	}
	w.closeAll()
	w.open()
	w.newFeed()
	if w.feed.rows != nil || !w.feed.Progress().Complete || w.feed.saved != w.store.Position() {
		t.Fatalf("a graph that Run has saved is built, or saved again: %v", w.feed.saved)
	}
	w.check()
}

// TestStopWhileBuilding stops a feed that has batches waiting and no graph.
func TestStopWhileBuilding(t *testing.T) {
	w := newWorld(t, 2)
	w.feed.queue.max = 1
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.feed.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for range 20 { // nothing takes them
		w.hydrate()
		w.apply()
	}
	if _, err := os.Stat(w.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a graph that was not built is saved: %v", err)
	}
}

// TestSnapshotOfNoUse starts beside a snapshot that is damaged.
func TestSnapshotOfNoUse(t *testing.T) {
	w := newWorld(t, 3)
	for range 20 {
		w.hydrate()
	}
	w.restart()
	w.closeAll()
	if err := os.Truncate(w.file, 40); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.newFeed()
	if w.feed.rows == nil {
		t.Fatal("a damaged snapshot is used")
	}
	w.check()
}

// TestSnapshotAhead starts beside a snapshot of a position that the store has not reached.
func TestSnapshotAhead(t *testing.T) {
	w := newWorld(t, 7)
	for range 20 {
		w.hydrate()
		w.apply()
	}
	w.check()
	w.feed.save(t.Context())
	w.closeAll()
	w.fs, w.applied = vfs.NewCrashableMem(), 0
	w.open()
	if err := w.store.Begin("test", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	w.newFeed()
	if w.feed.rows == nil || w.feed.touched != nil || w.feed.saved != (references.Position{}) {
		t.Error("the snapshot is used")
	}
	if _, err := os.Stat(w.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the snapshot: %v", err)
	}
}

// TestLittleMemory does not save a graph that misses edges, and does not load one that was saved.
func TestLittleMemory(t *testing.T) {
	w := newWorld(t, 4)
	reg := prometheus.NewRegistry()
	var heap []int64
	w.reopen(func(c *Config) { c.Registerer, c.Heap = reg, func(bytes int64) { heap = append(heap, bytes) } })
	for range 20 {
		w.hydrate()
		w.apply()
	}
	w.check()
	lost := make([]graph.Change, 0, 1<<20)
	for n := range uint64(cap(lost)) {
		lost = append(lost, graph.Change{Edge: graph.Edge{Actor: 1e6 + n, Subject: 9e6 + n, Record: 1}})
	}
	if err := w.feed.graph.Build(lost); err != nil {
		t.Fatal(err)
	}
	if s := w.feed.graph.Stats(); s.Incomplete == 0 && s.Bytes <= MinMemory {
		t.Fatalf("the graph has room: %+v", s)
	}
	w.feed.save(t.Context())
	if _, err := os.Stat(w.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a graph that misses edges is saved: %v", err)
	}
	if s := w.feed.graph.Stats(); metricsOf(t, reg)["incomplete_sets"] != float64(s.Incomplete) {
		t.Errorf("metrics %v, the graph %+v", metricsOf(t, reg), s)
	}
	w.hydrate()
	w.apply()
	w.check()
	s := w.feed.graph.Stats()
	if len(heap) == 0 || max(heap[len(heap)-1]-s.HeapBytes, s.HeapBytes-heap[len(heap)-1]) >= heapStep {
		t.Errorf("the heap is %d, reported are %d", s.HeapBytes, heap)
	}
	if err := w.feed.graph.Save(t.Context(), w.file); err != nil {
		t.Fatal(err)
	}
	w.reopen(func(c *Config) { c.Memory = 1 << 30 }) // it has room for what is in the file
	if _, err := os.Stat(w.file); w.feed.rows == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a graph that misses edges is loaded: %v", err)
	}
	w.check()
}

func TestRefused(t *testing.T) {
	w := newWorld(t, 5)
	for want, spoil := range map[string]func(*Config){
		"must be set":    func(c *Config) { c.Store = nil },
		"Log":            func(c *Config) { c.Log = nil },
		"SourceNumber":   func(c *Config) { c.SourceNumber = nil },
		"File":           func(c *Config) { c.File = "" },
		"Memory":         func(c *Config) { c.Memory = MinMemory - 1 },
		"no number left": func(c *Config) { c.SourceNumber = func([]byte) (uint32, bool) { return 0, false } },
	} {
		w.with = spoil
		if f, err := New(t.Context(), w.config()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", want, f, err)
		}
	}
}

// TestDefaults compares what is not set with what Config promises.
func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if !slices.Equal(c.Sources, []string{graph.SourceFollow, graph.SourceBlock}) || c.Memory != 4<<30 ||
		c.SaveEvery != 10*time.Minute || c.SaveTimeout != 30*time.Second || c.Heap == nil || c.Logger == nil {
		t.Errorf("defaults: %+v", c)
	}
	set := Config{Sources: []string{"a:b"}, Memory: 1, SaveEvery: 2, SaveTimeout: 3, Heap: func(int64) { t.Log("heap") }, Logger: slog.Default()}
	got := set.withDefaults()
	got.Heap(0)
	if got.Heap, set.Heap = nil, nil; !reflect.DeepEqual(got, set) {
		t.Errorf("what is set becomes %+v", got)
	}
}

// TestBelowFloor writes a record again that went with its account: the edge that it had is another
// record's since.
func TestBelowFloor(t *testing.T) {
	w := newWorld(t, 6)
	w.stop() // no sweep
	follow := []references.Reference{{Path: 3, Subject: 2, Authority: 2}}
	for seq, c := range []references.Change{
		{Operation: references.Create, Record: 100, References: follow},
		{Operation: references.DeleteAccount, TimeUS: 1},
		{Operation: references.Create, Record: 101, References: follow},
		{Operation: references.Create, Record: 100},
	} {
		c.Account, c.Seq, c.Rev = 1, int64(seq+1), uint64(seq+1)
		b := references.Batch{Position: references.Position{Epoch: 1, Seq: c.Seq}, Changes: []references.Change{c}}
		w.alive.apply(b.Changes)
		w.log = append(w.log, step{batch: b, after: w.alive.clone()})
		w.hydrateStep(seq)
		w.apply()
	}
	w.check()
}

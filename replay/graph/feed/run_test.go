package feed

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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
		compare(t, g, w.alive)
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
	if err := waits.Wait(); !errors.Is(err, errStopped) {
		t.Errorf("wait for what does not come: %v", err)
	}
	w.closeAll()
	w.open()
	w.newFeed()
	if w.feed.rows != nil || !w.feed.Progress().Complete {
		t.Fatal("a graph that Run has saved is built")
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

// TestLittleMemory does not save a graph that misses edges.
func TestLittleMemory(t *testing.T) {
	w := newWorld(t, 4)
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
}

func TestRefused(t *testing.T) {
	w := newWorld(t, 5)
	for name, cfg := range map[string]Config{
		"nothing":   {},
		"no memory": {Store: w.store, Log: worldLog{w}, SourceNumber: numberOf, File: w.file, Memory: 1},
		"no number": {Store: w.store, Log: worldLog{w}, File: w.file, SourceNumber: func([]byte) (uint32, bool) { return 0, false }},
	} {
		if f, err := New(t.Context(), cfg); err == nil {
			f.Close()
			t.Errorf("%s: no error", name)
		}
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

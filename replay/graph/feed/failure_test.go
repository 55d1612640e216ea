package feed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/references"
	"millrace/translate"
)

var errTest = errors.New("the log said no")

// failingLog is a log that fails, or one in which many accounts changed.
type failingLog struct {
	err      error
	accounts int
}

func (l failingLog) Changes(_ context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error {
	c := replay.Changes{Through: after}
	for i := range l.accounts {
		c.Events = append(c.Events, replay.Change{Kind: translate.KindAccount, DIDUID: uint64(i + 1)})
	}
	if err := f(&c); err != nil {
		return err
	}
	return l.err
}

// messages is a log handler that passes on what is logged.
type messages chan string

func (messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	m <- r.Level.String() + " " + r.Message
	return nil
}
func (m messages) WithAttrs([]slog.Attr) slog.Handler { return m }
func (m messages) WithGroup(string) slog.Handler      { return m }

// await returns once something is logged that begins so.
func (m messages) await(t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case got := <-m:
			if strings.HasPrefix(got, want) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q is not logged", want)
		}
	}
}

// TestUnreadLog starts beside a snapshot when the log does not say which accounts changed since.
// The snapshot goes, unless it is the start that ends. Cursors hold if no account changed.
func TestUnreadLog(t *testing.T) {
	for name, log := range map[string]failingLog{"fails": {err: errTest}, "has many": {accounts: maxTouched + 1}, "has some": {accounts: 1000}, "has none": {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 9)
			w.check()
			w.feed.save(t.Context())
			w.hydrate()
			w.apply()
			logged := make(messages, 10)
			w.with = func(c *Config) { c.Log, c.Logger = log, slog.New(logged) }
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errTest)
			if name == "fails" {
				if f, err := New(ctx, w.config()); !errors.Is(err, errTest) {
					t.Errorf("a start that ends: %v, %v", f, err)
				}
			}
			saved, err := graph.Peek(w.file)
			if err != nil {
				t.Fatal(err)
			}
			w.reopen(w.with)
			_, err = os.Stat(w.file)
			if name == "has some" || name == "has none" {
				if len(w.feed.touched) != log.accounts || !slices.IsSorted(w.feed.touched) || err != nil {
					t.Errorf("%d accounts, %v", len(w.feed.touched), err)
				}
				r, err := w.feed.graph.Count(t.Context(), graph.Of(0, graph.Out, 1), graph.Limits{})
				if renewed := r.Build != saved.Build; err != nil || renewed != (log.accounts > 0) {
					t.Errorf("cursors are refused: %t, %v", renewed, err)
				}
				return
			}
			logged.await(t, "WARN the graph's snapshot cannot be used")
			if w.feed.touched != nil || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the snapshot is used: %v", err)
			}
			w.check()
		})
	}
}

// TestRefusedStartKeepsSnapshot: where the static edges end the start, a snapshot that cannot be
// used stays. With more memory it may be of use.
func TestRefusedStartKeepsSnapshot(t *testing.T) {
	w := newWorld(t, 9)
	w.closeAll()
	for _, file := range []string{w.file, w.file + ".static"} {
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	if _, err := New(t.Context(), w.config()); err == nil || !strings.Contains(err.Error(), "raise --graph-memory") {
		t.Errorf("with a file of static edges that is damaged: %v", err)
	}
	if _, err := os.Stat(w.file); err != nil {
		t.Error(err)
	}
}

// TestWhoseSnapshot uses a snapshot of the same UID store and generation only. Of the store's own
// position it needs no log.
func TestWhoseSnapshot(t *testing.T) {
	w := newWorld(t, 14)
	at := references.Position{Epoch: 1, Seq: 5}
	begin := func() {
		if err := w.store.Begin("test", at); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	begin()
	w.at = at
	uids := "uids"
	for name, change := range map[string]func(){"same": func() {}, "UID store": func() { uids = "others" }, "generation": begin} {
		w.reopen(func(c *Config) { c.StoreID = uids })
		if w.feed.rows != nil {
			if err := w.feed.build(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.feed.saved = references.Position{}
		w.feed.save(t.Context())
		change()
		w.reopen(func(c *Config) { c.StoreID, c.Log = uids, failingLog{err: errTest} })
		if used := w.feed.rows == nil; used != (name == "same") {
			t.Errorf("%s: the snapshot is used: %t", name, used)
		}
	}
}

// TestSnapshotStays: a snapshot of no use that cannot be removed ends the start.
func TestSnapshotStays(t *testing.T) {
	w := newWorld(t, 10)
	file := filepath.Join(t.TempDir(), "directory")
	if err := os.MkdirAll(filepath.Join(file, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.with = func(c *Config) { c.File = file }
	if f, err := New(t.Context(), w.config()); err == nil || !strings.Contains(err.Error(), "remove the graph's snapshot") {
		t.Errorf("%v, %v", f, err)
	}
}

// TestFailuresEndRun: Run returns what building or following fails with. Then nobody waits for it.
func TestFailuresEndRun(t *testing.T) {
	for _, name := range []string{"build the graph", "follow the reference store", "read rows"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 11)
			w.hydrate()
			w.apply()
			w.feed.queue.max = 1
			logged := make(messages, 10)
			w.feed.cfg.Logger = slog.New(logged)
			var run errgroup.Group
			want := graph.ErrClosed
			switch name {
			case "build the graph":
				w.feed.graph.Close()
			case "read rows":
				want = errTest
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(errTest)
				for _, touched := range [][]uint64{nil, {}, {1}} {
					w.feed.touched = touched
					if err := w.feed.buildRows(ctx); !errors.Is(err, want) {
						t.Errorf("of the accounts %v: %v", touched, err)
					}
				}
				if err := w.feed.build(ctx); !errors.Is(err, want) {
					t.Errorf("build: %v", err)
				}
				return
			}
			run.Go(func() error { return w.feed.Run(t.Context()) })
			if name == "follow the reference store" {
				logged.await(t, "INFO the graph is saved")
				w.feed.graph.Close()
			}
			for range 5 {
				w.hydrate()
				w.apply()
			}
			if err := run.Wait(); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), name) {
				t.Errorf("run: %v", err)
			}
			if err := w.feed.Wait(t.Context(), references.Position{Epoch: 9}); !errors.Is(err, graph.ErrClosed) {
				t.Errorf("wait: %v", err)
			}
		})
	}
}

// TestSaves saves a graph every SaveEvery while it follows the store, and gives up the last save
// after SaveTimeout.
func TestSaves(t *testing.T) {
	w := newWorld(t, 12)
	for range 20 {
		w.hydrate()
		w.apply()
	}
	logged := make(messages, 10)
	w.reopen(func(c *Config) { c.SaveEvery, c.SaveTimeout, c.Logger = time.Millisecond, -1, slog.New(logged) })
	ctx, stop := context.WithCancel(t.Context())
	var run errgroup.Group
	run.Go(func() error { return w.feed.Run(ctx) })
	for range 3 {
		w.at.Seq++
		w.log = append(w.log, step{batch: references.Batch{Position: w.at}, after: w.alive})
		w.hydrateStep(len(w.log) - 1)
		w.apply()
		logged.await(t, "INFO the graph is saved")
	}
	stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	w.feed.saved = references.Position{}
	w.feed.done = make(chan struct{})
	if err := w.feed.Run(ctx); err != nil {
		t.Fatal(err)
	}
	logged.await(t, "WARN the graph was not saved")
}

// TestQueries compares what the feed passes on with the store.
func TestQueries(t *testing.T) {
	w := newWorld(t, 13)
	begun := references.Position{Epoch: 2, Seq: 7}
	w.stop()
	if err := w.store.Begin("test", begun); err != nil {
		t.Fatal(err)
	}
	w.at = begun
	w.reopen(nil)
	b := references.Batch{Position: references.Position{Epoch: 2, Seq: 9}, Changes: []references.Change{{Operation: references.Gap, Seq: 9, TimeUS: 77}}}
	if err := errors.Join(w.store.Hydrate(t.Context(), &b), w.store.Apply(&b)); err != nil {
		t.Fatal(err)
	}
	if w.feed.Since() != begun || w.feed.InexactSince() != 77 {
		t.Errorf("since %v, inexact since %d", w.feed.Since(), w.feed.InexactSince())
	}
	for i, source := range []string{graph.SourceFollow, graph.SourceBlock} {
		if n, ok := w.feed.Source(source); n != i || !ok {
			t.Errorf("%s is number %d, %t", source, n, ok)
		}
	}
	if _, ok := w.feed.Source("app.bsky.feed.like:subject.uri"); ok {
		t.Error("a source that is not kept has a number")
	}
}

// TestForgetIsDurable: a snapshot that was forgotten does not come back with a power loss. It would
// have the rows that were changed after it.
func TestForgetIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	f, err := fs.Create("graph.snapshot", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := fs.OpenDir("")
	if err = errors.Join(err, f.Sync(), f.Close(), dir.Sync(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also one that is not there
		if err := forget(fs, "graph.snapshot"); err != nil {
			t.Fatal(err)
		}
		if _, err := fs.CrashClone(vfs.CrashCloneCfg{}).Stat("graph.snapshot"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the snapshot is back: %v", err)
		}
	}
}

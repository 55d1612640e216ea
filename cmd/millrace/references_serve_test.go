package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/references"
)

// referencesSince returns what /cursors says of references.
func referencesSince(t *testing.T, addr string) string {
	t.Helper()
	var answer struct {
		References *struct {
			Since *struct {
				TimeUS int64 `json:"time_us"`
				Cursor string
			}
		}
	}
	getJSON(t, "http://"+addr+"/cursors", &answer)
	switch r := answer.References; {
	case r == nil:
		return "off"
	case r.Since == nil:
		return "empty"
	default:
		return r.Since.Cursor
	}
}

// TestReferencesUsage: what --references=on does not go with is refused before the disk is touched.
func TestReferencesUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, flag := range []string{"--intern=off", "--intern-scope=dids", "--retention=0"} {
		var out strings.Builder
		if code := run(t.Context(), []string{"serve", "--data-dir", dir, "--references=on", flag}, &out, &out); code != exitUsage {
			t.Errorf("%s: exit code %d: %s", flag, code, out.String())
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestReferencesOnAndOff: the table of what records point at outlives a restart. It begins anew
// when references were off, when other collections are served, when the log is another, and when it
// was trimmed past the store.
func TestReferencesOnAndOff(t *testing.T) {
	relay := newTestRelay(t)
	dir := t.TempDir()
	seq := int64(0)
	live := func(what string, generation uint32, sinceStart bool, flags ...string) {
		t.Helper()
		relay.left(t)
		d := startDaemon(t, relay.url, dir, flags...)
		at := d.log.Progress()
		seq++
		relay.send <- createFrame(t, seq, nil).Data
		waitFor(t, "the event", func() bool { return d.log.Progress().Seq == seq })
		since := referencesSince(t, d.addr)
		if generation == 0 {
			if d.refs != nil || since != "off" {
				t.Errorf("%s: references are on, since %s", what, since)
			}
		} else {
			waitFor(t, "the reference store", func() bool { return d.refs.Position().Seq == seq })
			g := d.refs.Generation()
			if g.Number != generation {
				t.Errorf("%s: generation %d, want %d", what, g.Number, generation)
			}
			if want := (references.Position{Epoch: at.Epoch, Seq: at.Seq}); sinceStart && g.From != want {
				t.Errorf("%s: it begins at %v, want %v", what, g.From, want)
			}
		}
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	}
	live("off", 0, false)
	live("first on", 1, true, "--references=on")
	live("again", 1, false, "--references=on")
	live("off in between", 0, false)
	live("on after off", 2, true, "--references=on")
	live("other collections", 3, true, "--references=on", "--collections", "a.b.c,d.e.f")
	live("the same", 3, false, "--references=on", "--collections", "d.e.f,a.b.c,a.b.c")
	removeAll(t, filepath.Join(dir, "refs"))
	snapshot := writeFile(t, filepath.Join(dir, "graph.snapshot"), "of the table that is lost")
	live("lost, and all collections again", 1, true, "--references=on")
	if _, err := os.Stat(snapshot); !os.IsNotExist(err) {
		t.Errorf("the graph's snapshot of the lost table, whose generation had the same number: %v", err)
	}
	removeAll(t, filepath.Join(dir, "log"))
	live("another log", 2, false, "--references=on")
}

// TestReferencesRestored: a backup has the reference store, of a server that runs and of one that
// does not. A server that is restored from it goes on with its table, though it skips UIDs.
func TestReferencesRestored(t *testing.T) {
	relay := newTestRelay(t)
	base := t.TempDir()
	dir, running, stopped := filepath.Join(base, "data"), filepath.Join(base, "running"), filepath.Join(base, "stopped")
	d := startDaemon(t, relay.url, dir, "--references=on")
	relay.send <- createFrame(t, 1, nil).Data
	waitFor(t, "the event", func() bool { return d.refs.Position().Seq == 1 })
	if _, err := d.backUp(running); err != nil {
		t.Fatal(err)
	}
	if _, err := d.backUp(filepath.Join(dir, "refs", "copy")); err == nil {
		t.Error("a backup was put into the reference store")
	}
	d.mustStop(t)
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", stopped); code != exitOK {
		t.Fatalf("millrace backup: exit code %d\n%s", code, out)
	}
	interrupted, skipped := copyOf(t, stopped), copyOf(t, stopped)
	skipAhead := func(dir string, anew bool) {
		t.Helper()
		if code, out := millrace(t, "intern", "skip-ahead", "--data-dir", dir); code != exitOK || strings.Contains(out, "reference store") != anew {
			t.Fatalf("millrace intern skip-ahead: exit code %d\n%s", code, out)
		}
	}
	skipAhead(skipped, false)
	for range 2 { // UIDs are skipped by each
		failToStart(t, relay.url, interrupted)
	}
	goesOn := func(what, dir string, generation uint32, flags ...string) {
		t.Helper()
		d := startDaemon(t, relay.url, dir, append(flags, "--references=on")...)
		skipped, err := d.uids.interner.Skipped(t.Context())
		if err != nil || skipped == 0 {
			t.Errorf("%s: %d UIDs are skipped: %v", what, skipped, err)
		}
		rows := 0
		if _, err := d.refs.Rows(t.Context(), func(*references.Row) error { rows++; return nil }); err != nil {
			t.Fatal(err)
		}
		if g := d.refs.Generation(); g.Number != generation || (rows == 1) != (generation == 1) {
			t.Errorf("%s: generation %d with %d rows, want %d", what, g.Number, rows, generation)
		}
		if err := d.stop(); err != nil {
			t.Error(err)
		}
		if isBackup(t, dir) {
			t.Errorf("%s: the next start skips UIDs again", what)
		}
	}
	goesOn("running", running, 1)
	goesOn("interrupted", interrupted, 1)
	goesOn("skipped by hand", skipped, 1)
	goesOn("stopped", stopped, 1)
	goesOn("again", stopped, 1)
	second := filepath.Join(base, "second")
	if code, out := millrace(t, "backup", "--data-dir", stopped, "--to", second); code != exitOK {
		t.Fatalf("millrace backup: exit code %d\n%s", code, out)
	}
	goesOn("backup of a restored one", second, 1)
	goesOn("other collections", running, 2, "--collections=a.b.c")
	skipAhead(running, true)
}

// TestBackupOfWhatIsOff: an online backup has the stores that the server does not use. A server
// that is restored from it goes on with them.
func TestBackupOfWhatIsOff(t *testing.T) {
	relay := newTestRelay(t)
	base := t.TempDir()
	dir, saved := filepath.Join(base, "data"), filepath.Join(base, "saved")
	d := startDaemon(t, relay.url, dir, "--references=on")
	uids := d.uids.storeID()
	d.mustStop(t)
	d = startDaemon(t, relay.url, dir, "--intern=off")
	if m, err := d.backUp(saved); err != nil || m.UIDStore != uids || m.LeftOut != "" {
		t.Fatalf("manifest %+v, want UID store %s: %v", m, uids, err)
	}
	d.mustStop(t)
	if _, err := lookAtReferences(filepath.Join(saved, "refs"), vfs.Default); err != nil {
		t.Error(err)
	}
	d = startDaemon(t, relay.url, saved, "--references=on")
	if got := d.uids.storeID(); got != uids {
		t.Errorf("restored: UID store %s, want %s", got, uids)
	}
}

// makingFS calls made after a directory is made.
type makingFS struct {
	vfs.FS
	made func(dir string)
}

func (fs makingFS) MkdirAll(dir string, mode os.FileMode) error {
	err := fs.FS.MkdirAll(dir, mode)
	fs.made(dir)
	return err
}

// TestTrimWhileBackedUp: the log is trimmed after the copy of the reference store has begun. The
// copy of the log has what that lacks all the same: a server that is restored goes on with its
// table.
func TestTrimWhileBackedUp(t *testing.T) {
	relay := newTestRelay(t)
	base := t.TempDir()
	dir, saved := filepath.Join(base, "data"), filepath.Join(base, "saved")
	var d *testDaemon
	send := func(seq int64) {
		relay.send <- createFrame(t, seq, nil).Data
		waitFor(t, "the event", func() bool { return d.refs.Position().Seq == seq })
	}
	trimmed := false
	hooks := testHooks{fs: makingFS{vfs.Default, func(made string) {
		if made != filepath.Join(saved+".partial", "refs") {
			return
		}
		send(2)
		if err := d.log.TrimTo(t.Context(), 0); err != nil {
			t.Error(err)
		}
		trimmed = d.log.Range().Events == 1
	}}}
	d = startDaemonOn(t, hooks, relay.url, dir, "--references=on")
	send(1)
	if _, err := d.backUp(saved); err != nil || !trimmed {
		t.Fatalf("the event that the copy has was trimmed meanwhile, and no other: %t; %v", trimmed, err)
	}
	if err := d.log.TrimTo(t.Context(), 0); err != nil || d.log.Range().Events != 0 {
		t.Errorf("after it the log has %d events: %v", d.log.Range().Events, err)
	}
	d.mustStop(t)
	d = startDaemon(t, relay.url, saved, "--references=on")
	if g := d.refs.Generation(); g.Number != 1 || d.refs.Position().Seq != 2 {
		t.Errorf("restored: generation %d at %v, want the first at seq 2", g.Number, d.refs.Position())
	}
}

// failToStart starts a server on a restored directory that ends after it has skipped UIDs: the
// static edges of its graph are damaged.
func failToStart(t *testing.T, relay, dir string) {
	t.Helper()
	static := writeFile(t, filepath.Join(dir, "graph.static"), "x")
	code, out := millrace(t, serveArgs("", "--relay", relay, "--data-dir", dir, "--references=on", "--graph")...)
	if code == exitOK || !strings.Contains(out, "UIDs are skipped") || !strings.Contains(out, "graph.static") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if err := os.Remove(static); err != nil {
		t.Fatal(err)
	}
}

// TestHoldLog: the log keeps all that the reference store would have to read again after a crash.
func TestHoldLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	open := func(fs vfs.FS) *references.Store {
		s, err := references.Open(references.Config{Dir: "refs", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	d := &daemon{refs: open(fs)}
	if err := d.refs.Begin("", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: 7}}
	if err := errors.Join(d.refs.Hydrate(t.Context(), &b), d.refs.Apply(&b)); err != nil {
		t.Fatal(err)
	}
	held, left := d.holdLog(), open(fs.CrashClone(vfs.CrashCloneCfg{})).Position()
	if held != left {
		t.Errorf("the log may trim up to %v, and after a crash the store is at %v", held, left)
	}
}

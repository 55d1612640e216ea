package replay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
)

// Checkpoints that are made while the log is written are logs. Each has the events up to its
// position, no more and no fewer, and all that was committed before it was asked for.
func TestCheckpointOfARunningLog(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, nil, clock)
	cfg.Dir = filepath.Join(t.TempDir(), "log")
	a := tenBlocks(t, cfg, clock)

	const copies = 4
	type result struct {
		dir string
		at  Progress
		err error
	}
	results := make(chan result)
	go func() { // ends when it has made them
		defer close(results)
		for i := range copies {
			dir := filepath.Join(filepath.Dir(cfg.Dir), fmt.Sprint("copy", i))
			at, err := a.l.Checkpoint(dir)
			results <- result{dir, at, err}
		}
	}()
	var got []result
	for seq := int64(11); len(got) < copies; seq++ {
		clock.advance(time.Second)
		a.append(a.block(1, seq, seq, format.Place{Seq: seq}))
		select {
		case r := <-results:
			got = append(got, r)
		default:
		}
	}
	for _, r := range got {
		if r.err != nil {
			t.Fatal(r.err)
		}
		c := cfg
		c.Dir, c.Registerer = r.dir, nil
		l := mustOpen(t, c)
		have := l.Progress()
		if have != r.at || have.Seq < 10 {
			t.Errorf("%s ends at %+v, but %+v was returned", r.dir, have, r.at)
		}
		reader := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
		var want []string
		for seq := int64(1); seq <= have.Seq; seq++ {
			want = append(want, fmt.Sprintf("1-%d-0", seq))
		}
		b := &lines{t: t, l: l, clock: clock, stamp: have.TimeUS}
		if diff := cmp.Diff(want, strings.Fields(b.read(reader))); diff != "" {
			t.Errorf("%s: -want +got\n%s", r.dir, diff)
		}
		// and it goes on from there
		b.append(b.block(1, have.Seq+1, have.Seq+1, format.Place{Seq: have.Seq + 1}))
	}
	if _, err := a.l.Checkpoint(got[0].dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("a checkpoint over another: %v", err)
	}
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.l.Checkpoint(filepath.Join(t.TempDir(), "late")); !errors.Is(err, ErrClosed) {
		t.Errorf("a checkpoint of a closed log: %v", err)
	}
}

// A log whose process was killed is copied with everything that was committed, what is in the
// write-ahead log only included.
func TestCheckpointClosed(t *testing.T) {
	clock := newTestClock()
	fs := vfs.NewCrashableMem()
	a := tenBlocks(t, testConfig(t, fs, clock), clock)
	at := a.l.Progress()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	got, err := CheckpointClosed(readOnly(t, "log", crashed), "copy")
	if err != nil || got != at {
		t.Fatalf("progress %+v, error %v; want %+v", got, err, at)
	}
	for _, dir := range []string{"log", "copy"} { // the original is as good as before
		cfg := testConfig(t, crashed, clock)
		cfg.Dir = dir
		l := mustOpen(t, cfg)
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
		if got := (&lines{t: t, l: l}).read(r); got != "1-1-0 1-2-0 1-3-0 1-4-0 1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0" {
			t.Errorf("%s: got %q", dir, got)
		}
	}

	if _, err := CheckpointClosed(readOnly(t, "log", crashed), "copy2"); !errors.Is(err, ErrInUse) {
		t.Errorf("of a log in use: %v", err)
	}
	if _, err := CheckpointClosed(readOnly(t, "absent", crashed), "copy3"); !errors.Is(err, ErrNoLog) {
		t.Errorf("of no log: %v", err)
	}
	if _, err := crashed.Stat("absent"); !os.IsNotExist(err) {
		t.Errorf("copying what is not there left something: %v", err)
	}
}

func TestCheckpointReadOnly(t *testing.T) {
	clock := newTestClock()
	fs := vfs.NewMem()
	if err := tenBlocks(t, testConfig(t, fs, clock), clock).l.Close(); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, readOnly(t, "log", fs))
	if _, err := l.Checkpoint("copy"); !errors.Is(err, errReadOnly) {
		t.Errorf("error %v", err)
	}
}

// closedFS opens no file.
type closedFS struct{ vfs.FS }

func (closedFS) Open(string, ...vfs.OpenOption) (vfs.File, error) { return nil, os.ErrPermission }

// TestUnreadableCheckpoint: nothing stays of a copy whose end cannot be found out.
func TestUnreadableCheckpoint(t *testing.T) {
	clock, fs := newTestClock(), vfs.NewMem()
	a := tenBlocks(t, testConfig(t, fs, clock), clock)
	a.l.cfg.FS = closedFS{fs}
	if _, err := a.l.Checkpoint("copy"); err == nil {
		t.Fatal("a copy is made that cannot be read")
	}
	if _, err := fs.Stat("copy"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is left of it: %v", err)
	}
}

package replay

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/replay/internal/format"
	"millrace/translate"
)

var errDisk = errors.New("the disk said no")

// failingFS fails every operation that fails picks, once it is armed.
type failingFS struct {
	armed atomic.Bool
	fails func(errorfs.Op) bool
	err   error // nil: errDisk
}

func (f *failingFS) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f.armed.Load() && f.fails(op) {
			return cmp.Or(f.err, errDisk)
		}
		return nil
	}))
}

// TestNoOpenFilesLeft: the advice for a store that can open no file is another than for a disk that
// fails.
func TestNoOpenFilesLeft(t *testing.T) {
	for name, fails := range map[string]func(errorfs.Op) bool{
		"table": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate },
		"log":   func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpCreate },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 6)
			_ = w.log.Close()
			faults := &failingFS{fails: fails, err: &os.PathError{Op: "open", Path: "000007", Err: syscall.EMFILE}}
			w.cfg.FS = faults.wrap(w.fs)
			w.open()
			w.append()
			faults.armed.Store(true)
			go func() { _ = w.log.store.Pebble().Flush() }()
			err := w.log.Run(t.Context())
			if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "LimitNOFILE=") || strings.Contains(err.Error(), "check the disk") {
				t.Errorf("run: %v", err)
			}
			w.cfg.FS = w.fs.CrashClone(vfs.CrashCloneCfg{})
			_ = w.log.Close()
			// or Pebble, which nothing stopped, tries again as long as the tests run
			faults.armed.Store(false)
			w.open()
			w.readAll()
		})
	}
}

// TestFailedBegin: a new log whose beginning does not reach the disk says so once, though closing
// it reports that again.
func TestFailedBegin(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	faults := &failingFS{fails: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log")
	}}
	faults.armed.Store(true)
	cfg.FS = faults.wrap(cfg.FS)
	l, err := Open(cfg)
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, ErrFailed) || strings.Count(err.Error(), errDisk.Error()) != 1 {
		t.Errorf("got %v", err)
	}
}

// TestFailedWrites: after a failed sync or write Append never works again and Run says why. What
// was committed before is there after a restart, and the failed block whole or not at all.
func TestFailedWrites(t *testing.T) {
	for name, fails := range map[string]func(errorfs.Op) bool{
		"sync":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
		"write": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite },
		"both": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileWrite
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			_ = w.log.Close()
			faults := &failingFS{fails: fails}
			w.cfg.FS = faults.wrap(w.fs)
			w.open()
			for range 10 {
				w.append()
			}
			w.check()
			reader := mustRead(t, w.log, ReaderConfig{Cursor: Cursor{}})
			before := w.m.clone()
			faults.armed.Store(true)
			b := w.block(w.m)
			for len(b.events) == 0 {
				b = w.block(w.m)
			}
			sealed := b.seal(t, w.log)
			w.m.append(b, sealed.storedBytes)
			if err := w.log.Append(sealed); !errors.Is(err, ErrFailed) {
				t.Fatalf("append: %v", err)
			}
			faults.armed.Store(false) // a disk that works again changes nothing
			var c Chunk
			if err := reader.Next(&c); err != nil || c.Events != 0 {
				t.Errorf("a reader sees %d events that may not be durable, %v", c.Events, err)
			}
			if err := w.log.Append(b.seal(t, w.log)); !errors.Is(err, ErrFailed) {
				t.Errorf("append after the failure: %v", err)
			}
			if err := w.log.Run(t.Context()); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), errDisk.Error()) {
				t.Errorf("run: %v", err)
			}
			w.fs = w.fs.CrashClone(vfs.CrashCloneCfg{})
			if err := w.log.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("close: %v", err)
			}
			w.cfg.FS = w.fs
			w.open()
			if w.log.Progress().Seq == before.seq {
				w.m = before
			}
			w.check()
			w.readAll()
			w.append()
			w.readAll()
		})
	}
}

// TestUnreadableBlob: a blob file that cannot be read is reported as that, and not as a log that
// holds something wrong.
func TestUnreadableBlob(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.hooks.blobValue = 1
	a := tenBlocks(t, cfg, clock)
	if err := a.l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	position := a.l.Range().Newest.Position
	position.Seq = 5
	_ = a.l.Close()
	faults := &failingFS{fails: func(op errorfs.Op) bool {
		return strings.HasSuffix(op.Path, ".blob") && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen)
	}}
	cfg.FS = faults.wrap(cfg.FS)
	l := mustOpen(t, cfg)
	faults.armed.Store(true)
	err := readAllOf(l, cfg, position)
	var c *CorruptionError
	if errors.As(err, &c) || !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "read plain part of block") {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
	if _, err := Open(cfg); errors.As(err, &c) || !errors.Is(err, errDisk) || !strings.Contains(err.Error(), ".blob") {
		t.Errorf("open: %v", err)
	}
}

// TestFailedFlush: what fails in Pebble's background stops the log too.
func TestFailedFlush(t *testing.T) {
	w := newWorld(t, 6)
	_ = w.log.Close()
	faults := &failingFS{fails: func(op errorfs.Op) bool {
		return strings.HasSuffix(op.Path, ".sst") && op.Kind != errorfs.OpFileClose
	}}
	w.cfg.FS = faults.wrap(w.fs)
	w.open()
	w.append()
	faults.armed.Store(true)
	go func() { _ = w.log.store.Pebble().Flush() }()
	done := make(chan error, 1)
	go func() { done <- w.log.Run(t.Context()) }()
	select {
	case err := <-done:
		if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody heard of a failed flush")
	}
	b := w.block(w.m)
	if err := w.log.Append(b.seal(t, w.log)); !errors.Is(err, ErrFailed) {
		t.Errorf("append: %v", err)
	}
	w.cfg.FS = w.fs.CrashClone(vfs.CrashCloneCfg{})
	_ = w.log.Close()
	// or Pebble, which nobody stopped, would try again as long as the tests run
	faults.armed.Store(false)
	w.open()
	w.readAll()
}

// TestFailedOpen: a disk that fails while the log opens is an error, not an exit.
func TestFailedOpen(t *testing.T) {
	for i := range 40 {
		fs := vfs.NewMem()
		n := 0
		faults := &failingFS{fails: func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate {
				n++
			}
			return n > i
		}}
		faults.armed.Store(true)
		cfg := testConfig(t, fs, newTestClock())
		cfg.FS = lockedFS(faults, fs)
		l, err := Open(cfg)
		faults.armed.Store(false)
		if err == nil {
			if err := l.Close(); err != nil && !errors.Is(err, ErrFailed) {
				t.Errorf("fault %d: close: %v", i, err)
			}
			continue
		}
		if !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("fault %d: %v", i, err)
		}
	}
}

// lockedFS makes the counting of faults safe for Pebble's goroutines.
func lockedFS(f *failingFS, fs vfs.FS) vfs.FS {
	inner := f.fails
	turn := make(chan struct{}, 1)
	f.fails = func(op errorfs.Op) bool {
		turn <- struct{}{}
		defer func() { <-turn }()
		return inner(op)
	}
	return f.wrap(fs)
}

// TestCorruption flips a bit in, or takes away, each thing the log stores, and reads.
func TestCorruption(t *testing.T) {
	clock := newTestClock()
	for _, r := range []format.Range{format.RangeIndex, format.RangePlain, format.RangeZstd, format.RangeSeq, format.RangeGap, format.RangeDictionary, format.RangeMeta,
		format.RangeSpan, format.RangeSpanDIDs, format.RangeCopiesIndex, format.RangeCopiesPlain, format.RangeCopiesZstd, format.RangeSlimIndex,
		format.RangeReferences, format.RangeSpanSubjects} {
		for _, how := range []string{"flip", "cut", "delete", "flip, by collection"} {
			if how == "flip, by collection" && r != format.RangeSpan {
				continue
			}
			if how == "delete" && (r == format.RangeIndex || r == format.RangeSeq || r == format.RangeGap || r == format.RangeDictionary || r == format.RangeSpan || r == format.RangeSlimIndex) {
				continue // nothing else refers to it; Pebble itself notices when a table is lost
			}
			t.Run(r.String()+"/"+how, func(t *testing.T) {
				cfg := testConfig(t, vfs.NewMem(), clock)
				cfg.Retention = 2 * time.Hour // so that a span covers two of the blocks
				a := tenBlocks(t, cfg, clock) // each with references
				other := a.block(1, 11, 11, format.Place{Seq: 11})
				other.events[0].kind, other.events[0].operation, other.events[0].collection, other.events[0].refs = translate.KindIdentity, 0, "", nil
				a.append(other)
				clock.advance(time.Hour / 2)
				b := a.block(1, 20, 20, format.Place{Seq: 20})
				b.gap = &Gap{From: a.l.Range().Newest.Position, To: a.l.Range().Newest.Position, TimeUS: b.events[0].timeUS}
				a.append(b)
				position := a.l.Range().Newest.Position
				position.Seq = 5
				_ = a.l.Close()
				damage(t, cfg, r, strings.TrimSuffix(how, ", by collection"))
				var err error
				if strings.HasSuffix(how, ", by collection") { // what is read first of everything goes by DIDs
					filter := must(NewFilter(FilterConfig{Collections: []string{"com.example.none"}}))
					_, err = drainOf(t, mustOpen(t, cfg), ReaderConfig{Cursor: TimeCursor(0), Filter: filter})
				} else {
					err = readEverything(t, cfg, position)
				}
				var c *CorruptionError
				if !errors.As(err, &c) {
					t.Fatalf("got %v", err)
				}
				if c.Part != r.String() || r != format.RangeMeta && r != format.RangeSeq && c.Key == 0 {
					t.Errorf("it names part %q, key %d", c.Part, c.Key)
				}
				if !strings.Contains(err.Error(), "restore") {
					t.Errorf("it does not say what to do: %v", err)
				}
			})
		}
	}
}

// damage changes one value of the range in the closed log, or all shards of DIDs.
func damage(t *testing.T, cfg Config, r format.Range, how string) {
	t.Helper()
	db, err := pebble.Open(cfg.Dir, &pebble.Options{FS: cfg.FS, Logger: silent{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	it.First()
	for i := 0; i < 4 && r >= format.RangeSeq && r != format.RangeGap && r != format.RangeSpan && r < format.RangeSpanDIDs; i++ {
		it.Next()
	}
	if r == format.RangeMeta {
		it.SeekGE(format.MetaKey(format.MetaState))
	}
	for ; it.Valid(); it.Next() {
		key, value := append([]byte(nil), it.Key()...), append([]byte(nil), it.Value()...)
		switch how {
		case "flip":
			value[len(value)/2] ^= 0x10
			err = db.Set(key, value, pebble.Sync)
		case "cut":
			err = db.Set(key, value[:len(value)-3], pebble.Sync)
		case "delete":
			err = db.Delete(key, pebble.Sync)
		}
		if err != nil {
			t.Fatal(err)
		}
		// of which a reader looks only at those shards that its DIDs are in
		if r != format.RangeSpanDIDs && r != format.RangeSpanSubjects {
			return
		}
	}
}

// readEverything is readAllOf for a log that is opened for it. If that finds damage the log must be
// failed, so that the process stops.
func readEverything(t *testing.T, cfg Config, p translate.Position) error {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	return readAllOf(l, cfg, p)
}

// readAllOf reads all of the log in several ways; it returns the first error.
func readAllOf(l *Log, cfg Config, p translate.Position) error {
	first := l.Range().Oldest
	for _, rc := range []ReaderConfig{
		{Cursor: PositionCursor(p)}, {Cursor: TimeCursor(first.TimeUS)}, {Cursor: TimeCursor(0), Extended: true},
		{Cursor: TimeCursor(0), Dictionary: cfg.Dictionaries.Stored().ID()},
		{Cursor: TimeCursor(0), Filter: must(NewFilter(FilterConfig{DIDs: []string{testDID(1)}}))},
		{Cursor: TimeCursor(0), Filter: must(NewFilter(FilterConfig{Collections: []string{"com.example.none"}}))},
		{Cursor: TimeCursor(0), Filter: must(NewFilter(FilterConfig{Subjects: []uint64{testSubject(1).UID}}))},
		{Cursor: TimeCursor(0), Filter: must(NewFilter(FilterConfig{Kinds: Kinds(translate.KindIdentity)})), Dictionary: cfg.Dictionaries.Stored().ID()},
	} {
		r, err := l.NewReader(rc)
		for err == nil {
			var c Chunk
			if err = r.Next(&c); c.Live {
				break
			}
		}
		if err != nil {
			var c *CorruptionError
			if errors.As(err, &c) && l.store.Err() == nil {
				return fmt.Errorf("the log was not failed by %w", err)
			}
			return err
		}
	}
	return nil
}

// silent is a logger for Pebble.
type silent struct{}

func (silent) Infof(string, ...any)      {}
func (silent) Errorf(string, ...any)     {}
func (silent) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

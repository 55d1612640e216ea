package pebbleguard

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errDisk = errors.New("the disk's own error")

// faultRun opens a database, uses each call of it, and closes it; it returns the first error.
func faultRun(cfg Config, keys string) (err error) {
	db, err := Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if len(db.Damage) > 0 {
		return db.Damage[0]
	}
	for _, key := range strings.Split(keys, "") {
		switch v, ok, err := db.Value([]byte(key)); {
		case err != nil:
			return err
		case !ok || !bytes.Equal(v, valueOf(key)):
			return fmt.Errorf("read %s: %v, %q", key, ok, v)
		}
	}
	if cfg.ReadOnly {
		return nil
	}
	b := db.Pebble().NewBatch()
	defer db.CloseBatch(b)
	if err := errors.Join(b.Set([]byte("f"), valueOf("f"), nil), db.Commit(b, true)); err != nil {
		return err
	}
	if err := db.Mark().Write([]byte("f")); err != nil {
		return err
	}
	return db.Guard(db.Pebble().Flush)
}

// TestEachFailedCall: wherever one call of the disk fails, there is no error but the disk's own, no
// panic and no wrong value. An error of what only pebbleguard looks at is always reported. What was
// committed is there at the next start, and the directory is not in use.
func TestEachFailedCall(t *testing.T) {
	existing := vfs.NewCrashableMem()
	db := mustOpen(t, testConfig(existing))
	for _, key := range []string{"a", "b", "c"} {
		mustSet(t, db, key, valueOf(key))
		if key == "b" {
			if err := db.Pebble().Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Mark().Write([]byte("c")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	for name, tc := range map[string]struct {
		base                *vfs.MemFS
		keys                string
		readOnly, keepGoing bool
	}{
		"new": {base: vfs.NewCrashableMem()}, "existing": {base: existing, keys: "abc"},
		"read only": {base: existing, keys: "abc", readOnly: true}, "checker": {base: existing, keys: "abc", readOnly: true, keepGoing: true},
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				mem := tc.base.CrashClone(vfs.CrashCloneCfg{})
				var calls atomic.Int64
				var failed atomic.Pointer[errorfs.Op]
				cfg := testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if calls.Add(1) != n {
						return nil
					}
					failed.Store(&op)
					return errDisk
				})))
				cfg.ReadOnly, cfg.KeepGoing = tc.readOnly, tc.keepGoing
				cfg.CheckMark = func(db *DB, mark []byte) error {
					_, ok, err := db.Value(mark)
					if err == nil && !ok {
						err = ErrLost
					}
					return err
				}
				err := faultRun(cfg, tc.keys)
				op := failed.Load()
				if op == nil {
					if err != nil {
						t.Errorf("no call failed: %v", err)
					}
					if n < 30 {
						t.Errorf("only %d calls", n)
					}
					return
				}
				at := fmt.Sprintf("%d, kind %d of %s", n, op.Kind, op.Path)
				base := path.Base(op.Path)
				own := base == MarkFile || base == creatingFile || op.Kind == errorfs.OpList || op.Kind == errorfs.OpMkdirAll ||
					op.Kind == errorfs.OpLock || op.Kind == errorfs.OpStat && (base == "db" || path.Ext(base) == ".sst" || path.Ext(base) == ".blob")
				switch {
				case err == nil && own:
					t.Errorf("%s: no error", at)
				case err != nil && (!errors.Is(err, errDisk) && !strings.Contains(err.Error(), errDisk.Error()) || strings.Contains(err.Error(), "panic in the store")):
					t.Errorf("%s: %v", at, err)
				}
				again := testConfig(mem)
				if errors.Is(err, ErrFailed) { // Pebble stopped where it was
					again.FS = mem.CrashClone(vfs.CrashCloneCfg{})
				}
				if err := faultRun(again, tc.keys); err != nil {
					t.Errorf("%s: after that: %v", at, err)
				}
			}
		})
	}
}

// TestIterator: each step leaves the iterator where a sorted list says.
func TestIterator(t *testing.T) {
	db := mustOpen(t, testConfig(vfs.NewMem()))
	defer mustClose(t, db)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("%02d", 2*i))
		mustSet(t, db, keys[i], valueOf(keys[i]))
		if i == 10 {
			if err := db.Pebble().Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("04"), UpperBound: []byte("34")})
	if err != nil {
		t.Fatal(err)
	}
	keys = keys[2:17]
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	it.First()
	at, steps := 0, 8
	for n := range 2000 {
		key := fmt.Sprintf("%02d", rng.IntN(40))
		geq, found := slices.BinarySearch(keys, key)
		ok := false
		step := rng.IntN(steps)
		switch steps = 8; {
		case step == 0:
			ok, at = it.First(), 0
		case step == 1:
			ok, at = it.Last(), len(keys)-1
		case step == 2:
			ok, at = it.SeekGE([]byte(key)), geq
		case step == 3:
			ok, at = it.SeekLT([]byte(key)), geq-1
		case step == 4 && found:
			ok, at, steps = it.SeekPrefixGE([]byte(key)), geq, 4 // there is no way back from it
		case step%2 == 1 && at < len(keys):
			ok, at = it.Next(), at+1
		case at >= 0:
			ok, at = it.Prev(), at-1
		default:
			ok, at = it.Last(), len(keys)-1
		}
		want := at >= 0 && at < len(keys)
		if ok != want || it.Valid() != want || it.Error() != nil {
			t.Fatalf("seed %d, step %d: %v, valid %v, %v, want %v", seed, n, ok, it.Valid(), it.Error(), want)
		}
		if !want {
			continue
		}
		v, err := it.ValueAndErr()
		v = bytes.Clone(v) // it is good until the next call
		if string(it.Key()) != keys[at] || err != nil || !bytes.Equal(v, valueOf(keys[at])) || !bytes.Equal(it.Value(), v) {
			t.Fatalf("seed %d, step %d: at %s, want %s: %q, %v", seed, n, it.Key(), keys[at], v, err)
		}
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
}

// TestPanicInIterator: after a panic of Pebble's it is at no value, and says why until it is
// closed.
func TestPanicInIterator(t *testing.T) {
	for _, keepGoing := range []bool{false, true} {
		cfg := testConfig(makeDB(t))
		cfg.ReadOnly, cfg.KeepGoing = keepGoing, keepGoing
		db := mustOpen(t, cfg)
		it, err := db.NewIter(nil)
		if err != nil || !it.First() {
			t.Fatal(err)
		}
		if it.move(func() bool { panic("of Pebble's") }) || it.Valid() || it.Next() {
			t.Error("it goes on")
		}
		_, valueErr := it.ValueAndErr()
		for _, err := range []error{it.Error(), valueErr, it.Close()} {
			if c := (*CorruptionError)(nil); !errors.As(err, &c) || !strings.HasPrefix(err.Error(), "the test store is damaged: panic in the store: of Pebble's") {
				t.Errorf("%v", err)
			}
		}
		if failed := db.Err() != nil; failed == keepGoing {
			t.Errorf("keep going %v: %v", keepGoing, db.Err())
		}
		if _, err := (&Iterator{db: db}).ValueAndErr(); err == nil { // there is no iterator of Pebble's
			t.Error("a panic of ValueAndErr is no error")
		}
		if err := (&Iterator{db: db}).Close(); err == nil {
			t.Error("a panic of Close is no error")
		}
		_ = db.Close()
	}
	db := mustOpen(t, testConfig(vfs.NewMem()))
	if err := db.Guard(func() error { panic("here") }); !errors.Is(err, ErrFailed) || !errors.Is(db.Err(), ErrFailed) || !strings.Contains(err.Error(), "panic in the store: here") {
		t.Errorf("guard: %v", err)
	}
}

// TestNothingAfterAFailure: a database that has failed says so to every call, and with the first
// failure.
func TestNothingAfterAFailure(t *testing.T) {
	db := mustOpen(t, testConfig(makeDB(t)))
	if err := db.FailOn("try", nil); err != nil || db.Err() != nil {
		t.Fatal(err, db.Err())
	}
	first := db.FailOn("try", errDisk)
	want := "the store has failed: try: the disk's own error (check the disk and its free space, then start the process again: what was committed is safe)"
	if first == nil || first.Error() != want || !errors.Is(first, errDisk) {
		t.Errorf("%v", first)
	}
	if err := db.FailOn("again", errors.New("another")); err != first {
		t.Errorf("a second failure: %v", err)
	}
	db.Fail(errors.New("a third"))
	<-db.Failed()
	_, err := db.NewIter(nil)
	errs := []error{err, db.Err(), db.Checkpoint("copy"), db.Close(), db.Guard(func() error { t.Error("it is called"); return nil })}
	_, _, err = db.Get([]byte("a"))
	errs = append(errs, err)
	_, ok, err := db.Value([]byte("a"))
	errs = append(errs, err, db.Commit(db.Pebble().NewBatch(), true))
	for i, err := range errs {
		if err != first || ok {
			t.Errorf("call %d: %v", i, err)
		}
	}
	reader := testConfig(makeDB(t))
	reader.ReadOnly = true
	db = mustOpen(t, reader)
	if _, err := db.NewIter(nil); err != nil { // the failure comes between this and its Close
		t.Fatal(err)
	}
	db.Fail(errDisk)
	mustClose(t, db) // it writes nothing
	mustClose(t, mustOpen(t, reader))
	reader.Dir = "nowhere"
	if _, err := Open(reader); !errors.Is(err, ErrNoStore) || err.Error() != "there is no store in nowhere" {
		t.Errorf("no database: %v", err)
	}
	if names, err := reader.FS.List("nowhere"); err == nil {
		t.Errorf("a reader made %v", names)
	}
}

// TestClean: damage that Pebble reports becomes one kind of error, with what can be known of it;
// others stay as they are.
func TestClean(t *testing.T) {
	c := testConfig(nil)
	damage := pebble.ErrCorruption
	known := c.corrupt("x.sst", errDisk)
	for _, tc := range []struct {
		err, is error
		text    string
	}{
		{err: pebble.ErrNotFound, is: pebble.ErrNotFound, text: pebble.ErrNotFound.Error()},
		{err: errDisk, is: errDisk, text: errDisk.Error()},
		{err: fmt.Errorf("read: %w", known), is: errDisk, text: "the test store is damaged: x.sst: the disk's own error (ask the test)"},
		{err: damage, is: damage, text: "the test store is damaged: pebble: corruption (ask the test)"},
	} {
		if err := c.clean(tc.err); !errors.Is(err, tc.is) || err.Error() != tc.text {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
	if c.clean(nil) != nil {
		t.Error("no error is one")
	}
	if e := (&CorruptionError{Store: "s", Err: errDisk, After: []byte("k")}); e.Error() != "the s is damaged: the disk's own error" || string(e.ReadOn()) != "k" {
		t.Errorf("%v", e)
	}
	fs := makeDB(t)
	for _, table := range named(t, fs, ".sst") {
		b := readFile(t, fs, table)
		b[20] ^= 1 // of its first block
		writeFile(t, fs, table, b)
	}
	cfg := testConfig(fs)
	cfg.ReadOnly, cfg.KeepGoing = true, true
	db := mustOpen(t, cfg)
	for key, after := range map[string]string{"a": "b\x00", "c": "d\x00"} {
		_, _, err := db.Value([]byte(key))
		var c *CorruptionError
		if !errors.As(err, &c) || string(c.After) != after {
			t.Errorf("%s: %v, then read on at %q", key, err, c.After)
		}
	}
	mustClose(t, db)
}

// TestLog: what Pebble says goes to the log at its level, and what several files lack is one line.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	fs := makeDB(t)
	cfg := testConfig(fs)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a = slog.Attr{}
		}
		return a
	}}))
	d := &DB{cfg: cfg, failed: make(chan struct{})}
	l, events := (*pebbleLogger)(d), d.events()
	l.Infof("not at this level")
	l.Errorf("cannot %s%s\n", "read", carrier)
	events.DiskSlow(pebble.DiskSlowInfo{Path: "x.sst", OpType: vfs.OpTypeSync, Duration: time.Second})
	want := "level=ERROR msg=pebble message=\"cannot read\"\nlevel=WARN msg=\"disk is slow\" path=x.sst op=sync took=1s\n"
	if log.String() != want {
		t.Errorf("%s", log.String())
	}
	events.DataCorruption(pebble.DataCorruptionInfo{Path: "x.sst", Details: errDisk})
	if err := d.Err(); err == nil || err.Error() != "the store has failed: the test store is damaged: x.sst: the disk's own error (ask the test)" {
		t.Errorf("%v", err)
	}
	d = &DB{cfg: cfg, failed: make(chan struct{})}
	d.events().BackgroundError(pebble.ErrCorruption)
	if c := (*CorruptionError)(nil); !errors.As(d.Err(), &c) || !strings.Contains(d.Err().Error(), "background work of the store: ") {
		t.Errorf("%v", d.Err())
	}
	log.Reset()
	blobs := named(t, fs, ".blob")
	remove(t, fs, blobs[0])
	if _, err := Open(cfg); err == nil || strings.Contains(log.String(), "damaged") {
		t.Errorf("one file: %v, %s", err, log.String())
	}
	remove(t, fs, blobs[1])
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), blobs[0]) || !strings.Contains(log.String(), "problems=2") || !strings.Contains(log.String(), blobs[1]) {
		t.Errorf("two files: %v, %s", err, log.String())
	}
	checker := cfg
	checker.ReadOnly, checker.KeepGoing = true, true
	db := mustOpen(t, checker)
	if len(db.Damage) != 2 || strings.Contains(db.Damage[0].Error(), "ask the test") || !strings.Contains(db.Damage[1].Error(), blobs[1]) {
		t.Errorf("%v", db.Damage)
	}
	_ = db.Close()
}

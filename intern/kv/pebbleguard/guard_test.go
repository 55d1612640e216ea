package pebbleguard

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
)

// testConfig is of a database that puts values of 100 bytes into value files.
func testConfig(fs vfs.FS) Config {
	opts := &pebble.Options{FormatMajorVersion: pebble.FormatNewest, DisableAutomaticCompactions: true}
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 100, MaxBlobReferenceDepth: 8, TargetGarbageRatio: 1}
	}
	return Config{Dir: "db", FS: fs, Store: "test store", Advice: "ask the test", Options: opts}
}

func mustOpen(t *testing.T, cfg Config) *DB {
	t.Helper()
	db, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func mustClose(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func mustSet(t *testing.T, db *DB, key string, value []byte) {
	t.Helper()
	b := db.Pebble().NewBatch()
	if err := errors.Join(b.Set([]byte(key), value, nil), db.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
}

func valueOf(key string) []byte { return bytes.Repeat([]byte(key), 200) }

// makeDB leaves a database with two tables and two value files. Keys a and b are in the first of
// each, c and d in the second. e is only in the write-ahead log.
func makeDB(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	db := mustOpen(t, testConfig(fs))
	for _, keys := range []string{"ab", "cd"} {
		for _, key := range strings.Split(keys, "") {
			mustSet(t, db, key, valueOf(key))
		}
		if err := db.Pebble().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mustSet(t, db, "e", valueOf("e"))
	mustClose(t, db)
	return fs
}

// hashes returns the files of db with hashes of their bytes.
func hashes(t *testing.T, fs vfs.FS) map[string][32]byte {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string][32]byte)
	for _, name := range names {
		sums[name] = sha256.Sum256(readFile(t, fs, name))
	}
	return sums
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(fs.PathJoin("db", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(fs.PathJoin("db", name), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// named returns the files whose names begin or end so, in order.
func named(t *testing.T, fs vfs.FS, part string) []string {
	t.Helper()
	names := slices.Sorted(maps.Keys(hashes(t, fs)))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, part) && !strings.HasSuffix(name, part) })
}

func remove(t *testing.T, fs vfs.FS, part string) {
	t.Helper()
	found := named(t, fs, part)
	if len(found) == 0 {
		t.Fatalf("there is no %s", part)
	}
	for _, name := range found {
		if err := fs.Remove(fs.PathJoin("db", name)); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRefused expects that opening, for reading only or not, names a file, has these parts in its
// error, and changes nothing.
func wantRefused(t *testing.T, fs vfs.FS, file string, parts ...string) (err error) {
	t.Helper()
	before := hashes(t, fs)
	for _, readOnly := range []bool{false, true} {
		cfg := testConfig(fs)
		cfg.ReadOnly = readOnly
		_, err = Open(cfg)
		var c *CorruptionError
		if !errors.As(err, &c) || c.File != file || slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(err.Error(), p) }) {
			t.Fatalf("read only %v: %v", readOnly, err)
		}
		if diff := cmp.Diff(before, hashes(t, fs)); diff != "" {
			t.Errorf("read only %v: -before +after\n%s", readOnly, diff)
		}
	}
	return err
}

// TestRefuse: a directory that holds files of a database, but is none, is refused, and stays as it
// is.
func TestRefuse(t *testing.T) {
	for name, gone := range map[string][]string{
		"manifest marker":      {"marker.manifest."},
		"format marker":        {"marker.format-version."},
		"both markers":         {"marker."},
		"all but tables":       {"marker.", "MANIFEST-", ".blob", ".log", "OPTIONS-", MarkFile},
		"all but value files":  {"marker.", "MANIFEST-", ".sst", ".log", "OPTIONS-", MarkFile},
		"all but the log":      {"marker.", "MANIFEST-", ".sst", ".blob", "OPTIONS-", MarkFile},
		"all but the manifest": {"marker.", ".log", ".sst", ".blob", "OPTIONS-", MarkFile},
		"all but the mark":     {"marker.", "MANIFEST-", ".sst", ".blob", ".log", "OPTIONS-"},
		"the lock too":         {"marker.", "LOCK"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := makeDB(t)
			for _, part := range gone {
				remove(t, fs, part)
			}
			wantRefused(t, fs, "db", "marker.", "ask the test")
		})
	}
}

// TestMissingManifest: it is named, and nothing is changed.
func TestMissingManifest(t *testing.T) {
	fs := makeDB(t)
	manifest := "db/" + named(t, fs, "MANIFEST-")[0]
	remove(t, fs, "MANIFEST-")
	wantRefused(t, fs, manifest, "it is missing", "ask the test")
}

// TestDamagedOptions: the file is named, and nothing is changed. Without it the database is sound.
func TestDamagedOptions(t *testing.T) {
	fs := makeDB(t)
	options := named(t, fs, "OPTIONS-")
	name := options[len(options)-1]
	writeFile(t, fs, name, append(readFile(t, fs, name), "torn"...))
	if err := wantRefused(t, fs, "db/"+name, "remove this file"); strings.Contains(err.Error(), "ask the test") {
		t.Error(err)
	}
	remove(t, fs, name)
	db := mustOpen(t, testConfig(fs))
	defer mustClose(t, db)
	if _, ok, err := db.Value([]byte("e")); err != nil || !ok {
		t.Errorf("without the file: found %v, %v", ok, err)
	}
}

// TestPowerLossAfterCreation: a database in directories that it made is there after a power loss
// that forgets what was not synced, names of directories included.
func TestPowerLossAfterCreation(t *testing.T) {
	fs := vfs.NewCrashableMem()
	cfg := testConfig(fs)
	cfg.Dir = "some/where/db"
	db := mustOpen(t, cfg)
	mustSet(t, db, "a", valueOf("a"))
	cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, db)
	db = mustOpen(t, cfg)
	defer mustClose(t, db)
	if _, ok, err := db.Value([]byte("a")); err != nil || !ok {
		t.Errorf("what was committed is lost: found %v, %v", ok, err)
	}
}

// TestInterruptedCreation: wherever the making of a database is cut off, the next Open makes it.
func TestInterruptedCreation(t *testing.T) {
	for i := range int64(200) {
		fs := vfs.NewCrashableMem()
		var n atomic.Int64
		cut := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && n.Add(1) > i {
				return errors.New("cut off")
			}
			return nil
		}))
		db, err := Open(testConfig(cut))
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(i%3) * 50, RNG: rand.New(rand.NewPCG(1, uint64(i)))})
		if err == nil {
			_ = db.Close()
		}
		again, openErr := Open(testConfig(after))
		if openErr != nil {
			t.Fatalf("cut off at write %d: %v", i, openErr)
		}
		mustSet(t, again, "a", valueOf("a"))
		mustClose(t, again)
		if left := named(t, after, creatingFile); len(left) != 0 {
			t.Errorf("cut off at write %d: %v is left", i, left)
		}
		if err == nil {
			return
		}
	}
	t.Error("a database takes more than 200 writes to make")
}

// damages are what may happen to a file; other is one of its kind.
func damages() map[string]func(t *testing.T, fs vfs.FS, name, other string) {
	change := func(f func(b []byte) []byte) func(*testing.T, vfs.FS, string, string) {
		return func(t *testing.T, fs vfs.FS, name, _ string) {
			t.Helper()
			writeFile(t, fs, name, f(readFile(t, fs, name)))
		}
	}
	return map[string]func(t *testing.T, fs vfs.FS, name, other string){
		"footer": change(func(b []byte) []byte { b[len(b)-20] ^= 4; return b }),
		"magic":  change(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"cut":    change(func(b []byte) []byte { return b[:len(b)-7] }),
		"short":  change(func(b []byte) []byte { return b[:10] }),
		"longer": change(func(b []byte) []byte { return append(b, b...) }),
		"empty":  change(func([]byte) []byte { return nil }),
		"missing": func(t *testing.T, fs vfs.FS, name, _ string) {
			t.Helper()
			remove(t, fs, name)
		},
		"exchanged": func(t *testing.T, fs vfs.FS, name, other string) {
			t.Helper()
			a, b := readFile(t, fs, name), readFile(t, fs, other)
			writeFile(t, fs, name, b)
			writeFile(t, fs, other, a)
		},
	}
}

// TestDamagedValueFile: Open refuses it by name and changes nothing. A checker reads what is left.
// In a database that is open a read returns the damage and the database has failed.
func TestDamagedValueFile(t *testing.T) {
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			fs := makeDB(t)
			blobs := named(t, fs, ".blob")
			if len(blobs) != 2 {
				t.Fatalf("value files %v", blobs)
			}
			open := testConfig(fs)
			open.ReadOnly = true
			db := mustOpen(t, open)
			damage(t, fs, blobs[0], blobs[1])
			_, _, err := db.Value([]byte("a"))
			var c *CorruptionError
			if name != "longer" && !errors.As(err, &c) { // a longer one ends like the whole
				t.Errorf("read: %v", err)
			}
			if c != nil && (c.File != "db/"+blobs[0] || !strings.Contains(err.Error(), "ask the test")) {
				t.Errorf("read: %v", err)
			}
			_ = db.Close()

			fs2 := makeDB(t)
			damage(t, fs2, blobs[0], blobs[1])
			before := hashes(t, fs2)
			_, err = Open(testConfig(fs2))
			if !errors.As(err, &c) || c.File != "db/"+blobs[0] || !strings.Contains(err.Error(), "ask the test") {
				t.Errorf("open: %v", err)
			}
			if diff := cmp.Diff(before, hashes(t, fs2)); diff != "" {
				t.Errorf("-before +after\n%s", diff)
			}
			checkAround(t, fs2, blobs[0], "a", name == "exchanged")
		})
	}
}

// checkAround opens a damaged database as checkers do, and reads all of it. Only keys beside bad
// one can be read.
func checkAround(t *testing.T, fs vfs.FS, file, bad string, all bool) {
	t.Helper()
	cfg := testConfig(fs)
	cfg.ReadOnly, cfg.KeepGoing = true, true
	db := mustOpen(t, cfg)
	if len(db.Damage) == 0 || !strings.Contains(db.Damage[0].Error(), file) {
		t.Errorf("damage: %v", db.Damage)
	}
	if _, _, err := db.Value([]byte(bad)); err == nil && !strings.Contains(db.Damage[0].Error(), "bytes, not") {
		t.Error("the damaged value is read")
	} else if err != nil && strings.Contains(err.Error(), carrier) {
		t.Errorf("read: %v", err)
	}
	for _, key := range []string{"c", "d", "e"} {
		if v, ok, err := db.Value([]byte(key)); (!all || key == "e") && (err != nil || !ok || !bytes.Equal(v, valueOf(key))) {
			t.Errorf("%s: %v, %v", key, ok, err)
		}
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		_, _ = it.ValueAndErr()
	}
	_ = it.Close()
	if err := db.Err(); err != nil {
		t.Errorf("damage has failed a checker's database: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestDamagedTable: the same for tables. What Open cannot see reads return, with where to read on.
func TestDamagedTable(t *testing.T) {
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			fs := makeDB(t)
			tables := named(t, fs, ".sst")
			damage(t, fs, tables[0], tables[1])
			before := hashes(t, fs)
			db, err := Open(testConfig(fs))
			var c *CorruptionError
			switch name {
			case "footer", "magic", "exchanged": // the size is right
				if err != nil {
					if !errors.As(err, &c) {
						t.Errorf("open: %v", err)
					}
					return
				}
				_, _, err = db.Value([]byte("a"))
				if name == "exchanged" {
					_ = db.Close()
					return // the file is a sound table, but of other keys
				}
				if !errors.As(err, &c) || c.File != "db/"+tables[0] || !errors.Is(err, ErrFailed) && string(c.After) != "b\x00" || strings.Contains(err.Error(), carrier) {
					t.Errorf("read: %v", err)
				}
				if !errors.Is(db.Err(), ErrFailed) || strings.Contains(db.Err().Error(), carrier) {
					t.Errorf("failure: %v", db.Err())
				}
			default:
				if !errors.As(err, &c) || c.File != "db/"+tables[0] || !strings.Contains(err.Error(), "ask the test") {
					t.Errorf("open: %v", err)
				}
				if diff := cmp.Diff(before, hashes(t, fs)); diff != "" {
					t.Errorf("-before +after\n%s", diff)
				}
				checkAround(t, fs, tables[0], "a", false)
			}
		})
	}
}

// lockFS answers Lock with err, and if it is set refuses all writes with EROFS.
type lockFS struct {
	vfs.FS
	err      error
	readOnly bool
}

func (f *lockFS) Lock(name string) (io.Closer, error) {
	if f.err != nil {
		return nil, &os.PathError{Op: "lock", Path: name, Err: f.err}
	}
	return f.FS.Lock(name)
}

func (f *lockFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.readOnly {
		return nil, syscall.EROFS
	}
	return f.FS.Create(name, c)
}

// TestLock: only a lock that is held is reported as that. A read-only file system is read
// without one, and nothing is written without one.
func TestLock(t *testing.T) {
	for _, tc := range []struct {
		err      syscall.Errno
		readOnly bool
		inUse    bool
		opens    bool
	}{
		{err: syscall.EAGAIN, inUse: true}, {err: syscall.EWOULDBLOCK, readOnly: true, inUse: true},
		{err: syscall.EACCES}, {err: syscall.EIO, readOnly: true}, {err: syscall.EROFS}, {err: syscall.EROFS, readOnly: true, opens: true},
	} {
		t.Run(fmt.Sprintf("%v/%v", tc.err, tc.readOnly), func(t *testing.T) {
			fs := makeDB(t)
			cfg := testConfig(&lockFS{FS: fs, err: tc.err, readOnly: tc.opens})
			cfg.ReadOnly = tc.readOnly
			db, err := Open(cfg)
			if err == nil {
				if v, _, err := db.Value([]byte("e")); err != nil || !bytes.Equal(v, valueOf("e")) {
					t.Errorf("read: %v", err)
				}
				mustClose(t, db)
			}
			if (err == nil) != tc.opens || errors.Is(err, ErrInUse) != tc.inUse || err != nil && !errors.Is(err, tc.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	dir := t.TempDir()
	cfg := testConfig(nil)
	cfg.Dir = dir
	db := mustOpen(t, cfg)
	if _, err := Open(cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("this process has it: %v", err)
	}
	mustClose(t, db)
	mustClose(t, mustOpen(t, cfg))
}

// TestFailureWhileACommitIsUnderWay: a commit that waits for the disk returns when the database
// fails for another reason, and its batch is closed. That the disk then answers ends no process.
func TestFailureWhileACommitIsUnderWay(t *testing.T) {
	var armed atomic.Bool
	syncing, disk := make(chan struct{}, 1), make(chan struct{})
	db := mustOpen(t, testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpFileSyncData && armed.CompareAndSwap(true, false) {
			syncing <- struct{}{}
			<-disk
		}
		return nil
	}))))
	armed.Store(true)
	batch := db.Pebble().NewBatch()
	if err := batch.Set([]byte("a"), valueOf("a"), nil); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error)
	go func() { committed <- db.Commit(batch, true) }()
	<-syncing
	db.Fail(errors.New("of another kind"))
	if err := <-committed; !errors.Is(err, ErrFailed) {
		t.Errorf("commit: %v", err)
	}
	db.CloseBatch(batch)
	if batch.Empty() {
		t.Fatal("the batch is closed, and Pebble signals it yet")
	}
	close(disk)
	// Syncs end in the order of the commits.
	if err := db.Pebble().Set([]byte("b"), nil, pebble.Sync); err != nil {
		t.Error(err)
	}
}

// TestFailAdvice: a process that can open no more files needs another remedy than a disk that
// fails.
func TestFailAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"sync: input/output error":                        "check the disk",
		"open x.sst: " + syscall.EMFILE.Error():           "LimitNOFILE=",
		"flush: " + syscall.EMFILE.Error() + " (wrapped)": "LimitNOFILE=",
		"open x.sst: " + syscall.EACCES.Error():           "let the user that it runs as write there, then start",
	} {
		db := &DB{failed: make(chan struct{})}
		db.Fail(errors.New(text))
		if err := db.Err(); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

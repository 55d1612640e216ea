package pebbleguard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// badDisk is a file system on which what is done to files of one kind fails, once it is armed.
type badDisk struct {
	vfs.FS
	armed  atomic.Bool
	suffix string // of the files' names
	fails  string
}

func (d *badDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.Create(name, category)
	if err == nil && strings.HasSuffix(name, d.suffix) {
		file = &badFile{file, d}
	}
	return file, err
}

type badFile struct {
	vfs.File
	disk *badDisk
}

var errFull = errors.New("no space left on device")

func (f *badFile) do(what string, op func() error) error {
	if f.disk.armed.Load() && f.disk.fails == what {
		return errFull
	}
	return op()
}

func (f *badFile) Write(p []byte) (n int, err error) {
	return n, f.do("write", func() error { n, err = f.File.Write(p); return err })
}
func (f *badFile) Fd() uintptr     { return 0 } // only for a file that has one Pebble calls SyncTo
func (f *badFile) SyncData() error { return f.do("sync", f.File.SyncData) }
func (f *badFile) Close() error    { return f.do("close", f.File.Close) }

func (f *badFile) SyncTo(length int64) (full bool, err error) {
	return full, f.do("sync part", func() error { full, err = f.File.SyncTo(length); return err })
}

// TestFullDiskInValueFile: a value file that cannot be written or finished is a failure of the
// database, and not the end of the process. So it is while the database opens.
func TestFullDiskInValueFile(t *testing.T) {
	sizes := map[string][]int{"write": {200}, "sync": {200}, "close": {200}}
	// Pebble syncs a file in pages while it writes, but never the last MiB. So only a file of more
	// than a MiB is synced in part. With one of these sizes the last bytes complete its first page.
	for back := 0; back < 400; back += 25 {
		sizes["sync part"] = append(sizes["sync part"], 1<<20+4<<10-back)
	}
	for fails, sizes := range sizes {
		for _, size := range sizes {
			t.Run(fmt.Sprint(fails, size), func(t *testing.T) {
				mem := vfs.NewCrashableMem()
				disk := &badDisk{FS: mem, suffix: ".blob", fails: fails}
				cfg := testConfig(disk)
				cfg.Options.BytesPerSync = 1 << 10
				db := mustOpen(t, cfg)
				value := make([]byte, size)
				_, _ = rand.NewChaCha8([32]byte{}).Read(value)
				mustSet(t, db, "a", value)
				crashed := mem.CrashClone(vfs.CrashCloneCfg{})
				disk.armed.Store(true)
				err := db.Guard(db.Pebble().Flush)
				if fails == "sync part" && err == nil { // the file ends before the first page
					return
				}
				if !errors.Is(err, ErrFailed) || !errors.Is(err, errFull) {
					t.Errorf("flush: %v", err)
				}
				if err := db.Close(); !errors.Is(err, ErrFailed) {
					t.Errorf("close: %v", err)
				}
				disk.FS = crashed
				if _, err := Open(cfg); !errors.Is(err, errFull) {
					t.Errorf("open: %v", err)
				}
			})
		}
	}
}

// TestFullDiskInLog: a write-ahead log that cannot be written or finished is a failure of the
// database. It does not end the process, also where no commit waits for it.
func TestFullDiskInLog(t *testing.T) {
	for _, fails := range []string{"write", "sync", "close"} {
		t.Run(fails, func(t *testing.T) {
			disk := &badDisk{FS: vfs.NewMem(), suffix: ".log", fails: fails}
			db := mustOpen(t, testConfig(disk))
			mustSet(t, db, "a", valueOf("a"))
			disk.armed.Store(true)
			batch := db.Pebble().NewBatch()
			defer db.CloseBatch(batch)
			if err := batch.Set([]byte("b"), valueOf("b"), nil); err != nil {
				t.Fatal(err)
			}
			if err := db.Commit(batch, false); err != nil && !errors.Is(err, errFull) {
				t.Errorf("commit: %v", err)
			}
			err := db.Guard(db.Pebble().Flush)
			if !errors.Is(err, ErrFailed) || !errors.Is(err, errFull) || fails == "sync" && !strings.Contains(err.Error(), "sync db/000002.log: ") {
				t.Errorf("flush: %v", err)
			}
			if err := db.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// unasked says of no disk how full it is.
type unasked struct{ vfs.FS }

func (unasked) GetDiskUsage(string) (vfs.DiskUsage, error) { return vfs.DiskUsage{}, errFull }

// TestUnknownFreeDisk: that it is not known how full the disk is fails no database.
func TestUnknownFreeDisk(t *testing.T) {
	db := mustOpen(t, testConfig(unasked{vfs.NewMem()}))
	mustSet(t, db, "a", valueOf("a"))
	if err := db.Flush(); err != nil {
		t.Error(err)
	}
	if err := db.Guard(func() error { return db.Pebble().Compact(t.Context(), []byte("a"), []byte("b"), false) }); err != nil {
		t.Error(err)
	}
	mustClose(t, db)
}

// TestFullDiskAtRotation: a write-ahead log that cannot be begun is a failure of the database, and
// does not end the process. A checkpoint that cannot be made is no failure of the database.
func TestFullDiskAtRotation(t *testing.T) {
	full := errors.New("no space left on device")
	var armed atomic.Bool
	db := mustOpen(t, testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite) {
			return full
		}
		return nil
	}))))
	mustSet(t, db, "a", valueOf("a"))
	armed.Store(true)
	if err := db.Checkpoint("copy"); err == nil {
		t.Error("the copy did not fail")
	}
	if err := db.Err(); err != nil {
		t.Errorf("a copy that could not be made: %v", err)
	}
	if err := db.Guard(db.Pebble().Flush); !errors.Is(err, ErrFailed) || !errors.Is(err, full) {
		t.Errorf("flush: %v", err)
	}
	select {
	case <-db.Failed():
	default:
		t.Error("nothing is reported")
	}
	if err := db.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
}

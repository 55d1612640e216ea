package pebbleguard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS is the file system as Pebble sees it. What Pebble panics on, or ends the process for,
// does not get past it.
//
// When a memtable is full Pebble ends its write-ahead log and begins a new one, and panics if it
// cannot. No recover helps against that: unwinding unlocks a mutex that is not locked. So such an
// error never comes back to it: the store has failed, and the goroutine stops for good, as in
// pebbleLogger.Fatalf. Until the store is open Pebble returns that a log cannot be begun.
//
// A value file that cannot be finished is closed a second time by Pebble, which panics in a
// goroutine of its own. So the error of a write to one does not come back either.
type guardFS struct {
	vfs.FS
	db   *DB
	dir  string
	open atomic.Bool
	wal  atomic.Pointer[writtenFile] // the write-ahead log that was begun last
	// missing are names of files that the manifest has and the directory has not. Pebble panics
	// when it reads a value file that it has not seen there, so List has them, and Open says what
	// is wrong.
	missing []string
}

// Unwrap implements vfs.FS.
func (f *guardFS) Unwrap() vfs.FS { return f.FS }

// addMissing notes the missing files that Open has found, and says whether there are any.
func (f *guardFS) addMissing(damage []error) bool {
	for _, err := range damage {
		if c, ok := errors.AsType[*CorruptionError](err); ok && errors.Is(err, errMissing) {
			f.missing = append(f.missing, f.PathBase(c.File))
		}
	}
	return len(f.missing) > 0
}

// List implements vfs.FS.
func (f *guardFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	if err == nil && f.PathDir(f.PathJoin(dir, "x")) == f.dir {
		names = append(names, f.missing...)
	}
	return names, err
}

// Create implements vfs.FS.
func (f *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.checkPlace(name); err != nil {
		return f.created(name, nil, err)
	}
	file, err := f.FS.Create(name, category)
	return f.created(name, file, err)
}

// ReuseForWrite implements vfs.FS.
func (f *guardFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.checkPlace(newname); err != nil {
		return f.created(newname, nil, err)
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	return f.created(newname, file, err)
}

// Remove implements vfs.FS.
func (f *guardFS) Remove(name string) error {
	if err := f.checkPlace(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// checkPlace is DB.checkPlace for a file of the directory, not of a checkpoint.
func (f *guardFS) checkPlace(name string) error {
	if f.PathDir(name) != f.dir {
		return nil
	}
	return f.db.checkPlace()
}

// GetDiskUsage implements vfs.FS. Pebble takes another error for a failure of its background work.
func (f *guardFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := f.FS.GetDiskUsage(path)
	if err != nil {
		err = vfs.ErrUnsupported
	}
	return usage, err
}

// created returns the file that was made, or the error. If a write-ahead log cannot be made, the
// database fails and the call never returns.
func (f *guardFS) created(name string, file vfs.File, err error) (vfs.File, error) {
	if err == nil {
		file = &namedFile{file, name}
	}
	if f.PathDir(name) != f.dir { // of a checkpoint
		return file, err
	}
	isLog := strings.HasSuffix(name, ".log")
	switch {
	case err != nil && f.open.Load() && isLog:
		f.db.Fail(fmt.Errorf("begin a write-ahead log: %w", err))
		select {}
	case err == nil && isLog:
		wal := &writtenFile{File: file, db: f.db, what: "the write-ahead log", name: name}
		f.wal.Store(wal)
		file = wal
	case err == nil && strings.HasSuffix(name, ".blob"):
		file = &writtenFile{File: file, db: f.db, what: "a value file"}
	}
	return file, err
}

// OpenDir implements vfs.FS. Pebble panics if a name in its directory cannot be synced.
func (f *guardFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err == nil && f.PathDir(f.PathJoin(name, "x")) == f.dir {
		file = &writtenFile{File: file, db: f.db, what: "the directory"}
	}
	return file, err
}

// namedFile is a file whose failed syncs name it, as its failed writes do.
type namedFile struct {
	vfs.File
	name string
}

func (f *namedFile) named(err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: "sync", Path: f.name, Err: err}
}

// SyncData implements vfs.File.
func (f *namedFile) SyncData() error { return f.named(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f *namedFile) SyncTo(length int64) (full bool, err error) {
	full, err = f.File.SyncTo(length)
	return full, f.named(err)
}

// writtenFile is a write-ahead log or value file that is written, or the directory. Its errors do
// not return; see guardFS.
type writtenFile struct {
	vfs.File
	db   *DB
	what string

	name  string       // of a write-ahead log
	bytes atomic.Int64 // that were written
}

func (f *writtenFile) check(err error) error {
	if err != nil {
		f.db.Fail(fmt.Errorf("write %s: %w", f.what, err))
		select {}
	}
	return nil
}

// Write implements vfs.File.
func (f *writtenFile) Write(p []byte) (n int, err error) {
	n, err = f.File.Write(p)
	f.bytes.Add(int64(n))
	return n, f.check(err)
}

// Sync implements vfs.File. Pebble syncs only the directory with it.
func (f *writtenFile) Sync() error { return f.check(f.File.Sync()) }

// SyncData implements vfs.File. Pebble syncs files with it alone.
func (f *writtenFile) SyncData() error { return f.check(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f *writtenFile) SyncTo(length int64) (full bool, err error) {
	full, err = f.File.SyncTo(length)
	return full, f.check(err)
}

// Stat implements vfs.File. Of a log that is used again Pebble must know the size.
func (f *writtenFile) Stat() (info vfs.FileInfo, err error) {
	info, err = f.File.Stat()
	return info, f.check(err)
}

// Close implements vfs.File.
func (f *writtenFile) Close() error { return f.check(f.File.Close()) }

// Open implements vfs.FS. Of a value file that is missing or has no footer it returns an error that
// Pebble does not take for corruption. Pebble panics when it reports corruption.
func (f *guardFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if wal := f.wal.Load(); err == nil && wal != nil && wal.name == name {
		return &walCopy{file, io.LimitReader(file, wal.bytes.Load())}, nil
	}
	if !strings.HasSuffix(name, ".blob") {
		return file, err
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, f.db.cfg.missing(name)
	}
	if err != nil {
		return nil, err
	}
	if err := f.db.cfg.checkFooter(name, file); err != nil {
		_ = file.Close() // the first error says more
		return nil, err
	}
	return file, nil
}

// walCopy is what a write-ahead log has when it is opened, which a checkpoint does to copy it. Its
// file may have been a log before, and has the bytes of that where nothing is written yet. So to
// read on while it is written could give some of those before what was written last. Pebble takes
// that for damage.
type walCopy struct {
	vfs.File
	written io.Reader
}

// Read implements vfs.File.
func (f *walCopy) Read(p []byte) (n int, err error) { return f.written.Read(p) }

// Lock implements vfs.FS.
func (f *guardFS) Lock(name string) (io.Closer, error) {
	l, err := f.db.cfg.lock(name)
	if err == nil {
		f.db.held = f.db.cfg.lookAtLock(name)
	}
	return l, err
}

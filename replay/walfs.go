package replay

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walFS is the file system as Pebble sees it. When a memtable is full Pebble begins a new write-ahead log, and
// panics if it cannot, in a way that no recover helps against: unwinding unlocks a mutex that is not locked. So
// such an error never comes back to it: the store has failed, and the goroutine stops for good, as in
// pebbleLogger.Fatalf. Until the store is open Pebble takes such errors well.
type walFS struct {
	vfs.FS
	store *store
	dir   string
	open  atomic.Bool
}

func newWALFS(fs vfs.FS, s *store, dir string) *walFS {
	if fs == nil {
		fs = vfs.Default
	}
	return &walFS{FS: fs, store: s, dir: fs.PathDir(fs.PathJoin(dir, "x"))}
}

// Unwrap implements vfs.FS.
func (f *walFS) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS.
func (f *walFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	return f.wrap(name, file, err)
}

// ReuseForWrite implements vfs.FS.
func (f *walFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	return f.wrap(newname, file, err)
}

// wrap returns what was opened. The error of a write-ahead log that cannot be made does not return.
func (f *walFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil && f.open.Load() && strings.HasSuffix(name, ".log") && f.PathDir(name) == f.dir {
		f.store.fail(fmt.Errorf("begin a write-ahead log: %w", err))
		select {}
	}
	return file, err
}

// Open implements vfs.FS.
func (f *walFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && strings.HasSuffix(name, ".blob") {
		file = &blobFile{File: file}
	}
	return file, err
}

package verify

import (
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
)

// watchedFS is a file system that keeps the first error of too many open files. What reads the
// store takes it for damage otherwise.
type watchedFS struct {
	vfs.FS
	first atomic.Pointer[error]
}

// Open implements vfs.FS. Without a second file for read-ahead Pebble does well.
func (fs *watchedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := fs.FS.Open(name, opts...)
	if pebbleguard.TooManyFiles(err) && !slices.Contains(opts, vfs.SequentialReadsOption) {
		fs.first.CompareAndSwap(nil, &err)
	}
	return file, err
}

// Unwrap implements vfs.FS.
func (fs *watchedFS) Unwrap() vfs.FS { return fs.FS }

// err returns the error that was kept; nil: there is none.
func (fs *watchedFS) err() error {
	if err := fs.first.Load(); err != nil {
		return *err
	}
	return nil
}

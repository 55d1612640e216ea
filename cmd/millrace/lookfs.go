package main

import (
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// errLookOnly is the error of calls that would change the directory.
var errLookOnly = errors.New("the directory is only looked at: nothing may change it")

// lookFS is a file system to look at stores: nothing changes, no modification time either.
type lookFS struct {
	vfs.FS
	holder int // process that holds the lock that Lock did not get; 0: not known
}

// Lock implements vfs.FS. Pebble's own makes the file, or cuts it to no bytes, and locks it for
// itself alone. This one shares the lock, which keeps servers from starting. Without the file there
// is nothing to lock: no process has had the store open.
//
// The kernel gives up all locks of a process on a file when it closes the file. So no server may
// run on the directory in this process.
func (fs *lookFS) Lock(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	share := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &share); err != nil {
		if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &share) == nil && share.Type == unix.F_WRLCK {
			fs.holder = int(share.Pid)
		}
		f.Close()
		return nil, err
	}
	return f, nil
}

// Unwrap returns nil: there is no way around the file system.
func (fs *lookFS) Unwrap() vfs.FS { return nil }

// What would change something fails.

func (fs *lookFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errLookOnly }
func (fs *lookFS) Link(string, string) error                              { return errLookOnly }
func (fs *lookFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errLookOnly
}
func (fs *lookFS) Remove(string) error         { return errLookOnly }
func (fs *lookFS) RemoveAll(string) error      { return errLookOnly }
func (fs *lookFS) Rename(string, string) error { return errLookOnly }
func (fs *lookFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errLookOnly
}
func (fs *lookFS) MkdirAll(string, os.FileMode) error { return errLookOnly }

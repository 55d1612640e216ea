package pebbleguard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lock locks the directory with the file of that name. Error: ErrInUse if a process has it.
func (c *Config) lock(name string) (io.Closer, error) {
	l, err := c.FS.Lock(name)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EROFS) && c.ReadOnly:
		return noLock{}, nil // nobody can write there
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EWOULDBLOCK), !errors.As(err, new(syscall.Errno)):
		// An error without an errno is vfs's own: this process has the lock.
		return nil, fmt.Errorf("%w: %s: end the process that has it open first: %w", ErrInUse, c.Dir, err)
	}
	return nil, fmt.Errorf("lock %s: %w", c.Dir, err)
}

type noLock struct{}

func (noLock) Close() error { return nil }

// lockFile is the file by which the directory is locked. Files are made and removed by their paths,
// which lead to another directory once that one is renamed and another has its name.
type lockFile struct {
	name   string // "": not known which file it is
	device vfs.DeviceID
	inode  uint64
}

// lookAtLock returns which file has the name of the lock: the zero lockFile for a reader, which
// changes nothing, and on a file system that is not the machine's.
func (c *Config) lookAtLock(name string) lockFile {
	info, err := c.FS.Stat(name)
	if err != nil || c.ReadOnly {
		return lockFile{}
	}
	return lockFileOf(name, info)
}

func lockFileOf(name string, info vfs.FileInfo) lockFile {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return lockFile{}
	}
	return lockFile{name: name, device: info.DeviceID(), inode: stat.Ino}
}

// moved returns an error if the directory's path does not lead to the lock that is held. What else
// prevents a look is left to the write that follows.
func (d *DB) moved() error {
	if d.held == (lockFile{}) {
		return nil
	}
	info, err := d.cfg.FS.Stat(d.held.name)
	switch {
	case err == nil && lockFileOf(d.held.name, info) == d.held:
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil
	}
	return fmt.Errorf("%s was renamed, removed or replaced while this process had it open (end this process, "+
		"then check that directory, and the one that was renamed, with millrace verify and millrace intern verify)", d.cfg.Dir)
}

// checkPlace is called before the directory is changed by a path, and with each mark. That the
// directory has moved is a failure of the database.
func (d *DB) checkPlace() error {
	if err := d.moved(); err != nil {
		d.FailAdvised(err)
		return d.failure
	}
	return nil
}

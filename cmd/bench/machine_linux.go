package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes has a child die with us.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// growPipe gives a pipe room for so many bytes.
func growPipe(f *os.File, bytes int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, bytes)
	return err
}

// dropPages drops a file's clean pages from the page cache. That takes no privileges, and leaves
// others' files alone.
func dropPages(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

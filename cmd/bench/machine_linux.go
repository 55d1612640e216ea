package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes has a child die with us.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// makePipe makes a named pipe.
func makePipe(name string) error { return unix.Mkfifo(name, 0o600) }

// growPipe gives a pipe room for so many bytes.
func growPipe(f *os.File, bytes int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, bytes)
	return err
}

// syncData makes a file's data durable.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// pin keeps this process and those it starts from now on to the first n processors. unpin undoes
// it.
func pin(n int) (unpin func() error, err error) {
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the affinity: %w", err)
	}
	for cpu := 0; set.Count() < n && cpu < 1024; cpu++ {
		if before.IsSet(cpu) {
			set.Set(cpu)
		}
	}
	procs := runtime.GOMAXPROCS(n)
	if err := pinThreads(&set); err != nil {
		return nil, err
	}
	return func() error {
		runtime.GOMAXPROCS(procs)
		return pinThreads(&before)
	}, nil
}

func pinThreads(set *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set the affinity: %w", err)
		}
	}
	return nil
}

// dropPages drops a file's clean pages from the page cache. That takes no privileges, and leaves
// others' files alone.
func dropPages(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
)

// errLinux says that a measurement reads /proc or uses what only Linux has.
var errLinux = errors.New("this measurement runs on Linux only")

func childAttributes() *syscall.SysProcAttr { return nil }

func growPipe(*os.File, int) error { return errLinux }

func dropPages(*os.File) error { return errLinux }

//go:build !linux

package graph

import "syscall"

func mapBytes(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func unmapBytes(b []byte) { _ = syscall.Munmap(b) }

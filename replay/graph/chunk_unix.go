//go:build unix

package graph

import "syscall"

func mapChunk() ([]byte, error) {
	return syscall.Mmap(-1, 0, chunkBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func unmapChunk(chunk []byte) { _ = syscall.Munmap(chunk) }

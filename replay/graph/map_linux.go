package graph

import "syscall"

// mapBytes maps memory, in huge pages where the kernel has them.
func mapBytes(n int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err == nil {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // without it all works as well
	}
	return b, err
}

func unmapBytes(b []byte) { _ = syscall.Munmap(b) }

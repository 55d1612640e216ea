//go:build cgo

package main

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// Pebble takes its memtables and its block cache from malloc, from whatever thread it is on. glibc
// gives threads heaps of their own, and keeps in each what was freed there: twice the budget's
// share and more.
static void millrace_tidy_malloc(void) {
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 256 << 10); // larger ones go back to the system when they are freed
	mallopt(M_TRIM_THRESHOLD, 512 << 10);
#endif
}
*/
import "C"

// tidyMalloc keeps what C code frees from staying resident. It must come before C code allocates
// much.
func tidyMalloc() { C.millrace_tidy_malloc() }

//go:build !cgo

package main

// tidyMalloc does nothing: without cgo all memory is the Go runtime's.
func tidyMalloc() {}

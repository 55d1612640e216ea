package main

import (
	"context"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// copyFS is the file system of the store in a directory. What is written elsewhere, a copy of it,
// fails once ctx has ended: Pebble's checkpoints take none.
type copyFS struct {
	vfs.FS
	ctx   context.Context
	store string
}

// Create implements vfs.FS.
func (f *copyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if err != nil || strings.HasPrefix(name, f.store+"/") {
		return file, err
	}
	return &copiedFile{file, f.ctx}, nil
}

// copiedFile is a file of the copy.
type copiedFile struct {
	vfs.File
	ctx context.Context
}

// Write implements vfs.File.
func (f *copiedFile) Write(p []byte) (n int, err error) {
	if err := context.Cause(f.ctx); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

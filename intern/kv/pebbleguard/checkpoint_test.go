package pebbleguard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// copiedFS calls read after each read of a write-ahead log of the database, and counts those whose
// file was one before.
type copiedFS struct {
	vfs.FS
	read   func()
	reused atomic.Int32
}

func (f *copiedFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.reused.Add(1)
	return f.FS.ReuseForWrite(oldname, newname, category)
}

func (f *copiedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && strings.HasPrefix(name, "db/") && strings.HasSuffix(name, ".log") {
		file = &copiedFile{file, f}
	}
	return file, err
}

type copiedFile struct {
	vfs.File
	fs *copiedFS
}

func (f *copiedFile) Read(p []byte) (n int, err error) {
	n, err = f.File.Read(p)
	if f.fs.read != nil {
		f.fs.read()
	}
	return n, err
}

// TestCheckpointOfWrittenLog: a copy is sound that is made while its write-ahead log is written, in
// a file that was one before and has its old bytes.
func TestCheckpointOfWrittenLog(t *testing.T) {
	fs := &copiedFS{FS: vfs.NewMem()}
	cfg := testConfig(fs)
	cfg.Options.MemTableSize = 256 << 10
	db := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(1, 2))
	keys := 0
	set := func(bytes int) {
		value := make([]byte, bytes)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		mustSet(t, db, fmt.Sprint(keys), value)
		keys++
	}
	for fs.reused.Load() == 0 {
		set(200_000)
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	reads, before := 0, keys
	fs.read = func() {
		if reads++; reads < 3 {
			set(40_000) // more than is copied at once
		}
	}
	if err := db.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	if reads == 0 {
		t.Fatal("the log was not read")
	}
	mustClose(t, db)
	cfg.Dir = "copy"
	db = mustOpen(t, cfg)
	defer mustClose(t, db)
	for key := range before {
		if _, ok, err := db.Value([]byte(fmt.Sprint(key))); err != nil || !ok {
			t.Errorf("key %d of %d: %t, %v", key, before, ok, err)
		}
	}
}

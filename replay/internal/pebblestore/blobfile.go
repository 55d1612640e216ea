package pebblestore

import (
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble asks the kernel not to read its files ahead, which is right for selective queries. A
// replay of most of a block reads values that follow each other. Each read of a cold disk takes an
// operation of its own. So a value file watches how it is read, and reads ahead when reads follow
// each other.
const (
	// slowRead is how long a read of some dozens of KiB takes that had to wait for the disk.
	slowRead = 100 * time.Microsecond
	// runReads is how many consecutive reads make a run. A selective query makes fewer.
	runReads = 3
	// runSkip is how many bytes may lie between two reads of a run.
	runSkip = 64 << 10
	// runAhead is how much of the file is read ahead at once.
	runAhead = 512 << 10
	// maxRuns is how many runs are remembered for each file.
	maxRuns = 4
)

// blobFile is a blob file that is read.
type blobFile struct {
	vfs.File

	mu   sync.Mutex
	runs [maxRuns]readRun
	last int // index of the newest of them
}

// readRun is reads of a file that follow each other.
type readRun struct {
	reads int
	end   int64 // of the last
	ahead int64 // up to here the file is read ahead
}

// ReadAt implements vfs.File.
func (f *blobFile) ReadAt(p []byte, off int64) (n int, err error) {
	begun := time.Now()
	n, err = f.File.ReadAt(p, off)
	slow := time.Since(begun) > slowRead
	if from, ok := f.follow(off, int64(n), slow); ok {
		_ = f.Prefetch(from, runAhead) // the read itself meets the error
	}
	return n, err
}

// follow notes a read, and says from where on to read ahead.
func (f *blobFile) follow(off, n int64, slow bool) (from int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.runs {
		r := &f.runs[i]
		if r.reads == 0 || off < r.end || off > r.end+runSkip {
			continue
		}
		r.reads++
		r.end = off + n
		if r.reads < runReads || !slow && off >= r.ahead || r.ahead > r.end+runAhead/2 {
			return 0, false
		}
		from = max(r.ahead, r.end)
		r.ahead = from + runAhead
		return from, true
	}
	f.last = (f.last + 1) % maxRuns
	f.runs[f.last] = readRun{reads: 1, end: off + n}
	return 0, false
}

// blobFS is a file system whose value files are blobFiles.
type blobFS struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (f *blobFS) Unwrap() vfs.FS { return f.FS }

// Open implements vfs.FS.
func (f *blobFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && strings.HasSuffix(name, ".blob") {
		file = &blobFile{File: file}
	}
	return file, err
}

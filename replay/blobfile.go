package replay

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble tells the kernel that its files are read at random, and so they are by who looks for a needle: reading ahead would cost
// the disk more than it saves. Who replays all of a block, or most of it, reads values that lie one behind the other, and
// from a disk every one of them takes an operation of its own. So a blob file looks at how it is read.
const (
	// slowRead is how long a read of some dozens of KiB takes that had to wait for the disk.
	slowRead = 100 * time.Microsecond
	// runReads is how many reads one behind the other are no needle's.
	runReads = 3
	// runSkip is how many bytes may lie between them.
	runSkip = 64 << 10
	// runAhead is how much of the file is read ahead at once.
	runAhead = 512 << 10
	// maxRuns is how many are remembered for each file.
	maxRuns = 4
)

// blobFile is a blob file that is read.
type blobFile struct {
	vfs.File

	mu   sync.Mutex
	runs [maxRuns]readRun
	last int // the newest of them
}

// readRun is reads of a file one behind the other.
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
		_ = f.Prefetch(from, runAhead) // who wants it meets the error
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

package replay

import (
	"sync"

	"millrace/replay/internal/format"
)

// Frames of a block on disk go from Pebble's cache to the memory of the chunk that they are given
// in: unpacked, or copied. That memory is used again for the next chunk, so a reader of everything
// allocates nothing and needs no more memory than its chunk. What several readers unpack goes to
// the log's cache, from the second one on: see storedPart.Unpacked.

// pooledBuffer is memory of a chunk, or for a page of which only some frames are wanted.
type pooledBuffer struct{ b []byte }

// pooledBuffers has those that are free. They are of about the same size: a chunk's, or a page's.
var pooledBuffers = sync.Pool{New: func() any { return new(pooledBuffer) }}

// maxKeptBuffer bounds the capacity of what goes back to pooledBuffers.
const maxKeptBuffer = 1 << 20

// takeBuffer returns an empty buffer with room for n bytes.
func takeBuffer(n int) *pooledBuffer {
	a := pooledBuffers.Get().(*pooledBuffer)
	if cap(a.b) < n {
		a.b = make([]byte, 0, n)
	}
	a.b = a.b[:0]
	return a
}

func (a *pooledBuffer) free() {
	if a != nil && cap(a.b) <= maxKeptBuffer {
		pooledBuffers.Put(a)
	}
}

// scratch is a pooled buffer that is taken when it is first needed.
type scratch struct{ a *pooledBuffer }

// Take returns n bytes, good until the next call or free.
func (l *scratch) Take(n int) []byte {
	if l.a == nil || cap(l.a.b) < n {
		l.a.free()
		l.a = takeBuffer(max(n, format.PageBytes))
	}
	return l.a.b[:n]
}

func (l *scratch) free() {
	l.a.free()
	l.a = nil
}

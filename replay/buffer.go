package replay

import (
	"sync"

	"millrace/replay/internal/format"
)

// Frames of a block on disk go straight from what Pebble holds in its cache to the memory of the chunk that they
// are given in: unpacked, or copied. That memory is used again for the next chunk. So a reader of everything costs no
// allocation and no more memory than its chunk, and stays in the processor's caches. What several readers unpack
// goes to the log's cache, from the second one on: see storedPart.Unpacked. What was unpacked ahead for a reader is
// given to the chunk as it is: see ready.go.

// arena is memory of a chunk, or for a page of which not all is wanted.
type arena struct{ b []byte }

// arenas are those that nobody uses. They are all of about the same size: a chunk's, or a page's.
var arenas = sync.Pool{New: func() any { return new(arena) }}

// maxKeptArena bounds what goes back to arenas.
const maxKeptArena = 1 << 20

// newArena returns an empty one with room for n bytes.
func newArena(n int) *arena {
	a := arenas.Get().(*arena)
	if cap(a.b) < n {
		a.b = make([]byte, 0, n)
	}
	a.b = a.b[:0]
	return a
}

func (a *arena) free() {
	if a != nil && cap(a.b) <= maxKeptArena {
		arenas.Put(a)
	}
}

// pooled is an arena that is taken when it is needed.
type pooled struct{ a *arena }

// Take returns n bytes, good until the next call or free.
func (l *pooled) Take(n int) []byte {
	if l.a == nil || cap(l.a.b) < n {
		l.a.free()
		l.a = newArena(max(n, format.PageBytes))
	}
	return l.a.b[:n]
}

func (l *pooled) free() {
	l.a.free()
	l.a = nil
}

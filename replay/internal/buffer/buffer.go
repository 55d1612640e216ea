// Package buffer pools the memory of chunks, and of pages of which only some frames are wanted.
// Those are of about the same size.
package buffer

import "sync"

// Buffer is memory that one user has until Free.
type Buffer struct{ B []byte }

var pool = sync.Pool{New: func() any { return new(Buffer) }}

// maxKept bounds the capacity of what goes back to the pool.
const maxKept = 1 << 20

// Take returns an empty buffer with room for n bytes.
func Take(n int) *Buffer {
	b := pool.Get().(*Buffer)
	if cap(b.B) < n {
		b.B = make([]byte, 0, n)
	}
	b.B = b.B[:0]
	return b
}

// Free gives the memory back. b may be nil.
func (b *Buffer) Free() {
	if b != nil && cap(b.B) <= maxKept {
		pool.Put(b)
	}
}

// Scratch is a buffer that is taken when it is first needed. The zero value is ready.
type Scratch struct {
	Least int // a buffer has room for so many bytes at least
	b     *Buffer
}

// Take returns n bytes, good until the next call or Free.
func (s *Scratch) Take(n int) []byte {
	if s.b == nil || cap(s.b.B) < n {
		s.b.Free()
		s.b = Take(max(n, s.Least))
	}
	return s.b.B[:n]
}

// Free gives the memory back.
func (s *Scratch) Free() {
	s.b.Free()
	s.b = nil
}

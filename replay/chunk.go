package replay

import (
	"sync"

	"millrace/replay/internal/format"
)

// Chunk is what one call of Next found. The caller owns the Chunk and passes it to Next again and
// again. Frames and the bytes they point to are good until the next call with the Chunk, or its
// Reset. They must not be changed, as other readers may share them. As long as it holds them it may
// keep some MiB of the log in memory; see Reset. A Chunk must not be copied.
type Chunk struct {
	// Frames are whole websocket frames, ready to be written one after the other. One slice may
	// hold many frames.
	Frames [][]byte
	Events int // in Frames
	Bytes  int // in Frames
	// Gap lies before Frames; nil: none. It is one of the log's, unless the log began only when the
	// reader waited, and after the reader's position. Then it is the way from that position to the
	// log's first event.
	Gap *Gap
	// Through is how far the reader has looked. Every event up to here that passes the filter is in
	// this chunk or was in an earlier one. Its position is zero while nothing was looked at.
	Through Point
	// Live says that the reader has reached the end of the log. If it is false, call Next again,
	// even if Frames is empty: one call looks at a bounded part of the log.
	Live bool

	buffer *pooledBuffer // what was read from the disk is there; nil: not needed yet
	grows  bool          // the last slice of Frames ends where buffer does
}

// Release gives the frames' memory back before the chunk is used again; what else it says stays.
func (c *Chunk) Release() {
	clear(c.Frames)
	c.buffer.free()
	c.Frames, c.buffer, c.grows = c.Frames[:0], nil, false
}

// Reset empties the chunk, so that it keeps no bytes of the log alive. Call it before waiting.
func (c *Chunk) Reset() {
	c.Release()
	*c = Chunk{Frames: c.Frames[:0]}
}

// sparseShare: matches that are less than this share of their block get memory of their own, not
// the pooled buffer.
const sparseShare = 64

// room returns n bytes for frames of a block of so many bytes; maxBytes is the chunk's bound. What
// is written there is the chunk's only with add. own says whether they are of its buffer.
func (c *Chunk) room(n, blockBytes, maxBytes int) (b []byte, own bool) {
	if c.buffer == nil && n >= blockBytes/sparseShare {
		c.buffer = takeBuffer(max(maxBytes, n))
	}
	if c.buffer == nil || cap(c.buffer.b)-len(c.buffer.b) < n { // few, or one large event
		return make([]byte, n), false
	}
	start := len(c.buffer.b)
	return c.buffer.b[start : start+n : start+n], true
}

// add adds what room returned to the frames: to the last slice of them, if it ends there.
func (c *Chunk) add(b []byte, own bool) {
	last := len(c.Frames) - 1
	if own {
		a := c.buffer
		a.b = a.b[:len(a.b)+len(b)]
		if c.grows {
			c.Frames[last] = a.b[len(a.b)-len(b)-len(c.Frames[last]) : len(a.b) : len(a.b)]
			return
		}
	}
	c.Frames, c.grows = append(c.Frames, b), own
}

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

package replay

import "millrace/replay/internal/buffer"

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

	// Frames of a block on disk go from Pebble's cache to this memory: unpacked, or copied. It is
	// used again for the next chunk, so a reader of everything allocates nothing. nil: not needed
	buffer *buffer.Buffer
	grows  bool // the last slice of Frames ends where buffer does
}

// Release gives the frames' memory back before the chunk is used again; what else it says stays.
func (c *Chunk) Release() {
	clear(c.Frames)
	c.buffer.Free()
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
		c.buffer = buffer.Take(max(maxBytes, n))
	}
	if c.buffer == nil || cap(c.buffer.B)-len(c.buffer.B) < n { // few, or one large event
		return make([]byte, n), false
	}
	start := len(c.buffer.B)
	return c.buffer.B[start : start+n : start+n], true
}

// add adds what room returned, the frames of so many events: to the last slice of Frames, if it
// ends there.
func (c *Chunk) add(b []byte, own bool, events int) {
	c.Events += events
	c.Bytes += len(b)
	last := len(c.Frames) - 1
	if own {
		buf := c.buffer
		buf.B = buf.B[:len(buf.B)+len(b)]
		if c.grows {
			c.Frames[last] = buf.B[len(buf.B)-len(b)-len(c.Frames[last]) : len(buf.B) : len(buf.B)]
			return
		}
	}
	c.Frames, c.grows = append(c.Frames, b), own
}

package replay

// ReaderConfig says what a reader starts with.
type ReaderConfig struct {
	Cursor        Cursor
	Filter        *Filter // nil: everything
	Extended      bool    // events carry their cursor and UIDs
	Dictionary    uint32  // ID of the dictionary to compress with; 0: plain text frames
	MaxChunkBytes int     // a chunk holds no more, but for a single larger event; 0: 256 KiB
}

// Chunk is what one call of Next found. The caller owns the Chunk and passes it to Next again and
// again; Frames (the outer slice) is overwritten by the next call, the bytes it points to never are:
// they are immutable and shared with other readers.
type Chunk struct {
	// Frames are whole websocket frames, ready to be written one after the other. One slice may
	// hold many frames.
	Frames [][]byte
	Events int  // in Frames
	Bytes  int  // in Frames
	Gap    *Gap // lies before Frames; nil: none
	// Through is how far the reader has looked: every event up to here that passes the filter is
	// in this chunk or was in an earlier one.
	Through Mark
	// Live says that the reader has reached the end of the log. If it is false, call Next again,
	// even if Frames is empty: one call looks at a bounded part of the log.
	Live bool
}

// Reader reads the log from a cursor on. One goroutine uses it. It holds no memory of the log
// between calls, needs no closing, and may be dropped at any time.
type Reader struct {
	_ int
}

// NewReader makes a reader. Errors: ErrUnknownStream, ErrUnknownDictionary, ErrClosed.
func (l *Log) NewReader(cfg ReaderConfig) (*Reader, error) { panic("not built yet") }

// Next overwrites c with what comes next. It may read the disk but never waits for new events.
// Errors: ErrFellOff, ErrClosed, *CorruptionError.
func (r *Reader) Next(c *Chunk) error { panic("not built yet") }

// Wait returns a channel that is closed once there is more than the last Next saw, or the log is
// closed. Get it after Next returned a Chunk that is Live.
func (r *Reader) Wait() <-chan struct{} { panic("not built yet") }

// SetFilter replaces the filter (nil: everything), from the next event on.
func (r *Reader) SetFilter(f *Filter) { panic("not built yet") }

// Clamped says whether the cursor was older than the log, and the oldest event's mark where the
// reader started instead.
func (r *Reader) Clamped() (oldest Mark, clamped bool) { panic("not built yet") }

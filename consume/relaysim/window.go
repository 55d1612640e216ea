package relaysim

import (
	"bytes"
	"errors"
	"sort"
	"sync"
)

// chunkBytes is the usual size of a chunk. A message that is larger gets a chunk of its own.
const chunkBytes = 1 << 20

// Reasons for which a window ends a consumer.
var (
	errFuture      = errors.New("the cursor is beyond the newest frame")
	errTooSlow     = errors.New("the window has moved past the consumer")
	errDisconnect  = errors.New("disconnected on demand")
	errRenumbering = errors.New("the numbering has changed")
)

// chunk is a part of the window. What has been published of it never changes.
type chunk struct {
	buf   []byte // grows up to its capacity only
	index []messageEnd
	first int64 // ordinal of index[0]
}

// messageEnd is where a message in a chunk ends.
type messageEnd struct {
	seq int64 // the highest seq up to here, itself included
	end int   // one past its last byte
}

// window holds the newest messages of one numbering. All methods are safe for concurrent use;
// publish and forget have one caller at a time.
//
// Messages are counted by ordinals from 0 on, which have no gaps and include messages without a
// seq. The window's mutex guards everything in it, and everything in its consumers.
type window struct {
	maxFrames int64
	maxBytes  int64

	mu        sync.Mutex
	chunks    []*chunk
	bytes     int64 // capacities of chunks
	oldest    int64 // ordinal of the oldest message that may still be sent
	gone      int64 // highest seq before it
	next      int64 // ordinal of the next message to come
	wireBytes int64 // of all messages so far
	seq       int64 // highest seq so far
	closed    error

	consumers map[*consumer]struct{}
	reached   progress      // where the last consumer to leave had got to
	joined    int64         // how many consumers there have been
	published chan struct{} // closed, and replaced, when there is more to read
	moved     chan struct{} // capacity 1: a consumer has come, gone or got on
}

// progress is how far a consumer has come in the window's stream of messages.
type progress struct {
	ord   int64 // of the message that comes next
	bytes int64 // before it
}

// newWindow makes an empty window after seq. Its limits are soft by up to a chunk.
func newWindow(seq, maxFrames, maxBytes int64) *window {
	return &window{
		maxFrames: maxFrames,
		maxBytes:  maxBytes,
		seq:       seq,
		gone:      seq,
		consumers: make(map[*consumer]struct{}),
		published: make(chan struct{}),
		moved:     make(chan struct{}, 1),
	}
}

// publish makes the messages of b visible. It keeps nothing of b.
func (w *window) publish(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := 0
	for _, e := range b.entries {
		w.seq = max(w.seq, e.seq)
		w.pushLocked(b.wire[from:e.end])
		from = e.end
	}
	w.wireBytes += int64(len(b.wire))
	w.advanceLocked(w.next - w.maxFrames)
	for len(w.chunks) > 1 && (w.bytes > w.maxBytes || w.chunks[1].first <= w.oldest) {
		w.dropLocked()
	}
	w.wakeLocked()
}

// advanceLocked makes oldest the oldest message, if it is not already younger.
func (w *window) advanceLocked(oldest int64) {
	if oldest <= w.oldest {
		return
	}
	last, _ := w.findLocked(oldest - 1)
	w.oldest, w.gone = oldest, last.seq
}

// pushLocked appends one message.
func (w *window) pushLocked(message []byte) {
	var c *chunk
	if n := len(w.chunks); n > 0 {
		c = w.chunks[n-1]
	}
	if c == nil || cap(c.buf)-len(c.buf) < len(message) {
		c = &chunk{buf: make([]byte, 0, max(len(message), chunkBytes)), first: w.next}
		w.chunks = append(w.chunks, c)
		w.bytes += int64(cap(c.buf))
	}
	c.buf = append(c.buf, message...)
	c.index = append(c.index, messageEnd{seq: w.seq, end: len(c.buf)})
	w.next++
}

// dropLocked forgets the oldest chunk.
func (w *window) dropLocked() {
	c := w.chunks[0]
	w.advanceLocked(c.first + int64(len(c.index)))
	w.chunks[0] = nil
	w.chunks = w.chunks[1:]
	w.bytes -= int64(cap(c.buf))
}

func (w *window) wakeLocked() {
	close(w.published)
	w.published = make(chan struct{})
}

func (w *window) signalLocked() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// forget drops all but the newest keep messages, and returns the highest seq that is gone, 0 if
// none is.
func (w *window) forget(keep int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next-keep <= w.oldest {
		return 0
	}
	w.advanceLocked(w.next - keep)
	return w.gone
}

// close ends the window: consumers get the reason, once they have taken what is in it.
func (w *window) close(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = why
	w.wakeLocked()
}

// end ends the consumers that are there now, as close does, but lets others in.
func (w *window) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.consumers {
		c.ended = why
	}
	w.wakeLocked()
}

// reopen lets consumers into a closed window again.
func (w *window) reopen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = nil
}

// head returns the highest seq so far.
func (w *window) head() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}

// lead returns how far the producer is ahead of the slowest consumer, or of where the last one
// left. It also returns how many consumers have come so far.
func (w *window) lead() (frames, bytes, joined int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest := w.reached
	first := true
	for c := range w.consumers {
		if first || c.at.ord < slowest.ord {
			slowest, first = c.at, false
		}
	}
	return w.next - slowest.ord, w.wireBytes - slowest.bytes, w.joined
}

// resumeLocked says where a consumer with this cursor begins: after it, and at the head if it is
// beyond. outdated says that messages after the cursor are no longer there.
func (w *window) resumeLocked(cursor int64) (ord int64, outdated, future bool) {
	if cursor > w.seq {
		return w.next, false, true
	}
	i := sort.Search(len(w.chunks), func(i int) bool {
		c := w.chunks[i]
		return c.index[len(c.index)-1].seq > cursor
	})
	ord = w.next
	if i < len(w.chunks) {
		c := w.chunks[i]
		ord = c.first + int64(sort.Search(len(c.index), func(j int) bool { return c.index[j].seq > cursor }))
	}
	return max(ord, w.oldest), cursor < w.gone, false
}

// findLocked finds a message and its chunk. It must be in the window, or in a chunk that still is.
func (w *window) findLocked(ord int64) (messageEnd, *chunk) {
	i := sort.Search(len(w.chunks), func(i int) bool { return w.chunks[i].first > ord }) - 1
	c := w.chunks[i]
	return c.index[ord-c.first], c
}

// startLocked returns the offset in c at which message ord begins.
func (c *chunk) startLocked(ord int64) int {
	if ord == c.first {
		return 0
	}
	return c.index[ord-c.first-1].end
}

// newest returns copies of the newest n messages, whole with their websocket headers.
func (w *window) newest(n int64) (messages [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ord := max(w.oldest, w.next-n); ord < w.next; ord++ {
		m, c := w.findLocked(ord)
		messages = append(messages, bytes.Clone(c.buf[c.startLocked(ord):m.end]))
	}
	return messages
}

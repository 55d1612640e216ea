package relaysim

import (
	"errors"
	"sort"
	"sync"
)

const (
	// pieceBytes is how much memory a window takes at once.
	pieceBytes = 1 << 20
	// maxMessageBytes bounds a message: no captured one is larger, and no malformed one.
	maxMessageBytes = 32 << 20
)

// Reasons for which a window ends a consumer.
var (
	errFuture      = errors.New("the cursor is beyond the newest frame")
	errTooSlow     = errors.New("the window has moved past the consumer")
	errDisconnect  = errors.New("disconnected on demand")
	errRenumbering = errors.New("the numbering has changed")
)

// window holds the newest messages of one numbering. All methods are safe for concurrent use;
// publish and forget have one caller at a time.
//
// Messages are counted by ordinals from 0 on, which have no gaps and include messages without a
// seq. The window's mutex guards everything in it, and everything in its consumers.
type window struct {
	maxFrames int64
	maxBytes  int64

	mu     sync.Mutex
	pieces [][]byte // a ring; nil: not needed yet
	marks  []mark   // a ring, from the oldest message on
	oldest int64    // ordinal of the oldest message that may still be sent
	next   int64    // ordinal of the next message to come
	closed error

	consumers map[*consumer]struct{}
	reached   int64         // where the last consumer to leave had got to
	joined    int64         // how many consumers there have been
	published chan struct{} // closed, and replaced, when there is more to read
	moved     chan struct{} // capacity 1: a consumer has come, gone or got on
}

// mark says how far the stream is before a message.
type mark struct {
	seq   int64 // the highest so far
	bytes int64 // of all messages so far
}

// newWindow makes an empty window after seq.
func newWindow(seq, maxFrames, maxBytes int64) *window {
	return &window{
		maxFrames: maxFrames,
		maxBytes:  maxBytes,
		pieces:    make([][]byte, 1+max(maxBytes, maxMessageBytes)/pieceBytes),
		marks:     []mark{{seq: seq}},
		consumers: make(map[*consumer]struct{}),
		published: make(chan struct{}),
		moved:     make(chan struct{}, 1),
	}
}

// markLocked returns the mark before a message, which is in the window or the next one.
func (w *window) markLocked(ord int64) mark { return w.marks[ord%(w.maxFrames+1)] }

// publish makes the messages of b visible. It keeps nothing of b. A message that is larger than the
// window is there alone.
func (w *window) publish(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := 0
	for _, e := range b.entries {
		m := w.markLocked(w.next)
		w.copyInLocked(m.bytes, b.wire[from:e.end])
		m = mark{seq: max(m.seq, e.seq), bytes: m.bytes + int64(e.end-from)}
		from = e.end
		w.next++
		if w.next == int64(len(w.marks)) && w.next <= w.maxFrames {
			w.marks = append(w.marks, m)
		} else {
			w.marks[w.next%(w.maxFrames+1)] = m
		}
		for w.next-w.oldest > w.maxFrames || w.next-w.oldest > 1 && m.bytes-w.markLocked(w.oldest).bytes > w.maxBytes {
			w.oldest++
		}
	}
	w.wakeLocked()
}

// memoryLocked returns where byte n of all messages is, and those behind it in its piece.
func (w *window) memoryLocked(n int64) []byte {
	piece := &w.pieces[n/pieceBytes%int64(len(w.pieces))]
	if *piece == nil {
		*piece = make([]byte, pieceBytes)
	}
	return (*piece)[n%pieceBytes:]
}

func (w *window) copyInLocked(at int64, message []byte) {
	for len(message) > 0 {
		n := copy(w.memoryLocked(at), message)
		at, message = at+int64(n), message[n:]
	}
}

// appendLocked appends the messages from one on and before another, with their websocket headers.
func (w *window) appendLocked(dst []byte, from, to int64) []byte {
	at, end := w.markLocked(from).bytes, w.markLocked(to).bytes
	for at < end {
		part := w.memoryLocked(at)
		part = part[:min(int64(len(part)), end-at)]
		dst, at = append(dst, part...), at+int64(len(part))
	}
	return dst
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
	w.oldest = w.next - keep
	return w.markLocked(w.oldest).seq
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
	return w.markLocked(w.next).seq
}

// lead returns how far the producer is ahead of the slowest consumer, or of where the last one
// left; in bytes as far as the window goes. It also returns how many consumers have come so far.
func (w *window) lead() (frames, bytes, joined int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest := w.reached
	first := true
	for c := range w.consumers {
		if first || c.at < slowest {
			slowest, first = c.at, false
		}
	}
	bytes = w.markLocked(w.next).bytes - w.markLocked(max(slowest, w.oldest)).bytes
	return w.next - slowest, bytes, w.joined
}

// resumeLocked says where a consumer with this cursor begins: after it, and at the head if it is
// beyond. outdated says that messages after the cursor are no longer there.
func (w *window) resumeLocked(cursor int64) (ord int64, outdated, future bool) {
	n := sort.Search(int(w.next-w.oldest), func(i int) bool { return w.markLocked(w.oldest+int64(i)+1).seq > cursor })
	return w.oldest + int64(n), cursor < w.markLocked(w.oldest).seq, cursor > w.markLocked(w.next).seq
}

// newest returns copies of the newest n messages, whole with their websocket headers.
func (w *window) newest(n int64) (messages [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ord := max(w.oldest, w.next-n); ord < w.next; ord++ {
		messages = append(messages, w.appendLocked(nil, ord, ord+1))
	}
	return messages
}

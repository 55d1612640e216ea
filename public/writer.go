package public

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"

	"millrace/public/internal/admission"
)

// How long one write may block before the writer looks up. The first is short. A client that has
// not taken a chunk by then gets a copy of the rest, so that the chunk's block can go.
const (
	firstPatience = 100 * time.Millisecond
	nextPatience  = time.Second
)

var (
	errCut        = errors.New("ended while frames were being written")
	errSlow       = errors.New("the client takes nothing")
	errNoMemory   = errors.New("no memory left for a slow client's frames")
	errIncomplete = errors.New("the frame could not be finished")
)

// writer sends whole frames over one socket. One goroutine uses it.
type writer struct {
	raw         net.Conn
	slowTimeout time.Duration
	quota       admission.Quota // for what a slow client has yet to take
	// stop is asked while a write blocks: whether to cut it short now.
	stop func() bool
	// kept, if not nil, is called when the frames' memory may be freed: a slow client has a copy of
	// the rest.
	kept func()

	bufs    net.Buffers // what is yet to be written; consumed by the kernel
	scratch net.Buffers // bufs' memory
	written int64       // bytes in all

	// What a slow client has yet to take, from the start of a frame; nil if it keeps up.
	unsent   []byte
	unsentAt int  // bytes of unsent that are already written
	broken   bool // the last frame cannot be finished
}

// send writes head, frames and tail. Each must be whole frames. It empties frames while it waits
// for a slow client, and keeps nothing of the slices once it returns. After an error only finish
// may be called.
func (w *writer) send(head []byte, frames [][]byte, tail []byte) error {
	w.bufs = w.scratch[:0]
	if len(head) > 0 {
		w.bufs = append(w.bufs, head)
	}
	w.bufs = append(w.bufs, frames...)
	if len(tail) > 0 {
		w.bufs = append(w.bufs, tail)
	}
	w.scratch = w.bufs[:0]
	defer w.release()

	n, err := w.write(firstPatience)
	if err == nil {
		return nil
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		w.broken = true
		return err
	}
	if err := w.keepRest(head, frames, tail, n); err != nil {
		return err
	}
	w.release() // the frames that are left in bufs
	clear(frames)
	if len(frames) > 0 && w.kept != nil {
		w.kept()
	}
	defer w.quota.Release(int64(len(w.unsent)))
	return w.sendUnsent(n > 0)
}

// write hands w.bufs to the kernel and returns how much it took.
func (w *writer) write(patience time.Duration) (int64, error) {
	if err := w.raw.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	n, err := w.bufs.WriteTo(w.raw)
	w.written += n
	return n, err
}

// release forgets the slices that were sent.
func (w *writer) release() {
	w.bufs = nil
	clear(w.scratch[:cap(w.scratch)])
}

// keptSlices is how long a list of slices may be that an idle subscriber keeps for its next chunk.
const keptSlices = 64

// trim gives back memory that is needed while there is much to send.
func (w *writer) trim() {
	if cap(w.scratch) > keptSlices {
		w.scratch = nil
	}
}

// keepRest copies what is left after n bytes of head, frames and tail, from the start of the frame
// that was cut. If there is no memory for that, it keeps that frame only, for finish, or nothing if
// the frame is larger than maxChunkBytes.
func (w *writer) keepRest(head []byte, frames [][]byte, tail []byte, n int64) error {
	for _, b := range append(append([][]byte{head}, frames...), tail) {
		if n >= int64(len(b)) {
			n -= int64(len(b))
			continue
		}
		start, end := frameAt(b, int(n))
		w.bufs[0] = b[start:] // it began where the kernel stopped
		var total int64
		for _, rest := range w.bufs {
			total += int64(len(rest))
		}
		if !w.quota.Reserve(total) {
			if w.broken = end-start > maxChunkBytes; !w.broken {
				w.unsent, w.unsentAt = bytes.Clone(b[start:end]), int(n)-start
			}
			return errNoMemory
		}
		w.unsent, w.unsentAt = bytes.Join(w.bufs, nil), int(n)-start
		return nil
	}
	return nil
}

// frameAt returns where the frame of b, which is whole frames, begins and ends that has byte at. If
// the frame's header is cut, that is where it begins, twice.
func frameAt(b []byte, at int) (start, end int) {
	for end <= at {
		start = end
		if end += frameLen(b[start:]); end == start {
			break
		}
	}
	return start, end
}

// sendUnsent goes on until the client has taken everything, or nothing for slowTimeout, or the
// connection must end.
func (w *writer) sendUnsent(progress bool) error {
	since := time.Now()
	if !progress {
		since = since.Add(-firstPatience)
	}
	patience := min(nextPatience, max(w.slowTimeout/4, time.Millisecond))
	for w.unsentAt < len(w.unsent) {
		if w.stop() {
			return errCut
		}
		w.bufs = append(w.scratch[:0], w.unsent[w.unsentAt:])
		n, err := w.write(patience)
		w.unsentAt += int(n)
		if n > 0 {
			since = time.Now()
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if time.Since(since) >= w.slowTimeout {
			return errSlow
		}
	}
	w.unsent, w.unsentAt = nil, 0
	return nil
}

// finish writes the rest of a frame that was cut, and last (may be nil), within patience.
func (w *writer) finish(last []byte, patience time.Duration) error {
	if w.broken {
		return errIncomplete
	}
	w.bufs = nil
	if w.unsentAt > 0 {
		start, end := frameAt(w.unsent, w.unsentAt-1)
		if end == start {
			return errIncomplete
		}
		if end > w.unsentAt {
			w.bufs = append(w.bufs, w.unsent[w.unsentAt:end])
		}
		w.unsent, w.unsentAt = nil, 0
	}
	if len(last) > 0 {
		w.bufs = append(w.bufs, last)
	}
	if len(w.bufs) == 0 {
		return nil
	}
	deadline := time.Now().Add(patience)
	for {
		_, err := w.write(time.Until(deadline))
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline) {
			return err
		}
	}
}

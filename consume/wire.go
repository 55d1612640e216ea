package consume

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// maxHandshakeBytes is how much is read from a relay before the upgrade is answered. What is left
// of the last read may be frames.
const maxHandshakeBytes = 1 << 20

// errLongHandshake ends a handshake of more than maxHandshakeBytes.
var errLongHandshake = errors.New("its answer has no end")

// wire is the connection below TLS. Each read may take timeout, counted from its beginning: time
// between reads does not count.
type wire struct {
	net.Conn
	timeout   time.Duration // zero during the handshake, which has a deadline of its own
	handshake int           // bytes that were read during it
	inMessage bool          // a message has begun and not ended
	end       time.Time     // when it must have come; zero: no read was for it
	waiting   atomic.Bool   // a read is under way
	cutBy     atomic.Pointer[cause]

	idle func() bool     // see Config.Idle; nil: none
	raw  syscall.RawConn // set if idle is
}

// setIdle has idle called before a read that would wait, if the connection can be looked into.
func (w *wire) setIdle(idle func() bool) {
	c, ok := w.Conn.(syscall.Conn)
	if !ok || idle == nil {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		w.idle, w.raw = idle, raw
	}
}

// setMessage notes that a message begins or has ended.
func (w *wire) setMessage(begins bool) { w.inMessage, w.end = begins, time.Time{} }

// Read reads what is there. A message may take messageTimeout, counted from the first read for it.
func (w *wire) Read(p []byte) (int, error) {
	if w.inMessage && w.end.IsZero() {
		w.end = time.Now().Add(messageTimeout)
	}
	n, err := w.read(p)
	if w.inMessage && time.Now().After(w.end) {
		return 0, errTooLong
	}
	return n, err
}

// read reads what is there.
func (w *wire) read(p []byte) (int, error) {
	for w.idle != nil {
		n, err := w.look(p)
		if !errors.Is(err, errNothing) {
			return n, err
		}
		if !w.idle() {
			break
		}
	}
	if w.timeout > 0 {
		if err := w.SetReadDeadline(time.Now().Add(w.timeout)); err != nil {
			return 0, err
		}
		if w.cutBy.Load() != nil { // cut came before the deadline just set, and was undone by it
			return 0, net.ErrClosed
		}
	} else if w.handshake > maxHandshakeBytes {
		return 0, errLongHandshake
	}
	w.waiting.Store(true)
	n, err := w.Conn.Read(p)
	w.waiting.Store(false)
	if w.timeout == 0 {
		w.handshake += n
	}
	return n, err
}

// errNothing says that there is nothing to be read.
var errNothing = errors.New("nothing came")

// look reads what is there and does not wait.
func (w *wire) look(p []byte) (n int, err error) {
	rawErr := w.raw.Read(func(fd uintptr) bool {
		n, err = lookInto(fd, p)
		return true
	})
	switch {
	case rawErr == nil:
		return n, err
	case errors.Is(rawErr, os.ErrDeadlineExceeded):
		// the deadline of an earlier read, or of cut: the next read sets its own, or fails
		return 0, errNothing
	}
	return 0, rawErr
}

// lookInto reads from a socket that does not block.
func lookInto(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // it comes from the system as it is
			continue
		case err == syscall.EAGAIN: //nolint:errorlint // likewise
			return 0, errNothing
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// cut ends the present read and all later ones. The connection can still be written. The first
// cause counts.
func (w *wire) cut(why cause) {
	w.cutBy.CompareAndSwap(nil, &why)
	_ = w.SetReadDeadline(time.Unix(1, 0)) // it fails on a closed connection only
}

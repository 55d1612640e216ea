package consume

import "io"

const (
	minBuffer    = 64 << 10
	discardChunk = 64 << 10

	// maxKeptBuffer is how large a buffer may be that is used for the next message but one.
	maxKeptBuffer = 1 << 20

	// shrinkEvery is the number of messages between two looks at whether the buffer is too large.
	// It is odd, so that both buffers are looked at when each message is kept.
	shrinkEvery = 4095
)

// buffer holds the message that is being handled, and the last one that was handed over.
type buffer struct {
	buf     []byte
	kept    []byte
	highest int // largest message since the last look
	count   int // messages since the last look
}

// read reads a message from r. tooLarge reports that it is over maxMessageBytes, in which case msg
// is its beginning and the rest is still in r. msg is valid until the next read; if keep is
// called, until the next keep.
func (b *buffer) read(r io.Reader) (msg []byte, tooLarge bool, err error) {
	b.shrink()
	if cap(b.buf) > maxKeptBuffer {
		b.buf = nil
	}
	buf := b.buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(max(minBuffer, 2*cap(buf)), maxMessageBytes+1)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		b.buf = buf
		if len(buf) > maxMessageBytes {
			b.highest = len(buf)
			return buf, true, nil
		}
		if err == io.EOF {
			b.highest = max(b.highest, len(buf))
			return buf, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// keep keeps the message that was read last.
func (b *buffer) keep() { b.buf, b.kept = b.kept, b.buf }

// shrink gives memory back when recent messages were much smaller than the buffer.
func (b *buffer) shrink() {
	if b.count++; b.count < shrinkEvery {
		return
	}
	if want := max(minBuffer, 2*b.highest); cap(b.buf) >= 2*want {
		b.buf = make([]byte, 0, want)
	}
	b.count, b.highest = 0, 0
}

// discard reads r to its end in small pieces.
func (b *buffer) discard(r io.Reader) error {
	if cap(b.buf) < discardChunk {
		b.buf = make([]byte, 0, discardChunk)
	}
	piece := b.buf[:discardChunk]
	for {
		_, err := r.Read(piece)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

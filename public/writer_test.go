package public

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"millrace/public/internal/admission"
)

// stubbornConn takes so many bytes and then none until it is asked to go on.
type stubbornConn struct {
	net.Conn
	room int
	got  bytes.Buffer
}

func (c *stubbornConn) SetWriteDeadline(time.Time) error { return nil }

func (c *stubbornConn) Write(p []byte) (int, error) {
	n := min(c.room, len(p))
	c.room -= n
	c.got.Write(p[:n])
	if n < len(p) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// TestWriterEndsAtAFrame cuts a write at every byte, with and without memory for what is left. What
// was sent must then be whole frames, no more than the one that was cut.
func TestWriterEndsAtAFrame(t *testing.T) {
	head := appendFrame(appendFrame(nil, framePong, []byte("p")), framePing, nil)
	var frames [][]byte
	for i := range 3 {
		two := appendFrame(nil, frameText, bytes.Repeat([]byte("x"), 124+i))
		frames = append(frames, appendFrame(two, frameText, []byte("end")))
	}
	tail := appendFrame(nil, frameText, []byte("tail"))
	last := newCloseFrame(1013, "slow")
	all := bytes.Join([][]byte{head, bytes.Join(frames, nil), tail}, nil)
	ends := []int{0}
	for at := 0; at < len(all); {
		at += frameLen(all[at:])
		ends = append(ends, at)
	}
	for n := range 2 * len(all) {
		// The first write gets half of it, the next one the other half. Without memory there is no
		// next one, and the first gets all.
		cut, room, memory, want := n/2, n/4, int64(2<<20), errCut
		if n%2 == 1 {
			room, memory, want = cut, 0, errNoMemory
		}
		c := &stubbornConn{room: room}
		limits := admission.New(admission.Config{Bytes: memory})
		asked := 0
		w := writer{raw: c, slowTimeout: time.Hour, quota: limits.Quota(admission.Unsent, netip.IPv6Loopback()), stop: func() bool {
			c.room += cut - room
			asked++
			return asked > 1
		}}
		if err := w.send(head, append([][]byte(nil), frames...), tail); !errors.Is(err, want) {
			t.Fatalf("cut at %d: %v, want %v", cut, err, want)
		}
		c.room = 1 << 20
		if err := w.finish(last, time.Second); err != nil {
			t.Fatal(err)
		}
		end := 0
		for _, e := range ends {
			if end = e; e >= cut {
				break
			}
		}
		if want := append(all[:end:end], last...); !bytes.Equal(c.got.Bytes(), want) {
			t.Fatalf("cut at %d: sent\n%q\nwant\n%q", cut, c.got.Bytes(), want)
		}
		if held := limits.Stats().Bytes; held != 0 {
			t.Fatalf("cut at %d: %d bytes are still counted", cut, held)
		}
	}
}

// TestWriterGoesOn cuts a write at every byte, and lets it go on.
func TestWriterGoesOn(t *testing.T) {
	frames := [][]byte{appendFrame(nil, frameText, bytes.Repeat([]byte("x"), 130)), appendFrame(nil, frameText, []byte("y"))}
	all := bytes.Join(frames, nil)
	for cut := range len(all) {
		c := &stubbornConn{room: cut}
		given := [][]byte{bytes.Clone(frames[0]), bytes.Clone(frames[1])}
		memory, kept := [][]byte{given[0], given[1]}, 0
		var w writer
		w = writer{raw: c, slowTimeout: time.Hour, quota: unlimited(), stop: func() bool {
			c.room += 7
			return false
		}, kept: func() { // from here on others write there
			kept++
			if n := len(bytes.Join(w.scratch[:cap(w.scratch)], nil)); n > 0 {
				t.Fatalf("cut at %d: the writer has %d bytes of the log's", cut, n)
			}
			clear(memory[0])
			clear(memory[1])
		}}
		if err := w.send(nil, given, nil); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if !bytes.Equal(c.got.Bytes(), all) || w.written != int64(len(all)) {
			t.Fatalf("cut at %d: sent %d bytes %q", cut, w.written, c.got.Bytes())
		}
		if given[0] != nil || w.unsent != nil || kept != 1 {
			t.Fatalf("cut at %d: the log's bytes are kept, %d times given back", cut, kept)
		}
	}
}

// drippingConn takes some bytes with each write, and then none until its deadline.
type drippingConn struct {
	net.Conn
	bytes    int
	deadline time.Time
}

func (c *drippingConn) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *drippingConn) Write(p []byte) (int, error) {
	n := min(c.bytes, len(p))
	if n == len(p) {
		return n, nil
	}
	time.Sleep(time.Until(c.deadline))
	return n, os.ErrDeadlineExceeded
}

// TestWriterOfSlowClient: a client that takes a little now and then is not ended, one that takes
// nothing is, after the slow timeout.
func TestWriterOfSlowClient(t *testing.T) {
	for bytes, want := range map[int]error{1: nil, 0: errSlow} {
		synctest.Test(t, func(t *testing.T) {
			w := writer{raw: &drippingConn{bytes: bytes}, slowTimeout: 4 * time.Second, quota: unlimited(), stop: func() bool { return false }}
			begun := time.Now()
			err := w.send(nil, [][]byte{appendFrame(nil, frameText, make([]byte, 100))}, nil)
			if took := time.Since(begun); !errors.Is(err, want) || (err == nil) != (want == nil) || want != nil && took.Round(time.Second) != w.slowTimeout {
				t.Errorf("a client that takes %d bytes at a time: %v after %v", bytes, err, took)
			}
		})
	}
}

// TestWriterOfBrokenFrame: after a frame that cannot be finished nothing is written.
func TestWriterOfBrokenFrame(t *testing.T) {
	failed := errors.New("reset")
	frame := appendFrame(nil, frameText, []byte("text"))
	for _, tc := range []struct {
		conn  failingConn
		bytes int64 // of memory
		want  error
	}{
		{failingConn{err: failed}, 1 << 20, failed},
		{failingConn{err: os.ErrDeadlineExceeded}, 0, errNoMemory},
	} {
		frame := frame
		if tc.bytes == 0 {
			frame = appendFrame(nil, frameText, make([]byte, maxChunkBytes))
		}
		w := writer{
			raw: &tc.conn, slowTimeout: time.Hour, stop: func() bool { return true },
			quota: admission.New(admission.Config{Bytes: tc.bytes}).Quota(admission.Unsent, netip.IPv6Loopback()),
		}
		if err := w.send(nil, [][]byte{frame}, nil); !errors.Is(err, tc.want) {
			t.Errorf("sent, with %v: %v", tc.want, err)
		}
		tc.conn.err = nil
		if err := w.finish(frame, time.Second); !errors.Is(err, errIncomplete) || tc.conn.writes != 1 {
			t.Errorf("finished, after %v: %v, %d writes", tc.want, err, tc.conn.writes)
		}
	}
}

// failingConn takes one byte of each write and fails with err, if that is set.
type failingConn struct {
	net.Conn
	err    error
	writes int
}

func (c *failingConn) SetWriteDeadline(time.Time) error { return nil }

func (c *failingConn) Write(p []byte) (int, error) {
	if c.writes++; c.err != nil {
		return 1, c.err
	}
	return len(p), nil
}

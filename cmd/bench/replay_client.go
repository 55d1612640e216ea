package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// clientBuffer is how much a client reads at once.
const clientBuffer = 256 << 10

// frameClient is a websocket client that is as cheap as one can be, so that what is measured is the
// server: it reads large pieces and looks at nothing but the frames' headers. It shares two cores
// with the server, so that what it takes is taken from it.
type frameClient struct {
	conn net.Conn
	buf  []byte
	have []byte // of buf, read but not looked at

	skip   int64  // bytes of the frame's payload that are still to come
	head   []byte // a header that was cut
	opcode byte
	frames int64 // data frames whose last byte has come
	bytes  int64 // of all frames, headers included
	closed bool  // a close frame has come
	code   int   // its code, if it came in one piece

	// payload is shown the first bytes of each data frame, as far as they came in one piece; nil:
	// nobody.
	payload func(b []byte)
}

// dialFrames connects and asks for path, which includes the query.
func dialFrames(ctx context.Context, addr, path string) (*frameClient, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &frameClient{conn: conn, buf: make([]byte, clientBuffer)}
	if err := c.handshake(addr, path); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribe at %s: %w", addr, err)
	}
	return c, nil
}

// handshake is that of RFC 6455, section 4.1, without checks of what we know.
func (c *frameClient) handshake(addr, path string) error {
	request := "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: bWlsbHJhY2UgYmVuY2ggIQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
	if _, err := c.conn.Write([]byte(request)); err != nil {
		return err
	}
	n := 0
	for {
		m, err := c.conn.Read(c.buf[n:])
		n += m
		if end := bytes.Index(c.buf[:n], []byte("\r\n\r\n")); end >= 0 {
			if !bytes.HasPrefix(c.buf, []byte("HTTP/1.1 101 ")) {
				return fmt.Errorf("the answer is %.200q", c.buf[:n])
			}
			c.have = c.buf[end+4 : n]
			return nil
		}
		if err != nil {
			return err
		}
		if n == len(c.buf) {
			return errors.New("the answer has no end")
		}
	}
}

// read reads once and counts what came.
func (c *frameClient) read() error {
	if len(c.have) > 0 {
		have := c.have
		c.have = nil
		c.skim(have)
		return nil
	}
	n, err := c.conn.Read(c.buf)
	c.skim(c.buf[:n])
	return err
}

// until reads until so many data frames have come.
func (c *frameClient) until(frames int64) error {
	for c.frames < frames {
		if err := c.read(); err != nil {
			return fmt.Errorf("after %d of %d events: %w", c.frames, frames, err)
		}
	}
	return nil
}

// skim goes from header to header.
func (c *frameClient) skim(b []byte) {
	c.bytes += int64(len(b))
	for len(b) > 0 {
		if c.skip == 0 && len(c.head) == 0 && c.payload == nil {
			n, frames := wholeFrames(b)
			c.frames += frames
			if b = b[n:]; len(b) == 0 {
				return
			}
		}
		if c.skip > 0 {
			n := min(c.skip, int64(len(b)))
			c.skip -= n
			b = b[n:]
			if c.skip == 0 {
				c.ended()
			}
			continue
		}
		head := b
		if len(c.head) > 0 {
			c.head = append(c.head, b...)
			head = c.head
		}
		size, n := frameHeader(head)
		if n == 0 {
			if len(c.head) == 0 {
				c.head = append(c.head, b...)
			}
			return
		}
		b = b[n-(len(head)-len(b)):]
		c.opcode, c.skip, c.head = head[0]&0xf, size, c.head[:0]
		switch {
		case c.opcode == 8 && size >= 2 && len(b) >= 2:
			c.code = int(binary.BigEndian.Uint16(b))
		case c.payload != nil && c.opcode <= 2:
			c.payload(b[:min(size, int64(len(b)))])
		}
		if c.skip == 0 {
			c.ended()
		}
	}
}

// wholeFrames counts the data frames that b begins with whole, and the bytes they take. It stops at
// a control frame, and at the last few bytes of b.
func wholeFrames(b []byte) (n int, frames int64) {
	for n+maxFrameHeader <= len(b) && b[n]&0xf <= 2 {
		size := int(b[n+1])
		end := n + 2 + size
		switch {
		case size == 126:
			end = n + 4 + int(binary.BigEndian.Uint16(b[n+2:]))
		case size == 127:
			end = n + 10 + int(binary.BigEndian.Uint64(b[n+2:]))
		}
		if end > len(b) || end < n {
			break
		}
		n = end
		frames++
	}
	return n, frames
}

// maxFrameHeader is the longest header of an unmasked frame.
const maxFrameHeader = 10

func (c *frameClient) ended() {
	switch {
	case c.opcode <= 2:
		c.frames++
	case c.opcode == 8:
		c.closed = true
	}
}

// frameHeader reads an unmasked frame's header; n is 0 if it is cut.
func frameHeader(b []byte) (size int64, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch size = int64(b[1]); {
	case size < 126:
		return size, 2
	case size == 126 && len(b) >= 4:
		return int64(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		return int64(binary.BigEndian.Uint64(b[2:])), 10
	}
	return 0, 0
}

func (c *frameClient) close() { c.conn.Close() }

// streamed is one subscription read from its begin to the last event that was asked for.
type streamed struct {
	events, bytes int64
	took          time.Duration // from before the connection was made to the last byte
}

func (s streamed) rate() float64 { return float64(s.events) / s.took.Seconds() }

// stream subscribes with a query and reads so many events.
func stream(ctx context.Context, addr, query string, events int64) (streamed, error) {
	begun := time.Now()
	c, err := dialFrames(ctx, addr, "/subscribe?"+query)
	if err != nil {
		return streamed{}, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	if err := c.until(events); err != nil {
		return streamed{}, fmt.Errorf("%.60s: %w", query, errors.Join(err, context.Cause(ctx)))
	}
	return streamed{c.frames, c.bytes, time.Since(begun)}, nil
}

// sampleFrames returns whole frames that a subscription begins with: bareSample bytes at most, or
// all of its s.events.
func sampleFrames(ctx context.Context, addr, query string, s streamed) ([]byte, error) {
	c, err := dialFrames(ctx, addr, "/subscribe?"+query)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	got := append(make([]byte, 0, bareSample), c.have...)
	for want := int(min(bareSample, s.bytes)); len(got) < want; {
		n, err := c.conn.Read(got[len(got):want])
		got = got[:len(got)+n]
		if err != nil {
			return nil, err
		}
	}
	end := 0
	for {
		size, n := frameHeader(got[end:])
		if n == 0 || int64(end+n)+size > int64(len(got)) {
			break
		}
		end += n + int(size)
	}
	if end == 0 {
		return nil, errors.New("not one whole frame")
	}
	return got[:end], nil
}

// medianOf returns the one that took neither the longest nor the shortest.
func medianOf(all []streamed) streamed {
	slices.SortFunc(all, func(x, y streamed) int { return cmp.Compare(x.took, y.took) })
	return all[len(all)/2]
}

// stampIn reads time_us, which follows the DID at an event's beginning; 0 if it is not there.
func stampIn(payload []byte) int64 {
	const key = `","time_us":`
	at := bytes.Index(payload[:min(len(payload), 200)], []byte(key))
	if at < 0 || len(payload) < at+len(key)+16 {
		return 0
	}
	us, err := strconv.ParseInt(string(payload[at+len(key):at+len(key)+16]), 10, 64)
	if err != nil {
		return 0
	}
	return us
}

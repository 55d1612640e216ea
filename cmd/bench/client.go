package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// client is a websocket client that costs little, so that what is measured is the server. It reads
// much at once and leaves frames where they lie. One goroutine uses it; others may close it.
type client struct {
	conn     net.Conn
	stop     func() bool // hearing of the context
	buf      []byte
	from, to int    // what is unread in buf
	full     bool   // the last read filled buf
	run      []byte // data frames that next has yet to return

	came   time.Time // when the newest bytes came
	events int64     // data frames that more has returned
	bytes  int64     // of all frames, headers included
}

const (
	firstBuffer   = 4 << 10 // what a quiet subscriber keeps
	clientBuffer  = 256 << 10
	maxFrameBytes = 64 << 20
)

// Opcodes of control frames (RFC 6455, section 5.2), with the bit of a message's last frame.
const (
	closeFrame = 0x88
	pingFrame  = 0x89
)

var errClosed = errors.New("the server closed the connection")

// dial subscribes at a ws:// URL, from a local address or, if that is nil, any. ctx bounds the
// connection's life.
func dial(ctx context.Context, address string, local net.Addr) (*client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{LocalAddr: local}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	c := &client{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() }), buf: make([]byte, firstBuffer), came: time.Now()}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: bWlsbHJhY2UgYmVuY2hlcw==\r\nSec-WebSocket-Version: 13\r\n\r\n", u.RequestURI(), u.Host)
	r := bufio.NewReaderSize(conn, firstBuffer)
	response, err := http.ReadResponse(r, nil)
	if err == nil && response.StatusCode != http.StatusSwitchingProtocols {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 300)) // as far as it came
		err = fmt.Errorf("the server answered %s: %s", response.Status, said)
	}
	if err == nil {
		response.Body.Close()
		c.to, err = io.ReadFull(r, c.buf[:r.Buffered()])
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return c, nil
}

func (c *client) close() {
	c.stop()
	c.conn.Close()
}

// more waits for data frames. It returns those that have come, up to the first frame of another
// kind, and their number. They are good until the next call. Pings are answered.
func (c *client) more() (frames []byte, n int64, err error) {
	for {
		if frames, n = wholeFrames(c.buf[c.from:c.to]); n > 0 {
			c.from += len(frames)
			c.events += n
			c.bytes += int64(len(frames))
			return frames, n, nil
		}
		header, size := frameHeader(c.buf[c.from:c.to])
		switch frame := c.buf[c.from:c.to]; {
		case header > 0 && header+size <= len(frame):
			c.from += header + size
			c.bytes += int64(header + size)
			err = c.control(frame[0], frame[header:header+size])
		case header > 0 && size > maxFrameBytes:
			err = errors.New("the server sent a frame that is too large")
		default:
			err = c.fill(header + size)
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

func (c *client) control(first byte, payload []byte) error {
	switch first {
	case pingFrame: // at most 125 bytes; a mask of zeros leaves them as they are
		pong := append([]byte{0x8a, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
		_, err := c.conn.Write(pong)
		return err
	case closeFrame:
		code := -1 // it has none
		if len(payload) >= 2 {
			code = int(binary.BigEndian.Uint16(payload))
		}
		return fmt.Errorf("%w: %d %q", errClosed, code, payload[min(2, len(payload)):])
	}
	return nil
}

// fill reads once. There is room for a frame of so many bytes afterwards.
func (c *client) fill(frame int) error {
	c.to = copy(c.buf, c.buf[c.from:c.to])
	c.from = 0
	if want := max(frame, c.to+1, min(4*len(c.buf), clientBuffer)); len(c.buf) < frame || c.full && len(c.buf) < want {
		c.buf = append(make([]byte, 0, want), c.buf[:c.to]...)[:want]
	}
	n, err := c.conn.Read(c.buf[c.to:])
	c.to += n
	c.full = c.to == len(c.buf)
	c.came = time.Now()
	if n > 0 {
		return nil
	}
	return err
}

// next returns the payload of the next data frame, which is good until the next call.
func (c *client) next() ([]byte, error) {
	frame, header, err := c.nextFrame()
	return frame[header:], err
}

// nextFrame returns the next data frame, which is good until the next call, and the length of its
// header.
func (c *client) nextFrame() (frame []byte, header int, err error) {
	if len(c.run) == 0 {
		if c.run, _, err = c.more(); err != nil {
			return nil, 0, err
		}
	}
	header, size := frameHeader(c.run)
	frame, c.run = c.run[:header+size], c.run[header+size:]
	return frame, header, nil
}

// wholeFrames returns the data frames that b begins with whole, and how many they are. It stops at
// a control frame.
func wholeFrames(b []byte) (frames []byte, n int64) {
	end := 0
	for end < len(b) && b[end]&0xf <= 2 {
		header, size := frameHeader(b[end:])
		if header == 0 || size > len(b)-end-header {
			break
		}
		end += header + size
		n++
	}
	return b[:end], n
}

// frameHeader returns the lengths of header and payload of the unmasked frame that b begins with.
// It returns 0, 0 if the header is incomplete.
func frameHeader(b []byte) (header, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch size = int(b[1]); {
	case size < 126:
		return 2, size
	case size == 126 && len(b) >= 4:
		return 4, int(binary.BigEndian.Uint16(b[2:]))
	case size == 127 && len(b) >= 10:
		return 10, int(min(binary.BigEndian.Uint64(b[2:]), maxFrameBytes+1))
	}
	return 0, 0
}

// streamed is one subscription read from its begin to the last event that was asked for.
type streamed struct {
	events, bytes int64
	took          time.Duration // from before the connection was made to the last byte
}

func (s streamed) rate() float64 { return float64(s.events) / s.took.Seconds() }

// stream subscribes and reads so many events, or all until the server closes if that is 0.
func stream(ctx context.Context, address string, events int64) (streamed, error) {
	begun := time.Now()
	c, err := dial(ctx, address, nil)
	if err != nil {
		return streamed{}, err
	}
	defer c.close()
	for c.events < events || events == 0 {
		if _, _, err := c.more(); err != nil {
			if events == 0 && errors.Is(err, errClosed) {
				break
			}
			return streamed{}, fmt.Errorf("%.60s: after %d of %d events: %w", address, c.events, events, errors.Join(err, context.Cause(ctx)))
		}
	}
	return streamed{c.events, c.bytes, time.Since(begun)}, nil
}

package public

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"millrace/public/internal/admission"
)

// Inbound bytes: what a client may send at once, and for good. Two of the largest messages fit into
// the burst.
const (
	inboundBurstBytes     = 24 << 20
	inboundBytesPerSecond = 2 << 20
	inboundPause          = 50 * time.Millisecond
)

var errFlood = errors.New("the client sends without end")

// conn is a hijacked connection as gorilla sees it. Once frames are flowing, gorilla only reads
// from it. What it would write is one whole control frame each time. That is left for the pull loop
// to send between two frames. Reading counts and slows down.
type conn struct {
	net.Conn // the raw connection; the pull loop writes to it directly

	framing atomic.Bool
	started time.Time
	heard   atomic.Int64 // nanoseconds from started to when bytes came last
	taken   atomic.Int64 // Conn bytes that the client has read, from the pongs it sent

	interrupt chan struct{}   // wakes the pull loop
	ctx       context.Context // ends when the pull loop has
	done      context.CancelFunc

	mu         sync.Mutex
	pong       []byte // payload of the last ping that was not answered; nil: none
	closeFrame []byte // what gorilla wanted to say before it gave up reading

	// Of the read loop only:
	inbound        *rate.Limiter // bytes
	throttledSince time.Time
	floodTimeout   time.Duration
	throttled      func() // called when the client must wait; may be nil
}

func newConn(raw net.Conn, floodTimeout time.Duration) *conn {
	ctx, done := context.WithCancel(context.Background())
	return &conn{
		Conn: raw, started: time.Now(), interrupt: make(chan struct{}, 1), ctx: ctx, done: done,
		inbound: rate.NewLimiter(inboundBytesPerSecond, inboundBurstBytes), floodTimeout: floodTimeout,
	}
}

// Read reads for gorilla. Only one goroutine may call it.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.throttle(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.inbound.ReserveN(time.Now(), n) // throttle waits until it is paid
		c.heard.Store(int64(time.Since(c.started)))
	}
	return n, err
}

// throttle waits until the client may send on. It pauses for a while at a time, so that a flood
// costs no more than the bytes it brings.
func (c *conn) throttle() error {
	credit := c.inbound.Tokens()
	if credit > inboundBurstBytes/4 {
		c.throttledSince = time.Time{}
	}
	if credit > 0 {
		return nil
	}
	if c.throttledSince.IsZero() {
		c.throttledSince = time.Now()
		if c.throttled != nil {
			c.throttled()
		}
	}
	for c.inbound.Tokens() < inboundPause.Seconds()*inboundBytesPerSecond {
		if time.Since(c.throttledSince) > c.floodTimeout {
			return errFlood
		}
		select {
		case <-c.ctx.Done():
			return net.ErrClosed
		case <-time.After(inboundPause):
		}
	}
	return nil
}

// Write sends the handshake's answer; after that it keeps the one frame gorilla still writes, a
// close frame, for the pull loop.
func (c *conn) Write(p []byte) (int, error) {
	if !c.framing.Load() {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeFrame == nil && len(p) > 0 && p[0] == frameClose {
		c.closeFrame = append([]byte(nil), p...)
	}
	return len(p), nil
}

// SetWriteDeadline does nothing once frames are sent: then the pull loop sets the deadlines.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.framing.Load() {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// pinged notes a ping to be answered. An older one that still waits is forgotten (RFC 6455, 5.5.3).
func (c *conn) pinged(payload string) error {
	c.mu.Lock()
	c.pong = []byte(payload) // not nil, even if it is empty
	c.mu.Unlock()
	c.wake()
	return nil
}

// ponged learns from a pong how far the client has read.
func (c *conn) ponged(payload string) error {
	if n, err := strconv.ParseInt(payload, 10, 64); err == nil && n > c.taken.Load() {
		c.taken.Store(n)
	}
	return nil
}

// appendPong appends the pong that is due, if one is.
func (c *conn) appendPong(dst []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pong != nil {
		dst = appendFrame(dst, framePong, c.pong)
		c.pong = nil
	}
	return dst
}

// takeCloseFrame returns the close frame that gorilla left, nil if it left none.
func (c *conn) takeCloseFrame() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeFrame
}

// wake makes the pull loop look at its mailbox.
func (c *conn) wake() {
	select {
	case c.interrupt <- struct{}{}:
	default:
	}
}

// heardAt returns when bytes came last, from started.
func (c *conn) heardAt() time.Duration { return time.Duration(c.heard.Load()) }

// hijacker gives gorilla a conn in place of the connection it takes over.
type hijacker struct {
	http.ResponseWriter
	floodTimeout time.Duration
	conn         *conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = newConn(admission.Raw(raw), h.floodTimeout)
	return h.conn, rw, nil
}

package public

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	// smallHeaderBytes is how much of a request line and headers every connection may send at once; larger
	// ones, of up to maxHeaderBytes, only as many as there are slots.
	smallHeaderBytes = 32 << 10
	// minLargeHeaders is how many slots there are at least.
	minLargeHeaders = 4
)

// headerListener makes connections wait that send large headers while others do.
type headerListener struct {
	net.Listener
	gate     *gate
	patience time.Duration // for a request's headers to arrive, waiting included
	proxies  proxies
}

// newHeaderGate makes the gate for large headers, each of which may take some maxHeaderBytes.
func newHeaderGate(clientBytes int64) *gate {
	return newGate(max(clientBytes, minLargeHeaders*8*maxHeaderBytes))
}

// Accept implements net.Listener.
func (l *headerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	peer, _ := parseAddr(c.RemoteAddr().String())
	if l.proxies.trusts(peer) {
		peer = netip.IPv6Loopback() // it speaks for many
	}
	return &headerConn{Conn: c, listener: l, peer: peer, done: make(chan struct{})}, nil
}

// headerConn is a connection of the HTTP server's. It counts what comes of a request's headers; the server says, by
// way of handshakes.changed, when they are read.
type headerConn struct {
	net.Conn
	listener  *headerListener
	peer      netip.Addr
	done      chan struct{} // closed by Close
	closeOnce sync.Once

	mu    sync.Mutex
	bytes int  // of the headers that are being read
	over  bool // they are read
	pass  *pass
}

// Read implements net.Conn.
func (c *headerConn) Read(p []byte) (int, error) {
	if c.mustWait() {
		if err := c.wait(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.bytes += n
	c.mu.Unlock()
	return n, err
}

func (c *headerConn) mustWait() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && c.pass == nil && c.bytes >= smallHeaderBytes
}

// wait waits for a slot. The server reads headers with one goroutine, so nobody else does.
func (c *headerConn) wait() error {
	pass, err := c.listener.gate.enter(c.peer, c.done, c.listener.patience)
	if err != nil {
		return os.ErrDeadlineExceeded
	}
	if err := pass.next(); err != nil {
		pass.leave()
		return os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	c.pass = pass
	c.mu.Unlock()
	return nil
}

// headers says whether headers are being read from now on, and gives the slot back if there is one.
func (c *headerConn) headers(reading bool) {
	c.mu.Lock()
	pass := c.pass
	c.pass, c.bytes, c.over = nil, 0, !reading
	c.mu.Unlock()
	if pass != nil {
		pass.leave()
	}
}

// Close implements net.Conn.
func (c *headerConn) Close() error {
	c.closeOnce.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// CloseWrite lets the HTTP server end a connection so that the client reads the answer.
func (c *headerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// rawOf returns the connection below the one that the HTTP server has.
func rawOf(c net.Conn) net.Conn {
	if h, ok := c.(*headerConn); ok {
		return h.Conn
	}
	return c
}

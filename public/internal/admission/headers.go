package admission

import (
	"net/netip"
	"os"
)

const (
	// MaxHeaderBytes is how large a request line and headers may be; the http.Server enforces it.
	MaxHeaderBytes = 1 << 20
	// smallHeaderBytes is how many bytes of a request line and headers a connection may send
	// without a slot.
	smallHeaderBytes = 32 << 10
)

// Read implements net.Conn. It waits where headers are large and no slot is free.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	large := !c.over && c.claim == nil && c.bytes >= smallHeaderBytes
	c.mu.Unlock()
	if large {
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

// wait waits for a slot. The server reads headers with one goroutine, so only one waits.
func (c *Conn) wait() error {
	peer := c.peer
	if c.proxy {
		peer = netip.IPv6Loopback()
	}
	claim, err := c.controller.claim(headerSlot, peer, c.done, c.controller.cfg.HeaderTimeout)
	if err != nil {
		return os.ErrDeadlineExceeded
	}
	if err := claim.Take(); err != nil {
		claim.Release()
		return os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	c.claim = claim
	c.mu.Unlock()
	return nil
}

// reading notes whether headers are being read from now on, and gives the slot back if there is
// one.
func (c *Conn) reading(headers bool) {
	c.mu.Lock()
	claim := c.claim
	c.claim, c.bytes, c.over = nil, 0, !headers
	c.mu.Unlock()
	if claim != nil {
		claim.Release()
	}
}

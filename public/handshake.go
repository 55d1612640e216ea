package public

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Bounds of connections that are no subscribers: handshakes under way, slow or hostile, and idle HTTP.
// Each may hold a request line of up to smallHeaderBytes, and a few one of up to maxHeaderBytes (see headerConn).
const (
	maxHandshakes        = 512
	maxHandshakesPerPeer = 64
	maxHeaderBytes       = 1 << 20
)

// handshakes counts connections from when they are accepted until they are hijacked or closed.
type handshakes struct {
	proxies proxies
	reject  func(peer netip.Addr, reason string)

	mu     sync.Mutex
	open   map[net.Conn]netip.Prefix
	byPeer map[netip.Prefix]int
}

func newHandshakes(p proxies, reject func(peer netip.Addr, reason string)) *handshakes {
	return &handshakes{
		proxies: p, reject: reject,
		open: make(map[net.Conn]netip.Prefix), byPeer: make(map[netip.Prefix]int),
	}
}

func (h *handshakes) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

// changed is the http.Server's ConnState hook. Connections over the limits are closed.
func (h *handshakes) changed(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		peer, _ := parseAddr(c.RemoteAddr().String())
		if reason := h.opened(c, peer); reason != "" {
			h.reject(peer, reason)
			closeRaw(rawOf(c), true)
		}
	case http.StateHijacked, http.StateClosed:
		h.closed(c)
	}
	if c, ok := c.(*headerConn); ok {
		c.headers(state == http.StateNew || state == http.StateIdle) // it is active once they are read
	}
}

// opened counts c, and returns why it is one too many.
func (h *handshakes) opened(c net.Conn, peer netip.Addr) string {
	key := addressKey(peer)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.open) >= maxHandshakes:
		return rejectUnfinished
	case h.byPeer[key] >= maxHandshakesPerPeer && !peer.IsLoopback() && !h.proxies.trusts(peer):
		return rejectUnfinishedPeer
	}
	h.open[c] = key
	h.byPeer[key]++
	return ""
}

func (h *handshakes) closed(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, ok := h.open[c]
	if !ok {
		return
	}
	delete(h.open, c)
	if h.byPeer[key]--; h.byPeer[key] == 0 {
		delete(h.byPeer, key)
	}
}

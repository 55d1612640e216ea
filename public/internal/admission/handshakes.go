package admission

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxAddressHandshakes is how many unfinished handshakes one address may have.
const maxAddressHandshakes = 64

// Conn is a connection of an http.Server from when it is accepted until it is hijacked or closed.
// It is one unfinished handshake, slow or hostile, or idle HTTP. It may send a request line and
// headers of smallHeaderBytes at once; see wait for larger ones.
type Conn struct {
	net.Conn
	controller *Controller
	peer       netip.Addr
	proxy      bool          // the peer is a trusted proxy
	done       chan struct{} // closed by Close
	closeOnce  sync.Once

	// Guarded by Controller.mu. The entries stay in the table while the handshake is counted.
	element *list.Element // in Controller.handshakes, nil once it has left
	address *address      // the peer's
	network *address      // of the /48 around it, for IPv6; else address

	mu    sync.Mutex
	bytes int    // of the headers that are being read
	over  bool   // the headers are read
	claim *Claim // of a slot for large headers
}

// listener hands out Conns.
type listener struct {
	net.Listener
	controller *Controller
}

// Listen returns a listener of Conns, for an http.Server whose ConnState is c.ConnState. It closes
// connections over the limits with a reset. One is a new one of an address that has
// maxAddressHandshakes. The other is the oldest of the network that has most, when there are
// Config.Handshakes and one more comes. So a flood of half-open requests displaces itself, and a
// newcomer gets in.
func (c *Controller) Listen(ln net.Listener) net.Listener { return &listener{ln, c} }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn := l.controller.begin(raw); conn != nil {
			return conn, nil
		}
	}
}

// begin counts a handshake. It returns nil, and closes raw, if that is one too many.
func (c *Controller) begin(raw net.Conn) *Conn {
	peer, _ := parseAddr(raw.RemoteAddr().String())
	conn := &Conn{Conn: raw, controller: c, peer: peer, proxy: c.trusts(peer), done: make(chan struct{})}
	displaced, ok := c.count(conn)
	if displaced != nil {
		c.reject(displaced, ReasonHandshakes)
	}
	if !ok {
		c.reject(conn, ReasonAddressHandshakes)
		return nil
	}
	return conn
}

// count adds conn to the handshakes, and returns the one that makes room for it, nil if there was
// room. ok is false if its address has too many already.
func (c *Controller) count(conn *Conn) (displaced *Conn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	conn.address = c.addressLocked(keyOf(conn.peer), now)
	if conn.address.handshakes >= maxAddressHandshakes && !conn.peer.IsLoopback() && !conn.proxy {
		return nil, false
	}
	conn.network = c.addressLocked(networkOf(conn.peer), now)
	conn.addLocked(1)
	if c.handshakes.Len() >= c.cfg.Handshakes {
		displaced = c.oldestOfMostLocked()
		c.leaveLocked(displaced)
	}
	conn.element = c.handshakes.PushBack(conn)
	return displaced, true
}

// addLocked adds n to the handshakes of the peer's address and network.
func (c *Conn) addLocked(n int32) {
	c.address.handshakes += n
	if c.network != c.address {
		c.network.handshakes += n
	}
}

// oldestOfMostLocked returns the oldest handshake of the network that has most. Those of trusted
// proxies come last: they are many clients', and a proxy passes on whole requests.
func (c *Controller) oldestOfMostLocked() *Conn {
	most := int32(-1)
	var oldest *Conn
	for at := c.handshakes.Front(); at != nil; at = at.Next() {
		conn := at.Value.(*Conn)
		n := conn.network.handshakes
		if conn.proxy {
			n = 0
		}
		if n > most {
			most, oldest = n, conn
		}
	}
	return oldest
}

// reject closes conn without a word.
func (c *Controller) reject(conn *Conn, reason string) {
	if c.cfg.Rejected != nil {
		c.cfg.Rejected(conn.peer, reason)
	}
	if tcp, ok := conn.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset; else it is closed in order
	}
	conn.Close()
}

// leave takes conn out of the handshakes. It may be called again.
func (c *Controller) leave(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(conn)
}

func (c *Controller) leaveLocked(conn *Conn) {
	if conn.element == nil {
		return
	}
	c.handshakes.Remove(conn.element)
	conn.element = nil
	conn.addLocked(-1)
	c.dropLocked(keyOf(conn.peer), conn.address)
	c.dropLocked(networkOf(conn.peer), conn.network)
}

// ConnState is the hook of an http.Server that serves a listener of Listen's.
func (c *Controller) ConnState(nc net.Conn, state http.ConnState) {
	conn, ok := nc.(*Conn)
	if !ok {
		return
	}
	if state == http.StateHijacked {
		c.leave(conn)
	}
	// it is active once the headers are read
	conn.reading(state == http.StateNew || state == http.StateIdle)
}

// Raw returns the connection below nc if it is a Conn, else nc.
func Raw(nc net.Conn) net.Conn {
	if conn, ok := nc.(*Conn); ok {
		return conn.Conn
	}
	return nc
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() { close(c.done) })
	c.controller.leave(c)
	return c.Conn.Close()
}

// CloseWrite lets the http.Server end a connection so that the client reads the answer.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

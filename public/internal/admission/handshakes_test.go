package admission

import (
	"net"
	"net/netip"
)

// pipe returns the two ends of a connection whose client has that address.
func pipe(client netip.Addr) (server, far net.Conn) {
	server, far = net.Pipe()
	return peerConn{server, net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 1000))}, far
}

// peerConn is a connection from an address.
type peerConn struct {
	net.Conn
	peer net.Addr
}

func (c peerConn) RemoteAddr() net.Addr { return c.peer }

package admission

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestFullTableMakesRoom fills a table of six handshakes with those of peers; each newcomer
// displaces the oldest of the network that has most.
func TestFullTableMakesRoom(t *testing.T) {
	for _, tt := range []struct {
		name      string
		peers     string // in the order in which they come
		newcomers string
		displaced string // by each of them
	}{
		{"one address has most", "9.0.0.1 9.0.0.2 9.0.0.2 9.0.0.1 9.0.0.2 9.0.0.3", "9.0.0.4 9.0.0.5 9.0.0.6", "1 0 2"},
		{"all have one", "9.0.0.1 9.0.0.2 9.0.0.3 9.0.0.4 9.0.0.5 9.0.0.6", "9.0.0.7 9.0.0.8", "0 1"},
		{"the newcomer's own has most", "9.0.0.1 9.0.0.2 9.0.0.3 9.0.0.4 9.0.0.5 9.0.0.6", "9.0.0.6", "5"},
		{"a /48", "9.0.0.1 9.0.0.1 2001:db8:1:1::1 2001:db8:1:2::1 2001:db8:1:3::1 2001:db8:2::1", "9.0.0.2 9.0.0.3", "2 0"},
		{"loopback", "127.0.0.1 127.0.0.2 127.0.0.2 127.0.0.2 ::1 ::1", "127.0.0.3", "1"},
		{"a trusted proxy", "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 9.0.0.1 9.0.0.2", "9.0.0.3 10.0.0.1 9.0.0.4", "4 5 6"},
		{"nothing but proxies", "10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2", "9.0.0.1 10.0.0.3", "0 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rejected []string
			c := New(Config{
				Handshakes: 6, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
				Rejected: func(_ netip.Addr, reason string) { rejected = append(rejected, reason) },
			})
			var conns []*Conn
			begin := func(peer string) {
				raw, _ := pipe(netip.MustParseAddr(peer))
				conns = append(conns, c.begin(raw))
			}
			for _, peer := range strings.Fields(tt.peers) {
				begin(peer)
			}
			var displaced []string
			for _, peer := range strings.Fields(tt.newcomers) {
				begin(peer)
				for i, conn := range conns {
					if n := fmt.Sprint(i); closed(conn) && !slices.Contains(displaced, n) {
						displaced = append(displaced, n)
					}
				}
			}
			if got := strings.Join(displaced, " "); got != tt.displaced || len(rejected) != len(displaced) || rejected[0] != ReasonHandshakes {
				t.Errorf("displaced %s, want %s; rejected %v", got, tt.displaced, rejected)
			}
			if n := c.Stats().Handshakes; n != 6 {
				t.Errorf("%d handshakes", n)
			}
			for _, conn := range conns {
				conn.Close()
				conn.Close()
			}
			if held := c.Stats(); held != (Stats{}) {
				t.Errorf("left: %+v", held)
			}
		})
	}
}

// TestHandshakesOfOneAddress: one address may not have more than its share; a hijacked connection
// counts no longer.
func TestHandshakesOfOneAddress(t *testing.T) {
	var rejected []string
	c := New(Config{Handshakes: 512, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Rejected: func(peer netip.Addr, reason string) { rejected = append(rejected, peer.String()+" "+reason) }})
	begin := func(peer string) *Conn {
		raw, _ := pipe(netip.MustParseAddr(peer))
		return c.begin(raw)
	}
	first := begin("2001:db8::1")
	for range maxAddressHandshakes - 1 {
		begin("2001:db8::2")
	}
	if begin("2001:db8::3") != nil || !slices.Equal(rejected, []string{"2001:db8::3 " + ReasonAddressHandshakes}) {
		t.Errorf("one too many of a /64: %v", rejected)
	}
	if begin("2001:db8:0:1::1") == nil {
		t.Error("another /64 is refused")
	}
	c.ConnState(first, http.StateHijacked)
	if begin("2001:db8::3") == nil {
		t.Error("a subscriber counts as a handshake")
	}
	first.Close()
	if begin("2001:db8::3") != nil {
		t.Error("a connection leaves twice")
	}
	for range 2 * maxAddressHandshakes {
		if begin("127.0.0.1") == nil || begin("10.0.0.1") == nil {
			t.Fatal("loopback or a trusted proxy is limited")
		}
	}
	c.ConnState(peerConn{}, http.StateHijacked) // one that is not of Listen: nothing to count
}

// scriptedListener accepts connections of peers, and then fails.
type scriptedListener struct {
	net.Listener
	peers []string
	conns []*halfConn
}

var errListener = errors.New("the listener failed")

func (l *scriptedListener) Accept() (net.Conn, error) {
	if len(l.peers) == 0 {
		return nil, errListener
	}
	server, _ := pipe(netip.MustParseAddr(l.peers[0]))
	l.peers = l.peers[1:]
	l.conns = append(l.conns, &halfConn{Conn: server})
	return l.conns[len(l.conns)-1], nil
}

// halfConn notes how it is closed.
type halfConn struct {
	net.Conn
	half, whole bool
}

var errHalf = errors.New("half closed")

func (c *halfConn) CloseWrite() error { c.half = true; return errHalf }
func (c *halfConn) Close() error      { c.whole = true; return c.Conn.Close() }

// TestListen: Accept skips connections over the limits, and passes errors on. A Conn passes on how
// it is closed.
func TestListen(t *testing.T) {
	ln := &scriptedListener{peers: append(slices.Repeat([]string{"192.0.2.1"}, maxAddressHandshakes+2), "192.0.2.2")}
	c := New(Config{Handshakes: 512}) // Rejected is nil
	l := c.Listen(ln)
	var conns []net.Conn
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, errListener) {
				t.Errorf("accept: %v", err)
			}
			break
		}
		conns = append(conns, conn)
	}
	if len(conns) != maxAddressHandshakes+1 {
		t.Fatalf("%d connections are accepted", len(conns))
	}
	for i, raw := range ln.conns {
		if over := i == maxAddressHandshakes || i == maxAddressHandshakes+1; raw.whole != over {
			t.Errorf("connection %d is closed: %t", i, raw.whole)
		}
	}
	last, raw := conns[len(conns)-1].(*Conn), ln.conns[len(ln.conns)-1]
	if err := last.CloseWrite(); !errors.Is(err, errHalf) || !raw.half || raw.whole {
		t.Errorf("half closed: %+v, %v", raw, err)
	}
	if Raw(last) != net.Conn(raw) || Raw(raw) != net.Conn(raw) {
		t.Error("the connection below is another")
	}
	if err := last.Close(); err != nil || !raw.whole || c.Stats().Handshakes != maxAddressHandshakes {
		t.Errorf("closed: %+v, %v, %d handshakes", raw, err, c.Stats().Handshakes)
	}
	server, _ := pipe(netip.MustParseAddr("192.0.2.3"))
	if err := c.begin(server).CloseWrite(); err != nil {
		t.Errorf("a connection that cannot be half closed: %v", err)
	}
}

func closed(conn *Conn) bool {
	select {
	case <-conn.done:
		return true
	default:
		return false
	}
}

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

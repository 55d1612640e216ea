package public

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/dict"
)

// bubble runs a test on a clock of its own that stands still while anybody works: what takes
// minutes takes none, and however slow the machine is nobody is late. Its servers are those of
// serveBubble.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// elapse lets time pass in a bubble. When it returns, everything that was due has happened.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// serveBubble is serve without sockets, which a bubble cannot see through.
func serveBubble(t testing.TB, l *testLog, change func(*Config, *timing)) *testServer {
	t.Helper()
	return serveSourceBubble(t, logSource(l.Log), l.dictionaries, change)
}

// serveSourceBubble is serveSource without sockets.
func serveSourceBubble(t testing.TB, src source, dictionaries *dict.Registry, change func(*Config, *timing)) *testServer {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	s := serveOn(t, l, src, dictionaries, change)
	s.dialer.NetDial, s.pipes = l.dial, l
	return s
}

// pipes is a net.Listener whose connections are net.Pipes: without buffers, and they cannot be
// closed by halves.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipes) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipes) dial(string, string) (net.Conn, error) { return l.dialFrom("127.0.0.1") }

// dialFrom connects from an address.
func (l *pipes) dialFrom(ip string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- pipeEnd{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// pipeEnd is a connection that has an address.
type pipeEnd struct {
	net.Conn
	peer net.Addr
}

func (c pipeEnd) RemoteAddr() net.Addr { return c.peer }

// Package pipenet is a network of net.Pipes for tests in synctest bubbles. There a goroutine that
// waits for a socket keeps the bubble's time from passing, and one that waits for a pipe does not.
// A pipe has no buffer, and cannot be half-closed.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// Listener is a net.Listener that Dial and DialFrom connect to. Safe for concurrent use.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen returns a Listener. Make it in the bubble that uses it.
func Listen() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// NewServer returns a server of h on a Listener, which the caller starts.
func NewServer(h http.Handler) (*httptest.Server, *Listener) {
	l, s := Listen(), httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	return s, l
}

// Accept waits for a connection; net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and pending calls of Dial. Connections stay open.
func (l *Listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

// Addr is a loopback address that nothing listens on.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects from 127.0.0.1, wherever to. It waits until the connection is accepted.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.DialFrom(ctx, "127.0.0.1")
}

// DialFrom is Dial with the address that the other side sees.
func (l *Listener) DialFrom(ctx context.Context, ip string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- conn{far, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// conn is a pipe's end that has an address.
type conn struct {
	net.Conn
	peer net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.peer }

// LossyConn is a connection that loses what is written while Lost is set, as a network does that
// has failed without a word.
type LossyConn struct {
	net.Conn
	Lost atomic.Bool
}

// Write implements net.Conn.
func (c *LossyConn) Write(p []byte) (int, error) {
	if c.Lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

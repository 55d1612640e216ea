package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"millrace/public/client"
)

// bubble runs a test on a clock of its own, which stands still while a goroutine works. Its servers
// are those of servePipes.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// pipes is a net.Listener whose connections are net.Pipes, which a bubble can see through.
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

func (l *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- pipeEnd{far, l.Addr()}:
		return near, nil
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

// servePipes serves a handler in a bubble, and makes a client of it.
func servePipes(t *testing.T, h http.Handler, cfg client.Config) *client.Client {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	cfg.URL = srv.URL
	c := newClient(t, cfg)
	c.DialBy(l.dial)
	return c
}

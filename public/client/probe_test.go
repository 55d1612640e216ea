package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"millrace/consume/relaysim/pipenet"
)

// TestProbeOfDeadConnection: a server that offers HTTP/2 is asked how far it is over a new
// connection when the present one has died without a word.
func TestProbeOfDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, listener := pipenet.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		c := newOf(t, Config{URLs: []string{"wss://example.com", "wss://b.test"}, TLS: &tls.Config{RootCAs: roots}})
		defer c.probes.CloseIdleConnections()
		var conns []*pipenet.LossyConn
		c.hooks.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := listener.Dial(ctx, network, address)
			conns = append(conns, &pipenet.LossyConn{Conn: nc})
			return conns[len(conns)-1], err
		}
		probe := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), firstAttempt)
			defer cancel()
			return c.probe(ctx, c.probes, 0)
		}
		if err := probe(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conns[0].Lost.Store(true)
		if probe() == nil {
			t.Error("a dead connection has answered")
		}
		if err := probe(); err != nil {
			t.Error(err)
		}
	})
}

package identity

import (
	"context"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/pipenet"
)

// TestDeadConnection: a PLC directory that offers HTTP/2 is asked over a new connection when the
// present one has died without a word.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := pipenet.Listen()
		server := httptest.NewUnstartedServer(&relaysim.PLC{})
		server.Listener.Close()
		server.Listener, server.EnableHTTP2 = listener, true
		server.StartTLS()
		defer server.Close()
		var conns []*pipenet.LossyConn
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		r := newResolver(&Config{PLC: "https://example.com", hooks: testHooks{concurrency: 1, roots: roots,
			dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := listener.Dial(ctx, network, address)
				conns = append(conns, &pipenet.LossyConn{Conn: c})
				return conns[len(conns)-1], err
			}}}, nil, nil)
		defer r.close()
		if _, err := r.resolve(t.Context(), didOf(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conns[0].Lost.Store(true)
		died, err := time.Now(), context.Canceled
		for err != nil && time.Since(died) < time.Minute {
			_, err = r.resolve(t.Context(), didOf(2))
		}
		if took := time.Since(died); err != nil || took > 2*fetchTimeout || len(conns) != 2 {
			t.Errorf("after %v and %d connections: %v", took, len(conns), err)
		}
	})
}

package identity

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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
		server, listener := pipenet.NewServer(&relaysim.PLC{})
		server.EnableHTTP2 = true
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

// TestProxyRefuses: a proxy that does not connect to the PLC directory is named, without its
// password.
func TestProxyRefuses(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer proxy.Close()
	address := &url.URL{Scheme: "http", User: url.UserPassword("name", "secret"), Host: proxy.Listener.Addr().String()}
	r := newResolver(&Config{PLC: "https://example.com", hooks: testHooks{proxy: http.ProxyURL(address)}}, nil, nil)
	defer r.close()
	_, err := r.resolve(t.Context(), didOf(1))
	if want := "through the proxy " + address.Host + ": 403 Forbidden"; err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %s", err, want)
	}
}

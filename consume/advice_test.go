package consume

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// noDNS is a machine's resolver that reaches no server: the machine's own may take minutes.
var noDNS = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("there is no network")
}}

// Each way in which a relay may refuse is reported with what to do about it.
func TestAdvice(t *testing.T) {
	answer := func(status int, header ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for _, h := range header {
					w.Header().Set("Location", h)
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(srv.Close)
			return strings.Replace(srv.URL, "http", "ws", 1)
		}
	}
	raw := func(talk func(net.Conn)) func(*testing.T) string {
		return func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() { // ends with the listener
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					talk(c)
				}
			}()
			return "ws://" + l.Addr().String()
		}
	}
	plain := answer(http.StatusOK)
	for _, tc := range []struct {
		name  string
		relay func(*testing.T) string
		want  string
	}{
		{"401", answer(http.StatusUnauthorized), "ask its operator"},
		{"403", answer(http.StatusForbidden), "ask its operator"},
		{"404", answer(http.StatusNotFound), "is --relay a relay"},
		{"200", plain, "is --relay a relay"},
		{"301", answer(http.StatusMovedPermanently, "https://other.example.com"), "give that address"},
		{"400", answer(http.StatusBadRequest), "wss:// for TLS"},
		{"429", answer(http.StatusTooManyRequests), "end other consumers"},
		{"502", answer(http.StatusBadGateway), "in trouble"},
		{"TLS without a known authority", func(t *testing.T) string {
			srv := httptest.NewUnstartedServer(http.NotFoundHandler())
			srv.Config.ErrorLog = nil
			srv.StartTLS()
			t.Cleanup(srv.Close)
			return strings.Replace(srv.URL, "https", "wss", 1)
		}, "ca-certificates"},
		{"TLS where there is none", func(t *testing.T) string { return strings.Replace(plain(t), "ws://", "wss://", 1) }, "ws:// instead of wss://"},
		{"nothing there", func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			far, err := l.Accept() // else the end of l would end the connection
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { far.Close() })
			// the port is taken, so that nobody else comes to listen there
			return "ws://" + c.LocalAddr().String()
		}, "nothing listens there"},
		{"no HTTP", raw(func(c net.Conn) { fmt.Fprint(c, "220 smtp.example.com ready\r\n\r\n"); c.Close() }), "does not speak websocket"},
		{"a long line", raw(func(c net.Conn) {
			fmt.Fprintf(c, "%0*d\r\n\r\n", maxHandshakeBytes/2, 0)
			_, _ = io.Copy(io.Discard, c)
		}), "does not speak websocket"},
		{"a long reason", raw(func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 401 %0*d\r\nContent-Length: 0\r\n\r\n", maxHandshakeBytes/2, 0)
			_, _ = io.Copy(io.Discard, c)
		}), "ask its operator"},
		{"an answer without an end", raw(func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nServer: ")
			for range 16 { // no more, for this test's memory
				if _, err := c.Write(make([]byte, 1<<20)); err != nil {
					break
				}
			}
			c.Close()
		}), "does not speak websocket"},
		{"no body", raw(func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), "in trouble"},
		{"no answer", raw(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "it does not answer"},
		{"no such host", func(*testing.T) string { return "relay.invalid" }, "DNS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			u, err := parseURL(tc.relay(t))
			if err != nil {
				t.Fatal(err)
			}
			timeout := patience
			if tc.name == "no answer" || tc.name == "no body" {
				timeout = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			c, err := open(ctx, &Config{hooks: testHooks{dial: (&net.Dialer{Resolver: noDNS}).DialContext, proxy: http.ProxyFromEnvironment}}, u.String())
			if err == nil {
				c.close(false)
				t.Fatal("there is a connection")
			}
			if got := advice(err); !strings.Contains(got, tc.want) {
				t.Errorf("advice %q for %q, want %q in it", got, err, tc.want)
			}
			if len(err.Error()) > 2<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if tc.name == "301" && !strings.HasSuffix(err.Error(), "301 Moved Permanently, https://other.example.com") {
				t.Errorf("%q does not say where the relay is", err)
			}
		})
	}
	if got := advice(nil); got != "" {
		t.Errorf("advice for nothing: %q", got)
	}
}

// TestAdviceOfErrors: errors that no local relay gives, wrapped as a dial wraps them.
func TestAdviceOfErrors(t *testing.T) {
	for want, err := range map[string]error{
		"the machine's DNS does not answer":     &net.DNSError{Err: "server misbehaving", IsTemporary: true},
		"no host has this name":                 &net.DNSError{IsNotFound: true},
		"its certificate is another host's":     x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"},
		"its certificate is not valid now":      x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired},
		"this machine has no way there: ":       os.NewSyscallError("connect", syscall.EHOSTUNREACH),
		"this machine has no way there: check":  os.NewSyscallError("connect", syscall.ENETUNREACH),
		"nothing listens there":                 os.NewSyscallError("connect", syscall.ECONNREFUSED),
		"it does not answer: check host":        os.ErrDeadlineExceeded,
		"it sends us elsewhere":                 &refusedError{code: 308},
		"there is no com.atproto.sync.subscrib": &refusedError{code: 405},
		"it does not speak websocket":           &refusedError{code: 426},
		"it does not speak websocket there":     &refusedError{code: 101},
	} {
		if got := advice(fmt.Errorf("dial the relay: %w", err)); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{errors.New("of another kind"), &refusedError{code: 418}, &refusedError{code: 400, name: errorFutureCursor}} {
		if got := advice(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

// TestProxyRefuses: a proxy that does not connect is named, with what to do about it, whatever it
// answers.
func TestProxyRefuses(t *testing.T) {
	for _, tc := range []struct{ name, answer, want string }{
		{"reason", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "Proxy Authentication Required"},
		{"empty reason", "HTTP/1.1 403 \r\n\r\n", "it refuses, and gives no reason"},
		{"no reason", "HTTP/1.1 403\r\n\r\n", "it refuses, and gives no reason"},
		{"no answer", "", "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() { // ends with the pipe
				if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					fmt.Fprint(far, tc.answer)
				}
				far.Close()
			}()
			hooks := testHooks{
				dial:  func(context.Context, string, string) (net.Conn, error) { return near, nil },
				proxy: http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword("name", "secret"), Host: "proxy.test:3128"}),
			}
			_, err := open(t.Context(), &Config{hooks: hooks}, "wss://relay.test")
			if want := "dial the relay: through the proxy proxy.test:3128: " + tc.want; fmt.Sprint(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
			if got := advice(err); !strings.Contains(got, "NO_PROXY") {
				t.Errorf("advice %q", got)
			}
		})
	}
}

// TestSocksProxies: proxies of both SOCKS schemes are asked for the relay by its name.
func TestSocksProxies(t *testing.T) {
	for _, scheme := range []string{"socks5", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			near, far := net.Pipe()
			asked := make(chan string, 1)
			go func() { // ends with the pipe; RFC 1928
				request := make([]byte, 3+5+len("relay.test"))
				_, _ = io.ReadFull(far, request[:3])
				_, _ = far.Write([]byte{5, 0})
				_, _ = io.ReadFull(far, request[3:])
				asked <- string(request[8:])
				far.Close()
			}()
			hooks := testHooks{
				dial:  func(context.Context, string, string) (net.Conn, error) { return near, nil },
				proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: "proxy.test:1080"}),
			}
			_, err := open(t.Context(), &Config{hooks: hooks}, "wss://relay.test")
			near.Close()
			if got := <-asked; got != "relay.test" {
				t.Errorf("the proxy was asked for %q: %v", got, err)
			}
		})
	}
}

// A process without a descriptor left gives the relay no blame.
func TestAdviceForOpenFiles(t *testing.T) {
	err := fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)})
	if got := advice(err); !strings.Contains(got, "LimitNOFILE=") {
		t.Errorf("advice %q", got)
	}
}

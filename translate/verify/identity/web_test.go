package identity

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const webDID = "did:web:example.com" // the certificate of httptest's servers is for that host

// webHost is a host of did:web, the resolver that leads to it, and a directory that asks both.
type webHost struct {
	*Directory
	finished chan string
	conns    atomic.Int64
}

// newWebHost serves as example.com, at these addresses.
func newWebHost(t *testing.T, allowPrivate bool, addresses []string, serve http.HandlerFunc) *webHost {
	t.Helper()
	h := &webHost{finished: make(chan string, 1)}
	server := httptest.NewUnstartedServer(serve)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			h.conns.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	d, err := Open(Config{FS: vfs.NewMem(), Dir: "ids", PLC: "http://127.0.0.1:1", AllowPrivate: allowPrivate, hooks: testHooks{
		resolver: newResolverOf(t, addresses), webPort: port, roots: roots, finished: func(did string) { h.finished <- did },
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.Directory = d
	t.Cleanup(func() { _ = d.Close() })
	return h
}

// newResolverOf answers all questions with these addresses; none: there is no such name.
func newResolverOf(t *testing.T, addresses []string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(in)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answerTo(in[:n], addresses), from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answerTo answers a DNS query for A or AAAA records (RFC 1035, 4.1).
func answerTo(query []byte, addresses []string) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5
	kind := binary.BigEndian.Uint16(query[end-4:])
	out := append([]byte{}, query[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8180)
	clear(out[6:12])
	if len(addresses) == 0 {
		out[3] |= 3 // no such name
	}
	for _, a := range addresses {
		raw := netip.MustParseAddr(a).AsSlice()
		if len(raw) == 4 != (kind == 1) {
			continue
		}
		out[7]++
		out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		out = append(out, raw...)
	}
	return out
}

// state fetches the account of the host, and returns what is known then.
func (h *webHost) state() State {
	h.Key(1, webDID)
	<-h.finished
	_, state := h.Key(1, webDID)
	return state
}

func webDocument(t *testing.T, did string) []byte {
	document, err := json.Marshal(map[string]any{"id": did, "verificationMethod": []any{map[string]any{
		"id": did + "#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": keyOf(t, did).Multibase()}}})
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestWeb: accounts of did:web, and hosts that misbehave.
func TestWeb(t *testing.T) {
	document := func(did string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(webDocument(t, did)) }
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/there" {
				document(webDID)(w, req)
				return
			}
			http.Redirect(w, req, to, http.StatusFound)
		}
	}
	for _, test := range []struct {
		name  string
		serve http.HandlerFunc
		want  State
	}{
		{"document", document(webDID), Current},
		{"of another DID", document("did:web:example.org"), Unknown},
		{"redirect", redirect("/there"), Current},
		{"redirect to plain http", redirect("http://example.com/there"), Unknown},
		{"redirects without end", redirect("/again"), Unknown},
		{"none", http.NotFound, Absent},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for _, err := io.WriteString(w, " "); err == nil; _, err = io.WriteString(w, strings.Repeat(" ", 1<<16)) {
			}
		}, Unknown},
		{"error without end", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			for _, err := io.WriteString(w, " "); err == nil; _, err = io.WriteString(w, strings.Repeat(" ", 1<<16)) {
			}
		}, Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newWebHost(t, true, []string{"127.0.0.1"}, test.serve)
			if got := h.state(); got != test.want {
				t.Errorf("got %v, not %v", got, test.want)
			}
			if n := h.conns.Load(); test.name == "redirect to plain http" && n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
	t.Run("no such name", func(t *testing.T) {
		if got := newWebHost(t, true, nil, http.NotFound).state(); got != Absent {
			t.Errorf("got %v", got)
		}
	})
}

// TestWebPrivate: names that lead to addresses that are not public are not connected to.
func TestWebPrivate(t *testing.T) {
	for _, addresses := range [][]string{{"127.0.0.1"}, {"::1"}, {"10.0.0.1", "127.0.0.1"}, {"::ffff:127.0.0.1"}} {
		h := newWebHost(t, false, addresses, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(webDocument(t, webDID)) })
		if got := h.state(); got != Absent {
			t.Errorf("%v: got %v", addresses, got)
		}
		if n := h.conns.Load(); n != 0 {
			t.Errorf("%v: %d connections", addresses, n)
		}
	}
}

// bodyOf answers every request with a body.
type bodyOf struct{ io.Reader }

func (b bodyOf) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(b)}, nil
}

// TestLimitedBody: no more is read than a document may have, and one more.
func TestLimitedBody(t *testing.T) {
	for _, extra := range []int{-1, 0, 1, 1000} {
		source := strings.NewReader(strings.Repeat("x", maxDocumentBytes+extra))
		transport := &http.Transport{}
		transport.RegisterProtocol("test", bodyOf{source})
		resp, err := (&limiter{transport}).RoundTrip(httptest.NewRequest(http.MethodGet, "test://host/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil && err != errTooLong || (err != nil) != (extra > 0) {
			t.Errorf("%d more: %v", extra, err)
		}
		if left := source.Len(); left != max(0, extra-1) {
			t.Errorf("%d more: %d left", extra, left)
		}
	}
}

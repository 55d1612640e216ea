package public

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/pipenet"
	"millrace/consume/relaysim/testwait"
	"millrace/dict"
)

const testTimeout = 20 * time.Second

// patience is how long to wait for what must come: longer than testTimeout on a clock that goes on
// while the machine stands still. That of a bubble, which does not, begins with the year 2000.
func patience() time.Duration {
	if time.Now().Year() < 2020 {
		return testTimeout
	}
	return 3 * testTimeout
}

// testServer is a Server on loopback.
type testServer struct {
	*Server
	t        testing.TB
	addr     string
	dialer   dialer
	pipes    *pipenet.Listener // in a bubble
	registry *prometheus.Registry
}

// serve starts a server on l. change may alter its configuration and timing.
func serve(t testing.TB, l *testLog, change func(*Config, *timing)) *testServer {
	t.Helper()
	return serveSource(t, eventLogOf(l.Log), l.dictionaries, change)
}

func serveSource(t testing.TB, src eventLog, dictionaries *dict.Registry, change func(*Config, *timing)) *testServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, src, dictionaries, change)
}

func serveOn(t testing.TB, ln net.Listener, src eventLog, dictionaries *dict.Registry, change func(*Config, *timing)) *testServer {
	t.Helper()
	registry := prometheus.NewRegistry()
	cfg := Config{Dictionaries: dictionaries, Version: "test", Registerer: registry}
	timing := defaultTiming()
	timing.linger = time.Second
	if change != nil {
		change(&cfg, &timing)
	}
	s, err := newServer(cfg, src, timing)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error("shutdown:", err)
		}
		if err := <-done; err != nil {
			t.Error("serve:", err)
		}
		if used := s.admission.Stats().Bytes; used != 0 {
			t.Errorf("%d bytes of the clients' budget were never given back", used)
		}
		if n := len(s.filters.of); n != 0 {
			t.Errorf("%d shared filters were never released", n)
		}
	})
	return &testServer{Server: s, t: t, addr: ln.Addr().String(), registry: registry, dialer: dialer{NetDialContext: (&net.Dialer{}).DialContext}}
}

// metric returns the value of a counter or gauge, with its label's value if it has one.
func (s *testServer) metric(name, label string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "millrace_public_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// waitMetric waits until a metric has reached a value.
func (s *testServer) waitMetric(name, label string, want float64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%s{%s} >= %v", name, label, want), func() bool { return s.metric(name, label) >= want })
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.Eventually(t, patience(), what, ok)
}

// waitUpdates waits until so many options updates came and are in force.
func (s *testServer) waitUpdates(n int) {
	s.t.Helper()
	s.waitMetric("options_updates_total", "", float64(n))
	eventually(s.t, "the filters are in force", s.noFilterWaits)
}

// waitIdle waits until n subscribers wait at the end of the log for more.
func (s *testServer) waitIdle(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d subscribers are at the end", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		waiting := 0
		for sub := range s.subscribers {
			sub.sleepMu.Lock()
			if sub.asleep {
				waiting++
			}
			sub.sleepMu.Unlock()
		}
		return waiting == n
	})
}

// waitThrough waits until all subscribers are at the end of the log, and have looked at what is
// stamped us.
func (s *testServer) waitThrough(us int64) {
	s.t.Helper()
	eventually(s.t, "all subscribers have looked at everything", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for sub := range s.subscribers {
			sub.sleepMu.Lock()
			behind := !sub.asleep || sub.through.TimeUS < us
			sub.sleepMu.Unlock()
			if behind {
				return false
			}
		}
		return true
	})
}

func (s *testServer) url(query string) string { return "ws://" + s.addr + "/subscribe?" + query }

func (s *testServer) v2URL(query string) string {
	return "ws://" + s.addr + v2Prefix + "subscribeEvents?" + query
}

// client is a gorilla client.
type client struct {
	*websocket.Conn
	t testing.TB
}

func (s *testServer) dial(query string) *client {
	s.t.Helper()
	c, _ := s.dialWith(&s.dialer, query, nil)
	return c
}

func (s *testServer) dialWith(d *websocket.Dialer, query string, header http.Header) (*client, *http.Response) {
	s.t.Helper()
	return s.dialURL(d, s.url(query), header)
}

// dialV2 is dial on Jetstream v2's wire.
func (s *testServer) dialV2(query string) *client {
	s.t.Helper()
	c, _ := s.dialURL(&s.dialer, s.v2URL(query), nil)
	return c
}

func (s *testServer) dialURL(d *websocket.Dialer, url string, header http.Header) (*client, *http.Response) {
	s.t.Helper()
	ws, resp, err := d.Dial(url, header)
	if err != nil {
		s.t.Fatalf("dial %.160s: %v %s", url, err, bodyOf(resp))
	}
	s.t.Cleanup(func() { ws.Close() })
	return &client{Conn: ws, t: s.t}, resp
}

func bodyOf(resp *http.Response) string {
	if resp == nil {
		return ""
	}
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// refused dials and returns the answer that must not be an upgrade.
func (s *testServer) refused(query string, header http.Header) (*http.Response, string) {
	s.t.Helper()
	return s.refusedAt(s.url(query), header)
}

func (s *testServer) refusedAt(url string, header http.Header) (*http.Response, string) {
	s.t.Helper()
	ws, resp, err := s.dialer.Dial(url, header)
	if err == nil {
		ws.Close()
		s.t.Fatalf("%.160s was accepted", url)
	}
	if resp == nil {
		s.t.Fatalf("%.160s: %v", url, err)
	}
	return resp, bodyOf(resp)
}

// want400 checks that a query is refused, with a reason that has words in it.
func (s *testServer) want400(query, words string) {
	s.t.Helper()
	resp, body := s.refused(query, nil)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, words) {
		s.t.Errorf("%.100s: %s %q, want 400 with %q", query, resp.Status, body, words)
	}
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
		s.t.Errorf("%.100s: Content-Type %q", query, got)
	}
}

func (c *client) next() (kind int, payload []byte) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience()))
	kind, payload, err := c.ReadMessage()
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return kind, payload
}

// want reads exactly these events.
func (c *client) want(events ...truth) {
	c.t.Helper()
	for i, e := range events {
		kind, got := c.next()
		if kind != websocket.TextMessage || string(got) != e.json {
			c.t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(events), got, e.json)
		}
	}
}

// wantV2 is want on Jetstream v2's wire.
func (c *client) wantV2(events ...truth) {
	c.t.Helper()
	for i, e := range events {
		kind, got := c.next()
		if want := e.v2(c.t); kind != websocket.TextMessage || string(got) != want {
			c.t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(events), got, want)
		}
	}
}

// say sends a text message.
func (c *client) say(format string, args ...any) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) update(payload string) {
	c.t.Helper()
	c.say(`{"type":"options_update","payload":%s}`, payload)
}

// wantClose reads on until the connection ends, and checks how. Code 1006 is an abrupt end.
func (c *client) wantClose(code int, words string) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience()))
	for {
		_, _, err := c.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			if closed.Code != code || !strings.Contains(closed.Text, words) {
				c.t.Fatalf("closed with %d %q, want %d %q", closed.Code, closed.Text, code, words)
			}
		case code != websocket.CloseAbnormalClosure || isTimeout(err):
			c.t.Fatalf("ended with %v, want %d", err, code)
		}
		return
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// info reads one message that must be an info message of that name, or a heartbeat, and returns its
// members.
func (c *client) info(name string) map[string]any {
	c.t.Helper()
	_, payload := c.next()
	return infoOf(c.t, payload, name)
}

func infoOf(t testing.TB, payload []byte, name string) map[string]any {
	t.Helper()
	var m map[string]any
	dec := json.NewDecoder(strings.NewReader(string(payload)))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("%v: %s", err, payload)
	}
	if m["kind"] == "info" {
		m = m["info"].(map[string]any)
		if m["name"] == name && m["message"] != "" {
			return m
		}
	} else if m["kind"] == name {
		return m
	}
	t.Fatalf("got %s, want %s", payload, name)
	return nil
}

// rawClient speaks websocket by hand.
type rawClient struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

// connect opens a connection and says nothing.
func (s *testServer) connect() net.Conn {
	s.t.Helper()
	nc, err := s.dialer.NetDialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	return nc
}

func (s *testServer) rawDial(query string) *rawClient { return s.rawDialFrom("", query) }

// rawDialFrom is rawDial by way of a proxy, which counts if the server trusts loopback.
func (s *testServer) rawDialFrom(client, query string) *rawClient {
	s.t.Helper()
	return s.rawDialURL(client, "/subscribe?"+query)
}

func (s *testServer) rawDialURL(client, url string) *rawClient {
	s.t.Helper()
	forwarded := ""
	if client != "" {
		forwarded = "X-Forwarded-For: " + client + "\r\n"
	}
	nc := s.connect()
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetReadBuffer(256 << 10)
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", url, s.addr, forwarded)
	c := &rawClient{Conn: nc, t: s.t, br: bufio.NewReaderSize(nc, 16)}
	status, err := c.br.ReadString('\n')
	if err != nil || !strings.Contains(status, "101") {
		s.t.Fatalf("handshake: %q, %v", status, err)
	}
	for line := ""; line != "\r\n"; {
		if line, err = c.br.ReadString('\n'); err != nil {
			s.t.Fatal(err)
		}
	}
	return c
}

// frame reads one frame, which must be well formed.
func (c *rawClient) frame() (first byte, payload []byte, err error) {
	c.SetReadDeadline(time.Now().Add(patience()))
	head := make([]byte, 2, 10)
	if _, err := io.ReadFull(c.br, head); err != nil {
		return 0, nil, err
	}
	extra := map[byte]int{126: 2, 127: 8}[head[1]]
	head = head[:2+extra]
	if _, err := io.ReadFull(c.br, head[2:]); err != nil {
		return 0, nil, fmt.Errorf("frame is cut: %w", io.ErrUnexpectedEOF)
	}
	switch head[0] {
	case frameText, frameBinary, frameClose, framePing, framePong:
	default:
		c.t.Fatalf("a frame begins with % x", head)
	}
	full := append(head, make([]byte, 16)...)
	n := frameLen(full) - len(head)
	if n > 1<<24 {
		c.t.Fatalf("a frame of %d bytes", n)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(c.br, payload); err != nil {
		return 0, nil, fmt.Errorf("frame is cut: %w", io.ErrUnexpectedEOF)
	}
	return head[0], payload, nil
}

// mask returns a client's frame.
func mask(first byte, payload []byte) []byte {
	b := appendFrame(nil, first, payload)
	at := len(b) - len(payload)
	b[1] |= 0x80
	out := append(append([]byte{}, b[:at]...), 1, 2, 3, 4)
	for i, x := range payload {
		out = append(out, x^byte(i%4+1))
	}
	return out
}

func escape(s string) string { return url.QueryEscape(s) }

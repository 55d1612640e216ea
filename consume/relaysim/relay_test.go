package relaysim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/cbor"
)

// patience is for what must come.
const patience = time.Minute

// testRelay is a relay that serves on a port of its own for one test.
type testRelay struct {
	*Relay
	t     testing.TB
	addr  string
	truth string
}

// startRelay starts relaysim with these flags, a small world and a virtual clock.
func startRelay(t testing.TB, flags ...string) *testRelay {
	t.Helper()
	truth := filepath.Join(t.TempDir(), "truth.jsonl")
	args := append([]string{"--generate", "600", "--accounts", "60", "--population", "500",
		"--clock", "virtual", "--truth", truth}, flags...)
	r := newRelay(t, args...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &testRelay{Relay: r, t: t, addr: listener.Addr().String(), truth: truth}
}

// newRelay makes a relay of flags.
func newRelay(t testing.TB, flags ...string) *Relay {
	t.Helper()
	cfg, err := ParseFlags(flags)
	if err != nil {
		t.Fatal(err)
	}
	cfg.TruthSync = true
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// received is a message as a consumer got it.
type received struct {
	text bool
	data []byte
}

// testConsumer is a websocket client.
type testConsumer struct {
	*websocket.Conn
	t testing.TB
}

// connect connects a consumer; query is like "cursor=5", or empty.
func (r *testRelay) connect(query string) *testConsumer {
	r.t.Helper()
	u := url.URL{Scheme: "ws", Host: r.addr, Path: subscribePath, RawQuery: query}
	ws, _, err := websocket.DefaultDialer.Dial(u.String(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ws.Close() })
	return &testConsumer{Conn: ws, t: r.t}
}

// next reads one message, or returns why it cannot.
func (c *testConsumer) next() (received, error) { return c.nextWithin(patience) }

func (c *testConsumer) nextWithin(d time.Duration) (received, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return received{}, err
	}
	kind, data, err := c.ReadMessage()
	return received{text: kind == websocket.TextMessage, data: data}, err
}

// read reads n messages.
func (c *testConsumer) read(n int) (messages []received) {
	c.t.Helper()
	for range n {
		m, err := c.next()
		if err != nil {
			c.t.Fatalf("after %d of %d messages: %v", len(messages), n, err)
		}
		messages = append(messages, m)
	}
	return messages
}

// drain reads until the connection ends, or, once it has read n messages, nothing has come for a
// while.
func (c *testConsumer) drain(n int) (messages []received) {
	c.t.Helper()
	for {
		wait := patience
		if len(messages) >= n {
			wait = 100 * time.Millisecond
		}
		m, err := c.nextWithin(wait)
		if err != nil {
			return messages
		}
		messages = append(messages, m)
	}
}

// untilItEnds is how many messages drain waits for on a connection that ends.
const untilItEnds = 1 << 30

// admin does something over the admin endpoint.
func (r *testRelay) admin(path string) (status int, body []byte) {
	r.t.Helper()
	res, err := http.Post("http://"+r.addr+"/admin/"+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, body
}

// post does what must succeed.
func (r *testRelay) post(path string) (out map[string]any) {
	r.t.Helper()
	status, body := r.admin(path)
	if err := json.Unmarshal(body, &out); err != nil || status != http.StatusOK {
		r.t.Fatalf("%s: %d: %s", path, status, body)
	}
	return out
}

// lines returns the truth written so far, but for what is being written.
func (r *testRelay) lines() []string {
	r.t.Helper()
	b, err := os.ReadFile(r.truth)
	if err != nil {
		r.t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	return lines[:len(lines)-1]
}

// seqOf returns the sequence number of a frame that a relay may send.
func seqOf(t testing.TB, frame []byte) int64 {
	t.Helper()
	_, body, err := splitFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	s := scanner{b: body}
	for n := s.count(cbor.MapOf); n > 0; n-- {
		if string(s.text()) == "seq" {
			_, seq := s.head()
			return int64(seq)
		}
		s.skip()
	}
	t.Fatal("frame without seq")
	return 0
}

// recompute makes truth lines of the messages, decoding each as it was received.
func recompute(t testing.TB, epoch uint32, messages []received) (lines []string) {
	t.Helper()
	for _, m := range messages {
		expected, err := expect(m.data)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range expected {
			lines = append(lines, strings.TrimSuffix(string(appendTruthLine(nil, epoch, seqOf(t, m.data), e)), "\n"))
		}
	}
	return lines
}

// isTimeout says that nothing came.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

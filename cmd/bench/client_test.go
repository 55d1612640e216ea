package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestClient reads messages of all sizes, pings and a close frame from gorilla's server.
func TestClient(t *testing.T) {
	sizes := []int{0, 1, 125, 126, 65_535, 65_536, 1 << 20, 3}
	ponged := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		for i, n := range sizes {
			if i == 3 {
				if err := ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
			}
			if err := ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte{byte(i)}, n)); err != nil {
				t.Error(err)
			}
		}
		ws.SetPongHandler(func(data string) error { ponged <- data; return errors.New("enough") })
		_, _, _ = ws.ReadMessage()
		_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "trimmed"))
	}))
	defer server.Close()
	c, err := dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+"/x?y=z", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for i, n := range sizes {
		got, err := c.next()
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, n)) {
			t.Fatalf("message %d: %d bytes, want %d, %v", i, len(got), n, err)
		}
	}
	if got := <-ponged; got != "are you there" {
		t.Errorf("pong %q", got)
	}
	if _, err := c.next(); !errors.Is(err, errClosed) || !strings.HasSuffix(err.Error(), `: 4001 "trimmed"`) {
		t.Errorf("the end is %v", err)
	}
	if _, err := dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}); err == nil {
		t.Error("it comes from an address that is not here")
	}
}

// pieces is a connection that delivers bytes in pieces that end anywhere.
type pieces struct {
	net.Conn
	rng  *rand.Rand
	rest []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, p.rest[:min(len(p.rest), 1+p.rng.IntN(1<<p.rng.IntN(18)))])
	p.rest = p.rest[n:]
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error) { return len(b), nil }

// TestClientCuts cuts a stream of frames anywhere: the client finds the same data frames, in order.
func TestClientCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var wire, data []byte
	for _, n := range []int{0, 1, 125, 126, 300, 65_535, 65_536, 90_000, 7} {
		frame := []byte{0x81, byte(n)}
		switch {
		case n >= 1<<16:
			frame = []byte{0x82, 127, 0, 0, 0, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}
		case n >= 126:
			frame = []byte{0x82, 126, byte(n >> 8), byte(n)}
		}
		frame = append(frame, bytes.Repeat([]byte{0x81}, n)...)
		data = append(data, frame...)
		wire = append(append(wire, frame...), pingFrame, 2, 'h', 'i')
	}
	for range 200 {
		c := &client{conn: &pieces{rng: rng, rest: wire}, buf: make([]byte, 16)}
		var got []byte
		var err error
		for err == nil {
			var frames []byte
			frames, _, err = c.more()
			got = append(got, frames...)
		}
		if !bytes.Equal(got, data) || c.events != 9 || c.bytes != int64(len(wire)) || c.from != c.to || !errors.Is(err, net.ErrClosed) {
			t.Fatalf("%d frames, %d bytes of %d, %d bytes left, %v", c.events, c.bytes, len(wire), c.to-c.from, err)
		}
	}
	c := &client{conn: &pieces{rng: rng, rest: []byte{0x82, 127, 255, 0, 0, 0, 0, 0, 0, 0}}, buf: make([]byte, 16)}
	if _, _, err := c.more(); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a huge frame: %v", err)
	}
}

// TestBareSocket: what comes is counted, and it ends with its context.
func TestBareSocket(t *testing.T) {
	frames := bytes.Repeat(append([]byte{0x81, 126, 1, 0}, make([]byte, 256)...), 1000)
	const times = 12
	got, err := bareSocket(t.Context(), frames, times*int64(len(frames))+17)
	if err != nil || got.took <= 0 || got.events != times*1000 || got.bytes != times*int64(len(frames)) {
		t.Errorf("%+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bareSocket(ctx, frames, 1<<40); err == nil {
		t.Error("it does not hear that its context is done")
	}
}

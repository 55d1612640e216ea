package public

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/public/internal/admission"
)

func TestPingFloodDuringSlowReplay(t *testing.T) {
	l := newTestLog(t)
	for range 40 {
		l.add(posts(250)...)
	}
	all := l.all()
	s := serve(t, l, nil)
	c := s.rawDial("cursor=0")
	stop := make(chan struct{})
	flooded := make(chan struct{})
	var sent atomic.Int64
	go func() {
		defer close(flooded)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.Write(mask(framePing, fmt.Appendf(nil, "ping %d", sent.Load()))); err != nil {
				return
			}
			sent.Add(1)
		}
	}()
	lastPong := -1
	for i := 0; i < len(all) || lastPong < 0; {
		first, payload, err := c.frame()
		if err != nil {
			t.Fatalf("after %d events: %v", i, err)
		}
		switch first {
		case frameText:
			if i == len(all) || string(payload) != all[i].json {
				t.Fatalf("event %d of %d is %s", i, len(all), payload)
			}
			if i++; i == len(all)/2 {
				eventually(t, "a thousand pings", func() bool { return sent.Load() >= 1000 })
			}
		case framePong:
			n, err := strconv.Atoi(strings.TrimPrefix(string(payload), "ping "))
			if err != nil || n <= lastPong {
				t.Fatalf("pong %q after %d", payload, lastPong)
			}
			lastPong = n
		default:
			t.Fatalf("frame %x", first)
		}
	}
	close(stop)
	<-flooded
}

func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	l, _ := mixed(t)
	s := serve(t, l, nil)
	frames := map[string][]byte{
		"unmasked":                    appendFrame(nil, frameText, []byte("{}")),
		"reserved bits":               mask(0xf1, []byte("{}")),
		"opcode":                      mask(0x83, []byte("{}")),
		"fragmented ping":             mask(0x09, nil),
		"long ping":                   mask(framePing, bytes.Repeat([]byte("x"), 126)),
		"continuation out of nothing": mask(0x80, []byte("{}")),
		"message in a message":        append(mask(0x01, []byte("{")), mask(frameText, []byte("}"))...),
		"invalid close code":          mask(frameClose, []byte{0, 5}),
	}
	for name, f := range frames {
		for _, query := range []string{"", "extended=true", "requireHello=true"} {
			c := s.rawDial(query)
			if _, err := c.Write(f); err != nil {
				t.Fatal(err)
			}
			for {
				first, payload, err := c.frame()
				if err != nil {
					t.Errorf("%s %s: %v instead of a close frame", name, query, err)
					break
				}
				if first == frameClose {
					if len(payload) < 2 || int(payload[0])<<8|int(payload[1]) != websocket.CloseProtocolError {
						t.Errorf("%s: closed with %q", name, payload)
					}
					break
				}
			}
		}
	}
	s.waitMetric("ends_total", endProtocol, float64(3*len(frames)))
}

func TestEndlessFragments(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, nil)
		for _, fragment := range []string{"", "x"} {
			for _, first := range []byte{0x01, 0x02} { // text, binary
				c := s.rawDial("")
				go func() {
					c.Write(mask(first, nil))
					for {
						if _, err := c.Write(mask(0x00, []byte(fragment))); err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				}()
				first, payload, err := c.frame()
				if err != nil || first != frameClose || int(payload[0])<<8|int(payload[1]) != websocket.ClosePolicyViolation {
					t.Errorf("ended with %x %q %v", first, payload, err)
				}
			}
		}
		s.waitMetric("ends_total", endSlowMessage, 4)
	})
}

func TestInboundFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, func(_ *Config, tm *timing) { tm.flood = 300 * time.Millisecond })
		c := s.rawDial("")
		go func() {
			flood := bytes.Repeat(mask(framePong, bytes.Repeat([]byte("x"), 125)), 100)
			for {
				if _, err := c.Write(flood); err != nil {
					return
				}
			}
		}()
		first, payload, err := c.frame()
		if err != nil || first != frameClose || int(payload[0])<<8|int(payload[1]) != websocket.ClosePolicyViolation {
			t.Errorf("ended with %x %q %v", first, payload, err)
		}
		s.waitMetric("ends_total", endFlood, 1)
		s.waitMetric("held_back_total", heldInbound, 1)
	})
}

// TestFloodsApart: a client that sends too much now and then waits, and is not ended.
func TestFloodsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(nil, 10*time.Second)
		for range 3 {
			c.inbound.ReserveN(time.Now(), inboundBurstBytes)
			if err := c.throttle(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Second)
			if err := c.throttle(); err != nil { // it has all its credit again
				t.Fatal(err)
			}
		}
	})
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	l, _ := mixed(t)
	// ten megabytes take their time
	s := serve(t, l, func(_ *Config, tm *timing) { tm.message = time.Hour })
	c := s.dial("")
	garbage := []byte(noise(9_999_999))
	if err := c.WriteMessage(websocket.BinaryMessage, garbage); err != nil {
		t.Fatal(err)
	}
	c.want(l.add(identity(didN(1)))...)
	go c.WriteMessage(websocket.TextMessage, garbage)
	c.wantClose(1000, "failed to unmarshal")
	for range 20 { // bytes that are not even frames
		nc := s.rawDial("")
		nc.Write(garbage[:100_000])
		io.Copy(io.Discard, nc)
	}
	eventually(t, "all are gone", func() bool { return s.count.Load() == 0 })
}

func TestHalfOpenHandshakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, nil)
		var conns []net.Conn
		for i := range 60 {
			nc := s.connect()
			if i%2 == 0 {
				fmt.Fprintf(nc, "GET /subscribe HTTP/1.1\r\nHost: x\r\nX-Long: ")
			}
			conns = append(conns, nc)
		}
		s.dial("cursor=0").want(l.all()...)
		for _, nc := range conns {
			nc.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := io.Copy(io.Discard, nc); isTimeout(err) {
				t.Fatal("a half-open handshake is kept")
			}
		}
		eventually(t, "no handshakes left", func() bool { return s.admission.Stats().Handshakes == 0 })
	})
}

// TestLargeHeadersWait has many connections send a large request line each and not end it. Few are
// taken in, and a subscriber with many DIDs gets in when those are given up.
func TestLargeHeadersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) { cfg.ClientBytes = 1 << 20 })
		var sending sync.WaitGroup
		defer sending.Wait()
		for range 40 {
			nc := s.connect()
			// until it is given up
			sending.Go(func() { fmt.Fprint(nc, "GET /subscribe?x=", strings.Repeat("x", 900<<10)) })
		}
		most := 0
		for range 90 {
			testwait.Elapse(100 * time.Millisecond)
			most = max(most, s.admission.Stats().LargeHeaders)
		}
		if most == 0 || most > minHeaderSlots {
			t.Errorf("%d large headers are read at once, want up to %d", most, minHeaderSlots)
		}
		testwait.Elapse(time.Minute)
		if held := s.admission.Stats(); held.Handshakes != 0 || held.LargeHeaders != 0 {
			t.Errorf("%d handshakes and %d large headers are not given up", held.Handshakes, held.LargeHeaders)
		}
		var query strings.Builder
		for i := range 10_000 {
			query.WriteString("&wantedDids=" + didN(i))
		}
		c := s.dial(query.String()[1:])
		eventually(t, "the slot is given back", func() bool { return s.admission.Stats().LargeHeaders == 0 })
		c.want(l.add(identity(didN(9_999)))...)
	})
}

// TestFloodOfHalfOpenRequests has eight addresses take all handshakes with requests that never end,
// and come again whenever one is closed: newcomers get in.
func TestFloodOfHalfOpenRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		// none ends by itself
		s := serveBubble(t, l, func(_ *Config, tm *timing) { tm.header = time.Hour })
		ctx, stop := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		defer flood.Wait()
		defer stop()
		for i := range maxHandshakes {
			flood.Go(func() {
				for ctx.Err() == nil {
					nc, err := s.pipes.DialFrom(ctx, fmt.Sprintf("192.0.2.%d", i%8))
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					closed := context.AfterFunc(ctx, func() { nc.Close() })
					fmt.Fprint(nc, "GET /subscribe HTTP/1.1\r\nHost: x\r\nX-Long: ")
					io.Copy(io.Discard, nc) // until it is closed
					closed()
					nc.Close()
				}
			})
		}
		for i := range 20 {
			synctest.Wait()
			before := s.metric("rejected_total", admission.ReasonHandshakes)
			if n := s.admission.Stats().Handshakes; n != maxHandshakes {
				t.Fatalf("%d unfinished handshakes, want %d", n, maxHandshakes)
			}
			d := dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return s.pipes.DialFrom(ctx, fmt.Sprintf("203.0.113.%d", i))
			}}
			c, _ := s.dialWith(&d, "cursor=0", nil)
			c.want(l.all()...)
			if s.metric("rejected_total", admission.ReasonHandshakes) == before {
				t.Errorf("no handshake made room for newcomer %d", i)
			}
		}
	})
}

func TestServerPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, nil)
		c := s.dial("")
		done := make(chan error, 1)
		go func() {
			_, _, err := c.ReadMessage() // answers pings
			done <- err
		}()
		hello := s.dial("requireHello=true")
		go hello.ReadMessage()
		testwait.Elapse(20 * time.Minute)
		s.waitMetric("pings_total", "", 2*39)
		if s.count.Load() != 2 {
			t.Fatalf("%d subscribers left", s.count.Load())
		}
		l.add(identity(didN(1)))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSilentPeerIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, func(_ *Config, tm *timing) { tm.ping, tm.silent = time.Second, 5*time.Second })
		for _, query := range []string{"", "requireHello=true", "extended=true"} {
			c := s.rawDial(query)
			for {
				first, _, err := c.frame()
				if err != nil {
					break
				}
				if first == frameClose {
					t.Errorf("%q: a dead peer got a close frame", query)
				}
			}
		}
		s.waitMetric("ends_total", endSilent, 3)
	})
}

func TestVanishingClients(t *testing.T) {
	l := newTestLog(t)
	for range 10 {
		l.add(posts(100)...)
	}
	s := serve(t, l, nil)
	for i := range 60 {
		c := s.rawDial([]string{"cursor=0", "cursor=0&extended=true&wantedDids=" + didN(1), "requireHello=true"}[i%3])
		if i%2 == 0 && i%3 < 2 { // the third sort gets nothing before its hello
			if _, _, err := c.frame(); err != nil {
				t.Fatal(err)
			}
		}
		c.Conn.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	l.add(posts(10)...)
	eventually(t, "all are gone", func() bool { return s.count.Load() == 0 })
	if used := s.admission.Stats().Bytes; used != 0 {
		t.Errorf("%d bytes are still counted for clients", used)
	}
}
